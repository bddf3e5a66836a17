// The view What if: a dry run. Another strategy, other settings, brokers more or fewer; what the
// next cycles would decide, and load before and after as a picture. Nothing is done.

import { ask, choice, duration, explainButton, field, make, percent, way, whole } from "./core.js";
import { forecastPath, ofForecast } from "./loads.js";

const SHOWN = 100;
const STRATEGIES = [["", "as it is now"], ...["ballast", "avg", "threshold", "overload", "uniform",
  "transfer"].map((name) => [name, name])];

export function refresh() {} // an answer is of its moment

export function show(box) {
  const form = make("form", undefined, "what-if");
  let chosen = "";
  const strategy = choice("strategy", STRATEGIES, chosen, (name) => { chosen = name; });
  const settings = field("settings, separated by blanks", { placeholder: "shedding.threshold_percent=5" });
  const added = field("idle brokers to add", { placeholder: "0" });
  added.input.type = "number";
  added.input.min = "0";
  const removed = field("brokers to drain", { placeholder: "broker-3:8080" });
  const button = make("button", "What would happen?");
  const answer = make("article");
  answer.setAttribute("aria-live", "polite");
  form.append(strategy, settings.box, added.box, removed.box, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    answer.replaceChildren(make("p", "trying it on the tables as they are …", "dim"));
    const nodes = await tried({
      strategy: chosen, set: split(settings.input.value),
      add: Number(added.input.value || 0), remove: split(removed.input.value),
    });
    button.disabled = false;
    answer.replaceChildren(...nodes);
  });
  box.replaceChildren(make("h2", "What if"),
    make("p", "A dry run: the next cycles with the present load. The answer shows each decision, and "
      + "each broker's load before and after. Nothing is changed.", "dim"),
    form, answer);
}

const split = (text) => text.split(/\s+/).filter(Boolean);

async function tried(asked) {
  try {
    const { status, value } = await ask(forecastPath(asked));
    return status === 200 ? parts(value)
      : [make("p", value.reason || `the service answered ${status}`, "silent")];
  } catch {
    return [make("p", "the service can't be reached", "silent")];
  }
}

function parts(found) {
  const count = found.decisions.length;
  const imbalance = (moment) => moment.imbalance === null ? "–" : moment.imbalance.toFixed(2);
  const made = [
    make("h3", `${whole(count)} ${count === 1 ? "decision" : "decisions"} in ${found.cycles} cycles`),
    make("p", `under ${found.strategy} with ${found.placement}; cycles at least `
      + `${duration(found.cycle_ms)} apart; imbalance ${imbalance(found.before)} → `
      + `${imbalance(found.after)}`, "dim"),
  ];
  const lists = [["silent", "gets hot", found.hot], ["draining", "blocked", found.blocked],
    ["draining", "pin broken", found.broken_pins], ["dim", "not known here", found.unknown]];
  for (const [colour, name, texts] of lists) {
    made.push(...texts.map((text) => make("p", `${name}: ${text}`, colour)));
  }
  made.push(make("h4", "Load before and after"), ...ofForecast(found));
  if (count) made.push(make("h4", "Decisions"), decisions(found.decisions));
  return made;
}

function decisions(found) {
  const list = make("ol", undefined, "steps");
  list.append(...found.slice(0, SHOWN).map((one) => {
    const item = make("li");
    item.append(`${one.kind} `, one.bundle ? explainButton("bundle", one.bundle) : "",
      ` ${way(one)} `, make("span", `${one.why || ""}${one.more_hits
        ? `, after ${one.more_hits} observations more` : ""}`, "dim"));
    return item;
  }));
  if (found.length > SHOWN) list.append(make("li", `and ${whole(found.length - SHOWN)} more`, "dim"));
  return list;
}
