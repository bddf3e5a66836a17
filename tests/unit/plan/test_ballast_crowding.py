"""Partitions of one topic, and bundles of one namespace: on more than a few brokers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.ideal_load import IdealLoadConfig
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.ballast_crowding import crowded, crowding_of
from lbcore.plan.shed.ballast_objective import SearchProblem, objective
from lbcore.plan.shed.ballast_search import search
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.plan.snapshot import MARK_BITS, NO_PARTITIONS, Ints, Partitions, Snapshot
from tests.support.values.clusters import bundle_table, cluster_of, shed_view, snapshot
from tests.unit.plan.test_ballast_search import problem_of

LOW_HITS = 3
CONFIG = IdealLoadConfig(low_hits=LOW_HITS)


def partitions_in(rows: Sequence[int], topics: Sequence[int], namespace: int = 0) -> Partitions:
    """A partition of each topic in each row; some rows may be given several times."""
    counted = sorted(Counter(zip(topics, rows, strict=True)).items())
    keys, topic = np.unique([one for (one, _), _ in counted], return_inverse=True)
    return Partitions(
        rows=np.array([row for (_, row), _ in counted], dtype=np.int64),
        topic=topic,
        count=np.array([count for _, count in counted], dtype=np.int64),
        keys=(namespace << MARK_BITS) + keys,
    )


def with_partitions(cluster: Snapshot, found: Partitions) -> Snapshot:
    return replace(cluster, partitions=lambda: found)


def view_of(cluster: Snapshot) -> ShedView:
    return shed_view(cluster, cluster.brokers.percent[:, 0] / 100.0)


def moved(answer: Shed) -> dict[int, int]:
    """Row → its new broker."""
    return {row: one.destination for one in answer.selections for row in one.rows.tolist()}


def rounds(cluster: Snapshot, count: int) -> list[Shed]:
    """So many rounds in which nothing of what is decided happens."""
    state, found = ShedState(), []
    for _ in range(count):
        found.append(shed_ballast(view_of(cluster), state, CONFIG))
        state = found[-1].state
    return found


EVEN = cluster_of({f"b{at}": [1_000.0] * 8 + [4_000.0] * 10 for at in range(4)})
"""Four brokers alike, of eight light bundles and ten heavier ones each."""


@pytest.mark.parametrize(
    ("owners", "brokers", "is_crowded"),
    [
        ([0] * 8, 3, True),
        ([0] * 7 + [1], 3, False),
        ([0] * 7 + [1], 8, True),
        ([0, 1, 2, 3] * 2, 8, False),
        ([0, 0], 9, False),
        ([0, 0, 0], 9, True),
        ([0] * 7 + [-1], 3, False),
    ],
)
def test_topic_on_less_than_half_of_the_brokers_that_it_could_be_on_is_crowded(
    owners: list[int], brokers: int, *, is_crowded: bool
) -> None:
    found = partitions_in(range(len(owners)), [5] * len(owners))
    assert crowded(found, np.array(owners), brokers) == ((0,) if is_crowded else ())


def test_crowded_topic_is_spread_after_some_reports_although_load_is_even() -> None:
    cluster = with_partitions(EVEN, partitions_in(range(8), [7] * 8))
    first, second, third = rounds(cluster, 3)
    assert first.selections == second.selections == ()
    assert (first.reason, second.reason, third.reason) == ("HitCount", "HitCount", "")
    found = moved(third)
    assert {one.source for one in third.selections} == {0}
    assert {one.reason for one in third.selections} == {"Crowded"}
    assert found.keys() < set(range(8))
    assert third.numbers["partitions_beyond_before"] == 4
    assert third.numbers["partitions_beyond_after"] == 0
    assert third.numbers["objective_after"] < third.numbers["objective_before"]
    owner = EVEN.bundles.owner.copy()
    owner[list(found)] = list(found.values())
    after = replace(cluster, bundles=replace(cluster.bundles, owner=owner))
    assert all(one.selections == () for one in rounds(after, LOW_HITS + 1))
    assert rounds(after, 1)[0].state.crowded == {}


def test_topic_of_idle_bundles_is_spread_too() -> None:
    cluster = cluster_of({f"b{at}": [0.0] * 8 + [4_000.0] * 10 for at in range(4)})
    found = rounds(with_partitions(cluster, partitions_in(range(8), [7] * 8)), LOW_HITS)[-1]
    assert len(moved(found)) == 4


def test_partitions_in_bundles_that_are_much_of_a_broker_stay() -> None:
    cluster = cluster_of({f"b{at}": [20_000.0] * 3 for at in range(4)})
    cluster = with_partitions(cluster, partitions_in([0, 1, 2], [7] * 3))
    answer = rounds(cluster, LOW_HITS)[-1]
    assert answer.selections == ()
    assert answer.numbers["partitions_beyond_after"] == 1


def test_bundle_with_more_partitions_than_a_broker_should_have_is_divided() -> None:
    cluster = with_partitions(EVEN, partitions_in([0] * 8, [7] * 8))
    answer = rounds(cluster, LOW_HITS)[-1]
    assert answer.selections == ()
    assert answer.too_big is not None
    assert answer.too_big.rows.tolist() == [0]
    assert answer.too_big.excess.tolist() == [2.0]


def test_where_nobody_knows_of_partitions_nothing_is_different() -> None:
    plain = cluster_of({"b0": [3_000.0] * 9, "b1": [1_000.0] * 9, "b2": [1_000.0] * 9})
    given_none = with_partitions(plain, NO_PARTITIONS)
    first, second = rounds(plain, LOW_HITS)[-1], rounds(given_none, LOW_HITS)[-1]
    assert moved(first) == moved(second) != {}
    assert first.numbers == second.numbers


def test_of_bundles_alike_one_of_the_namespace_that_the_broker_has_too_much_of_goes() -> None:
    made = [*(f"t/a/{at:08x}" for at in range(12)), *(f"t/b{at}/0" for at in range(12))]
    hot = np.arange(24) % 2 == 0
    owner = np.where(hot, 0, 1 + np.arange(24) % 3)
    owner[:12] = 0
    short = np.zeros((24, 4))
    short[:, 0] = 1_000.0
    table = cluster_of({f"b{at}": [1_000.0] for at in range(4)}).brokers
    rates = np.bincount(owner, minlength=4) * 1_000.0
    traffic = np.zeros((4, 4))
    traffic[:, 0] = rates
    percent = np.zeros_like(table.percent)
    percent[:, 0] = rates / 1_000.0
    cluster = snapshot(
        replace(table, traffic=traffic, percent=percent),
        bundle_table(made, owner=owner, short=short, long=short),
    )
    found = moved(rounds(cluster, LOW_HITS)[-1])
    assert len(found) >= 4
    assert all(row < 12 for row in found)


def crowded_problem(seed: int) -> SearchProblem:
    """Three brokers whose bundles hold partitions of two topics."""
    rng = np.random.default_rng(seed)
    problem = problem_of([(rng.random(5) + 0.1).tolist() for _ in range(3)], price=0.02)
    rows = rng.integers(15, size=12)
    found = partitions_in(rows.tolist(), rng.integers(2, size=12).tolist())
    bundles = bundle_table([f"t/n/{at:08x}" for at in range(15)], owner=problem.home)
    cluster = snapshot(cluster_of({f"b{at}": [1.0] for at in range(3)}).brokers, bundles)
    everyone = np.ones(3, dtype=np.bool_)
    crowding = crowding_of(cluster, found, problem.size, (0, 1), everyone)
    return replace(problem, crowding=crowding)


def beyond_after(problem: SearchProblem, owner: Ints) -> Ints:
    """Counted anew from who owns what."""
    assert problem.crowding is not None
    held = np.zeros_like(problem.crowding.beyond)
    at, group, count = problem.crowding.members(np.arange(len(owner)))
    np.add.at(held, (group, owner[at]), count)
    return held - problem.crowding.part


@given(st.integers(0, 10_000))
@settings(deadline=None)
def test_what_the_search_says_of_a_layout_is_what_it_costs(seed: int) -> None:
    problem = crowded_problem(seed)
    found = search(problem, 200, np.inf)
    owner = problem.home.copy()
    for row, taker in found.moves:
        owner[row] = taker
    load = np.bincount(owner, problem.weight[:, 0], 3) / problem.size
    beyond = beyond_after(problem, owner) if problem.crowding else None
    cost = objective(problem, load[:, np.newaxis], np.flatnonzero(owner != problem.home), beyond)
    assert found.after == pytest.approx(cost)
    assert found.bound - 1e-9 <= found.after <= found.before + 1e-9
