"""Candidate rows: why each candidate of a plan was not chosen, as rows and in sentences."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbcore.balancer.state.effects import Row, to_json
from lbcore.balancer.state.work import Work
from lbcore.model.tables import DECISION_CANDIDATES
from lbcore.model.times import duration, instant
from lbcore.plan.decision import PLACEMENTS_NAMED
from lbcore.plan.phases.assign import PHASE as ASSIGN
from lbcore.plan.shed.gauge import Gauge
from lbcore.plan.snapshot import Ints
from lbcore.plan.trace import CandidateVerdict, Columns, GaugeRows, PlacementRows, Trace

HELD, OVER = "held", "Over"
"""The kind of these rows, whose source is the broker and reason the rule; the reason of the end."""
VALID_MS = 600_000
"""Validity of such a row, ms: hits may take so long to be complete again."""

_RULES: Mapping[str, tuple[str, str]] = {
    "grace": ("moved a short while ago (grace)", "a shorter grace"),
    "cool_down": ("got another owner a short while ago (cool-down)", "a shorter cool-down"),
    "pinned": ("pinned to it", "`ballast bundle unpin`"),
    "excluded_namespace": ("in namespaces excluded from shedding", "`ballast namespace include`"),
    "paused_namespace": ("in namespaces for which balancing is paused", "`ballast resume`"),
    "in_flight": ("changing hands", "the end of these moves"),
    "max_moves_per_cycle": ("as many moves as one cycle may have", "a higher limit"),
    "max_moves_per_broker": ("as many moves as one broker may have", "a higher limit"),
    "max_moves_per_namespace": ("the budget of moves of its namespaces", "a higher limit"),
    "max_moves_in_flight": ("as many moves as may be under way", "a higher limit"),
    "role_cool_down": ("a broker that gave of late does not take, nor the other way round", "time"),
    "isolation": (
        "isolation policies keep its bundles from brokers with room",
        "another isolation policy",
    ),
    "anti_affinity": (
        "anti-affinity groups keep its bundles from brokers with room",
        "another group",
    ),
    "max_topics": ("brokers with room have as many topics as they may", "a higher limit"),
    "distribute_evenly": ("other brokers have more bundles of its namespaces", "even=false"),
    "older_version": ("other brokers run older versions", "upgrading them"),
    "flapping": ("other brokers start again and again", "a broker that stays up"),
    "suspected": ("other brokers have not been heard of for too long", "their next heartbeat"),
    "policies_not_shed": ("bundles of namespaces with policies are not shed", "the setting"),
    "min_unload": ("what may move is less than is worth moving", "a lower bound"),
    "min_throughput": ("what would move is less than is worth moving", "a lower bound"),
    "unload_budget": (
        "each of {bundles} is larger than what is to be moved",
        "a split of its largest bundle, or a larger part",
    ),
    "churn_budget": ("the round has moved what its budget allows", "a larger budget"),
    "left_alone": (
        "it got worse although it carries less, so nothing more is taken from it",
        "what else uses it",
    ),
    "shedding_delay": ("it gave a short while ago", "a shorter delay"),
}
"""Rule → what it is, and what would free the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStatus:
    """A broker that is hot and gives nothing. since_ms: since when it is hot; words: the alarm.

    reason: the rule; until_ms: when the last bundle that it holds is free by itself, 0 = never.
    """

    broker: str
    reason: str
    since_ms: int
    until_ms: int
    words: str


def is_believed(told_ms: int, now_ms: int) -> bool:
    """True if a message of told_ms is still valid, as no shedding may have run since."""
    return now_ms - told_ms <= VALID_MS


def held_status(rows: Iterable[Mapping[str, Any]], now_ms: int) -> tuple[HeldStatus, ...]:
    """Return the brokers held now, in name order. O(rows log rows).

    rows: of `decisions`, in any order.
    """
    newest: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["at_ms"])):
        if row["kind"] == HELD:
            newest[str(row["source"])] = row
    return tuple(
        _status(row, now_ms)
        for _, row in sorted(newest.items())
        if row["reason"] != OVER and is_believed(row["at_ms"], now_ms)
    )


def _status(row: Mapping[str, Any], now_ms: int) -> HeldStatus:
    inputs = json.loads(row["inputs"])
    until = [cause["last_ms"] for cause in inputs["causes"]]
    since_ms = int(inputs["since_ms"])
    words = "; ".join((*held_words(row), *breakdown_words(row)))
    hot = f"hot for {duration(now_ms - since_ms)}" if now_ms > since_ms else "hot"
    return HeldStatus(
        broker=str(row["source"]),
        reason=str(row["reason"]),
        since_ms=since_ms,
        until_ms=0 if 0 in until else max(until, default=0),
        words=f"{row['source']} is {hot} and gives nothing ({_usage(inputs)}): {words}",
    )


def _usage(inputs: Mapping[str, Any]) -> str:
    return f"usage {100 * inputs['usage']:.0f} %, mean {100 * inputs['mean']:.0f} %"


def held_words(row: Mapping[str, Any]) -> list[str]:
    """A sentence for each rule that holds the broker."""
    inputs = json.loads(row["inputs"])
    causes = inputs["causes"]
    if not causes:
        return [f"no rule that can be lifted holds it ({inputs['verdict']}): its bundles stay"]
    is_joint = inputs["is_joint"] and len(causes) > 1
    words = [_cause(cause, inputs, is_joint=is_joint) for cause in causes]
    if is_joint:
        words = [f"only together: {word}" for word in words]
    return words


def breakdown_words(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the number of bundles held per rule; counts add up to the broker's total."""
    inputs = json.loads(row["inputs"])
    if len(inputs["causes"]) < 2 or not inputs.get("blocked"):  # noqa: PLR2004 (the one says it)
        return
    parts = [f"{count} held by {rules}" for rules, count in sorted(inputs["blocked"].items())]
    listed = ", ".join([*parts, f"{inputs['free']} by no rule"])
    yield f"its {inputs['bundles']} bundles: {listed}"


def _cause(cause: Mapping[str, Any], inputs: Mapping[str, Any], *, is_joint: bool) -> str:
    bundles, free = inputs["bundles"], inputs.get("free", 0)
    about, frees = _RULES.get(cause["rule"], (cause["rule"], "its end"))
    # what holds only together with other rules holds those bundles, too, that they hold
    which = f"the {free} that no rule holds" if free and not is_joint else "its bundles"
    about = about.format(bundles=which)
    held = f"{cause['bundles']} of its {bundles} bundles are {about}" if cause["bundles"] else about
    if cause["bundles"] and about.startswith(("moved", "got")):
        held = f"{cause['bundles']} of its {bundles} bundles {about}"
    until = ""
    if cause["last_ms"]:
        until = f", the first until {instant(cause['first_ms'])}"
        until += f", the last until {instant(cause['last_ms'])}"
    setting = f" ({cause['setting']})" if cause["setting"] else ""
    return f"held by {cause['rule']}: {held}{until}; {frees}{setting} would free it"


NEAR = 0.8
"""Part of the way to a threshold from which a broker is near it."""
BROKERS_NAMED, BUNDLES_NAMED, SOURCES_NAMED, LOSERS_NAMED = 20, 20, 20, 3
LABELS_NAMED = 6

_DONE = frozenset({"taken", "split", "ok"})
_NOTHING: Row = {
    "decision_id": "",
    "broker": "",
    "number": math.nan,
    "threshold": math.nan,
    "hits": 0,
    "hits_needed": 0,
    "count": 1,
    "detail": "{}",
}


GAUGE_DETAIL = ("measure", "levels", "movable", "takers", "refusal")
"""Fields in the `detail` of a broker's row; see `trace.GaugeRows`."""


def write_candidates(work: Work, trace: Trace, ids: Mapping[str, str]) -> None:
    """The rows of one cycle. ids: bundle → decision that was made about it. O(trace)."""
    rows = [*_near_brokers(trace), *_losers(trace), *_placements(trace, ids)]
    if ids:
        rows += _counted(trace.counts(), "eligible")
    for row in rows:
        work.add_row(DECISION_CANDIDATES.name, {**_NOTHING, **row, "cycle": work.times.cycle})


def skip_inputs(trace: Trace) -> dict[str, Any]:
    """Return why a cycle did nothing: its numbers, verdict counts, nearest broker."""
    found: dict[str, Any] = {
        "numbers": {k: v for k, v in sorted(trace.numbers.items()) if math.isfinite(v)},
        "counts": dict(sorted(trace.counts().items())),
    }
    for part in trace.parts:
        if isinstance(part, GaugeRows):
            order = _by_nearness(part.gauge, part.verdicts)[:1]
            found["nearest"] = [_gauge_words(trace, part, at) for at in order]
    return found


def _near_brokers(trace: Trace) -> Iterator[Row]:
    for part in trace.parts:
        if not isinstance(part, GaugeRows):
            continue
        nearness = part.gauge.nearness()
        near = [at for at in _by_nearness(part.gauge, part.verdicts) if nearness[at] >= NEAR]
        for at in near[:BROKERS_NAMED]:
            words = _gauge_words(trace, part, at)
            first = words["levels"][0]
            yield {
                "phase": part.phase,
                "subject": words["broker"],
                "broker": words["partner"],
                "verdict": words["verdict"],
                "number": words["number"],
                "threshold": float(first["threshold"]),
                "hits": first["hits"],
                "hits_needed": first["needed"],
                "detail": to_json({name: words[name] for name in GAUGE_DETAIL}),
            }
        rest = Counter(part.verdicts[at] for at in near[BROKERS_NAMED:])
        yield from _rest(part.phase, rest)


def _by_nearness(gauge: Gauge, verdicts: Iterable[str]) -> list[int]:
    """The brokers that are judged, the nearest first; of equal ones the first."""
    nearness = gauge.nearness()
    shown = np.array([bool(text) for text in verdicts], dtype=np.bool_)
    order = np.argsort(-np.where(np.isnan(nearness), -np.inf, nearness), kind="stable")
    return [at for at in order.tolist() if shown[at] and not math.isnan(nearness[at])]


def _gauge_words(trace: Trace, part: GaugeRows, at: int) -> dict[str, Any]:
    partner = int(part.gauge.partner[at])
    return {
        "broker": trace.brokers[at],
        "partner": trace.brokers[partner] if partner >= 0 else "",
        "verdict": part.verdicts[at],
        "measure": part.gauge.measure,
        "number": float(part.gauge.number[at]),
        "levels": [dict(level) for level in part.gauge.of(at)],
        "movable": int(part.movable[at]),
        "takers": int(part.takers[at]),
        "refusal": part.refusals[at],
    }


def _losers(trace: Trace) -> Iterator[Row]:
    """Of each phase's candidates: those that came nearest, by name; the others as counts."""
    rest: Counter[tuple[str, str]] = Counter()
    parts = [part for part in trace.parts if isinstance(part, Columns)]
    shown = [p for p in parts if p.phase != "eligible" and p.subjects != trace.brokers]
    sources = 0
    for part in shown:
        order = _lost(part)
        is_source = part.phase == "shed"
        sources += is_source
        named = LOSERS_NAMED if is_source else BUNDLES_NAMED
        if sources > SOURCES_NAMED and is_source:
            named = 0
        for at in order[:named].tolist():
            yield _column_row(trace, part, at)
        for verdict in part.verdict[order[named:]].tolist():
            rest[part.phase, part.verdicts[verdict]] += 1
    for (phase, verdict), count in sorted(rest.items()):
        yield from _rest(phase, {verdict: count})


def _lost(part: Columns) -> Ints:
    """Rows of a part that were not taken: by hits and number where hits count, else as they are."""
    is_lost = np.array([text not in _DONE for text in part.verdicts], dtype=np.bool_)
    rows: Ints = np.flatnonzero(is_lost[part.verdict])
    if part.hits is None:
        return rows
    return rows[np.lexsort((-part.number[rows], -part.hits[rows]))]


def _column_row(trace: Trace, part: Columns, at: int) -> Row:
    broker = int(part.broker[at])
    row: Row = {
        "phase": part.phase,
        "subject": part.subjects[int(part.subject[at])],
        "broker": trace.brokers[broker] if broker >= 0 else "",
        "verdict": part.verdicts[int(part.verdict[at])],
        "number": float(part.number[at]),
    }
    if part.hits is not None:
        row |= {"hits": int(part.hits[at]), "hits_needed": part.needed, "threshold": 1.0}
    if part.reason is not None:
        row["detail"] = to_json({"limit": part.reasons[int(part.reason[at])]})
    return row


def _placements(trace: Trace, ids: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of placements, with the reasons for each destination or none.

    Bundles beyond those named are only counted, by decision.
    """
    left = PLACEMENTS_NAMED
    rest: Counter[str] = Counter()
    for part in trace.parts:
        if not isinstance(part, PlacementRows):
            continue
        for at, (subject, chosen) in enumerate(
            zip(part.subject.tolist(), part.chosen.tolist(), strict=True)
        ):
            name = part.subjects[subject]
            if left and (name in ids or chosen < 0):
                left -= 1
                yield from _placement(trace, part, at, ids.get(name, ""))
            elif name in ids:
                rest[ids[name]] += 1
        others = (part.subjects[subject] for subject in part.others.tolist())
        rest.update(ids[name] for name in others if name in ids)
    for decision_id, count in sorted(rest.items()):
        for row in _rest(ASSIGN, {CandidateVerdict.TAKEN.value: count}):
            yield {**row, "decision_id": decision_id}


def _placement(trace: Trace, part: PlacementRows, at: int, decision_id: str) -> Iterator[Row]:
    common = {
        "phase": part.phase,
        "decision_id": decision_id,
        "subject": part.subjects[int(part.subject[at])],
    }
    for verdict, broker, number in (
        (CandidateVerdict.TAKEN.value, int(part.chosen[at]), float(part.number[at])),
        (
            CandidateVerdict.RUNNER_UP.value,
            int(part.runner_up[at]),
            float(part.runner_up_number[at]),
        ),
    ):
        if broker >= 0:
            named = {"broker": trace.brokers[broker], "verdict": verdict, "number": number}
            yield {**common, **named}
    codes, first, counts = np.unique(part.verdicts[at], return_index=True, return_counts=True)
    refused = [row for row in zip(codes, first, counts, strict=True) if row[0]]
    for code, example, count in refused[:LABELS_NAMED]:
        named = {"broker": trace.brokers[int(example)], "verdict": part.labels[int(code)]}
        yield {**common, **named, "count": int(count)}


def _counted(counts: Mapping[str, int], phase: str) -> Iterator[Row]:
    """Count rows of one phase, from "phase.verdict" → how many."""
    of = {key.partition(".")[2]: n for key, n in counts.items() if key.startswith(f"{phase}.")}
    return _rest(phase, of)


def _rest(phase: str, counts: Mapping[str, int]) -> Iterator[Row]:
    for verdict, count in sorted(counts.items()):
        yield {"phase": phase, "subject": "", "verdict": verdict, "count": count}
