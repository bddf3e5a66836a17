"""Placement of bundles by each strategy, with crowding and with unknown loads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.config.placement import (
    AVG,
    LEAST_LONG_TERM_MESSAGE_RATE,
    LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    FilterConfig,
    PlacementConfig,
)
from lbcore.plan.filter.index import candidate_index
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import (
    Placement,
    PlacementState,
    PlaceRequest,
    PlaceSettings,
    place_request,
)
from lbcore.plan.place.rules import usage_per_throughput
from lbcore.plan.snapshot import MARK_BITS, Ints, Partitions, Snapshot
from tests.support.values.clusters import broker_table, bundle_table, snapshot

ANYWHERE = FilterConfig(distribute_evenly=False)
HOT = np.array([0.9, 0.9, 0.2, 0.3])


def settings_of(filters: FilterConfig = ANYWHERE, **placement: Any) -> PlaceSettings:
    """Ours, with changes to placement."""
    return PlaceSettings(placement=PlacementConfig(**placement), filters=filters)


def small_pool() -> Snapshot:
    """Brokers at 90, 90, 20 and 30 %; each hot one owns five bundles of 700 msg/s that must go."""
    long = np.zeros((14, 4))
    long[:4, 0] = (5_500, 5_500, 2_000, 3_000)
    long[4:, 0] = 700
    traffic = np.array(
        [[9_000.0, 0, 9e6, 0], [9_000, 0, 9e6, 0], [2_000, 0, 2e6, 0], [3_000, 0, 3e6, 0]]
    )
    brokers = broker_table(
        ["b1", "b2", "b3", "b4"], traffic=traffic, bundle_count=np.array([6, 6, 1, 1])
    )
    short = long * 1.0
    short[:, 2] = long[:, 0] * 1_000
    owner = np.array([0, 1, 2, 3, *[0, 1] * 5])
    names = [f"t/n/{at:02d}" for at in range(14)]
    return snapshot(brokers, bundle_table(names, owner=owner, long=long, short=short))


def asked(snap: Snapshot, rows: Sequence[int], usage: Any, **changes: Any) -> PlaceRequest:
    """The request for some bundles of a cluster without policies."""
    made = place_request(snap, np.array(rows, dtype=np.int64), candidate_index(snap), usage)
    return replace(made, **{name: np.array(value) for name, value in changes.items()})


def shed_of_the_small_pool(settings: PlaceSettings, **changes: Any) -> Placement:
    """Where the ten bundles of the hot brokers go."""
    request = asked(small_pool(), range(4, 14), HOT, **changes)
    return place_bundles(request, PlacementState(), settings, 1)


@pytest.mark.parametrize(
    ("strategy", "cool"),
    [
        (LEAST_LONG_TERM_MESSAGE_RATE, {2: 6, 3: 4}),
        (AVG, {2: 6, 3: 4}),
        (LEAST_RESOURCE_USAGE_WITH_WEIGHT, {2: 6, 3: 4}),
    ],
)
def test_small_pool_counting_what_is_planned_is_spread_over_the_cool_brokers(
    strategy: str, cool: dict[int, int]
) -> None:
    found = shed_of_the_small_pool(settings_of(strategy=strategy))
    assert Counter(found.brokers.tolist()) == cool


def test_usage_of_ours_advances_only_with_a_new_report() -> None:
    snap = small_pool()
    stale = replace(snap.brokers, is_fresh=np.array([True, False, True, True]))
    settings = replace(settings_of(strategy=LEAST_RESOURCE_USAGE_WITH_WEIGHT), history_weight=0.5)
    state = PlacementState(smoothed_usage={"b1": 0.0, "b2": 0.0})
    request = asked(replace(snap, brokers=stale), [4], np.full(4, 0.8))
    smoothed = place_bundles(request, state, settings, 1).state.smoothed_usage
    assert (smoothed["b1"], smoothed["b2"]) == (0.4, 0.0)


BUNDLE = 1.0
"""msg/s in of a bundle; a broker of so many points carries as many such bundles."""


def cluster(points: Sequence[int], unowned: int, namespaces: int = 0) -> Snapshot:
    """Brokers of so much load each, of bundles of many namespaces, and unowned bundles at the end.

    namespaces: of the unowned, 0 = one of its own for each.
    """
    owner = [at for at, count in enumerate(points) for _ in range(count)] + [-1] * unowned
    rates = np.tile([BUNDLE, 0.0, 0.0, 0.0], (len(owner), 1))
    names = [f"t/o{at:04}/{at:08x}" for at in range(len(owner) - unowned)]
    names += [f"t/n{at % (namespaces or unowned):04}/{at:08x}" for at in range(unowned)]
    percent = np.zeros((len(points), 5))
    percent[:, 0] = points
    traffic = np.zeros((len(points), 4))
    traffic[:, 0] = np.array(points) * BUNDLE
    brokers = broker_table(
        [f"b{at}:1" for at in range(len(points))],
        percent=percent,
        traffic=traffic,
        bundle_count=np.array(points),
        weighted_max_ema=percent[:, 0] / 100,
    )
    return snapshot(brokers, bundle_table(names, owner=np.array(owner), short=rates, long=rates))


def of_topic(cluster: Snapshot, rows: Sequence[int], counts: Sequence[int] = ()) -> Snapshot:
    """With partitions of one topic in these rows."""
    found = Partitions(
        rows=np.array(rows, dtype=np.int64),
        topic=np.zeros(len(rows), dtype=np.int64),
        count=np.array(counts or [1] * len(rows), dtype=np.int64),
        keys=np.array([1 << MARK_BITS]),
    )
    return replace(cluster, partitions=lambda: found)


def request_of(view: Snapshot) -> PlaceRequest:
    usage = view.brokers.percent[:, 0] / 100
    unowned = np.flatnonzero(view.bundles.owner < 0)
    return place_request(view, unowned, candidate_index(view), usage)


FILTERS = FilterConfig(distribute_evenly=False)
PLACEMENT = PlacementConfig(strategy="ballast", planned_rate_floor_msg_per_s=0.0)
SETTINGS = PlaceSettings(placement=PLACEMENT, filters=FILTERS)


def placed(view: Snapshot) -> Ints:
    return place_bundles(request_of(view), PlacementState(), SETTINGS, 1).brokers


def counts(brokers: Ints) -> list[int]:
    return sorted(Counter(brokers.tolist()).values())


@pytest.mark.parametrize(
    ("partitions", "expected"), [(2, [1, 1]), (3, [1, 1, 1]), (4, [1, 1, 2]), (8, [2, 3, 3])]
)
def test_partitions_go_to_fair_shares_where_brokers_are_about_as_good(
    partitions: int, expected: list[int]
) -> None:
    """One broker is colder by four points than two, and each partition weighs less than one."""
    view = cluster([40, 44, 44], partitions)
    rows = np.flatnonzero(view.bundles.owner < 0).tolist()
    light = view.bundles.short.copy()
    light[rows] *= 0.1
    view = replace(view, bundles=replace(view.bundles, short=light, long=light))
    assert counts(placed(view)) == [partitions]
    assert counts(placed(of_topic(view, rows))) == expected


def test_what_a_broker_has_already_counts() -> None:
    view = cluster([40, 41, 42], 2)
    rows = np.flatnonzero(view.bundles.owner < 0).tolist()
    on_first = np.flatnonzero(view.bundles.owner == 0)[:2].tolist()
    assert set(placed(of_topic(view, rows)).tolist()) == {0, 1}
    assert 0 not in placed(of_topic(view, [*on_first, *rows])).tolist()


def test_much_colder_broker_takes_them_all() -> None:
    view = cluster([20, 44, 44], 4)
    rows = np.flatnonzero(view.bundles.owner < 0).tolist()
    assert placed(of_topic(view, rows)).tolist() == [0] * 4


def test_brokers_have_shares_by_their_size() -> None:
    view = cluster([36, 20], 6)
    percent = view.brokers.percent / np.array([[2.0], [1.0]])
    sized = replace(view.brokers, capacity=np.array([2.0, 1.0]), percent=percent)
    view = replace(view, brokers=sized)
    assert Counter(placed(view).tolist()) == {0: 5, 1: 1}
    rows = np.flatnonzero(view.bundles.owner < 0).tolist()
    assert Counter(placed(of_topic(view, rows)).tolist()) == {0: 4, 1: 2}


BY_LOAD = pytest.mark.parametrize("strategy", [LEAST_LONG_TERM_MESSAGE_RATE, AVG, "ballast"])


def drained(strategy: str, rates: Sequence[float], *, known: bool = True) -> list[int]:
    """How many of the last broker's bundles of these rates go to each of the others.

    The first came back empty; each of the others has eight bundles of 5 msg/s.
    """
    owner = np.array([*[1] * 8, *[2] * 8, *[3] * len(rates)])
    short = np.zeros((len(owner), 4))
    short[:, 0] = [*[5.0] * 16, *rates]
    traffic = np.array([[short[owner == broker, 0].sum(), 0, 0, 0] for broker in range(4)])
    brokers = broker_table(
        ["b1", "b2", "b3", "b4"],
        traffic=traffic,
        bundle_count=np.bincount(owner, minlength=4),
        is_draining=np.arange(4) == 3,
    )
    names = [f"t/n/{at:02d}" for at in range(len(owner))]
    columns = {"owner": owner, "short": short, "long": short * 1.0}
    table = bundle_table(names, **columns, is_load_known=np.full(len(owner), known))
    request = asked(
        snapshot(brokers, table),
        range(16, len(owner)),
        np.full(4, 0.01),
        excluded=[3] * len(rates),
    )
    placed = place_bundles(request, PlacementState(), settings_of(strategy=strategy), 1).brokers
    return [int(count) for count in np.bincount(placed, minlength=3)]


@BY_LOAD
def test_broker_that_came_back_empty_is_filled_however_small_bundles_are(strategy: str) -> None:
    assert drained(strategy, [5.0] * 8) == [8, 0, 0]
    assert drained(strategy, [5.0] * 17) == [11, 3, 3]


def test_the_one_broker_that_is_not_overloaded_does_not_get_all_of_thousands() -> None:
    owner = np.array([*[0] * 8, *[1] * 9, *[2] * 9, *[3] * 9, *[-1] * 400])
    known = owner >= 0
    short = np.zeros((len(owner), 4))
    short[known, 0] = 10.0
    names = [f"t/n/{at:03d}" for at in range(len(owner))]
    columns = {"owner": owner, "short": short, "long": short * 1.0}
    traffic = np.array([[80.0, 0, 0, 0], *[[90.0, 0, 0, 0]] * 3])
    brokers = broker_table(["b1", "b2", "b3", "b4"], traffic=traffic)
    table = bundle_table(names, **columns, is_load_known=known)
    usage, settings = np.array([0.80, 0.90, 0.90, 0.90]), settings_of(strategy=AVG)
    request = asked(snapshot(brokers, table), range(35, len(owner)), usage)
    placed = place_bundles(request, PlacementState(), settings, 1).brokers
    assert sorted(np.bincount(placed).tolist()) == [100] * 4


def test_usage_of_a_byte_is_that_of_the_whole_cluster_and_none_without_traffic() -> None:
    usage, capacity = np.array([0.5, 0.25]), np.array([1.0, 2.0])
    assert usage_per_throughput(usage, np.array([0.5, 0.3]), capacity) == pytest.approx(1.25)
    assert usage_per_throughput(usage, np.zeros(2), capacity) == 0.0
    assert usage_per_throughput(np.empty(0), np.empty(0), np.empty(0)) == 0.0
