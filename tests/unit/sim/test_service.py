"""The service in miniature keeps the contract of the callbacks and reads the model's load."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.hashing import HashFunction
from lbcore.model.names import format_bundle
from lbcore.ownership.holding import Call, Callback
from lbcore.sim.engine.service import CallbackChange, ServedBundles
from lbcore.sim.load.load import LoadModel, LoadProfile, LoadShape, NamespaceLoad

MODEL = LoadModel(
    [
        NamespaceLoad(name=name, hash_function=HashFunction.CRC32, bundles=8)
        for name in ("t/a", "t/b")
    ],
    LoadProfile(shape=LoadShape.ZIPF, brokers=2),
)
FIELD = MODEL.at(0)
LOW, HIGH = "t/a/0x00000000_0x80000000", "t/a/0x80000000_0xffffffff"
WHOLE = "t/a/0x00000000_0xffffffff"


def call(callback: Callback, bundle: str, token: int = 1, children: tuple[str, ...] = ()) -> Call:
    return Call(callback=callback, bundle=bundle, version_id=token, children=children)


def serving(*bundles: str) -> ServedBundles:
    service = ServedBundles()
    for bundle in bundles:
        service.carry_out(call(Callback.OPEN, bundle))
    return service


def test_open_serves_the_bundle_under_its_token() -> None:
    service = serving(LOW)
    assert service.carry_out(call(Callback.OPEN, LOW, 7)) == CallbackChange(
        opened={LOW: 7}, closed=()
    )
    assert service.tokens == {LOW: 7}


def test_open_of_a_parent_replaces_its_children() -> None:
    service = serving(LOW, HIGH, "t/b/0x00000000_0x80000000")
    change = service.carry_out(call(Callback.OPEN, WHOLE, 5))
    assert change == CallbackChange(opened={WHOLE: 5}, closed=(LOW, HIGH))
    assert service.tokens == {WHOLE: 5, "t/b/0x00000000_0x80000000": 1}


def test_close_leaves_nothing_of_the_range() -> None:
    service = serving(LOW, HIGH)
    assert service.carry_out(call(Callback.CLOSE, WHOLE)).closed == (LOW, HIGH)
    assert service.carry_out(call(Callback.CLOSE, WHOLE)).closed == ()
    assert service.tokens == {}


def test_split_serves_the_children_and_may_be_repeated() -> None:
    service = serving(WHOLE)
    split = call(Callback.SPLIT, WHOLE, 3, (LOW, HIGH))
    assert service.carry_out(split) == CallbackChange(opened={LOW: 3, HIGH: 3}, closed=(WHOLE,))
    assert service.carry_out(split).closed == ()
    assert service.tokens == {LOW: 3, HIGH: 3}


def test_neighbours_do_not_count_as_overlapping() -> None:
    service = serving(LOW)
    service.carry_out(call(Callback.CLOSE, HIGH))
    assert service.tokens == {LOW: 1}


def test_load_of_children_adds_up_to_their_parents() -> None:
    parent, children = serving(WHOLE), serving(LOW, HIGH)
    whole, halves = (service.load_at(FIELD, 1.0, 0.0) for service in (parent, children))
    assert halves.bundles == (LOW, HIGH)
    assert np.array_equal(whole.stats[0], halves.stats.sum(axis=0))
    assert np.array_equal(whole.traffic, halves.traffic)
    assert np.array_equal(whole.usage, halves.usage)
    assert whole.topic_count == halves.topic_count == 40
    assert whole.consumer_count == int(whole.stats[0, 5])
    assert whole.producer_count == int(whole.stats[0, 6])


def test_load_of_nothing_is_an_idle_brokers() -> None:
    idle = ServedBundles().load_at(FIELD, 1.0, 0.0)
    assert (idle.bundles, idle.stats.shape, idle.usage[0]) == ((), (0, 8), 3.0)


edges = st.lists(st.integers(1, (1 << 32) - 2), max_size=6, unique=True).map(sorted)


@given(cuts_a=edges, cuts_b=edges)
def test_load_rows_follow_the_names_across_namespaces(cuts_a: list[int], cuts_b: list[int]) -> None:
    bundles = []
    for name, cuts in (("t/a", cuts_a), ("t/b", cuts_b)):
        ends = [0, *cuts, (1 << 32) - 1]
        bundles += [format_bundle(name, *pair) for pair in pairwise(ends)]
    read = serving(*reversed(bundles)).load_at(FIELD, 1.0, 0.0)
    assert read.bundles == tuple(sorted(bundles))
    for bundle, row in zip(read.bundles, read.stats, strict=True):
        namespace, _, text = bundle.rpartition("/")
        low, high = (int(part, 16) for part in text.split("_"))
        alone = FIELD.bundles(namespace, np.array([low]), np.array([high]))[0]
        assert np.array_equal(row, alone)


def test_topics_of_a_bundle_carry_what_the_bundle_does() -> None:
    topics, traffic = MODEL.topics_of(LOW, 0)
    row = FIELD.bundles("t/a", np.array([0]), np.array([1 << 31]))[0]
    assert len(topics) == row[4]
    assert np.array_equal(traffic.sum(axis=0), row[:4])


@pytest.mark.parametrize("bundle", ["t/unknown/0x00000000_0xffffffff"])
def test_topics_of_an_unknown_namespace_are_none(bundle: str) -> None:
    topics, traffic = MODEL.topics_of(bundle, 0)
    assert (topics, traffic.shape) == ((), (0, 4))


LAST = "t/a/0xffffffff_0xffffffff"
GRID = [0, 1, 2, 5, 1 << 31, (1 << 32) - 2, (1 << 32) - 1]
ranges = st.lists(st.sampled_from(GRID), min_size=2, max_size=2, unique=True).map(sorted)
names = st.one_of(st.just(LAST), ranges.map(lambda ends: format_bundle("t/a", *ends)))


def hashes(bundle: str) -> set[int]:
    """Those hashes of the bundle that tell ranges over the grid apart."""
    low, high = (int(part, 16) for part in bundle[-21:].split("_"))
    return {h for h in GRID if low <= h < high or h == high == (1 << 32) - 1}


@given(calls=st.lists(st.tuples(st.sampled_from([Callback.OPEN, Callback.CLOSE]), names)))
def test_any_order_of_calls_serves_what_a_map_of_hashes_would(
    calls: list[tuple[Callback, str]],
) -> None:
    service, served = ServedBundles(), dict[int, str]()
    for callback, bundle in calls:
        service.carry_out(call(callback, bundle))
        gone = {served[h] for h in hashes(bundle) if h in served}
        served = {h: name for h, name in served.items() if name not in gone}
        if callback is Callback.OPEN:
            served.update(dict.fromkeys(hashes(bundle), bundle))
    assert set(service.tokens) == set(served.values())


def test_load_beyond_the_full_rate_is_served_in_equal_parts() -> None:
    asked = serving(LOW, HIGH).load_at(FIELD, 1.0, 0.0)
    rate = float(asked.traffic[:2].sum())
    read = serving(LOW, HIGH).load_at(FIELD, 0.5, 0.0, full_rate=rate)
    assert np.allclose(read.stats[:, :4], asked.stats[:, :4] / 2)
    assert np.array_equal(read.stats[:, 4:], asked.stats[:, 4:])
    assert np.allclose(read.traffic, asked.traffic / 2)
    assert np.array_equal(serving(LOW, HIGH).load_at(FIELD, 1.0, 0.0, rate).stats, asked.stats)
