"""Input, state and results of the transfer shedder.

Made by the planner and by tests, read by `transfer`. Source:
Pulsar 4.0.8 TransferShedder, UnloadDecision, UnloadCounter.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from lbcore.plan.snapshot import Floats, Ints


class Label(str, Enum):
    """Outcome of a decision; the value is Pulsar's metric label."""

    SUCCESS = "Success"
    SKIP = "Skip"
    FAILURE = "Failure"


class Reason(str, Enum):
    """Reason that a bundle moves, or that a cycle moves none.

    The value is Pulsar's metric label.
    """

    OVERLOADED = "Overloaded"
    UNDERLOADED = "Underloaded"
    ADMIN = "Admin"
    HIT_COUNT = "HitCount"
    NO_BUNDLES = "NoBundles"
    COOL_DOWN = "CoolDown"
    OUT_DATED_DATA = "OutDatedData"
    NO_LOAD_DATA = "NoLoadData"
    NO_BROKERS = "NoBrokers"
    UNKNOWN = "Unknown"


class TransferRefusal(str, Enum):
    """Reason that a reported bundle was not taken from a broker."""

    NOT_OWNED = "not_owned"
    EXCLUDED_NAMESPACE = "excluded_namespace"
    RECENTLY_UNLOADED = "recently_unloaded"
    NOT_TRANSFERABLE = "not_transferable"
    LAST_BUNDLE = "last_bundle"
    NO_THROUGHPUT = "no_throughput"
    ABOVE_TARGET = "above_target"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopBundle:
    """One bundle of a broker's top-k report. throughput: in plus out, bytes/s."""

    bundle: str
    throughput: float


class BundleLookup(Protocol):
    """Lookup of single bundles for the shedder.

    Only bundles of visited brokers are looked up.
    """

    def top_bundles(self, broker: str) -> Sequence[TopBundle] | None:
        """The broker's top-k report, lightest first; None without a report."""
        ...

    def is_owner(self, bundle: str, broker: str) -> bool:
        """True if the ownership records name the broker."""
        ...

    def is_excluded(self, bundle: str) -> bool:
        """True if the bundle's namespace is excluded from shedding."""
        ...

    def is_recently_unloaded(self, bundle: str) -> bool:
        """True if the bundle moved within the grace period."""
        ...

    def has_policy(self, bundle: str) -> bool:
        """True if its namespace has an isolation policy or an anti-affinity group."""
        ...

    def candidates(self, bundle: str) -> Container[str] | None:
        """The registered brokers that pass every filter; None when a filter failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferView:
    """The extensible manager's load store, n rows in the order that decides ties.

    load: weightedMaxEMA, 1.0 = 100 %. throughput: in plus out of the broker's own record, bytes/s.
    throughput_ema: msgThroughputEMA. updated_at_ms: time of the record. registered: the active
    brokers, None when they could not be looked up.
    """

    names: tuple[str, ...]
    load: Floats
    throughput: Floats
    throughput_ema: Floats
    updated_at_ms: Ints
    registered: frozenset[str] | None
    lookup: BundleLookup


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferState:
    """State of the transfer shedder between cycles.

    hits: consecutive cycles that wanted to shed. counter: "Label/Reason" → cycles.
    load_avg, load_std: last published statistics. unloaded_brokers: broker → time its last unload
    ended, ms; entries leave when its load data is older than the shedding delay.
    """

    hits: int = 0
    counter: Mapping[str, int] = field(default_factory=dict)
    load_avg: float = 0.0
    load_std: float = 0.0
    unloaded_brokers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferDecision:
    """One bundle to move. destination: "" = plain unload."""

    source: str
    bundle: str
    destination: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTrace:
    """Result for one pair of brokers.

    target, marked, gained: bytes/s to offload, taken, and swapped back. std_after: predicted.
    refused: bundles not taken, in the order seen.
    """

    source: str
    destination: str
    reason: Reason
    target: float
    marked: float
    gained: float
    std_after: float
    refused: tuple[tuple[str, TransferRefusal], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOutcome:
    """A cycle's answer: decisions, or a label and reason for none.

    final_std: the deviation predicted after the decisions, 0.0 when the statistics were skipped.
    """

    decisions: tuple[TransferDecision, ...] = ()
    label: Label = Label.SUCCESS
    reason: Reason | None = None
    final_std: float = 0.0
    pairs: tuple[PairTrace, ...] = ()
