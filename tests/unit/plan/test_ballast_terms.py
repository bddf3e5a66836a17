"""Terms of `ballast`: learned costs, crowding of topics and namespaces, delayed usage."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.shedding import IdealLoadConfig
from lbcore.model.resources import COUNT, complete
from lbcore.plan.pending import COLUMNS, SCALED, UnreportedLoad, remaining_unreported_load
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.ballast_search import (
    SearchProblem,
    crowding_of,
    objective,
    search,
)
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.plan.snapshot import MARK_BITS, NO_PARTITIONS, Ints, Partitions, Snapshot
from lbcore.signals.usage import DIRECT_MEMORY
from tests.support.values.clusters import (
    broker_table,
    bundle_table,
    cluster_of,
    shed_view,
    snapshot,
)
from tests.unit.plan.test_ballast import problem_of

IDLE, PER_MESSAGE, PER_BYTE = 3.0, 0.001, 1e-6
FAST = IdealLoadConfig(low_hits=1, high_hits=1)
SMALL, LARGE = 100.0, 10_000.0


def fleet(bundles: dict[str, list[tuple[float, float]]]) -> ShedView:
    """Brokers with bundles of (msg/s, bytes a message), whose CPU is what both cost."""
    rates = {name: [rate for rate, _ in own] for name, own in bundles.items()}
    cluster = cluster_of(rates)
    sizes = np.array([size for own in bundles.values() for _, size in own])
    short = cluster.bundles.short.copy()
    short[:, 2] = short[:, 0] * sizes
    traffic = np.zeros((len(bundles), 4))
    np.add.at(traffic, cluster.bundles.owner, short)
    percent = np.zeros((len(bundles), COUNT))
    percent[:, 0] = IDLE + PER_MESSAGE * traffic[:, 0] + PER_BYTE * traffic[:, 2]
    cluster = replace(
        cluster,
        brokers=replace(cluster.brokers, percent=percent, traffic=traffic),
        bundles=replace(cluster.bundles, short=short, long=short),
    )
    return shed_view(cluster, percent[:, 0] / 100.0)


def mixed(small: int, large: int) -> list[tuple[float, float]]:
    """Bundles of 2 points each: of messages, or of bytes (a tenth of it their messages)."""
    return [(2.0 / (PER_MESSAGE + PER_BYTE * SMALL), SMALL)] * small + [
        (2.0 / (PER_MESSAGE + PER_BYTE * LARGE), LARGE)
    ] * large


def taught(state: ShedState, rounds: int = 6) -> Shed:
    """The answer after brokers have carried several mixtures, half of the CPU small messages."""
    for step in range(rounds):
        view = fleet(
            {
                "b1": mixed(10 + step % 3, 2),
                "b2": mixed(3, 9 - step % 2),
                "b3": mixed(6, 6),
                "b4": mixed(4 + step % 2, 7),
                "b5": mixed(7, 5),
            }
        )
        answer = shed_ballast(view, state, replace(FAST, low_hits=99, high_hits=99))
        state = answer.state
    return answer


def test_costs_of_a_message_and_of_a_byte_are_told_as_they_are() -> None:
    numbers = taught(ShedState()).numbers
    assert numbers["cost_1000_messages"] == pytest.approx(1_000 * PER_MESSAGE, rel=0.01)
    assert numbers["cost_megabyte"] == pytest.approx(1e6 * PER_BYTE, rel=0.01)
    assert numbers["cost_idle"] == pytest.approx(IDLE, rel=0.01)


def with_memory(percent: list[float], sessions: list[list[int]]) -> Shed:
    """Brokers with eight bundles alike, of so many sessions each, and direct memory as given."""
    cluster = cluster_of({f"b{at}": [3_000.0] * 8 for at in range(len(percent))})
    shown = cluster.brokers.percent.copy()
    shown[:, DIRECT_MEMORY] = percent
    cluster = replace(
        cluster,
        brokers=replace(cluster.brokers, percent=shown),
        bundles=replace(cluster.bundles, sessions=np.array(sessions).ravel()),
    )
    return shed_ballast(shed_view(cluster, np.full(len(percent), 0.24)), ShedState(), FAST)


MANY, FEW = [400] * 8, [100] * 8


def test_broker_gives_some_when_its_sessions_explain_that_its_direct_memory_is_full() -> None:
    answer = with_memory([80.0, 20.0, 20.0, 20.0], [MANY, FEW, FEW, FEW])
    assert {one.source for one in answer.selections} == {0}

    assert with_memory([80.0, 20.0, 20.0, 20.0], [FEW, FEW, FEW, FEW]).selections == ()
    assert with_memory([20.0, 20.0, 20.0, 20.0], [MANY, FEW, FEW, FEW]).selections == ()
    assert with_memory([90.0, 90.0, 90.0, 90.0], [FEW, FEW, FEW, FEW]).selections == ()


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


def test_topic_on_all_brokers_that_its_policy_admits_is_not_crowded() -> None:
    cluster = cluster_of({f"b{at}": [1_000.0] * 8 + [4_000.0] * 10 for at in range(6)})
    on_two = [0] * 4 + [18] * 4
    cluster = with_partitions(cluster, partitions_in(on_two, [7] * 8))
    assert rounds(cluster, 1)[0].state.crowded
    row = np.isin(np.arange(len(cluster.bundles.names)), on_two).astype(np.int64)
    admits = np.array([[True] * 6, [True] * 2 + [False] * 4])
    view = replace(view_of(cluster), admitted=(row, admits))
    state = ShedState()
    for _ in range(LOW_HITS):
        answer = shed_ballast(view, state, CONFIG)
        state = answer.state
    assert state.crowded == {}
    assert answer.too_big is not None
    assert not len(answer.too_big.rows)


def test_crowded_topic_is_spread_over_the_brokers_that_its_policy_admits() -> None:
    cluster = cluster_of({f"b{at}": [0.0] * 40 + [4_000.0] * 10 for at in range(20)})
    cluster = with_partitions(cluster, partitions_in(range(40), [7] * 40))
    row = (np.arange(len(cluster.bundles.names)) < 40).astype(np.int64)
    admits = np.array([[True] * 20, [True] * 4 + [False] * 16])
    view, state = replace(view_of(cluster), admitted=(row, admits)), ShedState()
    for _ in range(LOW_HITS):
        answer = shed_ballast(view, state, CONFIG)
        state = answer.state
    found = Counter(moved(answer).values())
    assert found.keys() <= {1, 2, 3}
    assert found.total() == 20  # half stays: a broker may have twice its share of the four


def test_where_nobody_knows_of_partitions_nothing_is_different() -> None:
    plain = cluster_of({"b0": [3_000.0] * 9, "b1": [1_000.0] * 9, "b2": [1_000.0] * 9})
    given_none = with_partitions(plain, NO_PARTITIONS)
    first, second = rounds(plain, LOW_HITS)[-1], rounds(given_none, LOW_HITS)[-1]
    assert moved(first) == moved(second) != {}
    assert first.numbers == second.numbers


def crowded_problem(seed: int) -> SearchProblem:
    """Three brokers whose bundles hold partitions of two topics."""
    rng = np.random.default_rng(seed)
    problem = problem_of([(rng.random(5) + 0.1).tolist() for _ in range(3)], price=0.02)
    rows = rng.integers(15, size=12)
    found = partitions_in(rows.tolist(), rng.integers(2, size=12).tolist())
    bundles = bundle_table([f"t/n/{at:08x}" for at in range(15)], owner=problem.home)
    cluster = snapshot(cluster_of({f"b{at}": [1.0] for at in range(3)}).brokers, bundles)
    everyone = np.ones(3, dtype=np.bool_)
    crowding = crowding_of(problem, cluster, found, (0, 1), everyone)
    return replace(problem, crowding=crowding)


def beyond_after(problem: SearchProblem, owner: Ints) -> Ints:
    """Counted anew from who owns what."""
    assert problem.crowding is not None
    held = np.zeros_like(problem.crowding.beyond)
    at, group, count = problem.crowding.members(np.arange(len(owner)))
    np.add.at(held, (group, owner[at]), count)
    return held - problem.crowding.limit


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


@pytest.mark.parametrize(("age_ms", "left"), [(119_999, -40.0), (120_001, -20.0)])
def test_usages_are_doubted_only_when_they_are_all_of_the_time_since(
    age_ms: int, left: float
) -> None:
    line = (90.0, *(0.0,) * (COLUMNS - 1))
    load = (-40.0, *(0.0,) * (SCALED - 1), -400.0, *(0.0,) * (COLUMNS - SCALED - 1))
    known = UnreportedLoad(report_ms=1_000, shown=line, load=load, busy_ms=1_000)
    percent, at_ms = np.array([complete([90.0])]), np.array([1_000 + age_ms])
    brokers = broker_table(["b"], percent=percent, updated_at_ms=at_ms)
    found = remaining_unreported_load(
        {"b": known}, brokers, np.zeros(1, dtype=np.bool_), 0.5, 120_000
    )
    assert (found[0, 0], found[0, SCALED]) == (left, -200.0)
