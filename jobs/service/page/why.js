// The view Why: what `ballast explain` says of a broker, a bundle, a decision or the cluster, with
// its numbers as bars. Also made here: the explanation that opens beside another view.

import { ask, bar, choice, field, inPath, make, sentenceNodes } from "./core.js";

const KINDS = [["broker", "broker"], ["bundle", "bundle"], ["decision", "decision"],
  ["cluster", "the cluster"]];
const SECTIONS = [
  ["runbook", "What it means and what to do"], ["unknown", "What is not known"],
  ["why", "Why"], ["candidates", "Recent candidates"], ["blocks", "What prevents a move"],
  ["changes", "What would have to change"],
];
let kind = "cluster";

async function runbook(section) { // the section of the page that comes with the console
  const reply = await fetch("/page/runbook.md", { credentials: "omit" });
  const text = reply.status === 200 ? await reply.text() : "";
  const body = text.split(/^##+ /mu).find((part) => part.startsWith(`${section}\n`));
  if (!body) return { headline: `The runbook has no section ${section}.` };
  const paragraphs = body.slice(section.length).trim().split(/\n\s*\n/u)
    .map((one) => one.replace(/\*\*?|\[([^\]]+)\]\([^)]*\)/gu, "$1").replace(/\n(?![-|])/gu, " "));
  return { headline: `Runbook: ${section}`, runbook: paragraphs.flatMap((one) => one.split("\n")) };
}

export async function find(of, name, atMs) {
  try {
    if (of === "runbook") return await runbook(name);
    const when = atMs ? `?at=${atMs}` : "";
    const path = of === "cluster" ? of : `${of}/${inPath(name)}`;
    const { status, value } = await ask(`/v1/explain/${path}${when}`);
    return status === 200 ? value : { headline: value.reason };
  } catch {
    return { headline: "the service can't be reached" };
  }
}

export function parts(found, level) { // level: of the headline
  const made = [make(`h${level}`, found.headline)];
  for (const [name, title] of SECTIONS) {
    if (!found[name] || found[name].length === 0) continue;
    const list = make("ul");
    list.append(...found[name].map((text) => {
      const item = make("li");
      item.append(...sentenceNodes(text));
      return item;
    }));
    made.push(make(`h${level + 1}`, title), list);
  }
  const numbers = Object.entries(found.numbers || {});
  if (numbers.length) made.push(make(`h${level + 1}`, "Numbers"), table(numbers));
  return made;
}

function table(numbers) {
  const box = make("table", undefined, "numbers");
  for (const [name, value] of numbers) {
    if (value !== null && typeof value === "object") {
      for (const [part, one] of Object.entries(value)) box.append(line(`${name}: ${part}`, one));
    } else {
      box.append(line(name, value));
    }
  }
  return box;
}

function line(name, value) {
  const tr = make("tr");
  const head = make("th", name);
  head.scope = "row";
  const drawn = make("td", undefined, "bar");
  const share = name.endsWith("%") ? value : /^(\d+) %$/.exec(value)?.[1];
  if (share !== undefined) drawn.append(bar(Number(share)));
  const text = typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 2 })
    : typeof value === "object" ? JSON.stringify(value) : String(value);
  tr.append(head, make("td", text, "number"), drawn);
  return tr;
}

export function closeButton(close) {
  const button = make("button", "Close");
  button.type = "button";
  button.addEventListener("click", close);
  return button;
}

export async function show(box, [of, ...names], query) {
  kind = of || "cluster";
  const name = names.join("/");
  const form = make("form", undefined, "controls");
  const { box: label, input } = field("name", { value: name }, "choice");
  label.hidden = kind === "cluster";
  form.append(choice("explain", KINDS, kind, (value) => {
    kind = value;
    label.hidden = kind === "cluster";
  }), label, make("button", "Explain"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = kind === "cluster" ? "#/why/cluster" : `#/why/${kind}/${inPath(input.value.trim())}`;
  });
  const answer = make("article", undefined, "why-answer");
  answer.setAttribute("aria-live", "polite");
  box.replaceChildren(make("h2", "Why"), form, answer);
  if (kind !== "cluster" && !name) {
    answer.append(make("p", `Write the name of a ${kind} and choose Explain: what was decided about `
      + "it and why, what prevents a move, and what would have to change.", "dim"));
    return;
  }
  answer.append(make("p", "asking …", "dim"));
  answer.replaceChildren(...parts(await find(kind, name, query.get("at")), 3));
}

export function refresh() {} // an explanation is of its moment, and is read in peace
