"""Filters and placement on random clusters: as the slow model says, bundle for bundle."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.filters import FilterConfig
from lbcore.config.placement import PlacementConfig
from lbcore.config.strategies import PLACEMENT
from lbcore.plain import from_plain, to_plain
from lbcore.plan.filter.index import FilterInput, index_candidates
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, empty_verdicts
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.filter.unload import unload_verdicts
from lbcore.plan.filter.verdict import FilterVerdict
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import PlacementState, PlaceRequest, PlaceSettings, place_request
from lbcore.plan.snapshot import Snapshot
from tests.support.models.filter_model import Cluster
from tests.support.models.placement_model import Memory, Placer, remembered
from tests.support.values.clusters import broker_table, bundle_table, snapshot

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
    primary_usage_limits=st.booleans(),
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


@st.composite
def filter_inputs(draw: st.DrawFn, cluster: Snapshot) -> FilterInput:
    count, bundles = len(cluster.brokers.names), len(cluster.bundles.names)
    policies = draw(st.one_of(st.just([]), st.lists(POLICIES, max_size=2)))
    rarely = st.sampled_from([False] * 7 + [True])
    mostly = st.sampled_from([True] * 7 + [False])
    return FilterInput(
        policies=Policies(isolation=tuple(policies), anti_affinity=draw(GROUPS)),
        usage=np.array(_some(draw, st.sampled_from([0.1, 0.3, 0.85, 0.9]), count)),
        is_flapping=np.array(_some(draw, rarely, count), dtype=np.bool_),
        is_suspected=np.array(_some(draw, rarely, count), dtype=np.bool_),
        supports_persistent=np.array(_some(draw, mostly, count), dtype=np.bool_),
        supports_non_persistent=np.array(_some(draw, mostly, count), dtype=np.bool_),
        is_non_persistent=np.array(_some(draw, rarely, bundles), dtype=np.bool_),
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[PlaceRequest, FilterInput, PlaceSettings]:
    cluster = draw(clusters())
    inputs = draw(filter_inputs(cluster))
    place_settings = PlaceSettings(
        placement=draw(PLACEMENTS),
        filters=draw(FILTERS),
        history_weight=draw(st.sampled_from([0.0, 0.5, 0.9])),
        excluded_namespaces=frozenset(draw(st.sets(st.sampled_from(SPACES), max_size=1))),
    )
    index = index_candidates(cluster, inputs, place_settings.filters)
    rows = draw(st.permutations(range(len(cluster.bundles.names))))
    rows = rows[: draw(st.sampled_from([len(rows), len(rows) // 2]))]
    made = place_request(cluster, np.array(rows, dtype=np.int64), index, inputs.usage)
    brokers = st.one_of(st.just(-1), st.integers(-1, len(cluster.brokers.names) - 1))
    columns = {
        name: np.array(_some(draw, brokers, len(rows)), dtype=np.int64)
        for name in ("excluded", "pins", "planned")
    }
    return (
        replace(made, **columns, traced=draw(st.sampled_from([0, 1, 1_000]))),
        inputs,
        place_settings,
    )


@given(requests(), st.integers(0, 5))
@settings(max_examples=1_000, deadline=None)
def test_placement_of_random_bundles_equals_the_slow_model(
    asked: tuple[PlaceRequest, FilterInput, PlaceSettings], seed: int
) -> None:
    request, inputs, place_settings = asked
    state, memory = PlacementState(), Memory()
    for _ in range(2):
        placement = place_bundles(request, state, place_settings, seed)
        model = Placer(
            request=request,
            cluster=Cluster(request.snapshot, inputs, place_settings),
            memory=memory,
            seed=seed,
        )
        assert placement.brokers.tolist() == model.run()
        assert to_plain(placement.state) == remembered(memory)
        state = from_plain(PlacementState, to_plain(placement.state))


@given(requests())
@settings(max_examples=300, deadline=None)
def test_verdicts_of_random_bundles_are_ok_exactly_for_the_candidates(
    asked: tuple[PlaceRequest, FilterInput, PlaceSettings],
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


@given(requests())
@settings(max_examples=300, deadline=None)
def test_unload_of_random_bundles_is_refused_as_the_slow_model_says(
    asked: tuple[PlaceRequest, FilterInput, PlaceSettings],
) -> None:
    request, inputs, place_settings = asked
    bundles = request.snapshot.bundles
    rows = request.bundles[bundles.owner[request.bundles] >= 0]
    model = Cluster(request.snapshot, inputs, place_settings)
    expected = [_slow_refusal(model, row, int(bundles.owner[row])) for row in rows.tolist()]
    assert unload_verdicts(request.snapshot, request.index, rows).tolist() == expected


def _slow_refusal(model: Cluster, row: int, owner: int) -> FilterVerdict:
    """shouldNamespacePoliciesUnload, then shouldAntiAffinityNamespaceUnload."""
    current = model.snapshot.brokers.names[owner]
    candidates = model.admitted(row)
    if not [name for name in candidates if name != current]:
        return FilterVerdict.NO_OTHER_BROKER
    counts = model.group_counts(row)
    if not counts:
        return FilterVerdict.OK
    least = min(counts[name] for name in candidates)
    own = counts[current] if current in candidates else 0
    if least == 0 or own > least:
        return FilterVerdict.OK
    is_even = all(counts[name] == least for name in candidates)
    return FilterVerdict.ANTI_AFFINITY if is_even else FilterVerdict.OK
