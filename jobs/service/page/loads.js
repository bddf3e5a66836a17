// Load before and after as a picture: two bars a broker, the figures beside them.

import { make, percent, tableHead } from "./core.js";

const SHOWN = 40;

export function forecastPath({ strategy = "", set = [], add = 0, remove = [] }) {
  const query = [["strategy", strategy], ["add_brokers", add],
    ...set.map((one) => ["set", one]), ...remove.map((one) => ["remove_broker", one])];
  return `/v1/plan?${new URLSearchParams(query)}`;
}

export function ofForecast({ before, after }) { // what GET /v1/plan answers
  const byName = (moment) => new Map(moment.brokers.map((one) => [one.broker, one.usage]));
  const [was, will] = [byName(before), byName(after)];
  const names = [...new Set([...was.keys(), ...will.keys()])];
  return beforeAndAfter(names.map((name) => [name, was.get(name), will.get(name)]));
}

export function beforeAndAfter(pairs) { // [[name, before, after], ...]; 1 = 100 %
  const order = [...pairs].sort((a, b) => Math.max(b[1] ?? 0, b[2] ?? 0)
    - Math.max(a[1] ?? 0, a[2] ?? 0));
  const top = Math.max(1, ...pairs.flatMap(([, before, after]) => [before ?? 0, after ?? 0]));
  const table = make("table", undefined, "pairs");
  const body = make("tbody");
  for (const [name, before, after] of order.slice(0, SHOWN)) body.append(line(name, before, after, top));
  table.append(tableHead([["broker"], ["usage", "wide"], ["before", "number"], ["after", "number"]]),
    body);
  if (order.length <= SHOWN) return [table];
  return [table, make("p", `and ${order.length - SHOWN} brokers with less load`, "dim")];
}

function line(name, before, after, top) {
  const tr = make("tr");
  const th = make("th", name);
  th.scope = "row";
  const drawn = make("td", undefined, "wide");
  drawn.append(track(before, top, "was"), track(after, top, "will"));
  tr.append(th, drawn, make("td", percent(before ?? null), "number"),
    make("td", percent(after ?? null), "number"));
  return tr;
}

function track(value, top, kind) {
  const box = make("div", undefined, "track", kind);
  box.setAttribute("aria-hidden", "true");
  const fill = make("div", undefined, "fill", value > 1 && "over");
  fill.style.width = `${100 * (value ?? 0) / top}%`;
  box.append(fill);
  return box;
}
