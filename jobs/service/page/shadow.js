// The view Shadow: what other strategies would have done with the same reports, and how even the
// cluster would be under each.

import { ask, choice, clock, explainButton, make, replace, row, shape, tableHead, way, whole }
  from "./core.js";
import { BOX, imbalanceLines } from "./lines.js";

const WINDOWS = [["3600000", "1 hour"], ["86400000", "1 day"], ["604800000", "7 days"]];
const COLUMNS = [["strategy"], ["imbalance", "number"], ["really", "number"], ["moves", "number"],
  ["elsewhere", "number"], ["skips", "late"]];
const STEPS = [["UTC"], ["strategy"], ["bundle"], ["way"], ["why", "late"]];
let asked = "3600000";
let parts = null;
let version = null;
let drawn = "";

export function show(box, path, query) {
  asked = query.get("window") || asked;
  [version, drawn] = [null, ""];
  const form = make("form", undefined, "controls");
  form.append(choice("of the last", WINDOWS, asked, (window) => {
    location.hash = `#/shadow?window=${window}`;
  }));
  parts = { told: make("p", "asking …", "dim"), sums: make("div"), steps: make("div") };
  box.replaceChildren(make("h2", "Shadow"), form, parts.told, parts.sums, parts.steps);
  load();
}

export function refresh({ service }) {
  if (version === service.table_version) return;
  version = service.table_version;
  load();
}

async function load() {
  const wanted = parts;
  try {
    const { status, value } = await ask(`/v1/shadow?window_ms=${asked}`);
    if (wanted !== parts) return;
    if (status === 200) draw(value);
    else parts.told.textContent = value.reason;
  } catch { /* the phase says it */ }
}

function draw(found) {
  const now = JSON.stringify(found.shadows);
  if (now === drawn) return;
  drawn = now;
  if (!found.shadows.length) {
    parts.told.textContent = "No strategy thought along. Those named by cluster.shadow plan on the "
      + "same reports and do nothing: ballast config set cluster.shadow=ballast";
    parts.sums.replaceChildren();
    parts.steps.replaceChildren();
    return;
  }
  parts.told.textContent = "What each would have done; nothing of it was done.";
  const body = make("tbody");
  body.append(...found.shadows.map(sums));
  const table = make("table", undefined, "shadows");
  table.append(tableHead(COLUMNS), body);
  parts.sums.replaceChildren(table, ...found.shadows.map((one) => picture(one, found)));
  drawSteps(found.shadows);
}

function sums(one) {
  const skips = Object.entries(one.skips).map(([reason, count]) => `${reason} ${whole(count)}`);
  return row(one.strategy, make("td", even(one.shadow_imbalance), "number"),
    make("td", even(one.imbalance), "number"), make("td", whole(one.moves), "number"),
    make("td", whole(one.elsewhere), "number"), make("td", skips.join(", ") || "none", "late"));
}

function even(value) {
  return value === null ? "–" : value.toFixed(2);
}

function picture(one, { from_ms, until_ms }) {
  const box = make("figure");
  const svg = shape("svg", { viewBox: BOX, role: "img",
    "aria-label": `${one.strategy}: imbalance ${even(one.shadow_imbalance)}, really `
      + `${even(one.imbalance)}` });
  const lines = [["line really", 1], ["line", 2]].map(([kind, at]) => ({ kind,
    points: one.moments.filter((moment) => moment[at] !== null)
      .map((moment) => [moment[0], moment[at]]) }));
  svg.append(...imbalanceLines(from_ms, until_ms, lines));
  box.append(make("figcaption", `${one.strategy}: imbalance, and really (dashed)`), svg);
  return box;
}

function drawSteps(shadows) {
  const steps = shadows.flatMap((one) => one.steps.map((step) => ({ ...step,
    strategy: one.strategy }))).sort((a, b) => b.at_ms - a.at_ms);
  const table = make("table", undefined, "events");
  const body = make("tbody");
  replace(body, steps.map((step) => row(clock(step.at_ms), step.strategy,
    explainButton("bundle", step.bundle), way(step), make("td", step.reason, "late"))));
  table.append(tableHead(STEPS), body);
  parts.steps.replaceChildren(make("h3", "What they would have moved last"),
    steps.length ? table : make("p", "nothing", "dim"));
}
