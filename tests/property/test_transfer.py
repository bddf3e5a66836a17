"""The transfer shedder on random clusters: as the slow model says, cycle after cycle."""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.transfer import TransferConfig
from lbcore.plain import from_plain, to_plain
from lbcore.plan.shed.transfer import find_transfers
from lbcore.plan.shed.transfer_types import TopBundle, TransferState, TransferView
from tests.support.models.transfer_model import Record, Shedder, Store

NOW_MS = 10_000_000
BROKERS = ["a", "b", "c", "d", "e"]
BUNDLES = [f"t/n{at}/{at}" for at in range(12)]
SOME_BUNDLES = st.sets(st.sampled_from(BUNDLES), max_size=3)
SOME_BROKERS = st.sets(st.sampled_from(BROKERS), min_size=3)
LOADS = st.one_of(st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.2]), st.floats(0, 1.5))
VOLUMES = st.one_of(st.sampled_from([0.0, 1e5, 2e5, 1e6, 3e6]), st.floats(0, 5e6))
CONFIGS = st.builds(
    TransferConfig,
    target_std=st.sampled_from([0.0, 0.05, 0.25, 2.0]),
    hit_count_threshold=st.integers(0, 2),
    max_pairs_per_cycle=st.integers(0, 4),
    is_destination_planned=st.sampled_from([True, True, False]),
    overloaded_threshold_percent=st.sampled_from([30.0, 85.0]),
    load_data_ttl_ms=st.just(1_000),
    shedding_delay_ms=st.just(500),
    shed_bundles_with_policies=st.booleans(),
    count_swapped_back=st.booleans(),
    check_swapped_back=st.sampled_from([False]),
)


@dataclass(frozen=True)
class Lookup:
    """A store behind the shedder's questions."""

    store: Store

    def top_bundles(self, broker: str) -> Sequence[TopBundle] | None:
        """The broker's report."""
        report = self.store.reports.get(broker)
        if report is None:
            return None
        return [TopBundle(bundle=bundle, throughput=volume) for bundle, volume in report]

    def is_owner(self, bundle: str, broker: str) -> bool:
        """Unless the store disowns it."""
        return bundle not in self.store.disowned and bool(broker)

    def is_excluded(self, bundle: str) -> bool:
        """Listed."""
        return bundle in self.store.excluded

    def is_recently_unloaded(self, bundle: str) -> bool:
        """Listed."""
        return bundle in self.store.recent

    def has_policy(self, bundle: str) -> bool:
        """Listed."""
        return bundle in self.store.with_policy

    def candidates(self, bundle: str) -> Container[str] | None:
        """Admitted and registered; None = a filter fails."""
        registered = self.store.registered or set()
        admitted = self.store.admitted.get(bundle, registered)
        return None if admitted is None else admitted & registered


@st.composite
def stores(draw: st.DrawFn) -> Store:
    """Anything at all, or a cluster whose records say what its bundles add up to."""
    names = draw(st.lists(st.sampled_from(BROKERS), unique=True))
    if draw(st.booleans()):
        return draw(steady_stores())
    records = {
        name: Record(
            load=draw(LOADS),
            throughput=draw(VOLUMES),
            throughput_ema=draw(VOLUMES),
            updated_at_ms=NOW_MS - draw(st.sampled_from([0, 0, 0, 0, 400, 1_000, 1_001])),
        )
        for name in names
    }
    return Store(
        records=records,
        reports=draw(reports_of(names, VOLUMES)),
        registered=draw(
            st.one_of(st.just(set(names)), st.just(set(names)), st.none(), SOME_BROKERS)
        ),
        disowned=draw(SOME_BUNDLES),
        excluded=draw(SOME_BUNDLES),
        recent=draw(SOME_BUNDLES),
        with_policy=draw(SOME_BUNDLES),
        admitted=draw(
            st.dictionaries(
                st.sampled_from(BUNDLES), st.one_of(st.none(), SOME_BROKERS), max_size=3
            )
        ),
    )


@st.composite
def steady_stores(draw: st.DrawFn) -> Store:
    """Load is traffic, traffic is bundles: such clusters swap."""
    names = draw(st.lists(st.sampled_from(BROKERS), unique=True, min_size=2))
    reports = draw(reports_of(names[:1], st.integers(5, 12).map(float)))
    reports |= draw(reports_of(names[1:], st.integers(0, 3).map(float)))
    records = {}
    for name in names:
        volume = sum(one for _, one in reports.get(name, [])) + draw(st.sampled_from([0, 0, 0, 5]))
        record = Record(
            load=volume / draw(st.sampled_from([32, 32, 32, 64])),
            throughput=float(volume),
            throughput_ema=float(volume),
            updated_at_ms=NOW_MS,
        )
        records[name] = record
    few = st.sets(st.sampled_from(BUNDLES), max_size=1)
    return Store(
        records=records,
        reports=reports,
        registered=set(names),
        disowned=draw(few),
        recent=draw(few),
        with_policy=draw(few),
    )


@st.composite
def reports_of(
    draw: st.DrawFn, names: list[str], volumes: st.SearchStrategy[float]
) -> dict[str, list[tuple[str, float]]]:
    """Top lists, lightest first; now and then a broker has none."""
    shuffled = draw(st.permutations(BUNDLES))
    reports: dict[str, list[tuple[str, float]]] = {}
    for at, name in enumerate(names):
        if draw(st.integers(0, 9)):
            bundles = shuffled[at * 3 : at * 3 + draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 6]))]
            reports[name] = [(bundle, draw(volumes)) for bundle in bundles]
            reports[name].sort(key=lambda one: one[1])
    return reports


def view_of(store: Store) -> TransferView:
    """The store as arrays."""
    records = list(store.records.values())
    return TransferView(
        names=tuple(store.records),
        load=np.array([one.load for one in records], dtype=np.float64),
        throughput=np.array([one.throughput for one in records], dtype=np.float64),
        throughput_ema=np.array([one.throughput_ema for one in records], dtype=np.float64),
        updated_at_ms=np.array([one.updated_at_ms for one in records], dtype=np.int64),
        registered=None if store.registered is None else frozenset(store.registered),
        lookup=Lookup(store),
    )


def is_same(left: float, right: float) -> bool:
    """Equal, or both not a number."""
    return left == right or (math.isnan(left) and math.isnan(right))


@given(
    st.lists(stores(), min_size=1, max_size=3),
    CONFIGS,
    st.dictionaries(st.sampled_from(BROKERS), st.sampled_from([NOW_MS - 300, NOW_MS - 5_000])),
)
@settings(max_examples=1_500, deadline=None)
def test_transfers_of_random_clusters_equal_the_slow_model(
    cycles: list[Store], config: TransferConfig, unloaded: dict[str, int]
) -> None:
    model = Shedder(config=config, unloaded=dict(unloaded))
    state = TransferState(unloaded_brokers=unloaded)
    for store in cycles:
        outcome, state = find_transfers(view_of(store), state, config, NOW_MS)
        decisions, deviation = model.cycle(store, NOW_MS)
        found = [
            (one.source, one.bundle, one.destination, one.reason.value) for one in outcome.decisions
        ]
        assert found == decisions
        assert is_same(outcome.final_std, deviation)
        assert is_same(state.load_avg, model.average)
        assert is_same(state.load_std, model.deviation)
        assert (state.hits, dict(state.counter)) == (model.hits, model.counter)
        assert dict(state.unloaded_brokers) == model.unloaded
        state = from_plain(TransferState, to_plain(state))


@given(stores(), CONFIGS)
@settings(max_examples=200, deadline=None)
def test_transfers_of_any_cluster_leave_each_source_a_reported_bundle(
    store: Store, config: TransferConfig
) -> None:
    outcome, _ = find_transfers(view_of(store), TransferState(hits=9), config, NOW_MS)
    for pair in outcome.pairs:
        gone = [one for one in outcome.decisions if one.source == pair.source]
        reported = {bundle for bundle, _ in store.reports[pair.source]}
        assert len(reported - {one.bundle for one in gone}) >= 1
