// The view Find: a topic, a bundle or a broker; where it is now, and who owned a bundle when.

import { ask, clock, day, explainButton, field, inPath, lookupPath, make, row, tableHead, way,
  whole } from "./core.js";

const SHOWN = 200;

export function refresh() {} // an answer is of its moment

export async function show(box, names) {
  const wanted = names.join("/");
  const form = make("form", undefined, "controls");
  const { box: label, input } = field("topic, bundle or broker", { value: wanted }, "choice");
  form.append(label, make("button", "Find"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `#/find/${inPath(input.value.trim())}`;
  });
  const answer = make("article");
  answer.setAttribute("aria-live", "polite");
  box.replaceChildren(make("h2", "Find"), form, answer);
  if (!wanted) return;
  answer.append(make("p", "asking …", "dim"));
  try {
    answer.replaceChildren(...await found(wanted));
  } catch {
    answer.replaceChildren(make("p", "the service can't be reached", "silent"));
  }
}

async function found(name) {
  const parts = name.split("/");
  if (parts.length < 2) return broker(name);
  if (parts.length === 3 && /^0x[0-9a-f]{8}_0x[0-9a-f]{8}$/.test(parts[2])) return bundle(name);
  const path = lookupPath(name);
  if (!path) {
    return [make("p", "A topic is tenant/namespace/topic, a bundle tenant/namespace/range.", "dim")];
  }
  return topic(name, path);
}

async function topic(name, path) {
  const { status, headers, value } = await ask(path);
  if (status !== 200) return [make("p", value?.reason || `answered ${status}`, "silent")];
  const of = headers.get("x-ballast-bundle");
  const told = make("p");
  told.append(`${name} is in `, explainButton("bundle", of), ", which ",
    explainButton("broker", headers.get("x-ballast-broker")), " serves.");
  return [told, ...await bundle(of)];
}

async function bundle(name) {
  const { status, value } = await ask(`/v1/bundles/${inPath(name)}/history`);
  if (status !== 200) return [make("p", value.reason, "silent")];
  const events = value.events.reverse();
  const table = make("table", undefined, "events");
  const body = make("tbody");
  body.append(...events.slice(0, SHOWN).map((event) => row(
    `${day(event.at_ms)} ${clock(event.at_ms)}`, event.state, way(event), event.cause,
    make("td", whole(event.version_id), "number"))));
  table.append(tableHead([["since (UTC)"], ["state"], ["way"], ["cause"], ["version", "number"]]),
    body);
  const left = events.length - SHOWN;
  return [make("h3", `Who owned ${name}`), table,
    ...(left > 0 ? [make("p", `and ${whole(left)} changes before`, "dim")] : [])];
}

function broker(name) {
  const links = make("p", undefined, "links");
  for (const [text, to] of [["why it is as it is", `#/why/broker/${inPath(name)}`],
    ["its bundles by load", `#/heat?broker=${encodeURIComponent(name)}`],
    ["what happened to it", `#/timeline?window=604800000&about=${encodeURIComponent(name)}`]]) {
    const link = make("a", text);
    link.href = to;
    links.append(link);
  }
  return [links];
}
