// The view Now: alarms, brokers, imbalance over the last hour, what is in flight, last decisions.

import { buttonsFor, whyNot } from "./actions.js";
import {
  at, bar, clock, duration, explainButton, make, percent, replace, row, way, whole,
} from "./core.js";
import { imbalanceLines } from "./lines.js";

const BROKERS_SHOWN = 100;
const HOUR_MS = 3600000;
const WARM_POINTS = 0.1; // above the mean of the broker's group
const HOT_USAGE = 0.85;
const LOAD_IS_OLD_MS = 150000; // a row a minute is written
const opened = new Set();

export function show() {} // what it shows comes with every overview

export function refresh({ status, balance, decisions }) {
  drawActions(status);
  drawWords(at("alarms"), status.alarms);
  drawWords(at("warnings"), status.warnings);
  drawBrokers(status);
  drawBalance(balance, status);
  drawGaps(status.gap_messages);
  drawMoves(status);
  drawDecisions(decisions, status.now_ms);
}

function drawActions(status) {
  const paused = status.pauses[""];
  const told = paused ? [make("span", `Paused${paused.reason ? `: ${paused.reason}` : ""}`, "draining")] : [];
  const why = whyNot();
  if (why) told.push(make("span", why, "dim"));
  replace(at("cluster-actions"), [...buttonsFor("cluster"), ...told]);
}

function drawWords(list, words) {
  const known = [...list.children].map((item) => item.textContent);
  if (known.join("\n") === words.join("\n")) return; // told again, it would be read out again
  list.hidden = words.length === 0;
  list.replaceChildren(...words.map((text) => make("li", text)));
}

function loadBar(usage, top, mean) {
  const box = make("div", undefined, "load");
  const track = bar(usage === null ? 0 : 100 * (usage / top));
  if (usage >= HOT_USAGE) track.firstChild.classList.add("over");
  else if (mean >= 0 && usage > mean + WARM_POINTS) track.firstChild.classList.add("warm");
  if (mean >= 0) {
    const mark = make("div", undefined, "mean");
    mark.style.left = `${100 * (mean / top)}%`;
    track.append(mark);
  }
  box.append(track, make("span", percent(usage)));
  return box;
}

function meanUsage(brokers) { // of a cluster without isolation policies
  const known = brokers.map((broker) => broker.usage).filter((usage) => usage !== null);
  return known.length ? known.reduce((sum, usage) => sum + usage, 0) / known.length : -1;
}

function drawBrokers({ broker_rows: brokers, groups, group_words: words }) {
  const line = at("broker-groups");
  line.hidden = groups.length === 0;
  line.textContent = `Broker groups: ${words}`;
  const means = new Map(groups.flatMap((one) => one.brokers.map((name) => [name, one.mean])));
  const mean = ({ broker }) => means.get(broker) ?? -1;
  const all = groups.length ? -1 : meanUsage(brokers);
  const order = [...brokers].sort((a, b) => mean(b) - mean(a)
    || a.group.localeCompare(b.group) || (b.usage ?? -1) - (a.usage ?? -1));
  const top = Math.max(1, ...brokers.map((broker) => broker.usage ?? 0));
  replace(at("brokers"), order.slice(0, BROKERS_SHOWN).map((broker) => row(
    explainButton("broker", broker.broker),
    make("td", broker.state, "state", broker.state),
    loadBar(broker.usage, top, groups.length ? mean(broker) : all),
    make("td", percent(broker.score), "number", "late"),
    make("td", broker.msg_rate === null ? "–" : whole(broker.msg_rate), "number"),
    make("td", whole(broker.bundles), "number"),
    make("td", broker.load_age_ms < 0 ? "not known" : `${duration(broker.load_age_ms)} ago`,
      "number", "late"),
  )));
  const more = at("more-brokers");
  more.hidden = order.length <= BROKERS_SHOWN;
  more.textContent = `and ${order.length - BROKERS_SHOWN} with less load`;
}

function drawBalance(balance, { now_ms: nowMs, imbalance, gaps }) {
  const known = balance.filter((moment) => moment.imbalance !== null);
  const last = known[known.length - 1];
  const most = Math.max(...known.map((moment) => moment.imbalance));
  at("imbalance").textContent = last && imbalance !== null
    ? `now ${imbalance.toFixed(2)}, most ${most.toFixed(2)}` : "no load is known";
  const points = known.map((moment) => [moment.at_ms, moment.imbalance]);
  if (last && nowMs - last.at_ms < LOAD_IS_OLD_MS) points.push([nowMs, last.imbalance]);
  const lines = last ? [{ points, kind: "line" }] : [];
  at("balance").replaceChildren(...imbalanceLines(nowMs - HOUR_MS, nowMs, lines, gaps));
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
  at("no-moves").hidden = shown > 0;
  at("moves-table").hidden = shown === 0; // a head without cells tells nobody anything
  replace(at("moves"), status.in_flight.map((move) => row(
    explainButton("bundle", move.bundle),
    move.state, way(move), move.cause,
    make("td", duration(status.now_ms - move.at_ms), "number"),
  )));
}

function sentence(decision) { // a cycle or a broker without a move is its reason in words
  const reason = decision.messages[0];
  if (decision.kind === "skip" && reason) return `no move: ${reason}`;
  if (decision.kind === "blocked" && reason) return reason;
  return [decision.kind, decision.bundle, way(decision)].filter(Boolean).join(" ");
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
    const more = decision.more ? `, and ${whole(decision.more)} more like it` : "";
    summary.append(make("span", `${clock(decision.at_ms)}`, "dim"), sentence(decision) + more,
      make("span", ` (${decision.reason}) ${decision.outcome.replace("_", " ")}`, "dim"));
    summary.title = `${duration(nowMs - decision.at_ms)} ago`;
    const words = make("ul");
    words.append(...decision.messages.map((text) => make("li", text)));
    details.append(summary, words);
    if (decision.decision_id) {
      const explained = explainButton("decision", decision.decision_id);
      explained.textContent = "more";
      details.append(explained);
    }
    return details;
  }));
}
