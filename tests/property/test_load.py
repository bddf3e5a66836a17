"""The load model: repeatable, additive over splits, and as steep as its profile says."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.model.bundles import even_boundaries
from lbcore.model.hashing import HASH_SPACE, HashFunction, hash_topic
from lbcore.model.names import FULL_UPPER
from lbcore.model.resources import LEAST_COUNT
from lbcore.sim.load.load import (
    FULL_RATE_MSG_PER_S,
    LoadModel,
    LoadProfile,
    LoadShape,
    NamespaceLoad,
    wave,
)
from lbcore.sim.load.noise import uniforms
from lbcore.sim.load.usage import cpu_noise, usage_of

SPACES = (
    NamespaceLoad(name="t/a", hash_function=HashFunction.CRC32, bundles=100),
    NamespaceLoad(name="t/b", hash_function=HashFunction.MURMUR3_32, bundles=100),
)
boundaries = st.lists(st.integers(1, FULL_UPPER - 1), max_size=20, unique=True).map(sorted)
shapes = st.sampled_from(LoadShape)
times = st.integers(0, 10**9)


def model(shape: LoadShape, seed: int = 2, brokers: int = 5) -> LoadModel:
    return LoadModel(SPACES, LoadProfile(shape=shape, brokers=brokers, seed=seed))


def hotspot_at(load: LoadModel, virtual_ms: int) -> tuple[str, int, int]:
    """The hot namespace and its hot window [start, end); it wraps where end < start."""
    name, start, width = load._window(load.step_at(virtual_ms))  # noqa: SLF001 (nothing else says it)
    return name, start, (start + width) % HASH_SPACE


def over(load: LoadModel, at_ms: int, namespace: str, edges: list[int]) -> np.ndarray:
    cuts = np.array([0, *edges, FULL_UPPER])
    return load.at(at_ms).bundles(namespace, cuts[:-1], cuts[1:])


def total_rate(load: LoadModel, at_ms: int) -> float:
    rows = [over(load, at_ms, space.name, []) for space in SPACES]
    return float(sum(row[0, 0] + row[0, 1] for row in rows))


@settings(deadline=None, max_examples=40)
@given(shape=shapes, at_ms=times, edges=boundaries, seed=st.integers(0, 99))
def test_load_of_split_bundles_adds_up_to_the_whole_exactly(
    shape: LoadShape, at_ms: int, edges: list[int], seed: int
) -> None:
    load = model(shape, seed)
    parts, whole = over(load, at_ms, "t/b", edges), over(load, at_ms, "t/b", [])
    assert np.array_equal(parts.sum(axis=0), whole[0])
    assert bool(np.all(parts >= 0.0))


@settings(deadline=None, max_examples=20)
@given(shape=shapes, at_ms=times, seed=st.integers(0, 99))
def test_load_of_two_models_with_equal_arguments_is_equal(
    shape: LoadShape, at_ms: int, seed: int
) -> None:
    edges = list(even_boundaries(100)[1:-1])
    once, again = model(shape, seed), model(shape, seed)
    again.at(at_ms + 5_000_000)  # what was asked before must not matter
    assert np.array_equal(over(once, at_ms, "t/a", edges), over(again, at_ms, "t/a", edges))


@pytest.mark.parametrize("shape", LoadShape)
def test_load_of_the_whole_cluster_is_the_profiles_total(shape: LoadShape) -> None:
    expected = 5 * 0.45 * FULL_RATE_MSG_PER_S
    assert total_rate(model(shape), 0) == pytest.approx(expected, rel=0.001)


def test_load_of_a_topic_lies_where_its_hash_is() -> None:
    load = model(LoadShape.EVEN)
    names = list(load.topics_in("t/b", 0, FULL_UPPER))
    assert len(names) == len(set(names)) == load.topic_count("t/b") == 500
    position = hash_topic(HashFunction.MURMUR3_32, names[7])
    assert list(load.topics_in("t/b", position, position + 1)) == [names[7]]
    alone = load.at(0).bundles("t/b", np.array([position]), np.array([position + 1]))
    assert alone[0, 4] == 1.0


def test_load_of_an_unknown_namespace_is_nothing() -> None:
    row = model(LoadShape.EVEN).at(0).bundles("t/c", np.array([0]), np.array([FULL_UPPER]))
    assert not row.any()


def test_hotspot_moves_with_its_period_only() -> None:
    load = model(LoadShape.MOVING_HOTSPOT)
    assert hotspot_at(load, 0) == hotspot_at(load, 599_999)
    assert len({hotspot_at(load, step * 600_000) for step in range(10)}) == 10


def test_hotspot_with_period_zero_stays() -> None:
    profile = LoadProfile(shape=LoadShape.MOVING_HOTSPOT, brokers=5, hotspot_period_ms=0)
    load = LoadModel(SPACES, profile)
    assert hotspot_at(load, 0) == hotspot_at(load, 10**12)


@pytest.mark.parametrize("step", range(8))
def test_hotspot_carries_its_share_within_its_window(step: int) -> None:
    load = model(LoadShape.MOVING_HOTSPOT)
    at_ms = step * 600_000
    name, start, end = hotspot_at(load, at_ms)
    edges = sorted({start, end} - {0})
    rows = over(load, at_ms, name, edges)
    rate = rows[:, 0] + rows[:, 1]
    hot = rate[1] if start < end else rate[0] + rate[2]
    width = (end - start) % HASH_SPACE / HASH_SPACE
    assert width == pytest.approx(0.06, rel=0.001)
    # 0.2 of a broker's mean for each of 6 bundles, on top of 3 % of what is left
    assert hot / total_rate(load, at_ms) == pytest.approx(0.24 + 0.76 * 0.03, abs=0.02)


@pytest.mark.parametrize("shape", LoadShape)
def test_load_has_no_bundle_that_outweighs_a_brokers_mean(shape: LoadShape) -> None:
    edges = list(even_boundaries(100)[1:-1])
    load = model(shape)
    rows = np.concatenate([over(load, 0, space.name, edges) for space in SPACES])
    rate = rows[:, 0] + rows[:, 1]
    assert rate.max() < 0.9 * rate.sum() / 5


def test_hotspot_lets_moves_help_at_the_size_of_the_acceptance_run() -> None:
    """1,000 bundles dealt out to 10 brokers in turn are uneven; no bundle stands in the way."""
    spaces = [
        NamespaceLoad(name=f"t/{index}", hash_function=HashFunction.CRC32, bundles=500)
        for index in range(2)
    ]
    load = LoadModel(spaces, LoadProfile(shape=LoadShape.MOVING_HOTSPOT, brokers=10))
    cuts = np.array(even_boundaries(500))
    rows = [
        load.at(0).bundles(space.name, cuts[:-1], cuts[1:])[:, :2].sum(axis=1) for space in spaces
    ]
    rate = np.concatenate(rows)
    brokers = np.bincount(np.arange(1000) % 10, rate)
    assert brokers.max() / brokers.mean() > 1.4
    assert (brokers.max() - brokers.min()) * 0.5 > 1000.0  # AvgShedder's least traffic to move
    assert rate.max() < 0.8 * brokers.mean()


def test_daily_wave_leads_each_namespace_through_peak_and_trough() -> None:
    load = model(LoadShape.DAILY_WAVE)
    rates = [float(over(load, hour * 3_600_000, "t/a", [])[0, :2].sum()) for hour in range(24)]
    mean = sum(rates) / 24
    assert max(rates) / mean == pytest.approx(1.6, rel=0.01)
    assert min(rates) / mean == pytest.approx(0.4, rel=0.01)


@given(phase=st.floats(0, 100))
def test_wave_stays_within_one_and_is_odd(phase: float) -> None:
    assert -1.0 <= wave(phase) <= 1.0
    assert wave(phase) == pytest.approx(-wave(phase + 0.5), abs=1e-9)


def test_zipf_has_few_hot_topics_and_a_long_tail() -> None:
    load = model(LoadShape.ZIPF)
    hashes = sorted(
        hash_topic(HashFunction.CRC32, f"persistent://t/a/topic-{i}") for i in range(500)
    )
    edges = [low + (high - low) // 2 for low, high in pairwise(hashes) if high - low > 1]
    rows = over(load, 0, "t/a", edges)
    rate = np.sort(rows[:, 0])[::-1]
    assert rate[0] > 10 * rate[len(rate) // 2]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**40), stream=st.text(max_size=10))
def test_uniforms_are_repeatable_and_spread(seed: int, stream: str) -> None:
    drawn = uniforms(seed, stream, 1000)
    assert np.array_equal(drawn[:10], uniforms(seed, stream, 10))
    assert 0.0 <= drawn.min() < drawn.max() < 1.0
    assert abs(drawn.mean() - 0.5) < 0.06


def test_uniforms_have_known_values() -> None:
    """The model's numbers must never change with a library's version."""
    assert [round(float(u), 6) for u in uniforms(2, "base t/a", 3)] == [
        0.787739,
        0.276041,
        0.606778,
    ]


def test_usage_is_linear_in_traffic_and_follows_capacity() -> None:
    stats = np.array([8_000.0, 12_000.0, 8e6, 12e6, 100.0, 0.0, 0.0, 0.0])
    plain, twice = usage_of(stats, 1.0, 0.0), usage_of(stats, 2.0, 0.5)
    known = slice(0, LEAST_COUNT)
    assert plain.usage.tolist()[known] == [51.5, 261.0, 144.0, 64_000.0, 96_000.0]
    assert plain.limit.tolist()[known] == [100.0, 4096.0, 8192.0, 1e6, 1e6]
    assert twice.usage[0] == 3.0 + 97.0 / 4 + 0.5
    assert twice.limit.tolist()[known] == [100.0, 8192.0, 16384.0, 2e6, 2e6]
    assert usage_of(stats * 9.0, 1.0, 0.0).usage[0] == 100.0


def test_cpu_noise_is_small_and_its_own_for_each_broker_and_step() -> None:
    drawn = [cpu_noise(1, broker, step) for broker in ("a", "b") for step in range(50)]
    assert len(set(drawn)) == 100
    assert max(map(abs, drawn)) <= 0.5
    assert cpu_noise(1, "a", 7) == drawn[7]
