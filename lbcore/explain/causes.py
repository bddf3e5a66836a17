"""Cause of a bundle's record: the decision or command behind it, in sentences.

Shared by the explanations beside it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lbcore.balancer.decisions.blocked_messages import BLOCKED, OVER, count_words
from lbcore.balancer.decisions.carrying_out import OBSERVE_ONLY
from lbcore.balancer.intake.broker_liveness import SILENCE
from lbcore.explain.explanation import ExplainRows, Row, count_of, number, percent
from lbcore.explain.noticed import silence_words
from lbcore.explain.reasons import REPAIRS, skip_words

_CAUSES: Mapping[str, str] = {
    "create": "its namespace was created",
    "assign": "it had no owner, and placement chose one",
    "admin": "an operator's command asked for it",
    "split": "its parent was split",
    "failover": "its owner was taken for dead",
    "repair": "a transition was stuck and was repaired",
    "drain": "its owner then was being emptied",
    "shed": "balancing moved it",
    "ack": "its owner acknowledged it; what began that is older than what was read",
}
_OUTCOMES: Mapping[str, str] = {
    "helped": "it helped",
    "no_better": "it did not help: the more loaded of the two is as loaded as before",
    "not_seen": "its effect was never seen: a broker did not report in time",
    "moved_elsewhere": "the bundle did not get there: cancelled, split or moved elsewhere",
}


def cause_words(rows: ExplainRows, record: Row) -> Iterable[str]:
    """Yield the cause of the record, and the decision behind it."""
    decision = rows.decision(record["decision_id"])
    cause = record["cause"]
    if cause == "ack" and decision is not None and decision["kind"] == "split":
        cause = "split"  # a child begins with its parent's broker's acknowledgement
    yield _CAUSES.get(cause, f"cause: {cause}")
    if record["command_id"] and (decision is None or "command_id" not in decision["inputs"]):
        yield f"command {record['command_id']}; the table `commands` has it"
    if decision is not None:
        yield from decision_words(rows, decision)
    elif record["decision_id"]:
        yield f"decision {record['decision_id']} is older than what was read (--window)"


def decision_words(rows: ExplainRows, decision: Row) -> Iterable[str]:
    """A decision: what, on which numbers, what was expected and what came of it."""
    inputs = json.loads(decision["inputs"])
    if decision["kind"] == BLOCKED:
        yield f"decision {decision['decision_id']}: {_what(decision)}"
        yield count_words(decision) if decision["reason"] != OVER else "it is over"
        return
    yield f"decision {decision['decision_id']} in cycle {decision['cycle']}: {_what(decision)}"
    yield from _grounds(decision, inputs)
    if inputs.get("refused"):
        yield f"it was not carried out: {refusal_words(inputs['refused'])}"
    if "source_usage_expected" in inputs:
        yield _expected(decision, inputs)
    for effect in rows.effects:
        if effect["decision_id"] == decision["decision_id"]:
            yield effect_words(effect)


def refusal_words(refused: str) -> str:
    """Return why a decision was not carried out."""
    if refused == OBSERVE_ONLY:
        return "cluster.observe_only is on"
    return f"the bundle's record refused it ({refused})"


def _what(decision: Row) -> str:
    """`transfer by avg (Overloaded) of BUNDLE from A to B`."""
    words = [decision["kind"]]
    words += [f"by {decision['strategy']}"] if decision["strategy"] else []
    words += [f"({decision['reason']})"]
    for name, label in (("bundle", "of"), ("source", "from"), ("destination", "to")):
        words += [f"{label} {decision[name]}"] if decision[name] else []
    return " ".join(words)


def _grounds(decision: Row, inputs: Mapping[str, Any]) -> Iterable[str]:
    """The numbers that decided, as far as there are words for them."""
    if "level" in inputs:
        partner, score = _partner(inputs)
        yield (
            f"{decision['source']} had {number(inputs['score'])} and {partner} "
            f"{number(score)}, the fair level{_group(inputs)} is "
            f"{number(inputs['level'])}; it takes {number(inputs['hits_low_needed'])} hits "
            f"{number(inputs['threshold_low'])} points away from it ({number(inputs['hits_low'])} "
            f"counted) or {number(inputs['hits_high_needed'])} hits "
            f"{number(inputs['threshold_high'])} away ({number(inputs['hits_high'])} counted)"
        )
    elif "difference" in inputs:
        partner, score = _partner(inputs)
        yield (
            f"{decision['source']} used {number(inputs['score'])} % and {partner} "
            f"{number(score)} %: {number(inputs['difference'])} points "
            f"apart; it takes {number(inputs['hits_low_needed'])} hits from "
            f"{number(inputs['threshold_low'])} ({number(inputs['hits_low'])} counted) or "
            f"{number(inputs['hits_high_needed'])} from {number(inputs['threshold_high'])} "
            f"({number(inputs['hits_high'])} counted)"
        )
    elif "usage" in inputs and "average" in inputs:
        yield (
            f"{decision['source']} was at {percent(inputs['usage'])}, the average at "
            f"{percent(inputs['average'])}"
        )
    elif "deviation" in inputs:
        yield (
            f"loads deviated by {number(100 * inputs['deviation'])} points, "
            f"{number(100 * inputs.get('target', 0.0))} are wanted"
        )
    if "excess" in inputs:
        yield (
            f"it was at {number(inputs['excess'])} times its limit ({decision['reason']}) in "
            f"{number(inputs['hits'])} reports in a row, {number(inputs.get('hits_needed', 0))} "
            "are needed"
        )
    if inputs.get("partner", decision["destination"]) != decision["destination"]:
        used = inputs.get("destination_usage")
        yield (
            f"{inputs['partner']} may not take this bundle, or not now: placement chose "
            f"{decision['destination'] or 'another broker'}"
            + (f", which used {percent(used)}" if used is not None else "")
        )
    yield from _origin(decision, inputs)
    if "bundles" in inputs:
        yield f"it concerned {count_of(int(inputs['bundles']), 'bundle')}"
    if decision["kind"] == "skip":
        yield skip_words(decision["reason"])


def _group(inputs: Mapping[str, Any]) -> str:
    """The size of the isolation group that a level is of; "" where the cluster is one group."""
    size = inputs.get("group_brokers")
    return f" of its isolation group of {count_of(int(size), 'broker')}" if size else ""


def _partner(inputs: Mapping[str, Any]) -> tuple[str, float]:
    """The broker that the strategy compared the source with, and that broker's number."""
    if "partner" in inputs:
        return inputs["partner"], inputs["score_of_partner"]
    # of a version that did not name it: it may be another one than the destination
    return "the broker that it was paired with", inputs["score_of_destination"]


def _origin(decision: Row, inputs: Mapping[str, Any]) -> Iterable[str]:
    """Yield the trigger of a decision outside balancing, and the result of a split."""
    if decision["kind"] == SILENCE:
        yield silence_words(decision, decision["at_ms"])
    if decision["kind"] in ("failover", "repair"):
        yield REPAIRS.get(decision["reason"], decision["reason"])
    if inputs.get("command_id"):
        yield f"command {inputs['command_id']} asked for it; the table `commands` has whose"
    if inputs.get("children"):
        yield f"it became {', '.join(inputs['children'])}"


def _expected(decision: Row, inputs: Mapping[str, Any]) -> str:
    words = (
        f"the bundle brings {number(inputs['msg_rate'])} msg/s; expected of all moves of that "
        f"cycle: {decision['source']} from {percent(inputs['source_usage'])} to "
        f"{percent(inputs['source_usage_expected'])}"
    )
    if "destination_usage_expected" not in inputs:
        return words
    return (
        f"{words}, {decision['destination']} from {percent(inputs['destination_usage'])} to "
        f"{percent(inputs['destination_usage_expected'])}"
    )


def effect_words(effect: Row) -> str:
    """Return the outcome of a move."""
    words = _OUTCOMES.get(effect["outcome"], effect["outcome"])
    if effect["outcome"] not in ("helped", "no_better"):
        return words
    moved_s = (effect["moved_ms"] - effect["decided_ms"]) / 1_000
    return (
        f"{words}: open at {effect['destination']} after {moved_s:.1f} s; {effect['source']} went "
        f"from {percent(effect['source_before'])} to {percent(effect['source_after'])}, "
        f"{effect['destination']} from {percent(effect['destination_before'])} to "
        f"{percent(effect['destination_after'])}"
    )
