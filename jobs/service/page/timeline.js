// The view Timeline: what has happened, newest first; by kind, by name, by time. Load before and
// after a move is told when its line is pointed at or has the focus.

import {
  ask, choice, clock, day, explainButton, field, make, percent, replace, row, tableHead, wayCell, whole,
} from "./core.js";

const KINDS = { move: "moves", split: "splits", crash: "crashes", placement: "placements",
  plan: "plans", command: "commands", setting: "settings" };
const WINDOWS = [["3600000", "1 hour"], ["86400000", "1 day"], ["604800000", "7 days"],
  ["2592000000", "30 days"]];
const COLUMNS = [["UTC"], ["what"], ["bundle"], ["way"], ["by", "late"], ["why"]];
const DRAWN_AT_ONCE = 100;
let asked = { window: "3600000", about: "", kinds: new Set(Object.keys(KINDS)) };
let parts = null;
let version = null;
let events = [];
let drawn = "";

export function show(box, path, query) {
  asked = { ...asked, about: query.get("about") || "", window: query.get("window") || asked.window };
  [version, drawn] = [null, ""];
  const form = make("form", undefined, "controls");
  const { box: label, input: about } = field("naming",
    { value: asked.about, placeholder: "broker, bundle, person, setting" }, "choice");
  form.append(choice("of the last", WINDOWS, asked.window, (window) => go({ window })), label,
    make("button", "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go({ about: about.value.trim() });
  });
  const table = make("table", undefined, "events");
  const told = make("p", "Point at a move, or give its line the focus, for load before and after.",
    "told");
  told.setAttribute("aria-live", "polite");
  parts = { count: make("p", "asking …", "dim"), body: make("tbody"), told, more: make("div") };
  table.append(tableHead(COLUMNS), parts.body);
  box.replaceChildren(make("h2", "Timeline"), form, kinds(), parts.count, told, table, parts.more);
  load();
}

export function refresh({ service }) {
  if (version === service.table_version) return;
  version = service.table_version;
  load();
}

function go({ window = asked.window, about = asked.about }) {
  location.hash = `#/timeline?window=${window}&about=${encodeURIComponent(about)}`;
}

function kinds() {
  const box = make("fieldset", undefined, "kinds");
  box.append(make("legend", "show"));
  for (const [kind, words] of Object.entries(KINDS)) {
    const label = make("label");
    const tick = make("input");
    tick.type = "checkbox";
    tick.checked = asked.kinds.has(kind);
    tick.addEventListener("change", () => {
      if (tick.checked) asked.kinds.add(kind); else asked.kinds.delete(kind);
      load();
    });
    label.append(tick, ` ${words}`);
    box.append(label);
  }
  return box;
}

async function load() {
  const wanted = parts;
  const query = new URLSearchParams({ window_ms: asked.window, about: asked.about,
    kinds: [...asked.kinds].join(",") });
  if (!asked.kinds.size) {
    draw({ events: [], left_out: 0 });
    return;
  }
  try {
    const { status, value } = await ask(`/v1/timeline?${query}`);
    if (wanted !== parts) return;
    if (status === 200) draw(value);
    else parts.count.textContent = value.reason;
  } catch { /* the phase says it */ }
}

function draw(found) {
  const now = JSON.stringify(found);
  if (now === drawn) return;
  drawn = now;
  events = found.events;
  const older = found.left_out ? `, and ${whole(found.left_out)} older ones` : "";
  parts.count.textContent = events.length ? `${whole(events.length)} events${older}`
    : "No event yet. Moves, splits, crashes, placements, plans, commands and changed settings appear "
      + "here when they happen; a longer time or other kinds show more.";
  parts.told.hidden = events.length === 0;
  const lines = Math.max(DRAWN_AT_ONCE, parts.body.children.length);
  replace(parts.body, events.slice(0, lines).map(line)); // a line keeps the focus
  drawMore(0);
}

function drawMore(count = DRAWN_AT_ONCE) { // a window of the list; the rest when it is asked for
  const from = parts.body.children.length;
  parts.body.append(...events.slice(from, from + count).map(line));
  const left = events.length - parts.body.children.length;
  parts.more.replaceChildren();
  if (left <= 0) return;
  const button = make("button", `${whole(Math.min(left, DRAWN_AT_ONCE))} more`);
  button.type = "button";
  button.addEventListener("click", () => drawMore());
  parts.more.append(button);
}

function line(event) {
  const name = event.bundle ? explainButton("bundle", event.bundle) : "";
  const time = make("td", undefined, "state");
  time.append(make("span", `${day(event.at_ms)} `, "late"), clock(event.at_ms));
  const tr = row(time, make("td", event.what.replaceAll("_", " "), "what", event.kind),
    name, wayCell(event), make("td", event.by, "late"),
    [event.reason, event.outcome.replaceAll("_", " ")].filter(Boolean).join(", "));
  if (event.loads) {
    tr.tabIndex = 0;
    tr.dataset.key = `move ${event.id} ${event.bundle}`;
    const tell = () => { parts.told.textContent = words(event); };
    tr.addEventListener("mouseenter", tell);
    tr.addEventListener("focus", tell);
  }
  return tr;
}

function words({ source, destination, loads }) {
  const one = (name, before, after) => `${name}: ${percent(before)} → ${percent(after)}`;
  return [one(source, loads.source_before, loads.source_after),
    destination && one(destination, loads.destination_before, loads.destination_after)]
    .filter(Boolean).join("; ");
}
