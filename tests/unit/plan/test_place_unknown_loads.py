"""Placement of bundles that are idle, small, or whose load nobody knows yet."""

from collections.abc import Sequence

import numpy as np
import pytest

from lbcore.config.strategies import AVG, LEAST_LONG_TERM_MESSAGE_RATE
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import PlacementState
from tests.support.values.clusters import broker_table, bundle_table, snapshot
from tests.unit.plan.test_place import asked, settings_of

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
        settings_of(strategy=strategy),
        excluded=[3] * len(rates),
    )
    placed = place_bundles(request, PlacementState(), settings_of(strategy=strategy), 1).brokers
    return [int(count) for count in np.bincount(placed, minlength=3)]


@BY_LOAD
def test_broker_that_came_back_empty_is_filled_however_small_bundles_are(strategy: str) -> None:
    assert drained(strategy, [5.0] * 8) == [8, 0, 0]
    assert drained(strategy, [5.0] * 17) == [11, 3, 3]


@BY_LOAD
def test_bundles_of_unknown_load_are_spread_as_if_they_were_not_small(strategy: str) -> None:
    assert drained(strategy, [0.0] * 9, known=False) == [3, 3, 3]


@BY_LOAD
def test_idle_bundles_count_as_a_mean_one_so_that_not_all_go_where_least_is_carried(
    strategy: str,
) -> None:
    first, *others = drained(strategy, [0.0] * 30)
    assert first > max(others) > 0


def made(strategy: str, owners: Sequence[int], *, awaited: Sequence[int] = ()) -> list[int]:
    """How many of forty bundles just made each broker gets.

    owners: of bundles of 1,000 msg/s. awaited: of bundles that were made a moment ago.
    """
    owner = np.array([*owners, *awaited, *[-1] * 40])
    known = np.arange(len(owner)) < len(owners)
    short = np.zeros((len(owner), 4))
    short[known, 0] = 1_000.0
    traffic = np.array([[short[owner == broker, 0].sum(), 0, 0, 0] for broker in range(4)])
    brokers = broker_table(["b1", "b2", "b3", "b4"], traffic=traffic)
    names = [f"t/n/{at:03d}" for at in range(len(owner))]
    columns = {"owner": owner, "short": short, "long": short * 1.0}
    awaits = ~known & (owner >= 0)
    table = bundle_table(names, **columns, is_load_known=known, is_awaited=awaits)
    settings = settings_of(strategy=strategy)
    usage = traffic[:, 0] / 100_000.0 + 0.1
    first = len(owners) + len(awaited)
    request = asked(snapshot(brokers, table), range(first, len(owner)), usage, settings)
    placed = place_bundles(request, PlacementState(), settings, 1).brokers
    return [int(count) for count in np.bincount(placed, minlength=4)]


@BY_LOAD
def test_bundles_just_made_do_not_all_go_to_who_carries_a_few_less_than_others(
    strategy: str,
) -> None:
    least = [0] * 10 + [1] * 20 + [2] * 20 + [3] * 20
    assert made(strategy, least) == [17, 7, 8, 8]


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
    request = asked(snapshot(brokers, table), range(35, len(owner)), usage, settings)
    placed = place_bundles(request, PlacementState(), settings, 1).brokers
    assert sorted(np.bincount(placed).tolist()) == [100] * 4


@BY_LOAD
def test_bundles_that_nobody_could_report_yet_count_as_those_that_are_made_now(
    strategy: str,
) -> None:
    least = [0] * 10 + [1] * 20 + [2] * 20 + [3] * 20
    assert made(strategy, least, awaited=[0] * 10) == [10, 10, 10, 10]
