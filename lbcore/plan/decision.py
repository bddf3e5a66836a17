"""Results, state, scope and trace of a planning cycle.

The phases make them; the `balancer` turns decisions into ownership transitions and rows. Reasons
are Pulsar's labels where it has one.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from lbcore.model.times import HOUR_MS
from lbcore.plan.pending import PendingMove, UnreportedLoad
from lbcore.plan.place.request import PlacementRows, PlacementState
from lbcore.plan.shed.common import ShedState, TransferState, TriggerStatus
from lbcore.plan.snapshot import Floats, Ints
from lbcore.plan.split.decision import EMPTY_STATE, SplitDecision, SplitState

Value = TypeVar("Value")
_Key = TypeVar("_Key", int, str)


class CandidateVerdict(str, Enum):
    """Reason that a candidate was taken or not, beside those of filters and splits.

    Not needed: the strategy takes other bundles of the broker, and placement chooses destinations.
    Over budget: the strategy pairs two brokers, and the bundle does not fit into what they
    exchange.
    """

    TAKEN = "taken"
    RUNNER_UP = "runner_up"
    NOT_NEEDED = "not_needed"
    OVER_BUDGET = "over_budget"
    CYCLE_LIMIT = "cycle_limit"
    BROKER_LIMIT = "broker_limit"
    IN_FLIGHT_LIMIT = "in_flight_limit"
    HOUR_LIMIT = "hour_limit"
    TENANT_LIMIT = "tenant_limit"
    ROLE_COOL_DOWN = "role_cool_down"
    TOO_FEW_HITS = "too_few_hits"
    BELOW_THRESHOLD = "below_threshold"


VERDICTS = tuple(CandidateVerdict)
CODE = {verdict: code for code, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Candidates of one phase as arrays of length k.

    subject: index into `subjects`. broker: index into the trace's brokers, -1 = none. verdict:
    index into `verdicts`. number: what decided, NaN = no number. hits: in a row, None = nothing is
    counted here; needed: how many it takes. reason: index into `reasons`, None = there are none.
    """

    phase: str
    subjects: Sequence[str]
    verdicts: Sequence[str]
    subject: Ints
    broker: Ints
    verdict: Ints
    number: Floats
    hits: Ints | None = None
    needed: int = 0
    reason: Ints | None = None
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRows:
    """Distance of each broker from shedding, for the decision log.

    verdicts: one per broker, "" = not judged. movable: int64[n], its bundles that may move. takers:
    int64[n], other brokers that filters admit for any of these. refusals: label of the filter by
    which its partner may take none of them; "" = it may take some, or there is no partner.
    """

    trigger: TriggerStatus
    verdicts: Sequence[str]
    movable: Ints
    takers: Ints
    refusals: Sequence[str]


Part: TypeAlias = Columns | PlacementRows | TriggerRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Candidates, verdicts and deciding numbers of a cycle, phase by phase.

    Kept as arrays: a full trace of 100,000 bundles is too large to turn into rows in every cycle.
    numbers: "phase.name" → number of the whole cycle.
    """

    brokers: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return the number of bundles per "phase.verdict", without placements."""
        found: Counter[str] = Counter()
        for part in self.parts:
            if isinstance(part, Columns):
                sums = np.bincount(part.verdict, minlength=len(part.verdicts)).tolist()
                for verdict, count in zip(part.verdicts, sums, strict=True):
                    if count:
                        found[f"{part.phase}.{verdict}"] += count
        return dict(found)


Hourly: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]
"""Tenant → (time, number of moves decided then), oldest first."""


def exchanges(moves: Iterable[tuple[_Key, _Key, _Key]]) -> dict[_Key, _Key]:
    """Return bundle → bundle that comes back, where two brokers give to each other.

    Half an exchange would move the hot spot, or make the hot broker hotter. moves: bundle, source
    and destination of each.
    """
    by_pair: dict[tuple[_Key, _Key], list[_Key]] = {}
    for bundle, source, destination in moves:
        by_pair.setdefault((source, destination), []).append(bundle)
    found: dict[_Key, _Key] = {}
    for (source, destination), bundles in by_pair.items():
        found |= zip(bundles, by_pair.get((destination, source), ()), strict=False)
    return found


def moves_within_hour(hourly: Hourly, now_ms: int) -> Counter[str]:
    """Return tenant → moves in the hour before now. O(entries)."""
    return Counter(
        {
            tenant: sum(count for at_ms, count in entries if at_ms > now_ms - HOUR_MS)
            for tenant, entries in hourly.items()
        }
    )


def with_moves(hourly: Hourly, tenants: Iterable[str], now_ms: int) -> Hourly:
    """Add the moves decided now, one tenant each; drop those older than an hour."""
    added = Counter(tenants)
    if not added:
        return hourly
    found = {}
    for tenant in sorted(hourly.keys() | added.keys()):
        kept = [one for one in hourly.get(tenant, ()) if one[0] > now_ms - HOUR_MS]
        if tenant in added:
            kept.append((now_ms, added[tenant]))
        if kept:
            found[tenant] = tuple(kept)
    return found


class Kind(str, Enum):
    """Kind of a decision on a bundle; the value is stored in the decisions table."""

    TRANSFER = "transfer"
    UNLOAD = "unload"
    SPLIT = "split"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Work of a cycle; all other work is skipped.

    drains: move bundles off draining brokers and to their pins. is_traced: record every candidate
    that lost; of bundles without an owner only the heaviest placements_traced. observes: no
    shedding is due, but a strategy may observe. only_places: bundles without an owner get one
    (`planner.place`), by the load reported now; no other cycle does that.
    """

    sheds: bool = True
    drains: bool = True
    splits: bool = True
    observes: bool = False
    is_traced: bool = False
    placements_traced: int = sys.maxsize
    only_places: bool = False


EVERYTHING = Scope()
PLACEMENTS_NAMED = 50
"""Number of bundles of one decision explained by name; the others are counted."""
ONLY_PLACES = Scope(
    sheds=False,
    drains=False,
    splits=False,
    is_traced=True,
    placements_traced=PLACEMENTS_NAMED,
    only_places=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One thing to do.

    source, destination: broker names, "" = none; expected: present choice of placement for an
    unload without destination. inputs: the numbers that decided. split: boundaries, of Kind.SPLIT
    only; children: child → broker, "" = stays with the source.
    """

    kind: Kind
    strategy: str
    reason: str
    bundle: str
    source: str = ""
    destination: str = ""
    expected: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    split: SplitDecision | None = None
    children: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions of a cycle, in order.

    skipped: phase → reason that it decided nothing.
    """

    decisions: tuple[Decision, ...]
    skipped: Mapping[str, str]
    trace: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Destinations found, bundle → broker; bundles without one are absent.

    trace: the brokers considered. Of a split, every child has an entry; "" = it stays with its
    parent's owner.
    """

    found: Mapping[str, str] = field(default_factory=dict)
    trace: Trace = field(default_factory=Trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """No decisions, with the reason. strategy: the one that should have shed."""

    reason: str
    strategy: str
    skipped: Mapping[str, str]
    trace: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """A broker beyond a threshold. since_ms: since when it gives nothing.

    told_ms: when it was last reported as blocked, 0 = never; reason: of that row.
    """

    since_ms: int
    told_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """State of planning between cycles; plain data, empty at the start.

    strategy: the one that `shed` and `transfer` belong to. judged, split_judged: broker → (time of
    the report judged last, time of that judgement), for shedding and for splits. moves: bundle →
    its move in flight, in name order, in which loads are added up. unseen: broker → load decided
    and not reported yet. unloaded_ms: bundle → time it was last shed, within the grace period.
    gave_ms, took_ms: broker → time at which it last gave, or took, a shed bundle. hot: broker →
    since when it is beyond a threshold and gives nothing. own: state of a custom strategy, plain
    JSON. hourly: moves shed within an hour. groups: of `plan.groups`, broker → the first broker of
    its group; empty: all are one.
    """

    strategy: str = ""
    shed: ShedState = field(default_factory=ShedState)
    transfer: TransferState = field(default_factory=TransferState)
    split: SplitState = EMPTY_STATE
    placement: PlacementState = field(default_factory=PlacementState)
    judged: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    split_judged: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    moves: Mapping[str, PendingMove] = field(default_factory=dict)
    unseen: Mapping[str, UnreportedLoad] = field(default_factory=dict)
    unloaded_ms: Mapping[str, int] = field(default_factory=dict)
    gave_ms: Mapping[str, int] = field(default_factory=dict)
    took_ms: Mapping[str, int] = field(default_factory=dict)
    hot: Mapping[str, Hot] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    hourly: Hourly = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)

    def without(self, *, brokers: Collection[str], bundles: Collection[str]) -> "PlanState":
        """Return the state without these departed names."""
        of_brokers, of_bundles = partial(_other_than, brokers), partial(_other_than, bundles)
        return replace(
            self,
            shed=ShedState(
                ema=of_brokers(self.shed.ema),
                hits_low=of_brokers(self.shed.hits_low),
                hits_high=of_brokers(self.shed.hits_high),
                destinations=of_bundles(self.shed.destinations),
                evidence=self.shed.evidence,
                reliefs=of_brokers(self.shed.reliefs),
                crowded=self.shed.crowded,
            ),
            transfer=replace(
                self.transfer, unloaded_brokers=of_brokers(self.transfer.unloaded_brokers)
            ),
            split=SplitState(
                hits=of_bundles(self.split.hits),
                unsplittable=of_bundles(self.split.unsplittable),
                pending=of_bundles(self.split.pending),
            ),
            placement=replace(
                self.placement, smoothed_usage=of_brokers(self.placement.smoothed_usage)
            ),
            judged=of_brokers(self.judged),
            split_judged=of_brokers(self.split_judged),
            moves=of_bundles(self.moves),
            unseen=of_brokers(self.unseen),
            unloaded_ms=of_bundles(self.unloaded_ms),
            gave_ms=of_brokers(self.gave_ms),
            took_ms=of_brokers(self.took_ms),
            hot=of_brokers(self.hot),
            groups=of_brokers(self.groups),
        )

    def without_future_times(self, now_ms: int) -> "PlanState":
        """Return the state with times after now set to now: a wrong clock made them."""

        def limited(times: Mapping[str, int]) -> dict[str, int]:
            return {name: min(at_ms, now_ms) for name, at_ms in times.items()}

        def limited_pairs(pairs: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
            return {name: (min(a, now_ms), min(b, now_ms)) for name, (a, b) in pairs.items()}

        return replace(
            self,
            transfer=replace(
                self.transfer, unloaded_brokers=limited(self.transfer.unloaded_brokers)
            ),
            judged=limited_pairs(self.judged),
            split_judged=limited_pairs(self.split_judged),
            moves={
                bundle: replace(move, decided_ms=min(move.decided_ms, now_ms))
                for bundle, move in self.moves.items()
            },
            unseen={
                name: replace(
                    load, report_ms=min(load.report_ms, now_ms), busy_ms=min(load.busy_ms, now_ms)
                )
                for name, load in self.unseen.items()
            },
            unloaded_ms=limited(self.unloaded_ms),
            gave_ms=limited(self.gave_ms),
            took_ms=limited(self.took_ms),
            hot={
                name: replace(
                    hot, since_ms=min(hot.since_ms, now_ms), told_ms=min(hot.told_ms, now_ms)
                )
                for name, hot in self.hot.items()
            },
            hourly={
                tenant: tuple((min(at_ms, now_ms), count) for at_ms, count in entries)
                for tenant, entries in self.hourly.items()
            },
        )


def _other_than(gone: Collection[str], known: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in known.items() if name not in gone}
