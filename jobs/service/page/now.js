// The view Now: alarms, brokers, imbalance over the last hour, what is in flight, last decisions.

import { buttonsFor, whyNot } from "./actions.js";
import {
  at, bar, clock, duration, explainButton, make, percent, replace, row, sentenceNodes, way,
  wayCell, whole,
} from "./core.js";
import { imbalanceLines } from "./lines.js";

const BROKERS_SHOWN = 100;
const HOUR_MS = 3600000;
const HOT_USAGE = 0.85;
const LOAD_IS_OLD_MS = 150000; // a row a minute is written
const opened = new Set();

export function show() {} // what it shows comes with every overview

export function refresh({ status, balance, decisions }) {
  drawActions(status);
  drawAlarms(status);
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

function drawAlarms(status) {
  const list = at("alarms");
  const drawn = status.alarms.join("\n");
  if (list.dataset.drawn === drawn) return; // drawn again, it would be read out again
  list.dataset.drawn = drawn;
  list.hidden = status.alarms.length === 0;
  const brokers = new Set(status.broker_rows.map((one) => one.broker));
  list.replaceChildren(...status.alarms.map((text, index) => {
    const item = make("li");
    item.append(...sentenceNodes(text, brokers));
    const section = status.alarm_sections[index];
    const named = text.split(/:?[\s,;()]+/).find((word) => brokers.has(word));
    const actions = [...(section ? [runbookButton(section)] : []),
      ...(named ? buttonsFor("broker", named) : [])];
    if (!actions.length) return item;
    const box = make("div", undefined, "controls");
    box.append(...actions);
    item.append(box);
    return item;
  }));
}

function runbookButton(section) {
  const button = explainButton("runbook", section);
  button.textContent = `Runbook: ${section}`;
  return button;
}

const isHot = (usage, mean, points) => usage !== null && mean >= 0 && usage >= mean + points;

function severity(usage, mean, points) { // class of the bar and of the state
  if (usage >= HOT_USAGE) return "over";
  return isHot(usage, mean, points) ? "warm" : "";
}

function loadBar(usage, top, mean, points) {
  const box = make("div", undefined, "load");
  const track = bar(usage === null ? 0 : 100 * (usage / top));
  const kind = severity(usage, mean, points);
  if (kind) track.firstChild.classList.add(kind);
  for (const [kindOfMark, value] of [["mean", mean], ["threshold", mean + points]]) {
    if (mean < 0 || value > top) continue;
    const mark = make("div", undefined, kindOfMark);
    mark.style.left = `${100 * (value / top)}%`;
    track.append(mark);
  }
  box.append(track, make("span", percent(usage)));
  return box;
}

function stateCell(broker, mean, points) { // its word is as severe as its bar
  const kind = broker.state === "active" ? severity(broker.usage, mean, points) : "";
  const word = { over: "full", warm: "hot" }[kind] || broker.state;
  return make("td", word, "state", { over: "silent", warm: "draining" }[kind] || broker.state);
}

function meanUsage(brokers) { // of a cluster without isolation policies
  const known = brokers.map((broker) => broker.usage).filter((usage) => usage !== null);
  return known.length ? known.reduce((sum, usage) => sum + usage, 0) / known.length : -1;
}

function drawBrokers({ broker_rows: brokers, groups, group_words: words, hot_points: hot }) {
  at("broker-marks").textContent = "Long mark: the group's mean. Short mark: the threshold, "
    + `${hot} points above it. Amber: hot, above the threshold. Red: full, ${percent(HOT_USAGE)} or more.`;
  const points = hot / 100;
  const line = at("broker-groups");
  line.hidden = groups.length === 0;
  line.textContent = `Isolation groups: ${words}`;
  const means = new Map(groups.flatMap((one) => one.brokers.map((name) => [name, one.mean])));
  const mean = ({ broker }) => means.get(broker) ?? -1;
  const all = groups.length ? -1 : meanUsage(brokers);
  const order = [...brokers].sort((a, b) => mean(b) - mean(a)
    || a.group.localeCompare(b.group) || (b.usage ?? -1) - (a.usage ?? -1));
  const top = Math.max(1, ...brokers.map((broker) => broker.usage ?? 0));
  const meanOf = (broker) => (groups.length ? mean(broker) : all);
  if (order.length === 0) {
    const empty = make("td", "No broker is known yet. Each appears here when its agent has sent its "
      + "first report.", "dim");
    empty.colSpan = 7;
    replace(at("brokers"), [row(empty)]);
  } else replace(at("brokers"), order.slice(0, BROKERS_SHOWN).map((broker) => row(
    explainButton("broker", broker.broker),
    stateCell(broker, meanOf(broker), points),
    loadBar(broker.usage, top, meanOf(broker), points),
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
    move.state, wayCell(move), move.cause,
    make("td", duration(status.now_ms - move.at_ms), "number"),
  )));
}

function sentence(decision) { // a cycle or a broker without a move is its reason in words
  const reason = decision.messages[0];
  if (decision.kind === "skip" && reason) return `no move: ${reason}`;
  if (["blocked", "silence"].includes(decision.kind) && reason) return reason;
  return [decision.kind.replaceAll("_", " "), decision.bundle, way(decision)].filter(Boolean)
    .join(" ");
}

function drawDecisions(decisions, nowMs) {
  const box = at("decisions");
  if (decisions.length === 0) {
    box.replaceChildren(make("p", "None in the last hour. Each move, split, failover and placement "
      + "appears here with its reason.", "dim"));
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
    const text = sentence(decision);
    const isSaid = decision.kind === "silence" || text.includes(decision.why);
    const why = isSaid ? "" : `: ${decision.why}`;
    const outcome = decision.outcome ? `; ${decision.outcome.replaceAll("_", " ")}` : "";
    summary.append(make("span", `${clock(decision.at_ms)}`, "dim"), text + more,
      make("span", why + outcome, "dim"));
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
