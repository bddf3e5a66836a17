// The console's shell: which view is shown, the phase, search, sign-in, keys; asks /v1/overview
// again and again, and hands it to the view that is shown.

import * as actions from "./actions.js";
import * as find from "./find.js";
import * as heat from "./heat.js";
import * as now from "./now.js";
import * as plans from "./plans.js";
import * as timeline from "./timeline.js";
import * as whatif from "./whatif.js";
import * as why from "./why.js";
import { ask, at, clock, day, duration, explainButton, lookupPath, make } from "./core.js";

const EVERY_MS = 1500;
const VIEWS = { now, heat, why, plans, timeline, find, whatif };
let shown = "";
let overview = null;
let asked = 0; // overviews so far
let returnTo = null;

// -- which view

function route() {
  if (location.hash && !location.hash.startsWith("#/")) return; // the skip link
  const [path, query = ""] = location.hash.slice(2).split("?");
  const [wanted, ...rest] = path.split("/");
  const name = wanted in VIEWS ? wanted : "now";
  const isAnother = shown !== "" && shown !== name;
  shown = name;
  for (const other of Object.keys(VIEWS)) at(`view-${other}`).hidden = other !== name;
  for (const link of document.querySelectorAll("#views a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  hideExplanation();
  VIEWS[name].show(at(`view-${name}`), rest.map(decodeURIComponent), new URLSearchParams(query));
  if (overview) VIEWS[name].refresh(overview);
  title();
  if (isAnother) at("main").focus({ preventScroll: true });
}

function title() {
  const view = document.querySelector("#views [aria-current]").textContent;
  const about = overview ? `${overview.status.phase} – ${overview.status.cluster} – ` : "";
  document.title = `${view} – ${about}Ballast`;
}

// -- the overview

async function refresh() {
  if (document.hidden) return;
  const mine = ++asked;
  try {
    const reply = await ask("/v1/overview");
    if (mine !== asked) return; // a newer answer is drawn, or will be
    if (reply.status === 200) {
      at("sign-in").hidden = true;
      draw(reply.value);
    } else {
      phase("unknown", reply.value.reason || `the service answered ${reply.status}`);
    }
  } catch {
    if (mine !== asked) return;
    phase("unknown", "the service can't be reached: what is below is old; it is asked again and again");
  }
}

function draw(found) {
  const { status, service } = found;
  overview = found;
  actions.know(found);
  at("cluster").textContent = status.cluster;
  phase(status.phase, status.why, status.alarms.length);
  at("ages").textContent = `as of ${day(status.now_ms)} ${clock(status.now_ms)} UTC · `
    + `job ${status.job_message} · `
    + `table version ${service.table_version}, ${duration(service.age_ms)} old`;
  title();
  VIEWS[shown].refresh(found);
}

function phase(name, because, alarms = 0) { // no word that calms stands above an alarm
  const badge = document.querySelector("#phase .badge");
  badge.className = `badge ${alarms ? "stalled" : name}`;
  const isCalm = alarms > 0 && name === "ready";
  const count = `${alarms} ${alarms === 1 ? "alarm" : "alarms"}`;
  badge.textContent = isCalm ? count : alarms ? `${name}, ${count}` : name;
  document.querySelector("#phase .why").textContent = because;
}

// -- an explanation beside the view

async function explain({ detail: { kind, name } }) {
  returnTo = document.activeElement && document.activeElement.dataset.key;
  const box = at("explanation");
  const found = await why.find(kind, name);
  const [head, ...rest] = why.parts(found, 2);
  box.replaceChildren(why.closeButton(closeExplanation), head, actionsOf(kind, name), ...rest);
  box.hidden = false;
  box.focus();
}

function actionsOf(kind, name) {
  const box = make("div", undefined, "controls");
  box.append(...actions.buttonsFor(kind, name));
  return box;
}

function hideExplanation() {
  at("explanation").hidden = true;
}

function closeExplanation() {
  if (at("explanation").hidden) return;
  hideExplanation();
  const again = returnTo && document.querySelector(`[data-key="${CSS.escape(returnTo)}"]`);
  (again || at("topic")).focus();
}

// -- search

async function lookUp(event) {
  event.preventDefault();
  const output = at("owner");
  const path = lookupPath(at("topic").value.trim());
  if (!path) {
    output.textContent = "write it as tenant/namespace/topic";
    return;
  }
  output.textContent = "asking …";
  try {
    const { status, headers, value } = await ask(path);
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
  if (at("question").open) return; // the browser closes it on Escape
  if (event.key === "Escape") closeExplanation();
  if (event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    at("topic").focus();
  }
  const tab = document.querySelectorAll("#views a:not([hidden])")[Number(event.key) - 1];
  if (tab) location.hash = tab.hash;
}

function signIn(event) {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  refresh();
  route();
}

document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", refresh);
addEventListener("hashchange", route);
addEventListener("explain", explain);
addEventListener("acted", refresh);
actions.listen();
at("search").addEventListener("submit", lookUp);
at("sign-in").addEventListener("submit", signIn);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash stays the view's
  at("main").focus();
});
async function keepAsking() {
  await refresh();
  setTimeout(keepAsking, EVERY_MS);
}

route();
keepAsking();
