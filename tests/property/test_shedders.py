"""The vectorised shedders answer as the slow models do, on random clusters over several cycles."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.shedding import SheddingConfig
from lbcore.plan.shed.avg import shed_avg
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.plan.shed.overload import shed_overload
from lbcore.plan.shed.threshold import shed_threshold
from lbcore.plan.shed.uniform import shed_uniform
from tests.support.models.shed_models import (
    Memory,
    PlainBroker,
    PlainBundle,
    Taken,
    avg,
    overload,
    threshold,
    uniform,
)
from tests.support.values.clusters import broker_table, bundle_table, shed_view, snapshot

MANY = settings(max_examples=1_000, deadline=None)
STEPS = (0.0, 1.0, 50.0, 50.5, 999.9, 1_000.0, 3_000.25, 1e6, 1e9, 5e9)
AMOUNTS = st.sampled_from(STEPS) | st.floats(0, 1e6, allow_subnormal=False)
USAGES = st.sampled_from((0.0, 0.1, 0.5, 0.6, 0.85, 0.9, 1.4)) | st.floats(0, 1.5)


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


Fast = Callable[[ShedView, ShedState, SheddingConfig], Shed]
Slow = Callable[[list[PlainBroker], Memory, SheddingConfig], Taken]


def agree(seen: list[list[PlainBroker]], config: SheddingConfig, fast: Fast, slow: Slow) -> None:
    """Both answer alike in every cycle, and remember alike."""
    state, memory = ShedState(), Memory()
    for cluster in seen:
        view = view_of(cluster)
        answer = fast(view, state, config)
        assert taken_by(view, answer) == slow(cluster, memory, config)
        state = answer.state
        assert dict(state.ema) == memory.ema
        assert (dict(state.hits_low), dict(state.hits_high)) == (memory.low, memory.high)
        assert bool(answer.reason) == (not answer.selections)


@given(seen=cycles(), config=CONFIGS)
@MANY
def test_overload_on_random_clusters_equals_the_plain_model(
    seen: list[list[PlainBroker]], config: SheddingConfig
) -> None:
    agree(seen, config, shed_overload, lambda cluster, _, used: overload(cluster, used))


@given(seen=cycles(), config=CONFIGS, weight=st.sampled_from((0.0, 0.5, 0.9)))
@MANY
def test_threshold_on_random_clusters_equals_the_plain_model(
    seen: list[list[PlainBroker]], config: SheddingConfig, weight: float
) -> None:
    agree(
        seen,
        config,
        lambda view, state, used: shed_threshold(view, state, used, weight),
        lambda cluster, memory, used: threshold(cluster, memory, used, weight),
    )


@given(seen=cycles(), config=CONFIGS)
@MANY
def test_uniform_on_random_clusters_equals_the_plain_model(
    seen: list[list[PlainBroker]], config: SheddingConfig
) -> None:
    agree(seen, config, shed_uniform, lambda cluster, _, used: uniform(cluster, used))


@given(seen=cycles(), config=CONFIGS)
@MANY
def test_avg_on_random_clusters_equals_the_plain_model(
    seen: list[list[PlainBroker]], config: SheddingConfig
) -> None:
    agree(seen, config, shed_avg, avg)


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
