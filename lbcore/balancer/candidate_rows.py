"""Candidate rows of a plan's trace; messages for hot brokers that shed nothing.

A row says why a candidate was not chosen. The messages read rows of `decisions` of the kind
`blocked`, which `cycle` writes; status, page, explain and the alarm have the same words.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.effects import Row, to_json
from lbcore.model.tables import DECISION_CANDIDATES
from lbcore.model.times import duration
from lbcore.plan.blocked import FREE
from lbcore.plan.decision import (
    PLACEMENTS_NAMED,
    CandidateVerdict,
    Columns,
    Trace,
    TriggerRows,
)
from lbcore.plan.filter.index import LABELS, FilterVerdict
from lbcore.plan.phases import assign, eligible, shed
from lbcore.plan.place.request import PlacementRows
from lbcore.plan.snapshot import Ints

BLOCKED, ENDED = "blocked", "Over"
"""The kind of these rows, whose source is the broker; the reason of the row that ends them."""
BLOCKED_ALARM_S = 180
"""A broker is hot and gives nothing for so long before it is an alarm."""
VALID_MS = 600_000
"""Validity of such a row, ms: hits may take so long to be complete again."""

_BUNDLES: Mapping[str, str] = {
    "recently_unloaded": "moved a short while ago, or are in a rejected plan",
    "pinned": "are pinned to it",
    "excluded_namespace": "are in namespaces excluded from shedding",
    "paused": "are in namespaces for which balancing is paused",
    "in_flight": "are changing hands",
    "merging": "wait for their merge with a neighbour",
    "system_namespace": "are its own (system namespace)",
    "no_other_broker": "may go to no other broker",
    "no_destination": "found no destination",
    "anti_affinity": "would come back (anti-affinity groups)",
    "over_budget": "did not fit into what was to be moved",
    "cycle_limit": "waited (shedding.max_moves_per_cycle)",
    "broker_limit": "waited: as many as one broker may have in a cycle",
    "in_flight_limit": "waited: 2,000 moves are under way",
    "hour_limit": "waited (shedding.max_moves_per_hour)",
    "tenant_limit": "waited (shedding.max_moves_per_hour_of_tenant)",
    "role_cool_down": "waited (shedding.cool_down_ms)",
}
_STRATEGY: Mapping[str, str] = {
    "no_fitting_bundle": "each is larger than what is to be moved",
    "no_gain": "no move or exchange gains more than it costs",
    "suspended": "it got worse although it carries less",
    "below_min_unload": "all of them are less than is worth moving",
    "below_min_throughput": "all of them are less than is worth moving",
    "churn_budget": "the round has moved what its budget allows",
    "search_steps": "the round's search was at its end, after 1,000 steps",
    "too_few_hits": "too few reports in a row",
}
"""The strategy's verdict on a broker → why it left the bundles that no rule stopped."""


_LIMIT = "another value of the limit: `ballast config set`"
_PLACES = "one more broker, or other policies: `ballast policy list`"
_REMEDIES: Mapping[str, str] = {
    "recently_unloaded": "`ballast config set shedding.grace_period_ms=0`, and the same of"
    " shedding.cool_down_ms",
    "pinned": "`ballast bundle unpin`",
    "excluded_namespace": "`ballast namespace include`",
    "paused": "`ballast resume`",
    "no_other_broker": "one more broker that its policies admit",
    "no_destination": _PLACES,
    "anti_affinity": "another group: `ballast policy list`",
    "role_cool_down": "`ballast config set shedding.cool_down_ms=0`",
    "no_fitting_bundle": "a split of the largest, or a higher shedding.max_unload_fraction",
    "churn_budget": "a higher ideal_load.churn_budget",
}
_AFTER_MOVES, _NEXT_ROUND = "They may move after these moves", "The next round may move them"
_OTHERWISE: Mapping[str, str] = {
    "in_flight": _AFTER_MOVES,
    "in_flight_limit": _AFTER_MOVES,
    "merging": "They may move after these merges",
    "system_namespace": "They never move",
    "over_budget": _NEXT_ROUND,
    "broker_limit": _NEXT_ROUND,
    "search_steps": _NEXT_ROUND,
    "suspended": "Find what else uses it",
}
"""Advice where no setting and no command allows the moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedStatus:
    """A hot broker that sheds nothing.

    since_ms: since when it is hot; message: the alarm. reason: the commonest verdict on its
    bundles, or the strategy's.
    """

    broker: str
    reason: str
    since_ms: int
    message: str


def is_believed(told_ms: int, now_ms: int) -> bool:
    """True if a message of told_ms is still valid, as no shedding may have run since."""
    return now_ms - told_ms <= VALID_MS


def blocked_status(rows: Iterable[Mapping[str, Any]], now_ms: int) -> tuple[BlockedStatus, ...]:
    """Return the brokers blocked now, in name order. O(rows log rows).

    rows: of `decisions`, in any order.
    """
    ordered = sorted(rows, key=lambda row: int(row["at_ms"]))
    newest = {str(row["source"]): row for row in ordered if row["kind"] == BLOCKED}
    return tuple(
        BlockedStatus(
            broker=broker,
            reason=str(row["reason"]),
            since_ms=int(json.loads(row["inputs"])["since_ms"]),
            message=f"{hot_message(row, now_ms)} and gives nothing: {count_message(row)}; what"
            f" would allow it: `ballast explain broker {broker}`",
        )
        for broker, row in sorted(newest.items())
        if row["reason"] != ENDED and is_believed(row["at_ms"], now_ms)
    )


def hot_message(row: Mapping[str, Any], now_ms: int) -> str:
    """`broker-1 is at 54 % (group mean 35 %) for 4 min`."""
    inputs = json.loads(row["inputs"])
    usage, mean = (f"{100 * inputs[name]:.0f} %" for name in ("usage", "mean"))
    hot_ms = now_ms - int(inputs["since_ms"])
    span = f" for {duration(hot_ms)}" if hot_ms > 0 else ""
    return f"{row['source']} is at {usage} (group mean {mean}){span}"


def count_message(row: Mapping[str, Any]) -> str:
    """Return `10 of its 11 bundles moved a short while ago, ...`; adds up to all."""
    inputs = json.loads(row["inputs"])
    counts: Mapping[str, int] = inputs["counts"]
    parts = [(counts[name], words) for name, words in _stopped(counts)]
    free = sum(counts[name] for name in counts if name in FREE)
    if free:
        why = _STRATEGY.get(inputs["verdict"], inputs["verdict"])
        parts.append((free, "may move" + (f" ({why})" if why != "taken" else "")))
    if not parts:
        return "it has no bundle"
    (count, words), *others = parts
    first = f"{count} of its {inputs['bundles']} bundles {_verb(count, words)}"
    return ", ".join([first, *(f"{count} {_verb(count, words)}" for count, words in others)])


def _verb(count: int, words: str) -> str:
    """Return words about several bundles as words about so many."""
    first, _, rest = words.partition(" ")
    single = {"are": "is", "wait": "waits", "stay": "stays"}.get(first, first)
    singular = f"{single} {rest}".replace("their", "its").replace(" or are ", " or is ")
    return words if count > 1 else singular


def _stopped(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the verdicts that keep bundles, the commonest first, and their words."""
    names = sorted(set(counts) - FREE, key=lambda name: (-counts[name], name))
    return [(name, _BUNDLES.get(name, f"stay ({name})")) for name in names]


def remedy_messages(row: Mapping[str, Any], until: str) -> Iterator[str]:
    """Yield what keeps bundles, the commonest first, and what would allow their moves.

    until: when the first of those that rest may move again, "" = not known.
    """
    inputs = json.loads(row["inputs"])
    counts: Mapping[str, int] = inputs["counts"]
    for name, stopped in _stopped(counts):
        verb = _verb(counts[name], stopped)
        words = f"{counts[name]} of its {inputs['bundles']} bundles {verb}"
        if name == "recently_unloaded" and until:
            words += f"; the first may move again at {until}"
        yield f"{words}. {_advice(name, _LIMIT if name in _BUNDLES else _PLACES)}"
    verdict = inputs["verdict"]
    if set(counts) <= FREE and verdict in {*_REMEDIES, *_OTHERWISE}:
        yield f"{_STRATEGY[verdict]}. {_advice(verdict)}"


def _advice(verdict: str, unknown: str = "") -> str:
    """Return the advice on a verdict. unknown: remedy of one that has none of its own."""
    return _OTHERWISE.get(verdict) or f"To allow it now: {_REMEDIES.get(verdict, unknown)}"


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


TRIGGER_DETAIL = ("measure", "levels", "movable", "takers", "refusal")
"""Fields in the `detail` of a broker's row; see `TriggerRows`."""


def write_candidates(work: BatchContext, trace: Trace, ids: Mapping[str, str]) -> None:
    """The rows of one cycle. ids: bundle → decision that was made about it. O(trace)."""
    rows = [
        *_near_brokers(trace),
        *_merging(trace),
        *_losers(trace),
        *_placements(trace, ids),
    ]
    if ids:
        counts = {key.partition("."): count for key, count in trace.counts().items()}
        rows += _rest(
            eligible.PHASE, {name: n for (at, _, name), n in counts.items() if at == eligible.PHASE}
        )
    for row in rows:
        work.add_row(DECISION_CANDIDATES.name, {**_NOTHING, **row, "cycle": work.times.cycle})


def skip_inputs(trace: Trace) -> dict[str, Any]:
    """Return why a cycle did nothing: its numbers, verdict counts, nearest broker."""
    found: dict[str, Any] = {
        "numbers": {k: v for k, v in sorted(trace.numbers.items()) if math.isfinite(v)},
        "counts": dict(sorted(trace.counts().items())),
    }
    for part in trace.parts:
        if isinstance(part, TriggerRows):
            nearest = _by_nearness(part)[:1]
            found["nearest"] = [_trigger_detail(trace, part, at) for at in nearest]
    return found


def _near_brokers(trace: Trace) -> Iterator[Row]:
    for part in [one for one in trace.parts if isinstance(one, TriggerRows)]:
        nearness = part.trigger.nearness()
        near = [at for at in _by_nearness(part) if nearness[at] >= NEAR]
        for at in near[:BROKERS_NAMED]:
            words = _trigger_detail(trace, part, at)
            first = words["levels"][0]
            yield {
                "phase": shed.PHASE,
                "subject": words["broker"],
                "broker": words["partner"],
                "verdict": words["verdict"],
                "number": words["number"],
                "threshold": float(first["threshold"]),
                "hits": first["hits"],
                "hits_needed": first["needed"],
                "detail": to_json({name: words[name] for name in TRIGGER_DETAIL}),
            }
        yield from _rest(shed.PHASE, Counter(part.verdicts[at] for at in near[BROKERS_NAMED:]))


def _by_nearness(part: TriggerRows) -> list[int]:
    """The brokers that are judged, the nearest first; of equal ones the first."""
    nearness = part.trigger.nearness()
    order = np.argsort(-nearness, kind="stable")
    return [at for at in order.tolist() if part.verdicts[at] and not math.isnan(nearness[at])]


def _trigger_detail(trace: Trace, part: TriggerRows, at: int) -> dict[str, Any]:
    partner = int(part.trigger.partner[at])
    return {
        "broker": trace.brokers[at],
        "partner": trace.brokers[partner] if partner >= 0 else "",
        "verdict": part.verdicts[at],
        "measure": part.trigger.measure,
        "number": float(part.trigger.number[at]),
        "levels": [dict(level) for level in part.trigger.of(at)],
        "movable": int(part.movable[at]),
        "takers": int(part.takers[at]),
        "refusal": part.refusals[at],
    }


def _merging(trace: Trace) -> Iterator[Row]:
    """Yield the bundles that wait for their merge, by name."""
    for part in trace.parts:
        if isinstance(part, Columns) and part.phase == eligible.PHASE:
            is_merging = part.verdict == FilterVerdict.MERGING
            for at in np.flatnonzero(is_merging)[:BUNDLES_NAMED].tolist():
                yield _column_row(trace, part, at)


def _losers(trace: Trace) -> Iterator[Row]:
    """Yield each phase's nearest candidates by name; the others as counts."""
    rest: Counter[tuple[str, str]] = Counter()
    parts = [part for part in trace.parts if isinstance(part, Columns)]
    shown = [p for p in parts if p.phase != eligible.PHASE and p.subjects != trace.brokers]
    sources = 0
    for part in shown:
        is_lost = np.array([text not in _DONE for text in part.verdicts], dtype=np.bool_)
        order: Ints = np.flatnonzero(is_lost[part.verdict])
        if part.hits is not None:
            order = order[np.lexsort((-part.number[order], -part.hits[order]))]
        is_source = part.phase == shed.PHASE
        sources += is_source
        of_source = LOSERS_NAMED if sources <= SOURCES_NAMED else 0
        named = of_source if is_source else BUNDLES_NAMED
        for at in order[:named].tolist():
            yield _column_row(trace, part, at)
        others = part.verdict[order[named:]].tolist()
        rest.update((part.phase, part.verdicts[verdict]) for verdict in others)
    for (phase, verdict), count in sorted(rest.items()):
        yield from _rest(phase, {verdict: count})


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
    for part in [one for one in trace.parts if isinstance(one, PlacementRows)]:
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
        for row in _rest(assign.PHASE, {CandidateVerdict.TAKEN.value: count}):
            yield {**row, "decision_id": decision_id}


def _placement(trace: Trace, part: PlacementRows, at: int, decision_id: str) -> Iterator[Row]:
    common = {
        "phase": assign.PHASE,
        "decision_id": decision_id,
        "subject": part.subjects[int(part.subject[at])],
    }
    for verdict, brokers, numbers in (
        (CandidateVerdict.TAKEN, part.chosen, part.number),
        (CandidateVerdict.RUNNER_UP, part.runner_up, part.runner_up_number),
    ):
        if brokers[at] >= 0:
            yield {
                **common,
                "broker": trace.brokers[int(brokers[at])],
                "verdict": verdict.value,
                "number": float(numbers[at]),
            }
    codes, first, counts = np.unique(part.verdicts[at], return_index=True, return_counts=True)
    refused = [row for row in zip(codes, first, counts, strict=True) if row[0]]
    for code, example, count in refused[:LABELS_NAMED]:
        yield {
            **common,
            "broker": trace.brokers[int(example)],
            "verdict": LABELS[int(code)],
            "count": int(count),
        }


def _rest(phase: str, counts: Mapping[str, int]) -> Iterator[Row]:
    for verdict, count in sorted(counts.items()):
        yield {"phase": phase, "subject": "", "verdict": verdict, "count": count}
