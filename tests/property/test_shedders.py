"""Bounds of shedders, transfers and placement filters on random clusters."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.placement import FilterConfig
from lbcore.config.shedding import SheddingConfig, TransferConfig
from lbcore.plan.filter.index import FilterVerdict, candidate_index
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, empty_verdicts
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.shed.avg import shed_avg
from lbcore.plan.shed.common import Shed, ShedState, ShedView, TransferState
from lbcore.plan.shed.overload import shed_overload
from lbcore.plan.shed.transfer import TopBundle, TransferView, find_transfers
from lbcore.plan.shed.uniform import shed_uniform
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import broker_table, bundle_table, shed_view, snapshot

MANY = settings(max_examples=1_000, deadline=None)
STEPS = (0.0, 1.0, 50.0, 50.5, 999.9, 1_000.0, 3_000.25, 1e6, 1e9, 5e9)
AMOUNTS = st.sampled_from(STEPS) | st.floats(0, 1e6, allow_subnormal=False)
USAGES = st.sampled_from((0.0, 0.1, 0.5, 0.6, 0.85, 0.9, 1.4)) | st.floats(0, 1.5)
RARELY = st.sampled_from([False] * 7 + [True])


def _some(draw: st.DrawFn, values: st.SearchStrategy[Any], count: int) -> np.ndarray:
    return np.array(draw(st.lists(values, min_size=count, max_size=count)))


@st.composite
def cycles(draw: st.DrawFn) -> list[ShedView]:
    """The same cluster, seen up to five times; a broker's own totals need not fit its bundles."""
    count = draw(st.integers(0, 7))
    sizes = _some(draw, st.integers(0, 12), count).astype(np.int64)
    owner, bundles = np.repeat(np.arange(count), sizes), int(sizes.sum())
    short, traffic = np.zeros((bundles, 4)), np.zeros((count, 4))
    for measure in (0, 3):
        short[:, measure] = _some(draw, AMOUNTS, bundles)
        fits, sums = _some(draw, st.booleans(), count), np.bincount(owner, short[:, measure], count)
        traffic[:, measure] = np.where(fits, sums, _some(draw, AMOUNTS, count))
    names = draw(st.permutations([f"b{at}" for at in range(count)]))
    table = snapshot(
        broker_table(names, traffic=traffic, bundle_count=sizes),
        bundle_table(
            [f"t/n/{at:02d}" for at in range(bundles)],
            owner=owner,
            short=short,
            can_move=~_some(draw, RARELY, bundles).astype(np.bool_),
        ),
    )
    seen = draw(st.integers(1, 5))
    return [shed_view(table, _some(draw, USAGES, count).astype(np.float64)) for _ in range(seen)]


CONFIGS = st.builds(
    SheddingConfig,
    overloaded_threshold_percent=st.sampled_from((50, 85, 90)),
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


@given(seen=cycles(), config=CONFIGS)
@MANY
def test_avg_moves_at_most_the_fraction_of_the_difference(
    seen: list[ShedView], config: SheddingConfig
) -> None:
    state = ShedState()
    for view in seen:
        answer = shed_avg(view, state, config)
        state = answer.state
        for selection in answer.selections:
            moved = float(selection.traffic[selection.is_taken].sum())
            assert moved <= selection.numbers["budget"] * (1 + 1e-12)


def givers(answer: Shed) -> set[int]:
    return {one.source for one in answer.selections if len(one.rows)}


@given(seen=cycles(), config=CONFIGS)
@MANY
def test_multi_hit_never_sheds_what_the_strategy_alone_would_not(
    seen: list[ShedView], config: SheddingConfig
) -> None:
    state, gated = ShedState(), replace(config, multi_hit=True)
    for view in seen:
        for shedder in (shed_overload, shed_uniform):
            answer = shedder(view, state, gated)
            assert givers(answer) <= givers(shedder(view, ShedState(), config))
            state = answer.state


NOW_MS = 10_000_000
BROKERS = ["a", "b", "c", "d", "e"]
BUNDLES = [f"t/n{at}/{at}" for at in range(12)]
LOADS = st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.2]) | st.floats(0, 1.5)
VOLUMES = st.sampled_from([0.0, 1e5, 2e5, 1e6, 3e6]) | st.floats(0, 5e6)
CONFIGS_OF_TRANSFER = st.builds(
    TransferConfig,
    target_std=st.sampled_from([0.0, 0.05, 0.25, 2.0]),
    hit_count_threshold=st.integers(0, 2),
    max_pairs_per_cycle=st.integers(0, 4),
    is_destination_planned=st.sampled_from([True, True, False]),
    overloaded_threshold_percent=st.sampled_from([30.0, 85.0]),
    load_data_ttl_ms=st.just(1_000),
    shedding_delay_ms=st.just(500),
    count_swapped_back=st.booleans(),
    check_swapped_back=st.just(value=False),
)


@st.composite
def reports(draw: st.DrawFn, names: list[str], volumes: list[Any]) -> dict[str, list[TopBundle]]:
    """Top lists, lightest first, which may name a bundle of another; some brokers have none."""
    shuffled, found = draw(st.permutations(BUNDLES)), {}
    for at, name in enumerate(names):
        bundles = shuffled[at * 3 : at * 3 + draw(st.integers(0, 6))]
        drawn = sorted(_some(draw, volumes[min(at, 1)], len(bundles)).tolist())
        found[name] = [
            TopBundle(bundle=bundle, throughput=volume, is_own=not disowned, is_held=held)
            for bundle, volume, disowned, held in zip(
                bundles,
                drawn,
                _some(draw, RARELY, len(bundles)).tolist(),
                _some(draw, RARELY, len(bundles)).tolist(),
                strict=True,
            )
        ]
    return found


@st.composite
def transfer_views(draw: st.DrawFn) -> tuple[TransferView, dict[str, list[TopBundle]]]:
    """Anything at all, or load that is the traffic of the bundles: such clusters swap."""
    is_steady = draw(st.booleans())
    names = draw(st.lists(st.sampled_from(BROKERS), unique=True, min_size=2 * is_steady))
    count = len(names)
    steady = [st.integers(5, 12).map(float), st.integers(0, 3).map(float)]
    found = draw(reports(names, steady if is_steady else [VOLUMES, VOLUMES]))
    load, ages = _some(draw, LOADS, count), [0, 0, 0, 0, 400, 1_000, 1_001]
    volumes = [_some(draw, VOLUMES, count) for _ in range(2)]
    if is_steady:
        own = np.array([sum(one.throughput for one in found[name]) for name in names], dtype=float)
        load, volumes = own / _some(draw, st.sampled_from([32, 32, 64]), count), [own, own]
        ages = [0]
    some = st.none() | st.sets(st.sampled_from(BROKERS))
    registered = draw(st.just({*names}) if is_steady else st.just({*names}) | some)
    refused = draw(st.sets(st.sampled_from(BUNDLES), max_size=1 if is_steady else 3))
    view = TransferView(
        names=tuple(names),
        load=load.astype(np.float64),
        throughput=volumes[0].astype(np.float64),
        throughput_ema=volumes[1].astype(np.float64),
        updated_at_ms=NOW_MS - _some(draw, st.sampled_from(ages), count).astype(np.int64),
        registered=None if registered is None else frozenset(registered),
        report=lambda broker: found.get(broker) or None,
        admits=lambda bundle, broker: bundle not in refused and broker in (registered or ()),
    )
    return view, found


@given(transfer_views(), CONFIGS_OF_TRANSFER)
@settings(max_examples=200, deadline=None)
def test_transfers_of_any_cluster_leave_each_source_a_reported_bundle(
    seen: tuple[TransferView, dict[str, list[TopBundle]]], config: TransferConfig
) -> None:
    view, found = seen
    outcome, _ = find_transfers(view, TransferState(hits=9), config, NOW_MS)
    order = np.argsort(view.load, kind="stable").tolist()
    rank = {"": -1, **{view.names[at]: place for place, at in enumerate(order)}}
    hot = {one.source for one in outcome.decisions if rank[one.source] > rank[one.destination]}
    for source in hot:
        gone = {one.bundle for one in outcome.decisions if one.source == source}
        assert {one.bundle for one in found[source]} - gone


SPACES = ["t/a", "t/b", "t/c", "pulsar/system"]
PATTERNS = st.lists(st.sampled_from(["a.*", "b.*", ".*1", "b2", "none"]), min_size=1, max_size=2)
VERSIONS = st.sampled_from(["1.0.0", "2.0.0", "2.0.0", "2.0.0", "2.0.0", "10.0.0", "x"])
POLICIES = st.builds(
    IsolationPolicy,
    name=st.sampled_from(["p", "q", "r"]),
    namespaces=st.sampled_from([("t/a",), ("t/[bc]",), (".*",)]),
    primary=PATTERNS.map(tuple),
    secondary=st.just(()) | PATTERNS.map(tuple),
    min_limit=st.integers(0, 3),
)
FILTERS = st.builds(
    FilterConfig,
    pipeline=st.sampled_from(["modular", "extensible"]),
    load_manager_class=st.sampled_from(["", "", "", "L"]),
    max_topics_per_broker=st.sampled_from([5, 8, 50_000]),
    distribute_evenly=st.booleans(),
    prefer_later_versions=st.booleans(),
    failure_domains=st.booleans(),
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Brokers of every kind, bundles with and without an owner, policies now and then."""
    known = st.sampled_from(["a1:80", "a2:80", "b1:80", "b2", "c1", "c2:8"])
    names = sorted(draw(st.lists(known, unique=True, min_size=draw(st.sampled_from([0, 2, 4])))))
    count, bundles = len(names), draw(st.integers(0, 14) | st.integers(8, 14))
    flags = {
        name: _some(draw, RARELY, count).astype(np.bool_)
        for name in ("is_draining", "is_flapping", "is_suspected")
    }
    brokers = broker_table(
        names,
        topic_count=_some(draw, st.integers(0, 8), count).astype(np.int64),
        versions=tuple(_some(draw, VERSIONS, count).tolist()),
        load_manager_classes=tuple(_some(draw, st.sampled_from(["L", "L", ""]), count).tolist()),
        failure_domains=tuple(
            _some(draw, st.sampled_from(["", "d", "e", "default"]), count).tolist()
        ),
        **flags,
    )
    spaces = _some(draw, st.sampled_from(SPACES), bundles).tolist()
    table = bundle_table(
        [f"{space}/{at:02d}" for at, space in enumerate(spaces)],
        owner=_some(draw, st.integers(-1, count - 1), bundles).astype(np.int64),
        topics=_some(draw, st.integers(0, 4), bundles).astype(np.int64),
    )
    groups = st.dictionaries(st.sampled_from(SPACES), st.sampled_from(["g", "G", "h", " "]))
    policies = draw(st.just([]) | st.lists(POLICIES, max_size=2))
    return replace(
        snapshot(brokers, table),
        policies=Policies(isolation=tuple(policies), anti_affinity=draw(groups)),
    )


@given(clusters(), FILTERS, st.data())
@settings(max_examples=300, deadline=None)
def test_verdicts_of_random_bundles_are_ok_exactly_for_the_candidates(
    seen: Snapshot, filters: FilterConfig, data: st.DataObject
) -> None:
    rows = data.draw(st.permutations(range(len(seen.bundles.names))))
    pipeline = FilterPipeline.of(seen, candidate_index(seen), filters, np.array(rows, dtype=int))
    brokers = st.just(-1) | st.integers(-1, len(seen.brokers.names) - 1)
    for bundle in rows:
        verdicts = empty_verdicts(seen)
        question = FilterQuestion(
            bundle=bundle, excluded=data.draw(brokers), pin=data.draw(brokers)
        )
        narrowed = pipeline.candidates(question, verdicts)
        assert np.flatnonzero(verdicts == FilterVerdict.OK).tolist() == narrowed.left.tolist()
