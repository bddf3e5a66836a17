"""Hot brokers that shed nothing, with the verdicts on their bundles in the trace.

A bundle counts once, by its verdict of the last phase: a broker's counts add up to its bundles.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lbcore.plan.decision import CandidateVerdict, Columns, Kind, Plan, Skip, Trace, TriggerRows
from lbcore.plan.filter.index import LABELS
from lbcore.plan.place.request import PlacementRows
from lbcore.plan.snapshot import NOBODY, Floats, Ints

BROKERS_MAX = 20
TAKEN = CandidateVerdict.TAKEN.value
FREE = frozenset({"ok", TAKEN, CandidateVerdict.NOT_NEEDED.value})
"""Verdicts on bundles that no rule and no limit stopped."""
NO_DESTINATION = "no_destination"

NO_GAIN = "no_gain"
"""Verdict on a broker that no move would bring nearer to the ideal load at its price."""

_NEVER_STUCK = frozenset({"", "below_threshold"})
_CURRENT_OWNER = "current_owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedBroker:
    """A hot broker that sheds nothing.

    verdict: the strategy's, on the broker. usage, mean: its own and its group's, 1.0 = 100 %.
    counts: verdict → number of its bundles.
    """

    broker: str
    verdict: str
    usage: float
    mean: float
    bundles: int
    counts: Mapping[str, int]

    @property
    def reason(self) -> str:
        """The commonest verdict, or the strategy's if most bundles are free to move."""
        stopped = {name: count for name, count in self.counts.items() if name not in FREE}
        if not stopped:
            return self.verdict
        commonest = max(sorted(stopped), key=lambda name: stopped[name])
        is_free = 2 * sum(stopped.values()) < self.bundles
        return self.verdict if is_free and self.verdict != TAKEN else commonest


def givers(result: Plan | Skip) -> frozenset[str]:
    """Return the brokers that give bundles in this plan."""
    if isinstance(result, Skip):
        return frozenset()
    moves = (Kind.TRANSFER, Kind.UNLOAD)
    return frozenset(
        one.source for one in result.decisions if one.kind in moves and one.reason != "Pinned"
    )


def stuck(result: Plan | Skip) -> dict[str, str]:
    """Return broker → verdict, of brokers that should shed and shed nothing.

    They are beyond a threshold, and have the hits for it. Needs a traced plan.
    """
    giving, waits = givers(result), CandidateVerdict.TOO_FEW_HITS.value
    return {
        name: verdict
        for name, verdict, is_ready in _beyond(result.trace)
        if name not in giving and (is_ready or verdict != waits)
    }


def beyond_threshold(result: Plan | Skip) -> frozenset[str]:
    """Return the brokers beyond a threshold now, even without hits. Needs a trace."""
    return frozenset(name for name, _, _ in _beyond(result.trace))


def _beyond(trace: Trace) -> Iterator[tuple[str, str, bool]]:
    """Yield the brokers beyond a level: name, verdict, and if they have its hits."""
    for part in trace.parts:
        if not isinstance(part, TriggerRows):
            continue
        is_ready = np.zeros(len(part.verdicts), dtype=np.bool_)
        for level in part.trigger.levels:
            is_ready |= (part.trigger.number >= level.threshold) & (level.hits >= level.needed)
        for found in zip(trace.brokers, part.verdicts, is_ready.tolist(), strict=True):
            if found[1] not in _NEVER_STUCK:
                yield found


def blocked_brokers(
    trace: Trace, verdicts: Mapping[str, str], usage: Floats, mean: Floats
) -> tuple[BlockedBroker, ...]:
    """Return the hottest of these brokers above their mean, BROKERS_MAX. O(bundles).

    verdicts: of `stuck`. usage, mean: float64[n], of the trace's brokers and of their groups. A
    broker with the reason NO_GAIN counts only beyond the highest threshold: below it, the cluster
    is balanced as far as whole bundles allow.
    """
    index = {name: at for at, name in enumerate(trace.brokers)}
    rows = [index[name] for name in verdicts if usage[index[name]] >= mean[index[name]]]
    rows = sorted(rows, key=lambda at: (-float(usage[at]), trace.brokers[at]))[:BROKERS_MAX]
    counts = _counts(trace, rows) if rows else {}
    highest = {
        name
        for part in trace.parts
        if isinstance(part, TriggerRows) and part.trigger.levels
        for name, is_beyond in zip(
            trace.brokers,
            part.trigger.number >= np.max([one.threshold for one in part.trigger.levels], axis=0),
            strict=True,
        )
        if is_beyond
    }
    found = (
        BlockedBroker(
            broker=trace.brokers[at],
            verdict=verdicts[trace.brokers[at]],
            usage=float(usage[at]),
            mean=float(mean[at]),
            bundles=sum(counts[at].values()),
            counts=counts[at],
        )
        for at in rows
    )
    return tuple(one for one in found if one.reason != NO_GAIN or one.broker in highest)


def _counts(trace: Trace, brokers: Iterable[int]) -> dict[int, dict[str, int]]:
    """Return broker → last verdict → number of its bundles."""
    owner, last = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    labels: list[str] = []
    for part in trace.parts:
        if isinstance(part, Columns) and part.phase == "eligible":
            owner, last = part.broker, part.verdict.copy()
            labels = list(part.verdicts)
        elif isinstance(part, Columns) and part.phase in ("shed", "limit"):
            if part.subjects != trace.brokers:
                is_own = part.subject < len(last)
                last[part.subject[is_own]] = len(labels) + part.verdict[is_own]
                labels += part.verdicts
        elif isinstance(part, PlacementRows):
            _take_refusals(part, owner, last, labels)
    found: dict[int, dict[str, int]] = {}
    for at in brokers:
        named = Counter[str]()
        for code, count in zip(*np.unique(last[owner == at], return_counts=True), strict=True):
            named[labels[int(code)]] += int(count)
        found[at] = dict(sorted(named.items()))
    return found


def _take_refusals(part: PlacementRows, owner: Ints, last: Ints, labels: list[str]) -> None:
    """Set the verdict of bundles without a destination: other brokers' commonest."""
    own = len(owner)
    for at in np.flatnonzero((part.chosen == NOBODY) & (part.subject < own)).tolist():
        codes, counts = np.unique(part.verdicts[at], return_counts=True)
        refused = {
            LABELS[int(code)]: int(count)
            for code, count in zip(codes, counts, strict=True)
            if code and LABELS[int(code)] != _CURRENT_OWNER
        }
        last[part.subject[at]] = len(labels)
        labels.append(
            max(sorted(refused), key=lambda name: refused[name]) if refused else NO_DESTINATION
        )
