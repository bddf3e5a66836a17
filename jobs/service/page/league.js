// The view League: what the newest kept backtest found, which strategy would have served the
// cluster's own load best, beside what really happened.

import { ask, clock, day, duration, make, row, shape, tableHead, whole } from "./core.js";

const EVERY_MS = 10000; // a backtest is kept by a person, not by a batch
const COLUMNS = [["place", "number"], ["strategy"], ["cost", "number", "late"],
  ["imbalance", "number"], ["over least", "number", "late"], ["above", "number"],
  ["moves", "number"], ["thrash", "number", "late"], ["splits", "number", "late"],
  ["unserved", "number", "late"]];
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [420, 176, 36, 404, 14, 150];
const NEAR = 7; // dots nearer than this are one
const LONG_MS = 6e6; // from here on tenths of a minute are noise
const NOTES = { recorded: () => "really", "as-set": (one) => one.shedding };
let parts = null;
let askedMs = 0;
let drawn = "";

export function show(box) {
  [askedMs, drawn] = [0, ""];
  parts = { told: make("p", "asking …", "dim"), found: make("div") };
  box.replaceChildren(make("h2", "League"), parts.told, parts.found);
  load();
}

export function refresh() {
  if (Date.now() - askedMs >= EVERY_MS) load();
}

async function load() {
  const wanted = parts;
  askedMs = Date.now();
  try {
    const { status, value } = await ask("/v1/league");
    if (wanted !== parts) return;
    if (status === 200) draw(value);
    else parts.told.textContent = value.reason;
  } catch { /* the phase says it */ }
}

function draw(found) {
  const now = JSON.stringify(found);
  if (now === drawn) return;
  drawn = now;
  if (!found.run) {
    parts.told.replaceChildren("No backtest is kept. This makes one, of the load that the job has "
      + "recorded, and shows it here: ", make("code", "ballast backtest --keep"));
    parts.found.replaceChildren();
    return;
  }
  const { run, strategies } = found;
  parts.told.textContent = `What each strategy would have made of the load of `
    + `${span(run)}: ${whole(run.brokers)} brokers, ${whole(run.bundles)} bundles. Made by `
    + `ballast backtest ${day(run.at_ms)} ${clock(run.at_ms)} UTC`
    + (run.settings.length ? `, with ${run.settings.join(" ")}` : "") + ".";
  const body = make("tbody");
  body.append(...strategies.map(line));
  const table = make("table", undefined, "league");
  table.append(tableHead(COLUMNS), body);
  parts.found.replaceChildren(make("p", verdict(strategies), "told"), table,
    picture(strategies), about(run));
}

function span({ from_ms: from, until_ms: until }) {
  const end = day(from) === day(until) ? clock(until) : `${day(until)} ${clock(until)}`;
  return `${day(from)} ${clock(from)} to ${end} UTC (${duration(until - from)})`;
}

function verdict(strategies) {
  const [best] = strategies;
  const really = strategies.find((one) => one.strategy === "recorded");
  const said = `${best.strategy} comes first: ${figures(best)}`;
  if (best === really) return "No strategy would have done better than what really happened.";
  return really ? `${said}; what really happened: ${figures(really)}.` : `${said}.`;
}

function figures(one) {
  const moves = one.moves === 1 ? "1 move" : `${count(one.moves)} moves`;
  return `imbalance ${ratio(one.imbalance_mean)} with ${moves}`;
}

function line(one, at) {
  const name = make("td", one.strategy);
  const note = one.strategy in NOTES && NOTES[one.strategy](one);
  if (note) name.append(" ", make("span", `(${note})`, "dim"));
  const texts = [points(one.cost), ratio(one.imbalance_mean), ratio(one.over_bound_mean),
    minutes(one.above_ms), count(one.moves), share(one.thrash), count(one.splits),
    time(one.unserved_ms)];
  const cells = texts.map((text, of) => make("td", text, ...COLUMNS[of + 2].slice(1)));
  const found = row(make("td", `${at + 1}`, "number", "dim"), name, ...cells);
  if (one.strategy === "recorded") found.classList.add("recorded");
  return found;
}

const ratio = (value) => value === null ? "–" : value.toFixed(2);
const points = (value) => value === null ? "–" : value.toFixed(1);
const minutes = (ms) => ms === null ? "–"
  : `${+(ms / 60000).toFixed(ms < LONG_MS ? 1 : 0)} min`;
const count = (value) => value === null ? "–" : whole(value);
const share = (value) => value === null ? "–" : `${(100 * value).toFixed(0)} %`;
const time = (value) => value === null ? "–" : value ? duration(value) : "0";

// -- imbalance against moves, a dot a strategy with its place in the table

function picture(strategies) {
  const box = make("figure");
  const known = strategies.map((one, at) => ({ ...one, place: at + 1 }))
    .filter((one) => one.imbalance_mean !== null && one.moves !== null);
  if (!known.length) return box;
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "dots",
    "aria-label": known.map((one) => `${one.place} ${one.strategy}: ${figures(one)}`).join("; ") });
  const bounds = known.map((one) => one.bound_mean).filter((value) => value !== null);
  const least = bounds.length ? Math.min(...bounds) : 1;
  const high = Math.max(least + 0.1, ...known.map((one) => one.imbalance_mean));
  const most = Math.max(1, ...known.map((one) => one.moves));
  const x = (moves) => LEFT + 10 + (RIGHT - LEFT - 60) * moves / most;
  const y = (value) => BOTTOM - (BOTTOM - TOP) * (value - 1) / (high - 1);
  svg.append(...axes(x, y, most, high, least), ...dots(known, x, y));
  box.append(make("figcaption", "Imbalance (upwards) against moves, by place in the table; the "
    + "ring is what really happened, the dashed line the least that was possible."), svg);
  return box;
}

function axes(x, y, most, high, least) {
  const found = [];
  for (const value of [1, (1 + high) / 2, high]) {
    found.push(shape("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y(value), y2: y(value) }));
    found.push(shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" },
      value.toFixed(2)));
  }
  for (const moves of new Set([0, Math.round(most / 2), most])) {
    found.push(shape("text", { x: x(moves), y: BOTTOM + 18, "text-anchor": "middle" },
      moves === most ? `${whole(moves)} moves` : whole(moves)));
  }
  found.push(shape("line", { class: "line really", x1: LEFT, x2: RIGHT, y1: y(least),
    y2: y(least) }));
  return found;
}

function dots(known, x, y) {
  const groups = [];
  for (const one of known) {
    const [cx, cy] = [x(one.moves), y(one.imbalance_mean)];
    const same = groups.find((group) => Math.hypot(group.cx - cx, group.cy - cy) < NEAR);
    if (same) same.members.push(one);
    else groups.push({ cx, cy, members: [one] });
  }
  const taken = groups.map(({ cx, cy }) => [cx - 6, cy - 6, cx + 6, cy + 6]);
  return groups.flatMap(({ cx, cy, members }) => [
    ...members.map(({ strategy }) => (strategy === "recorded"
      ? shape("circle", { cx, cy, r: 7, class: "ring" })
      : shape("circle", { cx, cy, r: 4.5, class: "dot" }))),
    label(cx, cy, members.map(({ place }) => place).join(", "), taken),
  ]);
}

function label(cx, cy, text, taken) { // where it covers nothing; taken: [left, top, right, bottom]
  const width = 7 * text.length;
  const spots = [[11, 4, "start"], [-11, 4, "end"], [0, -11, "middle"], [0, 20, "middle"]]
    .map(([dx, dy, anchor]) => {
      const left = cx + dx - { start: 0, middle: width / 2, end: width }[anchor];
      return { x: cx + dx, y: cy + dy, anchor,
        box: [left, cy + dy - 10, left + width, cy + dy + 1] };
    });
  const isFree = ({ box }) => box[0] > LEFT && box[2] < WIDTH && box[1] > 0
    && !taken.some((other) => box[0] < other[2] && other[0] < box[2]
      && box[1] < other[3] && other[1] < box[3]);
  const spot = spots.find(isFree) || spots[0];
  taken.push(spot.box);
  return shape("text", { x: spot.x, y: spot.y, class: "place", "text-anchor": spot.anchor }, text);
}

function about(run) {
  const list = make("ul", undefined, "dim");
  list.append(...[
    "imbalance: highest over mean load of the brokers, the mean over the time; over least: over "
      + "the least that whole bundles could have had, from 1",
    `above: how long the imbalance was above ${run.bar}`,
    "cost, by which they are ordered: percent of the most loaded broker above what nobody can "
      + "avoid, and a price for each percent of the bundles that moves in an hour",
    "recorded is what really happened, once a minute: moves that were undone within one are "
      + "missing, and time without service is not known",
  ].map((text) => make("li", text)));
  return list;
}
