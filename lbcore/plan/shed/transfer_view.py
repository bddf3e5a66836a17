"""The planner's snapshot as the transfer shedder sees it.

Makes each visited broker's top list and asks the filters about its bundles, only when the shedder
asks. Used by the plan's shed phase when the strategy is `transfer`. Source: Pulsar 4.0.8
TopBundleLoadDataReporter, TopKBundles, TransferShedder.isTransferable.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.config.filters import EXTENSIBLE, FilterConfig
from lbcore.plan.filter.index import CandidateIndex
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion
from lbcore.plan.shed.common import OwnerIndex, throughput
from lbcore.plan.shed.transfer_types import TopBundle, TransferView
from lbcore.plan.snapshot import Ints, Snapshot
from lbcore.signals.ordering import has_throughput, top_bundles

STATS_COLUMNS = 8
TOPICS, SESSIONS = 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLists:
    """Options of top lists.

    limit: bundles per list. with_policies: also bundles with policies.
    """

    limit: int
    with_policies: bool


def transfer_view(
    snapshot: Snapshot, owned: OwnerIndex, pipeline: FilterPipeline, lists: TopLists
) -> TransferView:
    """The view of a snapshot, brokers in its order. pipeline: see `transfer_pipeline`.

    A broker that has not reported yet is registered without load data, which ends the cycle.
    """
    brokers = snapshot.brokers
    reported = np.flatnonzero(brokers.updated_at_ms > 0)
    return TransferView(
        names=tuple(brokers.names[at] for at in reported.tolist()),
        load=brokers.weighted_max_ema[reported],
        throughput=throughput(brokers.traffic[reported]),
        throughput_ema=brokers.throughput_ema[reported],
        updated_at_ms=brokers.updated_at_ms[reported],
        registered=frozenset(brokers.names),
        lookup=SnapshotLookup(
            snapshot=snapshot,
            owned=owned,
            pipeline=pipeline,
            lists=lists,
            number={name: at for at, name in enumerate(brokers.names)},
        ),
    )


def transfer_pipeline(
    snapshot: Snapshot, index: CandidateIndex, config: FilterConfig
) -> FilterPipeline:
    """The extensible manager's filters, whichever the configured ones are; nothing is placed."""
    nothing = np.zeros(0, dtype=np.int64)
    return FilterPipeline.of(snapshot, index, replace(config, pipeline=EXTENSIBLE), nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLookup:
    """Answers the shedder's questions about bundles. number: broker → its index."""

    snapshot: Snapshot
    owned: OwnerIndex
    pipeline: FilterPipeline
    lists: TopLists
    number: dict[str, int]
    rows: dict[str, int] = field(default_factory=dict)

    def top_bundles(self, broker: str) -> Sequence[TopBundle] | None:
        """The heaviest bundles of a broker by short-term averages, lightest first."""
        bundles = self.snapshot.bundles
        rows = self.owned.of(self.number[broker])
        if not self.lists.with_policies:
            rows = rows[~self.pipeline.index.has_policy[bundles.namespace[rows]]]
        stats = np.zeros((len(rows), STATS_COLUMNS))
        stats[:, :TOPICS] = bundles.short[rows]
        stats[:, TOPICS] = bundles.topics[rows]
        stats[:, SESSIONS] = bundles.sessions[rows]
        is_busy = has_throughput(stats)
        rows = rows[is_busy][top_bundles(stats[is_busy], self.lists.limit)]
        volumes = throughput(bundles.short[rows]).tolist()
        names = [bundles.names[row] for row in rows.tolist()]
        self.rows.update(zip(names, rows.tolist(), strict=True))
        return [
            TopBundle(bundle=name, throughput=volume)
            for name, volume in zip(names, volumes, strict=True)
        ]

    def is_owner(self, bundle: str, broker: str) -> bool:
        """Top lists are made of what the records say."""
        owner = int(self.snapshot.bundles.owner[self.rows[bundle]])
        return owner == self.number[broker]

    def is_excluded(self, _bundle: str) -> bool:
        """`can_move` says so already."""
        return False

    def is_recently_unloaded(self, bundle: str) -> bool:
        """True if anything forbids a move of the bundle.

        Cool-down, pin, move in flight, or excluded namespace.
        """
        return not self.snapshot.bundles.can_move[self.rows[bundle]]

    def has_policy(self, bundle: str) -> bool:
        """True if its namespace has an isolation policy or an anti-affinity group."""
        namespace = self.snapshot.bundles.namespace[self.rows[bundle]]
        return bool(self.pipeline.index.has_policy[namespace])

    def candidates(self, bundle: str) -> Container[str] | None:
        """Return the brokers that pass the extensible manager's filters; None on failure."""
        narrowed = self.pipeline.candidates(FilterQuestion(bundle=self.rows[bundle]))
        if narrowed.is_failed:
            return None
        return _Brokers(left=narrowed.left, number=self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brokers:
    """A set of brokers by index, asked by name."""

    left: Ints
    number: dict[str, int]

    def __contains__(self, name: object) -> bool:
        return bool((self.left == self.number.get(str(name), -1)).any())
