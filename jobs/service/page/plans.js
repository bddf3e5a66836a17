// The view Plans: those that wait and those of the last day; one with its steps and with load
// before and after as a picture; approve, reject, undo.

import { actionButton, mayAct, whyNot } from "./actions.js";
import {
  ask, clock, day, duration, explainButton, make, percent, row, tableHead, whole,
} from "./core.js";
import { beforeAndAfter } from "./loads.js";
import { wayBackQuestion } from "./undo.js";

const STEPS_DRAWN = 200;
let parts = null;
let chosen = "";
let drawn = ""; // what was drawn last, so that it is not drawn again under the reader's hands
let version = null;

export function show(box, [plan = ""]) {
  chosen = plan;
  drawn = "";
  version = null;
  parts = { list: make("div"), one: make("section") };
  parts.one.setAttribute("aria-label", "Plan");
  const controls = make("div", undefined, "controls");
  parts.controls = controls;
  box.replaceChildren(make("h2", "Plans"), controls, parts.list, parts.one);
  parts.list.append(make("p", "asking …", "dim"));
  load();
}

export function refresh({ service }) {
  if (version === service.table_version && version !== null) return;
  version = service.table_version;
  load();
}

addEventListener("acted", ({ detail }) => {
  if (detail.kind === "propose_plan" && detail.result.plan) { // wherever it was asked for
    location.hash = `#/plans/${encodeURIComponent(detail.result.plan)}`;
  } else if (parts && !document.getElementById("view-plans").hidden) load();
});

async function load() {
  const wanted = parts;
  let list;
  let one = null;
  try {
    list = await ask("/v1/plans");
    if (chosen) one = await ask(`/v1/plans/${encodeURIComponent(chosen)}`);
  } catch {
    return; // the phase says it
  }
  const now = JSON.stringify([list.value, one?.value, mayAct()]);
  if (wanted !== parts || now === drawn) return;
  drawn = now;
  parts.controls.replaceChildren(...head());
  drawList(list);
  drawOne(one);
}

function head() {
  const told = whyNot();
  if (!mayAct()) return told ? [make("p", told, "dim")] : [];
  return [actionButton("Take back the last hour …", wayBackQuestion({ since_ms: 3600000 },
    "the last hour"))];
}

function drawList({ status, value }) {
  if (status !== 200) {
    parts.list.replaceChildren(make("p", value.reason, "silent"));
    return;
  }
  if (value.plans.length === 0) {
    parts.list.replaceChildren(make("p", "No plan waits, and there was none within a day. Plans appear here "
      + "when somebody proposes one, or each cycle after: ballast config set cluster.approval=ask", "dim"));
    return;
  }
  const table = make("table");
  const body = make("tbody");
  body.append(...value.plans.map((plan) => {
    const link = make("a", plan.plan);
    link.href = `#/plans/${encodeURIComponent(plan.plan)}`;
    if (plan.plan === chosen) link.setAttribute("aria-current", "true");
    const name = make("td", undefined, "state");
    name.append(link);
    return row(name, make("td", plan.station, "state", plan.station),
      make("td", `${day(plan.since_ms)} ${clock(plan.since_ms)}`, "late"),
      make("td", `${whole(plan.done)} of ${whole(plan.step_count)}`, "number"),
      make("td", `${percent(plan.before.max ?? null)} → ${percent(plan.after.max ?? null)}`,
        "number"), make("td", plan.why, "late"));
  }));
  table.append(tableHead([["plan"], ["is"], ["made", "late"], ["steps", "number"],
    ["hottest", "number"], ["why", "late"]]), body);
  parts.list.replaceChildren(table);
}

function drawOne(found) {
  if (!found) {
    parts.one.replaceChildren();
    return;
  }
  if (found.status !== 200) {
    parts.one.replaceChildren(make("p", found.value.reason, "silent"));
    return;
  }
  const plan = found.value;
  const brokers = Object.keys(plan.before).filter((name) => name !== "max" && name !== "mean");
  const buttons = make("div", undefined, "controls");
  buttons.append(...buttonsOf(plan));
  parts.one.replaceChildren(
    make("h3", `${plan.plan}: ${plan.why || "no reason was given"}`),
    make("p", progressWords(plan), "dim"), buttons,
    make("h4", "Load before and after"),
    ...beforeAndAfter(brokers.map((name) => [name, plan.before[name], plan.after[name]])),
    make("p", `mean of all ${percent(plan.before.mean ?? null)} → `
      + `${percent(plan.after.mean ?? null)}`, "dim"),
    make("h4", "Steps"), ...drawSteps(plan),
  );
}

function progressWords(plan) {
  const by = `proposed by ${plan.by || "a cycle"} at ${day(plan.since_ms)} ${clock(plan.since_ms)} UTC`;
  if (plan.station === "waits") {
    const leftMs = plan.until_ms - Date.now();
    return `waits, ${leftMs > 0 ? `lapses in ${duration(leftMs)}` : "its time is over"}; ${by}`;
  }
  const answered = plan.answered_by ? ` by ${plan.answered_by}` : "";
  const skipped = plan.skipped ? `, ${whole(plan.skipped)} skipped` : "";
  const done = `${whole(plan.done)} of ${whole(plan.step_count)} done${skipped}`;
  return `${plan.station}${answered}, ${done}; ${by}`;
}

function drawSteps(plan) {
  const list = make("ol", undefined, "steps");
  list.append(...plan.steps.slice(0, STEPS_DRAWN).map((step) => {
    const item = make("li");
    const to = step.destination ? ` → ${step.destination}` : "";
    item.append(`${step.kind} `, explainButton("bundle", step.bundle),
      ` ${step.source}${to} `, make("span", step.became || step.reason, "dim"));
    return item;
  }));
  const left = plan.step_count - Math.min(plan.steps.length, STEPS_DRAWN);
  return left ? [list, make("p", `and ${whole(left)} steps more`, "dim")] : [list];
}

function buttonsOf({ plan, station, step_count: count, before, after, done }) {
  if (!mayAct()) return [];
  const steps = `${whole(count)} ${count === 1 ? "step" : "steps"}`;
  const found = [];
  if (station === "waits") {
    found.push(actionButton("Approve …", { kind: "approve_plan", about: plan,
      title: `Approve ${plan}`, make: () => ({ plan }), says: [
        `Its ${steps} are carried out, a few at a time. The hottest broker goes from `
        + `${percent(before.max ?? null)} to ${percent(after.max ?? null)}.`,
        "Each step is held against the present before it is taken; moves can be undone, "
        + "splits can't."] }));
  }
  if (station === "waits" || station === "approved") {
    const isGoing = station === "approved";
    found.push(actionButton(isGoing ? "Stop …" : "Reject …", { kind: "reject_plan", about: plan,
      title: `${isGoing ? "Stop" : "Reject"} ${plan}`, says: [isGoing
        ? "What is done stays; nothing more of it is begun."
        : `None of its ${steps} is taken, and it is not proposed again for a while.`],
      fields: [{ name: "reason", label: "why" }], make: ({ reason }) => ({ plan, reason }) }));
  }
  if (done) found.push(actionButton("Undo …", wayBackQuestion({ plan }, `plan ${plan}`)));
  return found;
}
