"""Snapshot for a planning cycle: brokers and bundles as arrays.

The order of the rows decides ties. Built by `balancer` (name order) and by tests (the case's
order); read by every phase of the plan. Brokers are referred to by their index in `BrokerTable`,
bundles by their index in `BundleTable`; -1 is "none".

A strategy of your own is `def decide(snapshot, state, config, now_ms) -> tuple[Proposal, state]`.
snapshot: read-only, of the brokers that take part in balancing, with moves that reports don't show
yet; `snapshot.bundles.can_move` tells which bundles may move now. state: the state returned the
last time, plain JSON, {} at first. now_ms: the only time to use. Equal arguments must give equal
answers: the balancer asks twice and compares.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from lbcore.plan.filter.policies import Policies
from lbcore.plan.split.algorithms import TopicLoads

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

TopicsOf: TypeAlias = Callable[[str], TopicLoads | None]

RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT = range(4)
NOBODY = -1
"""Index of no broker."""


def message_rate(traffic: Floats) -> Floats:
    """Messages in plus out, msg/s; traffic: float64[k, 4]."""
    return traffic[:, RATE_IN] + traffic[:, RATE_OUT]


def throughput(traffic: Floats) -> Floats:
    """Bytes in plus out, bytes/s; traffic: float64[k, 4]."""
    return traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]


def sequential_sum(values: Floats) -> float:
    """Return the sum in array order; np.sum adds pairwise and may differ in a bit."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def sums_by_owner(values: Floats, owner: Ints, brokers: int) -> Floats:
    """Return the sums over each broker's bundles, in table order, float64[brokers].

    owner: int64[m], -1 = none.
    """
    sums = np.bincount(owner + 1, weights=values, minlength=brokers + 1)[1:]
    return np.asarray(sums, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTable:
    """The active brokers, n rows.

    percent: float64[n, resources], usage in percent of its limit, in the order of
    `model.resources`, computed in single precision and widened. traffic: float64[n, 4], msg/s in,
    msg/s out, bytes/s in, bytes/s out. bundle_count: all bundles the broker reports, filtered or
    not. weighted_max_ema, throughput_ema, updated_at_ms: BrokerLoadData's, for the extensible
    rules. room: bundles that drains and pins may still take from it; None = no bound. demand:
    offered over served load, from 1, NaN = not reported; None = no broker reports it. is_fresh: has
    a report newer than the one judged last; the plan sets it. is_flapping: started too often
    lately. is_suspected: silent for too long, perhaps dead; None = no broker. web_urls: of its web
    services, by which policies may name it; None = unknown.
    """

    names: tuple[str, ...]
    percent: Floats
    traffic: Floats
    bundle_count: Ints
    topic_count: Ints
    weighted_max_ema: Floats
    throughput_ema: Floats
    updated_at_ms: Ints
    is_fresh: Bools
    is_draining: Bools
    versions: tuple[str, ...]
    load_manager_classes: tuple[str, ...]
    failure_domains: tuple[str, ...]
    capacity: Floats
    is_flapping: Bools | None = None
    is_suspected: Bools | None = None
    room: Ints | None = None
    web_urls: tuple[tuple[str, ...], ...] | None = None
    demand: Floats | None = None


class Names(tuple[str, ...]):  # noqa: SLOT001 they keep what was worked out
    """Names by row, each once, with an index."""

    @cached_property
    def find(self) -> Callable[[str], int]:
        """Return the row of a name, -1 = none. O(m) once, unless it was set before."""
        row_of = {name: row for row, name in enumerate(self)}
        return lambda name: row_of.get(name, -1)


def names_at(names: Sequence[str], index: Mapping[str, int], rows: Ints) -> Names:
    """Return the names at these rows, with a shared index. O(names), none is hashed.

    index: name → its place in names, not changed while the result is used. rows: int64[k],
    ascending.
    """
    is_there, place = np.zeros(len(names), np.bool_), np.full(len(names) + 1, -1, dtype=np.int64)
    is_there[rows], place[rows] = True, np.arange(len(rows))
    found = Names(compress(names, is_there.tolist()))
    found.find = lambda name: int(place[index.get(name, -1)])  # the last place is nobody's
    return found


LEFT_MS = 3_600_000
"""Time in which a bundle should not go back to a broker that it has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTable:
    """The bundles, m rows.

    namespace: index into `namespaces`. owner: index of the broker that will have it once what is in
    flight ends, -1 = none. short, long: float64[m, 4], short- and long-term averages in the order
    of RATE_IN... topics, sessions: last reported counts. can_move: Owned and at rest (the plan
    finds other obstacles). needs_owner: to be assigned now; None = every bundle without an owner.
    avoid: broker that must not get it now, -1 = none; None = none at all. is_load_known: some
    broker has reported it, idle or not; None = no bundle. is_awaited: not reported yet, because its
    owner got it only now; None = no bundle. pin: broker that an operator pinned it to, -1 = none;
    None = none at all. is_paused: its balancing is paused; None = no bundle. moved_ms: when its
    owner last changed, 0 = never; None = unknown. left: its owner before that, within LEFT_MS, -1 =
    none; None = unknown. versions: the ownership record's version id, for placement's deterministic
    choice.
    """

    names: tuple[str, ...]
    namespaces: tuple[str, ...]
    namespace: Ints
    owner: Ints
    short: Floats
    long: Floats
    topics: Ints
    sessions: Ints
    can_move: Bools
    versions: Ints
    needs_owner: Bools | None = None
    avoid: Ints | None = None
    is_load_known: Bools | None = None
    is_awaited: Bools | None = None
    pin: Ints | None = None
    is_paused: Bools | None = None
    moved_ms: Ints | None = None
    left: Ints | None = None

    def __post_init__(self) -> None:
        """Index the names, for this table and for those made of it."""
        if not isinstance(self.names, Names):
            object.__setattr__(self, "names", Names(self.names))

    def rows_of(self, names: Iterable[str]) -> dict[str, int]:
        """Return name → row, in order, without missing names. O(names), once O(m)."""
        find = cast("Names", self.names).find
        found = {name: find(name) for name in names}
        return {name: row for name, row in found.items() if row >= 0}

    def are_named(self, names: Iterable[str]) -> Bools:
        """Return the rows with these names, bool[m].

        Names that are not in the table are ignored.
        """
        is_named = np.zeros(len(self.names), dtype=np.bool_)
        is_named[list(self.rows_of(names).values())] = True
        return is_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """Partitions of partitioned topics in each bundle, k rows in any order.

    rows: int64[k] of the bundle table. topic: int64[k], index into `keys`. count: int64[k], at
    least 1. keys: int64[g], each topic's namespace (index into the table's) and MARK_BITS bits that
    distinguish it from the namespace's others.
    """

    rows: Ints
    topic: Ints
    count: Ints
    keys: Ints

    def name(self, topic: int, namespaces: Sequence[str]) -> str:
        """Return the key that stands for a topic, such as "acme/orders/0x1c291ca3".

        The topic's name is not known.
        """
        key = int(self.keys[topic])
        return f"{namespaces[key >> MARK_BITS]}/0x{key & (1 << MARK_BITS) - 1:08x}"


MARK_BITS = 32
_NO_ROWS = np.zeros(0, dtype=np.int64)
NO_PARTITIONS = Partitions(rows=_NO_ROWS, topic=_NO_ROWS, count=_NO_ROWS, keys=_NO_ROWS)
"""The value used when no broker has reported partitioned topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All inputs of a plan besides its own state and the configuration.

    topics_of: bundle's full name → its known topics, None = unknown. partitions: of partitioned
    topics, computed on request. policies: where namespaces may live. in_flight: bundles that are
    changing owners. split_algorithms: namespace → its own algorithm, if any. merging: bundles that
    wait for a merge. rejected: bundles of plans that a person has rejected within the grace period.
    Balancing leaves both in place and splits none.
    """

    cluster: str
    brokers: BrokerTable
    bundles: BundleTable
    topics_of: TopicsOf = field(default=lambda _bundle: None)
    partitions: Callable[[], Partitions] = field(default=lambda: NO_PARTITIONS)
    policies: Policies = field(default_factory=Policies)
    in_flight: int = 0
    split_algorithms: Mapping[str, str] = field(default_factory=dict)
    merging: Sequence[str] = ()
    rejected: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedMove:
    """A bundle that shall leave its broker.

    bundle: its full name. destination: a broker's name, "" = placement decides. numbers: what
    decided, by name, finite; they go into the decision's inputs.
    """

    bundle: str
    destination: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Moves proposed for a cycle, most important first; none = a skip.

    The limits (`shedding.max_moves_*`), cool-downs, pins and filters apply as for every strategy.
    numbers: of the whole cycle, by name, finite.
    """

    moves: tuple[ProposedMove, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
