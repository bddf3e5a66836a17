"""Bundles that get a broker under `ballast`: what belongs together is put apart if that's free."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.filters import FilterConfig
from lbcore.config.placement import PlacementConfig
from lbcore.plan.filter.index import FilterInput, index_candidates
from lbcore.plan.filter.policies import Policies
from lbcore.plan.place.least_load import placed_crowding
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import PlacementState, PlaceRequest, PlaceSettings, place_request
from lbcore.plan.snapshot import MARK_BITS, Ints, Partitions, Snapshot
from tests.support.values.clusters import broker_table, bundle_table, snapshot

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
    inputs = FilterInput.plain(view, usage, Policies())
    unowned = np.flatnonzero(view.bundles.owner < 0)
    return place_request(view, unowned, index_candidates(view, inputs, FILTERS), usage)


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


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(12, 60), min_size=2, max_size=5),
    st.integers(1, 12),
    st.data(),
)
def test_crowding_decides_among_brokers_that_are_about_as_good_only(
    points: list[int], unowned: int, data: st.DataObject
) -> None:
    view = cluster(points, unowned)
    rows = np.flatnonzero(view.bundles.owner < 0).tolist()
    chosen = data.draw(st.lists(st.sampled_from(rows), unique=True, min_size=1))
    brokers = placed(of_topic(view, chosen)).tolist()
    assert brokers == placed(of_topic(view, chosen)).tolist()
    load = np.array(points, dtype=float)
    crowding = placed_crowding(request_of(of_topic(view, chosen)))
    for at, broker in enumerate(brokers):
        assert load[broker] <= load.min() + 5.0 + 1e-6
        if at not in crowding.members:
            assert load[broker] <= load.min() + 1e-6
        load[broker] += BUNDLE
