// The status page: asks /v1/overview every two seconds, and draws what it says.
// Texts from the service become text nodes only, never markup.
"use strict";

const EVERY_MS = 2000;
const BROKERS_SHOWN = 100;
const LOAD_IS_OLD_MS = 150000; // a row a minute is written
const SVG = "http://www.w3.org/2000/svg";
const SECTIONS = [
  ["unknown", "What is not known"],
  ["why", "Why"], ["considered", "Considered of late"], ["blocks", "What holds it"],
  ["changes", "What would have to change"],
];
const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const opened = new Set();
let returnTo = null;

function make(tag, text, ...classes) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  element.classList.add(...classes.filter(Boolean));
  return element;
}

function duration(ms) { // as lbcore.model.times words it
  if (ms < 0) return "never";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const units = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
  const first = units.findIndex(([size]) => ms >= size);
  const words = [];
  for (const [size, name] of units.slice(first, first + 2)) {
    const count = Math.floor(ms / size);
    if (count) words.push(`${count} ${name}`);
    ms -= count * size;
  }
  return words.join(" ");
}

const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
const day = (ms) => new Date(ms).toISOString().slice(0, 10);
const percent = (share) => share === null ? "–" : `${(100 * share).toFixed(0)} %`;
const way = (row) => [row.source, row.destination].filter(Boolean).join(" → ");

// -- asking

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const reply = await fetch(path, { headers, cache: "no-store", credentials: "omit" });
  const text = await reply.text();
  let value = null;
  try { value = JSON.parse(text); } catch { value = { reason: text.slice(0, 200) }; }
  if (reply.status === 401) at("sign-in").hidden = false;
  return { status: reply.status, headers: reply.headers, value };
}

async function refresh() {
  if (document.hidden) return;
  try {
    const reply = await ask("/v1/overview");
    if (reply.status === 200) {
      at("sign-in").hidden = true;
      draw(reply.value);
    } else {
      phase("unknown", reply.value.reason || `the service answered ${reply.status}`);
    }
  } catch {
    phase("unknown", "the service can't be reached; what is below is old");
  }
}

// -- drawing

function phase(name, why) {
  const badge = document.querySelector("#phase .badge");
  badge.className = `badge ${name}`;
  badge.textContent = name;
  document.querySelector("#phase .why").textContent = why;
}

function draw({ status, balance, decisions, service }) {
  at("cluster").textContent = status.cluster;
  document.title = `${status.phase} – ${status.cluster} – Ballast`;
  phase(status.phase, status.why);
  drawAlarms(status.alarms);
  drawBrokers(status.broker_rows);
  drawBalance(balance, status);
  drawGaps(status.gap_words);
  drawMoves(status);
  drawDecisions(decisions, status.now_ms);
  at("ages").textContent = `as of ${day(status.now_ms)} ${clock(status.now_ms)} UTC · `
    + `job ${status.job_words} · `
    + `table version ${service.table_version}, ${duration(service.age_ms)} old`;
}

function replace(parent, children) {
  const focused = document.activeElement && document.activeElement.dataset.key;
  parent.replaceChildren(...children);
  const again = focused && parent.querySelector(`[data-key="${CSS.escape(focused)}"]`);
  if (again) again.focus({ preventScroll: true });
}

function drawAlarms(alarms) {
  const list = at("alarms");
  const known = [...list.children].map((item) => item.textContent);
  if (known.join("\n") === alarms.join("\n")) return; // told again, it would be read out again
  list.hidden = alarms.length === 0;
  list.replaceChildren(...alarms.map((text) => make("li", text)));
}

function row(...cells) {
  const line = make("tr");
  for (const cell of cells) {
    const td = cell instanceof Node && cell.tagName === "TD" ? cell : make("td");
    if (td !== cell) td.append(cell);
    line.append(td);
  }
  return line;
}

function explainButton(kind, name) {
  const button = make("button", name, "name");
  button.type = "button";
  button.dataset.key = `${kind} ${name}`;
  button.title = `explain ${kind} ${name}`;
  button.addEventListener("click", () => explain(kind, name));
  return button;
}

function loadBar(usage, top) {
  const box = make("div", undefined, "load");
  const track = make("div", undefined, "track");
  const fill = make("div", undefined, "fill");
  fill.style.width = `${usage === null ? 0 : Math.min(100, 100 * usage / top)}%`;
  track.append(fill);
  track.setAttribute("aria-hidden", "true");
  box.append(track, make("span", percent(usage)));
  return box;
}

function drawBrokers(brokers) {
  const order = [...brokers].sort((a, b) => (b.usage ?? -1) - (a.usage ?? -1));
  const top = Math.max(1, ...brokers.map((broker) => broker.usage ?? 0));
  replace(at("brokers"), order.slice(0, BROKERS_SHOWN).map((broker) => row(
    explainButton("broker", broker.broker),
    make("td", broker.state, "state", broker.state),
    loadBar(broker.usage, top),
    make("td", percent(broker.score), "number"),
    make("td", broker.msg_rate === null ? "–" : number.format(broker.msg_rate), "number"),
    make("td", number.format(broker.bundles), "number"),
    make("td", broker.load_age_ms < 0 ? "not known" : `${duration(broker.load_age_ms)} ago`,
      "number"),
  )));
  const more = at("more-brokers");
  more.hidden = order.length <= BROKERS_SHOWN;
  more.textContent = `and ${order.length - BROKERS_SHOWN} with less load`;
}

function shape(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function drawBalance(balance, { now_ms: nowMs, imbalance, gaps }) {
  const known = balance.filter((moment) => moment.imbalance !== null);
  const last = known[known.length - 1];
  const most = Math.max(...known.map((moment) => moment.imbalance));
  at("imbalance").textContent = last && imbalance !== null
    ? `now ${imbalance.toFixed(2)}, most ${most.toFixed(2)}` : "no load is known";
  const [left, right, top, bottom] = [34, 712, 8, 128];
  const high = Math.max(1.5, last ? most : 0);
  const x = (ms) => right - (right - left) * (nowMs - ms) / 3600000;
  const y = (value) => bottom - (bottom - top) * (value - 1) / (high - 1);
  const parts = gaps.map((gap) => {
    const from = Math.max(left, x(gap.from_ms));
    const width = Math.max(1, x(gap.until_ms || nowMs) - from);
    return shape("rect", { class: "gap", x: from, y: top, width, height: bottom - top });
  });
  for (const value of [1, (1 + high) / 2, high]) {
    parts.push(shape("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }));
    parts.push(shape("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" },
      value.toFixed(1)));
  }
  for (const minutes of [60, 45, 30, 15, 0]) {
    const anchor = minutes === 60 ? "start" : minutes === 0 ? "end" : "middle";
    parts.push(shape("text", { x: x(nowMs - minutes * 60000), y: bottom + 17,
      "text-anchor": anchor }, minutes ? `−${minutes} min` : "now"));
  }
  if (last) {
    const points = known.map((moment) => `${x(moment.at_ms).toFixed(1)},`
      + `${y(moment.imbalance).toFixed(1)}`);
    if (nowMs - last.at_ms < LOAD_IS_OLD_MS) points.push(`${right},${y(last.imbalance).toFixed(1)}`);
    parts.push(shape("polyline", { class: "line", points: points.join(" ") }));
  }
  at("balance").replaceChildren(...parts);
}

function drawGaps(gaps) {
  const list = at("gaps");
  list.hidden = gaps.length === 0;
  list.replaceChildren(...gaps.map((text) => make("li", text)));
}

function drawMoves(status) {
  const count = status.in_flight_count;
  const shown = status.in_flight.length;
  at("in-flight").textContent = count > shown ? `${count}, the ${shown} oldest` : `${count}`;
  replace(at("moves"), status.in_flight.map((move) => row(
    explainButton("bundle", move.bundle),
    move.state, way(move), move.cause,
    make("td", duration(status.now_ms - move.at_ms), "number"),
  )));
}

function drawDecisions(decisions, nowMs) {
  const box = at("decisions");
  if (decisions.length === 0) {
    box.replaceChildren(make("p", "none in the last hour", "dim"));
    return;
  }
  replace(box, decisions.map((decision) => {
    const key = `${decision.decision_id} ${decision.at_ms}`;
    const details = make("details");
    details.open = opened.has(key);
    details.addEventListener("toggle", () => {
      if (details.open) opened.add(key); else opened.delete(key);
    });
    const summary = make("summary");
    summary.dataset.key = `decision ${key}`;
    const what = [decision.kind, decision.bundle, way(decision)].filter(Boolean).join(" ");
    summary.append(make("span", `${clock(decision.at_ms)}`, "dim"), what,
      make("span", ` (${decision.reason}) ${decision.outcome.replace("_", " ")}`, "dim"));
    summary.title = `${duration(nowMs - decision.at_ms)} ago`;
    const words = make("ul");
    words.append(...decision.words.map((text) => make("li", text)));
    details.append(summary, words);
    if (decision.decision_id) {
      const more = explainButton("decision", decision.decision_id);
      more.textContent = "more";
      details.append(more);
    }
    return details;
  }));
}

// -- explaining

async function explain(kind, name) {
  returnTo = document.activeElement && document.activeElement.dataset.key;
  const path = kind === "bundle" ? name.split("/").map(encodeURIComponent).join("/")
    : encodeURIComponent(name);
  const box = at("explanation");
  try {
    const { status, value } = await ask(`/v1/explain/${kind}/${path}`);
    drawExplanation(box, status === 200 ? value : { headline: value.reason });
  } catch {
    drawExplanation(box, { headline: "the service can't be reached" });
  }
  box.hidden = false;
  box.focus();
}

function drawExplanation(box, found) {
  const close = make("button", "Close");
  close.type = "button";
  close.addEventListener("click", closeExplanation);
  const parts = [close, make("h2", found.headline)];
  for (const [name, title] of SECTIONS) {
    if (!found[name] || found[name].length === 0) continue;
    const list = make("ul");
    list.append(...found[name].map((text) => make("li", text)));
    parts.push(make("h3", title), list);
  }
  box.replaceChildren(...parts);
}

function closeExplanation() {
  const box = at("explanation");
  if (box.hidden) return;
  box.hidden = true;
  const again = returnTo && document.querySelector(`[data-key="${CSS.escape(returnTo)}"]`);
  (again || at("topic")).focus();
}

// -- search

async function lookUp(event) {
  event.preventDefault();
  const output = at("owner");
  const found = /^(?:(persistent|non-persistent):\/\/)?([^/]+)\/([^/]+)\/(.+)$/
    .exec(at("topic").value.trim());
  if (!found) {
    output.textContent = "write it as tenant/namespace/topic";
    return;
  }
  const [, domain = "persistent", ...names] = found;
  output.textContent = "asking …";
  try {
    const path = [domain, ...names].map(encodeURIComponent).join("/");
    const { status, headers, value } = await ask(`/lookup/v2/topic/${path}`);
    drawOwner(output, status, headers, value);
  } catch {
    output.textContent = "the service can't be reached";
  }
}

function drawOwner(output, status, headers, value) {
  if (status !== 200) {
    output.textContent = value && value.reason ? value.reason : `the service answered ${status}`;
    return;
  }
  output.replaceChildren(
    explainButton("broker", headers.get("x-ballast-broker")), " serves it: ",
    explainButton("bundle", headers.get("x-ballast-bundle")),
    ` (version ${headers.get("x-ballast-version-id")}, ${value.brokerUrl || value.httpUrl})`,
  );
}

// -- keys, start

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") closeExplanation();
  if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
    event.preventDefault();
    at("topic").focus();
  }
}

function signIn(event) {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  refresh();
}

document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", refresh);
at("search").addEventListener("submit", lookUp);
at("sign-in").addEventListener("submit", signIn);
refresh();
setInterval(refresh, EVERY_MS);
