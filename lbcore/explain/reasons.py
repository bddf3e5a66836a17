"""Sentences for labels and decisions: skips, verdicts, distances, causes.

Every label that the planner writes has its sentence here; an unknown label is shown as it is.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lbcore.balancer.brokers import SILENCE
from lbcore.balancer.candidate_rows import BLOCKED, ENDED, count_message
from lbcore.balancer.moves import OBSERVE_ONLY
from lbcore.explain.explanation import ExplainRows, Row, count_of, number, percent
from lbcore.explain.recent_findings import silence_message
from lbcore.model.times import duration, instant
from lbcore.plan.split.decision import SplitReason

SKIPS: Mapping[str, str] = {
    "HitCount": "no broker is beyond its threshold for enough reports in a row yet",
    "NoBundles": "brokers are beyond their thresholds, but no bundle may move or no move helps",
    "NoOverloadedBroker": "no broker is beyond the strategy's threshold",
    "NotThisCycle": "shedding has an interval of its own (pipeline.shed_interval_ms)",
    "Disabled": "shedding is switched off (shedding.is_balancing, shedding.is_shedding)",
    "NoBrokers": "fewer than two brokers are open to balancing",
    "NoDestination": "bundles were to move, but no other broker may take them",
    "Limit": "bundles were to move, but the limits on moves at once left no room",
    "NoLoadData": "brokers are idle, or have not reported their load",
    "CoolDown": "a broker has shed a short while ago (transfer.shedding_delay_ms)",
    "Unknown": "the registered brokers are not known",
    "Paused": "balancing is paused for the whole cluster; `ballast resume` ends it",
    "Brake": "the brake is on because many brokers vanished at once;"
    " `ballast resume --release-brake`",
    "OutDatedData": "reports are too old to decide on: the job is behind, or none arrive",
    "StaleReports": "too many brokers' reports are old: nothing is shed or split on them",
    "JustRestarted": "too many brokers have just started: their load says little yet",
    "unsplittable": "it is over a limit, and its load is one topic's: no split makes it smaller",
    "StrategyMissing": "the strategy that is set is not installed, so nothing is shed: install it"
    " and start the job again, or `ballast config set shedding.strategy=...` another",
    "StrategyFailed": "the strategy raised an error, which the row names, so nothing was shed: mend"
    " it, try it with `ballast plan --dry-run --strategy`, and start the job again",
    "StrategyAnswer": "the strategy's answer makes no sense, for the reason that the row names, so"
    " nothing was shed: mend it and start the job again",
    "StrategyUnsteady": "the strategy answered differently when it was asked again, so nothing was"
    " shed: it may not read clocks, randomness or anything else it isn't given",
    "PlanWaits": "a plan waits for a person, or is being carried out for one: `ballast plan list`",
    "QuietHours": "these are quiet hours (cluster.quiet_hours): nothing is shed or split",
    "NoBrokerBelowLowerBoundary": "no broker is far above, and none far below the average",
}

VERDICTS: Mapping[str, str] = {
    "ok": "may be moved",
    "taken": "was chosen",
    "runner_up": "came second",
    "not_needed": "was not needed: others made up what had to go",
    "over_budget": "did not fit into what was to be moved",
    "cycle_limit": "waited: as many moves as one cycle may have (shedding.max_moves_per_cycle)",
    "broker_limit": "waited: as many moves as one broker may have in a cycle",
    "in_flight_limit": "waited: as many moves as may be under way",
    "hour_limit": "waited: as many moves as an hour may have (shedding.max_moves_per_hour)",
    "tenant_limit": "waited: as many moves as its tenant may have in an hour"
    " (shedding.max_moves_per_hour_of_tenant)",
    "role_cool_down": "waited: a broker that shed recently gets no bundles, and the reverse",
    "too_few_hits": "too few reports in a row beyond the threshold",
    "below_threshold": "below the threshold",
    "below_min_unload": "what may move is less than is worth moving (shedding.min_unload_*)",
    "below_min_throughput": "what would move is below shedding.min_throughput_mib_per_s",
    "no_fitting_bundle": "each bundle that may move is larger than what is to be moved",
    "no_gain": "no move or exchange of its bundles gains more than it costs",
    "suspended": "it got hotter although it carries less: look for another process on it",
    "search_steps": "waited: the search of the round was at its end (1,000 steps)",
    "churn_budget": "waited: the round has moved what its budget allows (ideal_load.churn_budget)",
    "no_eligible_bundle": "none of its bundles may move now",
    "sole_bundle": "it has one bundle only",
    "no_bundles": "it has no bundle",
    "draining": "is being drained",
    "flapping": "starts again and again",
    "suspected": "has sent no heartbeat for too long, and may be dead",
    "current_owner": "has it already",
    "pinned_elsewhere": "the bundle is pinned to another broker",
    "not_in_policy": "the namespace's isolation policy does not admit it",
    "secondary_not_needed": "is only a secondary of the isolation policy",
    "reserved_by_policy": "is reserved for other namespaces by an isolation policy",
    "too_many_topics": "has as many topics as a broker may have",
    "older_version": "runs an older version",
    "failure_domain": "is in a failure domain that has more of the group",
    "anti_affinity": "holds as many namespaces of the same group",
    "uneven": "has more of the namespace's bundles than others",
    "excluded_namespace": "the namespace is excluded from shedding",
    "recently_unloaded": "moved a short while ago, or is in a rejected plan",
    "pinned": "is pinned where it is",
    "no_other_broker": "no other broker may take it",
    "no_destination": "found no destination",
    "load_manager_class": "has another load manager class (filters.load_manager_class)",
    "in_flight": "was in flight",
    "deferred": "was in flight, about to move or merge, paused, or in a rejected plan",
    "merging": "waits for its merge with a neighbour, and stays until that is done or given up",
    "system_namespace": "belongs to its broker (system namespace)",
    "paused": "balancing is paused for its namespace",
    "hit_count": "over a limit, but not for enough reports in a row yet",
    "unowned": "has no owner",
    "single_topic": "cannot be split because it has one topic at most",
    "single_hash": "cannot be split because its load is at one hash position",
    "narrow_range": "cannot be split because its range is too narrow",
    "namespace_full": "cannot be split because its namespace has as many bundles as it may have",
    "within_tolerance": "is not split because its halves would be as uneven",
    "no_boundary": "cannot be split because no boundary divides its load",
}


REPAIRS: Mapping[str, str] = {
    "owner_dead": "its owner was silent for ownership.broker_timeout_ms",
    "destination_dead": "the broker that was to open it was silent for ownership.broker_timeout_ms",
    "source_dead": "the broker that was to close or split it was silent for"
    " ownership.broker_timeout_ms",
    "restarted": "its broker had restarted, and no longer had it open",
    "never_opened": "its destination did not open it within ownership.in_flight_timeout_ms",
    "never_closed": "its owner did not close it in time (ownership.in_flight_timeout_ms, or"
    " unload_timeout_ms while it reports progress), and keeps it",
    "never_split": "its owner did not split it in time, and keeps it",
    "never_merged": "its owner did not merge it in time, or its neighbour was taken away",
    "cannot_serve": "the broker that was to open or split it answered that it can't",
    "still_closing": "its owner was still closing it",
}


_FAIR_SHARE = SplitReason.FAIR_SHARE.value
_MOVES: Mapping[str, str] = {
    "Overloaded": "its broker was above the ideal load or the threshold",
    "Underloaded": "the destination was below the ideal load or the threshold",
    "Crowded": "few brokers had too many partitions of one topic",
    "Unowned": "it had no owner",
    "Pinned": "it is pinned to the destination",
    "Draining": "its broker is being drained",
    "Admin": "an operator's command",
    "Proposed": "your own strategy chose it, or it is a step of an approved plan",
    "Topics": "it had more topics than a bundle may have",
    "Sessions": "it had more sessions than a bundle may have",
    "MsgRate": "it had more messages than a bundle may have",
    "Bandwidth": "it had more bytes than a bundle may have",
    _FAIR_SHARE: "it was too large for a move to even out the brokers",
    "Cold": "the two had little traffic",
    ENDED: "the broker is no longer blocked",
}
_OF_KIND: Mapping[tuple[str, str], str] = {
    ("plan", "Proposed"): "it waits for somebody",
    ("full", ENDED): "the cluster is no longer full",
    (SILENCE, ENDED): "most brokers are heard again",
}
"""Sentences of labels that mean something else in decisions of a kind."""


def reason_message(reason: str, kind: str = "") -> str:
    """Return the sentence for a decision's reason; the label itself if there is none.

    kind: of the decision.
    """
    if (kind, reason) in _OF_KIND:
        return _OF_KIND[kind, reason]
    words = (_MOVES, REPAIRS, SKIPS, VERDICTS)
    return next((found[reason] for found in words if reason in found), reason)


def cycle_message(rows: Iterable[Row]) -> str:
    """Return the decisions of a cycle, such as `2 transfer (HitCount)`, by count."""
    counts = Counter((row["kind"], row["reason"]) for row in rows)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {kind} ({reason})" for (kind, reason), count in ordered)


def skip_message(reason: str) -> str:
    """Return why a cycle did nothing."""
    return SKIPS.get(reason, reason)


def verdict_message(verdict: str) -> str:
    """Return the sentence for the verdict of a filter, limit or phase on a candidate."""
    return VERDICTS.get(verdict, verdict)


def trigger_of(candidate: Row) -> dict[str, Any]:
    """Return a broker's row of decision_candidates in the form of a skip's `nearest`."""
    detail = json.loads(candidate["detail"])
    return {
        "broker": candidate["subject"],
        "partner": candidate["broker"],
        "verdict": candidate["verdict"],
        "measure": detail.get("measure", ""),
        "number": candidate["number"],
        "levels": detail.get("levels", []),
        **{name: detail[name] for name in ("movable", "takers", "refusal") if name in detail},
    }


def trigger_message(trigger: Mapping[str, Any], *, when: str = "now") -> str:
    """Return a sentence on how far a broker is from shedding.

    Example: `120 ... now; needs 7 more hits at or above 15`. when: "then" for the past.
    """
    now, levels = float(trigger["number"]), trigger["levels"]
    partner = f" ({trigger['partner']})" if trigger.get("partner") else ""
    conditions = [_condition(now, level) for level in levels]
    measured = f"{_beside(now, levels)} {trigger['measure']}{partner}"
    verdict = trigger.get("verdict", "")
    if verdict == "taken":  # its hits count from 0 again
        return f"{measured} then"
    if verdict not in ("", "too_few_hits", "below_threshold"):  # it had enough hits
        return f"{measured} {when}, beyond its threshold for long enough"
    verb = "needs" if when == "now" else "needed"
    return f"{measured} {when}; {verb} {', or '.join(conditions)}{_destination_message(trigger)}"


def _destination_message(trigger: Mapping[str, Any]) -> str:
    """Return why hits may not move bundles to the compared broker; "" = they do."""
    if "movable" not in trigger:  # a verdict of the strategy, not a trigger
        return ""
    if not trigger["movable"]:
        return "; but none of its bundles may move"
    if not trigger["takers"]:
        return "; but no other broker may take any of its bundles"
    if not trigger["refusal"]:
        return ""
    others = f"{trigger['takers']} other broker" + ("" if trigger["takers"] == 1 else "s")
    return (
        f"; but {trigger['partner']} may take none of its bundles "
        f"({verdict_message(trigger['refusal'])}), so they would go to one of {others}, if to any"
    )


def _beside(now: float, levels: Iterable[Mapping[str, Any]]) -> str:
    """Return the number with enough digits to differ from each threshold as shown."""
    thresholds = [float(level["threshold"]) for level in levels]
    shown = (number(now), *(f"{now:,.{digits}f}" for digits in range(2, 7)))
    for text in shown:
        value = math.nan if text == "-" else float(text.replace(",", ""))
        if all(now == at or value != at for at in thresholds):
            return text
    return shown[-1]


def _condition(now: float, level: Mapping[str, Any]) -> str:
    """Return the hits that are missing at one level, as text."""
    missing = max(0, int(level["needed"]) - int(level["hits"]))
    threshold = number(float(level["threshold"]))
    if now < float(level["threshold"]):
        hits = "hit" if level["needed"] == 1 else "hits in a row"
        return f"{level['needed']} {hits} at or above {threshold}"
    hits = f"{'more ' if level['hits'] else ''}hit{'' if missing == 1 else 's'}"
    so_far = f"({level['hits']} of {level['needed']} so far)"
    return f"{missing} {hits} at or above {threshold} {so_far}"


def since_message(at_ms: int, now_ms: int) -> str:
    """Return an instant, and how long ago it is."""
    return f"{instant(at_ms)}, {duration(max(0, now_ms - at_ms))} ago"


_CAUSES: Mapping[str, str] = {
    "create": "its namespace was created",
    "assign": "it had no owner, and placement chose one",
    "admin": "an operator's command asked for it",
    "split": "its parent was split",
    "merge": "it was to be merged with its neighbour",
    "merged": "two neighbours were merged into it",
    "not merged": "its owner did not merge it with its neighbour; only a command tries it again"
    " before it moves",
    "failover": "its owner was found dead",
    "repair": "a transition was stuck and was repaired",
    "drain": "its owner then was being drained",
    "shed": "balancing moved it",
    "ack": "its owner acknowledged it; the decision is older than the rows that were read",
}
_OUTCOMES: Mapping[str, str] = {
    "helped": "it helped",
    "ineffective": "it did not help: the more loaded of the two is as loaded as before",
    "unobserved": "its effect was never seen: a broker did not report in time",
    "moved_elsewhere": "the bundle did not get there: cancelled, split or moved elsewhere",
}


def cause_messages(rows: ExplainRows, record: Row) -> Iterable[str]:
    """Yield the cause of the record, and the decision behind it."""
    decision = rows.decision(record["decision_id"])
    cause = record["cause"]
    if cause == "ack" and decision is not None:
        # a child's first record is made by the ack of its parent's broker
        cause = {"split": "split", "merge": "merged"}.get(decision["kind"], cause)
    if cause == "merge" and record["state"] == "Owned":
        cause = "not merged"
    yield _CAUSES.get(cause, f"cause: {cause}")
    if record["command_id"] and (decision is None or "command_id" not in decision["inputs"]):
        yield f"command {record['command_id']}; the table `commands` has it"
    if decision is not None:
        yield from decision_messages(rows, decision)
    elif record["decision_id"]:
        yield f"decision {record['decision_id']} is older than what was read (--window)"


def decision_messages(rows: ExplainRows, decision: Row) -> Iterable[str]:
    """Yield what was decided, the numbers behind it, the expectation and the outcome."""
    inputs = json.loads(decision["inputs"])
    if decision["kind"] == BLOCKED:
        yield f"decision {decision['decision_id']}: {_what(decision)}"
        yield count_message(decision) if decision["reason"] != ENDED else "it is over"
        return
    yield f"decision {decision['decision_id']} in cycle {decision['cycle']}: {_what(decision)}"
    yield from _grounds(decision, inputs)
    refused = inputs.get("refused")
    if refused == OBSERVE_ONLY:
        yield "it was not carried out: cluster.observe_only is on"
    elif refused:
        yield f"it was not carried out: the bundle's record refused it ({refused})"
    if "source_usage_expected" in inputs:
        changes = (
            f"{decision[role]} from {percent(inputs[f'{role}_usage'])} to "
            f"{percent(inputs[f'{role}_usage_expected'])}"
            for role in ("source", "destination")
            if f"{role}_usage_expected" in inputs
        )
        yield (
            f"the bundle brings {number(inputs['msg_rate'])} msg/s; expected of all moves of that "
            f"cycle: {', '.join(changes)}"
        )
    for effect in rows.effects:
        if effect["decision_id"] == decision["decision_id"]:
            yield effect_message(effect)


def _what(decision: Row) -> str:
    """Return `transfer by avg (Overloaded) of BUNDLE from A to B`."""
    by = f" by {decision['strategy']}" if decision["strategy"] else ""
    labels = (("bundle", "of"), ("source", "from"), ("destination", "to"))
    moved = (f" {label} {decision[name]}" for name, label in labels if decision[name])
    return f"{decision['kind']}{by} ({decision['reason']}){''.join(moved)}"


def _grounds(decision: Row, inputs: Mapping[str, Any]) -> Iterable[str]:
    """Yield sentences on the inputs that decided; some inputs have none."""
    # a row of an older version does not name the partner, which need not be the destination
    partner = inputs.get("partner", "the broker that it was paired with")
    score = inputs.get("score_of_partner", inputs.get("score_of_destination"))
    if "level" in inputs:
        size = inputs.get("group_brokers")  # None: all brokers are one group
        group = f" of its isolation group of {count_of(int(size), 'broker')}" if size else ""
        yield (
            f"{decision['source']} had {number(inputs['score'])} and {partner} "
            f"{number(score)}, the ideal load{group} is "
            f"{number(inputs['level'])}; it takes {number(inputs['hits_low_needed'])} hits "
            f"{number(inputs['threshold_low'])} points away from it ({number(inputs['hits_low'])} "
            f"counted) or {number(inputs['hits_high_needed'])} hits "
            f"{number(inputs['threshold_high'])} away ({number(inputs['hits_high'])} counted)"
        )
    elif "difference" in inputs:
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
    if "excess" in inputs and decision["reason"] == _FAIR_SHARE:
        yield f"it had {number(inputs['excess'])} times what the strategy wants one bundle to have"
    elif "excess" in inputs:
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
        yield skip_message(decision["reason"])


def _origin(decision: Row, inputs: Mapping[str, Any]) -> Iterable[str]:
    """Yield the trigger of a decision outside balancing, and the result of a split."""
    if decision["kind"] == SILENCE:
        yield silence_message(decision, decision["at_ms"])
    if decision["kind"] in ("failover", "repair"):
        yield REPAIRS.get(decision["reason"], decision["reason"])
    if inputs.get("command_id"):
        yield f"command {inputs['command_id']} asked for it; the table `commands` has whose"
    if inputs.get("children"):
        yield f"it became {', '.join(inputs['children'])}"
    if inputs.get("merged"):
        yield f"{' and '.join(inputs['parents'])} become {inputs['merged']}"


def effect_message(effect: Row) -> str:
    """Return the outcome of a move."""
    words = _OUTCOMES.get(effect["outcome"], effect["outcome"])
    if effect["outcome"] not in ("helped", "ineffective"):
        return words
    moved_s = (effect["moved_ms"] - effect["decided_ms"]) / 1_000
    return (
        f"{words}: open at {effect['destination']} after {moved_s:.1f} s; {effect['source']} went "
        f"from {percent(effect['source_before'])} to {percent(effect['source_after'])}, "
        f"{effect['destination']} from {percent(effect['destination_before'])} to "
        f"{percent(effect['destination_after'])}"
    )
