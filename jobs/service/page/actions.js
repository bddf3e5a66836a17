// What is done from here: a question that says what will happen, and after a yes the command.
// Offered is what the caller's role on the cluster allows; the service judges every command anew.

import { ask, at, make, whole } from "./core.js";
import { forecastPath, ofForecast } from "./loads.js";
import { wayBackQuestion } from "./undo.js";

let overview = null;
let question = null; // what is being asked, with its fields
let returnTo = null;

export function know(found) { overview = found; }

export function mayAct() {
  return Boolean(overview?.service.can_command && overview.caller.role
    && overview.caller.role !== "viewer");
}

export function whyNot() {
  if (!overview) return "";
  if (!overview.service.can_command) return "This service can't ask the balancer: it only shows.";
  return mayAct() ? "" : `${overview.caller.name} may look here, not act: that takes an operator.`;
}

export function actionButton(text, asked) { // asked: a question, or what makes one
  const button = make("button", text, "action");
  button.type = "button";
  button.dataset.key = `action ${text} ${asked.about || ""}`;
  button.addEventListener("click", () => open(asked));
  return button;
}

// A question: { kind, title, says: [text], fields: [{ name, label, type, value, options }],
//   make: (values) => arguments, foresee: async () => ({ isPossible, nodes }), yes: text, about: text,
//   then: [text of a button, question]: what may be asked next, offered once it is done }

export function open(asked) {
  if (!at("question").open) returnTo = document.activeElement; // else it follows another
  const one = { id: identity(), ...asked };
  question = one;
  at("question-title").textContent = one.title;
  at("question-says").replaceChildren(...one.says.map((text) => make("p", text)));
  at("question-fields").replaceChildren(...(one.fields || []).map(drawField));
  at("question-outcome").textContent = "";
  at("question-yes").textContent = one.yes || one.title;
  at("question-yes").hidden = false;
  at("question-yes").disabled = Boolean(one.foresee); // first it is told what would come
  at("question-no").textContent = "Leave it";
  at("question-then").replaceChildren();
  if (!at("question").open) at("question").showModal();
  foresee(one);
}

async function foresee(one) {
  const box = at("question-foresight");
  box.replaceChildren();
  if (!one.foresee) return;
  box.append(make("p", "asking what it would bring …", "dim"));
  const { isPossible, nodes } = await one.foresee();
  if (question !== one) return;
  box.replaceChildren(...nodes);
  at("question-yes").hidden = !isPossible;
  at("question-yes").disabled = false;
}

function drawField({ name, label, type = "text", value, options }) {
  const box = make("label", `${label} `);
  const input = make(options ? "select" : "input");
  for (const [given, text] of options || []) {
    const option = make("option", text);
    option.value = given;
    input.append(option);
  }
  if (!options) input.type = type;
  input.name = name;
  if (value !== undefined) input.value = value; // a choice begins with its first
  box.append(input);
  return box;
}

async function yes(event) {
  event.preventDefault();
  const one = question;
  const values = Object.fromEntries(new FormData(at("question-form")));
  const given = one.make ? one.make(values) : {};
  at("question-yes").disabled = true;
  at("question-outcome").textContent = "asking the balancer …";
  const told = await command(one.kind, given, one.id);
  if (question !== one) return;
  at("question-outcome").textContent = told.text;
  at("question-outcome").className = told.isDone ? "active" : "silent";
  at("question-yes").disabled = false;
  at("question-yes").hidden = told.isDone;
  if (!told.isUnknown) one.id = identity(); // another try is another command
  if (told.isDone) {
    at("question-no").textContent = "Close";
    if (one.then) at("question-then").replaceChildren(actionButton(...one.then));
    at("question-no").focus();
    dispatchEvent(new CustomEvent("acted", { detail: { kind: one.kind, result: told.result } }));
  }
}

export async function command(kind, given, id) {
  let reply;
  try {
    reply = await ask(`/v1/commands/${kind}?command_id=${id}`, { method: "POST", body: given });
  } catch {
    return { isUnknown: true,
      text: "The service can't be reached: whether it was done is not known. Asked again, it is "
        + "done once at most." };
  }
  const { status, value } = reply;
  const result = value.result || {};
  if (status === 200) return { isDone: true, result, text: doneWords(result) };
  if (status === 202) return { isDone: true, result, text: "Accepted; it is under way." };
  const reason = value.reason || `the service answered ${status}`;
  return { isUnknown: status === 503, text: `Not done: ${reason}` };
}

function doneWords(result) {
  const told = Object.entries(result).filter(([, one]) => typeof one !== "object")
    .map(([name, one]) => `${name.replaceAll("_", " ")} ${one}`);
  return told.length ? `Done: ${told.join(", ")}.` : "Done.";
}

function identity() { // randomUUID is there only over https and on this machine
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export function close() {
  if (at("question").open) at("question").close();
}

export function listen() {
  at("question-form").addEventListener("submit", yes);
  at("question-no").addEventListener("click", close);
  at("question").addEventListener("close", () => {
    question = null;
    if (!returnTo) return;
    const again = returnTo.isConnected ? returnTo
      : document.querySelector(`[data-key="${CSS.escape(returnTo.dataset?.key || "-")}"]`);
    (again || at("main")).focus();
  });
}

// -- the questions about a broker, a bundle and the cluster

export function buttonsFor(kind, name) {
  if (!mayAct()) return [];
  if (kind === "broker") return ofBroker(name);
  return kind === "bundle" ? ofBundle(name) : kind === "cluster" ? ofCluster() : [];
}

function ofCluster() {
  const paused = overview.status.pauses[""];
  const brake = overview.status.brake ? [actionButton("Release the brake …", { kind: "release_brake",
    title: "Release the brake", says: ["Balancing goes on without the brokers that vanished, from the "
      + "next cycle on. Do so when the others can carry the load."] })] : [];
  if (paused) {
    return [...brake, actionButton("Resume …", { kind: "resume", title: "Resume balancing", says: [
      "From the next cycle on, load is moved and bundles are split again."] })];
  }
  return [...brake, actionButton("Pause …", { kind: "pause", title: "Pause balancing", says: [
    "No cycle moves or splits anything until somebody resumes it.",
    "Failover goes on, and so do drains and what is in flight."],
  fields: [{ name: "reason", label: "why" }], make: ({ reason }) => ({ reason }) })];
}

function ofBroker(broker) {
  const row = overview.status.broker_rows.find((one) => one.broker === broker);
  if (!row) return [];
  const drain = overview.status.drains.find((one) => one.broker === broker);
  if (drain) {
    return [actionButton("Cancel drain …", { kind: "cancel_drain", about: broker,
      title: `Cancel the drain of ${broker}`, make: () => ({ broker }), says: [
        "It may take bundles again.",
        `What has left it (${whole(drain.total - drain.left)} bundles) stays where it is now, `
          + "until somebody has it moved back."],
      then: fillAgain(broker) })];
  }
  if (row.state === "silent") {
    return [actionButton("Forget …", { kind: "forget_broker", about: broker, title: `Forget ${broker}`,
      says: ["It leaves the tables and the alarms. If it ever reports again, it is a new broker."],
      make: () => ({ broker }) })];
  }
  const isEmpty = row.bundles === 0 && row.state === "active";
  return [...(isEmpty ? [actionButton(...fillAgain(broker))] : []),
    actionButton("Drain …", { kind: "drain_broker", about: broker, title: `Drain ${broker}`,
    says: [`Its ${whole(row.bundles)} bundles move to other brokers, a few at a time, and it gets `
      + "none until the drain is cancelled."],
    foresee: async () => ({ isPossible: true, // where it can't be foreseen it is told why
      nodes: await foresight({ remove: [broker] }) }), make: () => ({ broker }) })];
}

function fillAgain(broker) {
  return ["Fill it again …", wayBackQuestion({ drain: broker }, `the drain of ${broker}`)];
}

const openBrokers = () => overview.status.broker_rows
  .filter((one) => one.state === "active").map((one) => one.broker).sort();

function ofBundle(bundle) {
  const brokers = openBrokers();
  const pin = overview.status.pins.find((one) => one.bundle === bundle);
  return [
    actionButton("Move …", { kind: "unload_bundle", about: bundle, title: `Move ${bundle}`,
      says: ["Its owner closes it and another opens it: for a moment nobody serves it, and its "
        + "clients look it up anew."],
      fields: [{ name: "destination", label: "to", options: [["", "whom placement chooses"],
        ...brokers.map((one) => [one, one])] }],
      make: ({ destination }) => ({ bundle, destination }) }),
    pin ? actionButton("Unpin …", { kind: "unpin_bundle", about: bundle, title: `Unpin ${bundle}`,
      says: [`It is kept on ${pin.broker}; then balancing may move it again.`],
      make: () => ({ bundle }) })
      : actionButton("Pin …", { kind: "pin_bundle", about: bundle, title: `Pin ${bundle}`,
        says: ["It moves to that broker, unless it is there, and no cycle takes it away."],
        fields: [{ name: "broker", label: "on", options: brokers.map((one) => [one, one]) },
          { name: "hours", label: "for so many hours (0: until it is unpinned)", type: "number",
            value: "0" },
          { name: "reason", label: "why" }],
        make: ({ broker, hours, reason }) => ({ bundle, broker, reason,
          ttl_ms: Math.round(Number(hours) * 3600000) }) }),
    actionButton("Split …", { kind: "split_bundle", about: bundle, title: `Split ${bundle}`,
      says: ["Its range is cut, and its topics are served by the parts from then on. "
        + "A split can't be undone."],
      fields: [{ name: "parts", label: "into so many parts", type: "number", value: "2" }],
      make: ({ parts }) => ({ bundle, parts: Number(parts) }) }),
  ];
}

export async function foresight(asked) {
  try {
    const { status, value } = await ask(forecastPath(asked));
    if (status !== 200) return [make("p", value.reason || `the service answered ${status}`, "silent")];
    const count = value.decisions.length;
    const hot = value.hot.map((text) => make("p", `gets hot: ${text}`, "silent"));
    return [make("p", `The next ${value.cycles} cycles would decide ${whole(count)} `
      + `${count === 1 ? "thing" : "things"}; load as it is now.`),
    ...hot, ...ofForecast(value)];
  } catch {
    return [make("p", "the service can't be reached", "silent")];
  }
}
