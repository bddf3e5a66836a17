"""The shedders on random clusters answer as slow models do, cycle after cycle."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.placement import PLACEMENT, FilterConfig, PlacementConfig
from lbcore.config.shedding import SheddingConfig, TransferConfig
from lbcore.plan.filter.index import FilterVerdict, candidate_index
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, empty_verdicts
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.place.request import PlaceRequest, PlaceSettings, place_request
from lbcore.plan.shed.avg import shed_avg
from lbcore.plan.shed.common import Shed, ShedState, ShedView, TransferState
from lbcore.plan.shed.overload import shed_overload
from lbcore.plan.shed.transfer import TopBundle, TransferView, find_transfers
from lbcore.plan.shed.uniform import shed_uniform
from lbcore.plan.snapshot import Floats, Snapshot
from tests.support.values.clusters import broker_table, bundle_table, shed_view, snapshot

Taken = dict[str, list[str]]
MANY = settings(max_examples=1_000, deadline=None)
STEPS = (0.0, 1.0, 50.0, 50.5, 999.9, 1_000.0, 3_000.25, 1e6, 1e9, 5e9)
AMOUNTS = st.sampled_from(STEPS) | st.floats(0, 1e6, allow_subnormal=False)
USAGES = st.sampled_from((0.0, 0.1, 0.5, 0.6, 0.85, 0.9, 1.4)) | st.floats(0, 1.5)


@dataclass(slots=True)
class PlainBundle:
    """A bundle's short-term traffic. rate: msg/s, volume: bytes/s."""

    name: str
    rate: float
    volume: float
    can_move: bool = True


@dataclass(slots=True)
class PlainBroker:
    """A broker's own report. usage: weighted, 1.0 = 100 %. listed: all bundles it reports."""

    name: str
    usage: float
    rate: float
    volume: float
    listed: int
    bundles: list[PlainBundle]


@st.composite
def bundles(draw: st.DrawFn, prefix: str) -> list[PlainBundle]:
    """Up to twelve bundles of one broker."""
    made = draw(st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), max_size=12))
    return [
        PlainBundle(f"t/n/{prefix}-{at:02d}", rate, volume, can_move or at % 3 > 0)
        for at, (rate, volume, can_move) in enumerate(made)
    ]


@st.composite
def brokers(draw: st.DrawFn, count: int) -> list[PlainBroker]:
    """A cluster; a broker's own totals need not fit its bundles."""
    made = []
    for index in range(count):
        mine = draw(bundles(f"{index:02d}"))
        fits = draw(st.booleans())
        rate = sum((one.rate for one in mine), 0.0) if fits else draw(AMOUNTS)
        volume = sum((one.volume for one in mine), 0.0) if fits else draw(AMOUNTS)
        made.append(PlainBroker(f"b{index}", draw(USAGES), rate, volume, len(mine), mine))
    return draw(st.permutations(made))


@st.composite
def cycles(draw: st.DrawFn) -> list[list[PlainBroker]]:
    """The same cluster, seen up to five times with other usages."""
    first = draw(st.integers(0, 7).flatmap(brokers))
    again = [
        [_with_usage(broker, draw(USAGES)) for broker in first]
        for _ in range(draw(st.integers(0, 4)))
    ]
    return [first, *again]


def _with_usage(broker: PlainBroker, usage: float) -> PlainBroker:
    return PlainBroker(
        broker.name, usage, broker.rate, broker.volume, broker.listed, broker.bundles
    )


CONFIGS = st.builds(
    SheddingConfig,
    overloaded_threshold_percent=st.sampled_from((50, 85, 90)),
    threshold_percent=st.sampled_from((0, 5, 10, 20)),
    lower_boundary=st.booleans(),
    min_throughput_mib_per_s=st.sampled_from((0, 0.001, 10)),
    rate_difference_percent=st.sampled_from((0, 10, 50.0)),
    throughput_ratio=st.sampled_from((0, 1.5, 4)),
    min_unload_rate_msg_per_s=st.sampled_from((0, 10, 1_000)),
    min_unload_throughput_bytes_per_s=st.sampled_from((0, 1_000, 1_048_576)),
    max_unload_fraction=st.sampled_from((0.1, 0.2, 0.5, 1.0)),
    max_unload_bundles=st.sampled_from((-1, 0, 1, 3)),
    avg_low_threshold=st.sampled_from((0, 5, 15)),
    avg_high_threshold=st.sampled_from((10, 40)),
    avg_low_hits=st.sampled_from((1, 2, 8)),
    avg_high_hits=st.sampled_from((1, 2)),
)


def view_of(cluster: list[PlainBroker]) -> ShedView:
    """The cluster as arrays, in the same order."""
    listed = [(one, at) for at, broker in enumerate(cluster) for one in broker.bundles]
    short = np.zeros((len(listed), 4))
    short[:, 0] = [one.rate for one, _ in listed]
    short[:, 3] = [one.volume for one, _ in listed]
    traffic = np.zeros((len(cluster), 4))
    traffic[:, 1] = [broker.rate for broker in cluster]
    traffic[:, 2] = [broker.volume for broker in cluster]
    table = snapshot(
        broker_table(
            [broker.name for broker in cluster],
            traffic=traffic,
            bundle_count=np.array([broker.listed for broker in cluster], dtype=np.int64),
        ),
        bundle_table(
            [one.name for one, _ in listed],
            owner=np.array([at for _, at in listed], dtype=np.int64),
            short=short,
            can_move=np.array([one.can_move for one, _ in listed], dtype=np.bool_),
        ),
    )
    return shed_view(table, np.array([broker.usage for broker in cluster], dtype=np.float64))


def taken_by(view: ShedView, answer: Shed) -> Taken:
    """The answer by names, brokers that give nothing left out."""
    shown: Taken = {}
    for selection in answer.selections:
        names = [view.snapshot.bundles.names[row] for row in selection.rows.tolist()]
        if names:
            shown.setdefault(view.snapshot.brokers.names[selection.source], []).extend(names)
    return shown


@given(seen=cycles(), config=CONFIGS)
@MANY
def test_avg_moves_at_most_the_fraction_of_the_difference(
    seen: list[list[PlainBroker]], config: SheddingConfig
) -> None:
    state = ShedState()
    for cluster in seen:
        view = view_of(cluster)
        answer = shed_avg(view, state, config)
        state = answer.state
        for selection in answer.selections:
            moved = float(selection.traffic[selection.is_taken].sum())
            assert moved <= selection.numbers["budget"] * (1 + 1e-12)


@given(seen=cycles(), config=CONFIGS)
@MANY
def test_multi_hit_never_sheds_what_the_strategy_alone_would_not(
    seen: list[list[PlainBroker]], config: SheddingConfig
) -> None:
    state, gated = ShedState(), replace(config, multi_hit=True)
    for cluster in seen:
        view = view_of(cluster)
        for shedder in (shed_overload, shed_uniform):
            allowed = taken_by(view, shedder(view, ShedState(), config))
            answer = shedder(view, state, gated)
            assert set(taken_by(view, answer)) <= set(allowed)
            state = answer.state


NOW_MS = 10_000_000
BROKERS = ["a", "b", "c", "d", "e"]
BUNDLES = [f"t/n{at}/{at}" for at in range(12)]
SOME_BUNDLES = st.sets(st.sampled_from(BUNDLES), max_size=3)
SOME_BROKERS = st.sets(st.sampled_from(BROKERS), min_size=3)
LOADS = st.one_of(st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.2]), st.floats(0, 1.5))
VOLUMES = st.one_of(st.sampled_from([0.0, 1e5, 2e5, 1e6, 3e6]), st.floats(0, 5e6))
CONFIGS_OF_TRANSFER = st.builds(
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


@dataclass
class Record:
    """One broker's load record."""

    load: float
    throughput: float
    throughput_ema: float
    updated_at_ms: int


@dataclass
class Store:
    """Everything that the shedder can look at, by name. reports: (bundle, bytes/s), in order."""

    records: dict[str, Record]
    reports: dict[str, list[tuple[str, float]]]
    registered: set[str] | None
    disowned: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    recent: set[str] = field(default_factory=set)
    with_policy: set[str] = field(default_factory=set)
    admitted: dict[str, set[str] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Lookup:
    """A store behind the shedder's questions."""

    store: Store
    with_policies: bool

    def report(self, broker: str) -> Sequence[TopBundle] | None:
        """The broker's report."""
        store = self.store
        return store.reports.get(broker) and [
            TopBundle(
                bundle=bundle,
                throughput=volume,
                is_own=bundle not in store.disowned and bool(broker),
                is_held=bundle in store.excluded or bundle in store.recent,
            )
            for bundle, volume in store.reports[broker]
        ]

    def admits(self, bundle: str, broker: str) -> bool:
        """Admitted and registered, without a policy that keeps it."""
        if bundle in self.store.with_policy and not self.with_policies:
            return False
        return broker in (self.candidates(bundle) or ())

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


def view_of_transfer(store: Store, config: TransferConfig) -> TransferView:
    """The store as arrays."""
    records = list(store.records.values())
    lookup = Lookup(store, config.shed_bundles_with_policies)
    return TransferView(
        names=tuple(store.records),
        load=np.array([one.load for one in records], dtype=np.float64),
        throughput=np.array([one.throughput for one in records], dtype=np.float64),
        throughput_ema=np.array([one.throughput_ema for one in records], dtype=np.float64),
        updated_at_ms=np.array([one.updated_at_ms for one in records], dtype=np.int64),
        registered=None if store.registered is None else frozenset(store.registered),
        report=lookup.report,
        admits=lookup.admits,
    )


@given(stores(), CONFIGS_OF_TRANSFER)
@settings(max_examples=200, deadline=None)
def test_transfers_of_any_cluster_leave_each_source_a_reported_bundle(
    store: Store, config: TransferConfig
) -> None:
    view = view_of_transfer(store, config)
    outcome, _ = find_transfers(view, TransferState(hits=9), config, NOW_MS)
    order = np.argsort(view.load, kind="stable").tolist()
    rank = {"": -1, **{view.names[at]: place for place, at in enumerate(order)}}
    hot = {one.source for one in outcome.decisions if rank[one.source] > rank[one.destination]}
    for source in hot:
        gone = {one.bundle for one in outcome.decisions if one.source == source}
        assert {bundle for bundle, _ in store.reports[source]} - gone


SPACES = ["t/a", "t/b", "t/c", "pulsar/system"]
HOSTS = ["a.*", "b.*", ".*1", "b2", "none"]
RATES = st.sampled_from([0.0, 0.1, 0.2, 0.3, 50.0, 100.0, 700.0])
PATTERNS = st.lists(st.sampled_from(HOSTS), min_size=1, max_size=2).map(tuple)
VERSIONS = st.sampled_from(["1.0.0", "2.0.0", "2.0.0", "2.0.0", "2.0.0", "10.0.0", "x"])
POLICIES = st.builds(
    IsolationPolicy,
    name=st.sampled_from(["p", "q", "r"]),
    namespaces=st.sampled_from([("t/a",), ("t/[bc]",), (".*",)]),
    primary=PATTERNS,
    secondary=st.one_of(st.just(()), PATTERNS),
    min_limit=st.integers(0, 3),
    usage_threshold_percent=st.sampled_from([100, 80, 30]),
)
GROUPS = st.dictionaries(st.sampled_from(SPACES), st.sampled_from(["g", "G", "h", " "]))
FILTERS = st.builds(
    FilterConfig,
    pipeline=st.sampled_from(["modular", "extensible"]),
    load_manager_class=st.sampled_from(["", "", "", "L"]),
    max_topics_per_broker=st.sampled_from([5, 8, 50_000]),
    distribute_evenly=st.booleans(),
    prefer_later_versions=st.sampled_from([False, False, True]),
    failure_domains=st.booleans(),
)
PLACEMENTS = st.builds(
    PlacementConfig,
    strategy=st.sampled_from(sorted({*PLACEMENT} - {"ballast"})),  # no slow model
    usage_difference_percent=st.sampled_from([-40.0, 0.0, 5.0, 10.0]),
    count_planned=st.booleans(),
    heaviest_first=st.booleans(),
    planned_rate_floor_msg_per_s=st.sampled_from([0.0, 100.0]),
    smooth_once_per_plan=st.booleans(),
)


def _some(draw: st.DrawFn, values: st.SearchStrategy[Any], count: int) -> list[Any]:
    return draw(st.lists(values, min_size=count, max_size=count))


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    names = draw(
        st.lists(
            st.sampled_from(["a1:80", "a2:80", "b1:80", "b2", "c1", "c2:8"]),
            unique=True,
            min_size=draw(st.sampled_from([0, 2, 3, 4])),
        )
    )
    count, bundles = len(names), draw(st.one_of(st.integers(0, 14), st.integers(8, 14)))
    flags = st.booleans()
    traffic = np.array([[rate, 0.0, rate * 10, 0.0] for rate in _some(draw, RATES, count)])
    brokers = broker_table(
        sorted(names),
        traffic=traffic.reshape(count, 4),
        bundle_count=np.array(_some(draw, st.integers(0, 2), count), dtype=np.int64),
        topic_count=np.array(_some(draw, st.integers(0, 8), count), dtype=np.int64),
        weighted_max_ema=np.array(_some(draw, st.sampled_from([0.1, 0.5, 0.9]), count)),
        updated_at_ms=np.array(_some(draw, st.sampled_from([0, 5, 5, 5]), count), dtype=np.int64),
        is_fresh=np.array(_some(draw, flags, count), dtype=np.bool_),
        is_draining=np.array(
            _some(draw, st.sampled_from([False, False, False, True]), count), dtype=np.bool_
        ),
        versions=tuple(_some(draw, VERSIONS, count)),
        load_manager_classes=tuple(_some(draw, st.sampled_from(["L", "L", ""]), count)),
        failure_domains=tuple(_some(draw, st.sampled_from(["", "d", "e", "default"]), count)),
        capacity=np.array(_some(draw, st.sampled_from([1.0, 2.0]), count)),
    )
    spaces = _some(draw, st.sampled_from(SPACES), bundles)
    long = np.array([[one, one / 2, 0, 0] for one in _some(draw, RATES, bundles)]).reshape(-1, 4)
    rates = zip(_some(draw, RATES, bundles), _some(draw, RATES, bundles), strict=True)
    short = np.array([[rate, 0, one, one] for rate, one in rates]).reshape(-1, 4)
    known = np.array(_some(draw, flags, bundles), dtype=np.bool_)
    owner = np.array(_some(draw, st.integers(-1, count - 1), bundles), dtype=np.int64)
    is_new = np.array(_some(draw, flags, bundles), dtype=np.bool_)
    table = bundle_table(
        [f"{space}/{at:02d}" for at, space in enumerate(spaces)],
        owner=owner,
        long=long,
        short=short,
        topics=np.array(_some(draw, st.integers(0, 4), bundles), dtype=np.int64),
        versions=np.array(_some(draw, st.integers(1, 3), bundles), dtype=np.int64),
        is_load_known=draw(st.sampled_from([None, known])),
        is_awaited=draw(st.sampled_from([None, is_new & ~known & (owner >= 0)])),
    )
    return snapshot(brokers, table)


def filtered(draw: st.DrawFn, cluster: Snapshot) -> tuple[Snapshot, Floats]:
    """The cluster with policies and unsteady brokers, and a usage of each."""
    count = len(cluster.brokers.names)
    policies = draw(st.one_of(st.just([]), st.lists(POLICIES, max_size=2)))
    anti_affinity = draw(GROUPS)
    usage = np.array(_some(draw, st.sampled_from([0.1, 0.3, 0.85, 0.9]), count))
    rarely = st.sampled_from([False] * 7 + [True])
    brokers = replace(
        cluster.brokers,
        is_flapping=np.array(_some(draw, rarely, count), dtype=np.bool_),
        is_suspected=np.array(_some(draw, rarely, count), dtype=np.bool_),
    )
    found = Policies(isolation=tuple(policies), anti_affinity=anti_affinity)
    return replace(cluster, brokers=brokers, policies=found), usage


@st.composite
def requests(draw: st.DrawFn) -> tuple[PlaceRequest, Floats, PlaceSettings]:
    cluster = draw(clusters())
    cluster, usage = filtered(draw, cluster)
    place_settings = PlaceSettings(
        placement=draw(PLACEMENTS),
        filters=draw(FILTERS),
        history_weight=draw(st.sampled_from([0.0, 0.5, 0.9])),
        excluded_namespaces=frozenset(draw(st.sets(st.sampled_from(SPACES), max_size=1))),
    )
    index = candidate_index(cluster)
    rows = draw(st.permutations(range(len(cluster.bundles.names))))
    rows = rows[: draw(st.sampled_from([len(rows), len(rows) // 2]))]
    made = place_request(cluster, np.array(rows, dtype=np.int64), index, usage)
    brokers = st.one_of(st.just(-1), st.integers(-1, len(cluster.brokers.names) - 1))
    columns = {
        name: np.array(_some(draw, brokers, len(rows)), dtype=np.int64)
        for name in ("excluded", "pins", "planned")
    }
    return (
        replace(made, **columns, traced=draw(st.sampled_from([0, 1, 1_000]))),
        usage,
        place_settings,
    )


@given(requests())
@settings(max_examples=300, deadline=None)
def test_verdicts_of_random_bundles_are_ok_exactly_for_the_candidates(
    asked: tuple[PlaceRequest, Floats, PlaceSettings],
) -> None:
    request, _, place_settings = asked
    snap = request.snapshot
    pipeline = FilterPipeline.of(snap, request.index, place_settings.filters, request.bundles)
    for bundle, excluded, pin in zip(
        request.bundles.tolist(), request.excluded.tolist(), request.pins.tolist(), strict=True
    ):
        verdicts = empty_verdicts(snap)
        question = FilterQuestion(bundle=bundle, excluded=excluded, pin=pin)
        narrowed = pipeline.candidates(question, verdicts)
        assert np.flatnonzero(verdicts == FilterVerdict.OK).tolist() == narrowed.left.tolist()
