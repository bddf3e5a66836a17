// The view Heat: brokers by time on a canvas, or the bundles of one broker; any resource, a cell's
// value by mouse and by arrow keys. A grid of 1,000 by 120 is drawn in one go, and kept as a picture.

import { amount, ask, choice, clock, day, explainButton, inPath, make } from "./core.js";

const OF_BROKERS = [["usage", "usage"], ["score", "score"], ["cpu", "cpu"], ["memory", "memory"],
  ["direct_memory", "direct memory"], ["bandwidth_in", "bandwidth in"],
  ["bandwidth_out", "bandwidth out"], ["bundles", "bundles"]];
const TRAFFIC = [["msg_rate", "messages"], ["msg_rate_in", "messages in"],
  ["msg_rate_out", "messages out"], ["msg_throughput_in", "bytes in"],
  ["msg_throughput_out", "bytes out"]];
const OF_BUNDLES = [...TRAFFIC, ["topics", "topics"], ["sessions", "sessions"]];
const WINDOWS = [["3600000", "1 hour"], ["21600000", "6 hours"], ["86400000", "1 day"],
  ["604800000", "7 days"]];
const ORDERS = [["name", "name"], ["heat", "hottest first"]];
const SHADES = 64;
const AXIS = 18;
const RELOAD_MS = 10000; // a row is of a minute, and many batches come in one
const darkness = matchMedia("(prefers-color-scheme: dark)");

let asked = { broker: "", by: "usage", window: "3600000", order: "name" };
let grid = null;
let rows = [];
let cell = null; // { row, column }
let version = null;
let loadedMs = 0;
let parts = null;
let place = null; // as the picture was laid out
const picture = document.createElement("canvas");

export function show(box, path, query) {
  const broker = query.get("broker") || "";
  const by = query.get("by") || (broker ? "msg_rate" : "usage");
  asked = { ...asked, broker, by, window: query.get("window") || asked.window };
  [grid, rows, cell, version] = [null, [], null, null];
  build(box);
  load();
}

export function refresh({ service }) { // a batch has come
  version ??= service.table_version;
  if (version === service.table_version || Date.now() - loadedMs < RELOAD_MS) return;
  version = service.table_version;
  load();
}

function go(change) {
  const to = { ...asked, ...change };
  const broker = to.broker ? `broker=${encodeURIComponent(to.broker)}&` : "";
  location.hash = `#/heat?${broker}by=${to.by}&window=${to.window}`;
}

function build(box) {
  const title = make("h2", asked.broker ? `Bundles of ${asked.broker}` : "Heat");
  title.id = "heat-title";
  const controls = make("div", undefined, "controls");
  if (asked.broker) {
    const back = make("a", "← all brokers");
    back.href = "#/heat";
    controls.append(back);
  }
  controls.append(
    choice("show", asked.broker ? OF_BUNDLES : [...OF_BROKERS, ...TRAFFIC], asked.by,
      (by) => go({ by })),
    choice("of the last", WINDOWS, asked.window, (window) => go({ window })),
    choice("order by", ORDERS, asked.order, (order) => { asked.order = order; arrange(); }),
  );
  const canvas = make("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "heat map");
  canvas.setAttribute("aria-labelledby", "heat-title");
  canvas.setAttribute("aria-describedby", "heat-cell");
  const legend = make("p", undefined, "legend", "dim");
  const told = make("p", "asking …", "told");
  told.id = "heat-cell";
  told.setAttribute("aria-live", "polite");
  const frame = make("div", undefined, "heat-frame");
  frame.append(canvas);
  const chosen = make("div", undefined, "chosen");
  parts = { canvas, legend, told, frame, chosen };
  canvas.addEventListener("mousemove", (event) => point(event));
  canvas.addEventListener("click", (event) => { point(event); detail(); });
  canvas.addEventListener("keydown", onKey);
  box.replaceChildren(title, controls, legend, frame, told, chosen);
}

async function load() {
  const wanted = asked;
  loadedMs = Date.now();
  const broker = asked.broker ? `&broker=${encodeURIComponent(asked.broker)}` : "";
  let reply;
  try {
    reply = await ask(`/v1/heat?by=${asked.by}&window_ms=${asked.window}${broker}`);
  } catch {
    return;
  }
  if (wanted !== asked) return; // another was asked since
  if (reply.status !== 200) {
    parts.told.textContent = reply.value.reason;
    return;
  }
  grid = reply.value;
  arrange();
}

function arrange() {
  if (!grid) return;
  rows = grid.names.map((name, index) => {
    const values = grid.values[index];
    return { name, values, peak: Math.max(-1, ...values.map((value) => value ?? -1)) };
  });
  const order = new Intl.Collator("en", { numeric: true });
  rows.sort((a, b) => order.compare(a.name, b.name));
  if (asked.order === "heat") rows.sort((a, b) => b.peak - a.peak);
  draw();
}

// -- drawing

function shades() {
  const style = getComputedStyle(document.documentElement);
  const stops = [0, 1, 2, 3, 4].map((at) => style.getPropertyValue(`--heat-${at}`).trim())
    .map((hex) => [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16)));
  return Array.from({ length: SHADES }, (_, index) => {
    const place = (index / (SHADES - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    const mixed = stops[low].map((one, part) => one + (stops[low + 1][part] - one) * (place - low));
    return `rgb(${mixed.map(Math.round).join(" ")})`;
  });
}

function layout() {
  const width = parts.frame.clientWidth;
  const height = rows.length > 60 ? Math.max(2, Math.min(12, Math.floor(600 / rows.length)))
    : Math.max(14, Math.min(24, Math.floor(420 / Math.max(1, rows.length))));
  const isNamed = height >= 12;
  const longest = Math.max(0, ...rows.map(({ name }) => name.length));
  const left = isNamed ? Math.min(7 * longest + 12, 260, width * 0.4) : 0;
  const across = (width - left) / Math.max(1, grid.moments);
  return { width, height, isNamed, left, across, scale: devicePixelRatio || 1 };
}

const gapOf = (height) => (height >= 8 ? 1 : 0);

function draw() {
  const { canvas, legend, frame } = parts;
  if (!frame.clientWidth) return; // another view is shown by now
  place = layout();
  const { width, height, isNamed, left, across, scale } = place;
  const tall = rows.length * height + AXIS;
  for (const one of [canvas, picture]) {
    one.width = Math.round(width * scale);
    one.height = Math.round(tall * scale);
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${tall}px`;
  const pen = picture.getContext("2d");
  pen.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const [ink, dim] = ["--ink", "--dim"].map((name) => style.getPropertyValue(name));
  const colours = shades();
  const known = rows.flatMap(({ values }) => values.filter((value) => value !== null));
  const least = known.length ? Math.min(...known) : 0;
  const most = Math.max(least + 1e-9, ...known); // the colours are used over what is shown
  const gap = gapOf(height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  rows.forEach((row, index) => {
    const y = index * height;
    pen.fillStyle = ink;
    if (isNamed) pen.fillText(fitting(pen, row.name, left - 8), 0, y + height / 2);
    row.values.forEach((value, column) => {
      if (value === null) return;
      pen.fillStyle = colours[Math.round((SHADES - 1) * (value - least) / (most - least))];
      pen.fillRect(left + column * across, y, Math.max(1, across - (across > 6 ? 1 : 0)), height - gap);
    });
  });
  axis(pen, dim, left, width, rows.length * height + AXIS - 7);
  mark();
  drawLegend(legend, known.length ? [least, most] : null);
  if (!cell) {
    parts.told.textContent = rows.length
      ? "Point at a cell, or choose one with the arrow keys; Enter opens it."
      : "No load is known for this time. Each broker's load appears here once a minute.";
  }
}

function mark() { // the picture, and the chosen cell
  const { height, left, across, scale } = place;
  const pen = parts.canvas.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, picture.width, picture.height);
  pen.drawImage(picture, 0, 0);
  if (!cell || !rows[cell.row]) return;
  pen.scale(scale, scale);
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  pen.lineWidth = 2;
  pen.strokeRect(left + cell.column * across, cell.row * height, across, height - gapOf(height));
}

function axis(pen, dim, left, width, y) {
  pen.fillStyle = dim;
  const span = grid.moments * grid.step_ms;
  for (const [share, side] of [[0, "left"], [0.5, "center"], [1, "right"]]) {
    pen.textAlign = side;
    pen.fillText(when(grid.from_ms + share * span), left + share * (width - left), y);
  }
  pen.textAlign = "left";
}

function when(ms) {
  return Number(asked.window) > 86400000 ? `${day(ms).slice(5)} ${clock(ms).slice(0, 5)}`
    : clock(ms).slice(0, 5);
}

function fitting(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let tail = text.length - 1;
  while (tail > 1 && pen.measureText(`…${text.slice(-tail)}`).width > width) tail -= 1;
  return `…${text.slice(-tail)}`;
}

function drawLegend(legend, range) {
  if (!range) {
    legend.replaceChildren();
    return;
  }
  const [least, most] = range;
  const scale = make("span", undefined, "scale");
  scale.setAttribute("aria-hidden", "true");
  const more = grid.left_out ? `, the hottest of ${rows.length + grid.left_out}` : "";
  legend.replaceChildren(amount(least, grid.unit), scale, amount(most, grid.unit),
    ` · least and most shown · blank: no report, or no job to record it · ${rows.length} `
    + `${asked.broker ? "bundles" : "brokers"}${more} · UTC`);
}

// -- one cell

function point(event) {
  if (!grid || !rows.length) return;
  const { height, left, across } = place;
  choose(Math.floor(event.offsetY / height), Math.floor((event.offsetX - left) / across));
}

function choose(row, column) {
  const next = {
    row: Math.max(0, Math.min(rows.length - 1, row)),
    column: Math.max(0, Math.min(grid.moments - 1, column)),
  };
  if (cell && cell.row === next.row && cell.column === next.column) return;
  cell = next;
  mark();
  const { name, values } = rows[cell.row];
  const ms = grid.from_ms + cell.column * grid.step_ms;
  parts.told.textContent = `${name}, ${when(ms)} UTC: ${amount(values[cell.column], grid.unit)}`;
}

function onKey(event) {
  if (!grid || !rows.length) return;
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const step = steps[event.key];
  if (event.key === "Enter" && cell) detail();
  if (!step) return;
  event.preventDefault();
  if (cell) choose(cell.row + step[0], cell.column + step[1]);
  else choose(0, grid.moments - 1);
}

function detail() {
  if (!cell) return;
  const { name, values } = rows[cell.row];
  const ms = grid.from_ms + cell.column * grid.step_ms;
  const kind = asked.broker ? "bundle" : "broker";
  const known = values.filter((value) => value !== null);
  const words = known.length ? `least ${amount(Math.min(...known), grid.unit)}, `
    + `most ${amount(Math.max(...known), grid.unit)}, last ${amount(known.at(-1), grid.unit)}` : "";
  const then = make("a", `why at ${when(ms)}`);
  then.href = `#/why/${kind}/${inPath(name)}?at=${Math.min(Date.now(), ms + grid.step_ms)}`;
  const links = make("p", undefined, "links");
  links.append(explainButton(kind, name), then);
  if (!asked.broker) {
    const bundles = make("a", "its bundles");
    bundles.href = `#/heat?broker=${encodeURIComponent(name)}&window=${asked.window}`;
    links.append(bundles);
  }
  parts.chosen.replaceChildren(links, make("p", words, "dim"));
}

darkness.addEventListener("change", () => { if (grid) draw(); });
addEventListener("resize", () => { if (grid) draw(); });
