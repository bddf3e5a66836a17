"""Terms of `ballast`: learned costs, crowding of topics and namespaces, delayed usage."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.pipeline import Pipeline
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import COUNT, complete
from lbcore.plan.pending import COLUMNS, SCALED, UnreportedLoad, unreported_arrays
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.ballast_search import (
    SearchProblem,
    crowded_topics,
    crowding_of,
    objective,
    search,
)
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.plan.snapshot import MARK_BITS, NO_PARTITIONS, Ints, Partitions, Snapshot
from lbcore.signals.usage import DIRECT_MEMORY
from tests.support.values.clusters import (
    Sections,
    broker_table,
    bundle_table,
    cluster_of,
    shed_view,
    snapshot,
)
from tests.support.worlds.closed_loop import Loop, loop_of
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


def test_bundles_move_as_what_they_cost_once_it_is_known() -> None:
    hot = fleet(
        {
            "b1": mixed(10, 10),
            "b2": mixed(5, 5),
            "b3": mixed(6, 6),
            "b4": mixed(6, 5),
            "b5": mixed(5, 6),
        }
    )
    answer = shed_ballast(hot, taught(ShedState()).state, FAST)
    (considered,) = [one for one in answer.selections if one.source == 0][:1]
    assert considered.traffic.tolist() == pytest.approx([2.0] * 20, rel=0.02)
    untaught = shed_ballast(hot, ShedState(), FAST)
    assert max(untaught.selections[0].traffic) > 2.5


def test_broker_that_another_process_uses_teaches_nothing() -> None:
    state = taught(ShedState()).state
    view = fleet({"b1": mixed(6, 6), "b2": mixed(5, 6), "b3": mixed(6, 5)})
    percent = view.snapshot.brokers.percent.copy()
    percent[0, 0] += 60.0
    brokers = replace(view.snapshot.brokers, percent=percent)
    view = replace(
        view, snapshot=replace(view.snapshot, brokers=brokers), usage=percent[:, 0] / 100
    )
    answer = shed_ballast(view, state, replace(FAST, low_hits=99, high_hits=99))
    assert answer.numbers["cost_1000_messages"] == pytest.approx(1_000 * PER_MESSAGE, rel=0.01)


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


def test_broker_that_is_full_of_sessions_by_its_direct_memory_gives_some() -> None:
    answer = with_memory([80.0, 20.0, 20.0, 20.0], [MANY, FEW, FEW, FEW])
    assert {one.source for one in answer.selections} == {0}


def test_direct_memory_that_sessions_do_not_explain_or_all_use_alike_moves_nothing() -> None:
    assert with_memory([80.0, 20.0, 20.0, 20.0], [FEW, FEW, FEW, FEW]).selections == ()
    assert with_memory([20.0, 20.0, 20.0, 20.0], [MANY, FEW, FEW, FEW]).selections == ()
    assert with_memory([90.0, 90.0, 90.0, 90.0], [FEW, FEW, FEW, FEW]).selections == ()


def test_direct_memory_that_is_little_beside_the_load_weighs_nothing() -> None:
    assert with_memory([8.0, 2.0, 2.0, 2.0], [MANY, FEW, FEW, FEW]).selections == ()


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
    assert crowded_topics(found, np.array(owners), brokers) == ((0,) if is_crowded else ())


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


MINUTE_MS, REPORT_MS, GAUGES_AT_MS = 60_000, 10_000, 20_000
GAUGES = SignalsConfig(usage_window_ms=MINUTE_MS)


def lagging_gauges(strategy: str, signals: SignalsConfig) -> Loop:
    """A broker at 90 beside two at 30; a report and a cycle every ten seconds.

    The triggers are read ten seconds after the first moves. A broker is judged once a minute, as
    with the overlay `pulsar`, and nothing that has moved has a rest.
    """
    shedding = SheddingConfig(
        strategy=strategy,
        avg_high_hits=1,
        cool_down_ms=0,
        role_cool_down_ms=0,
        grace_period_ms=0,
    )
    pipeline = Pipeline(hit_period_ms=MINUTE_MS)
    config = Sections(signals=signals, shedding=shedding, pipeline=pipeline)
    loop = loop_of(config, {"a": [1.5] * 60, "b": [1.5] * 20, "c": [1.5] * 20})
    past = [loop.true_points()] * 6
    for now_ms in range(REPORT_MS, 4 * MINUTE_MS, REPORT_MS):
        past.append(loop.true_points())
        if now_ms % MINUTE_MS == GAUGES_AT_MS or not loop.usages:
            minute = past[-6:]
            loop.usages = {b: sum(one[b] for one in minute) / len(minute) for b in loop.names}
        loop.report(now_ms - 1)
        loop.cycle(now_ms)
    return loop


def moved_until(loop: Loop, until_ms: int) -> list[str]:
    """The cycles that moved something until then."""
    return [line for line in loop.lines[: until_ms // REPORT_MS] if "moved   0" not in line]


@pytest.mark.parametrize("strategy", ["avg", "overload"])
def test_move_counts_until_gauges_can_show_it_so_no_second_follows(strategy: str) -> None:
    assert len(moved_until(lagging_gauges(strategy, GAUGES), 3 * MINUTE_MS)) == 1
    assert len(moved_until(lagging_gauges(strategy, SignalsConfig()), 3 * MINUTE_MS)) > 1


@pytest.mark.parametrize(("age_ms", "left"), [(119_999, -40.0), (120_001, -20.0)])
def test_usages_are_doubted_only_when_they_are_all_of_the_time_since(
    age_ms: int, left: float
) -> None:
    line = (90.0, *(0.0,) * (COLUMNS - 1))
    load = (-40.0, *(0.0,) * (SCALED - 1), -400.0, *(0.0,) * (COLUMNS - SCALED - 1))
    known = UnreportedLoad(report_ms=1_000, shown=line, load=load, busy_ms=1_000)
    percent, at_ms = np.array([complete([90.0])]), np.array([1_000 + age_ms])
    brokers = broker_table(["b"], percent=percent, updated_at_ms=at_ms)
    found = unreported_arrays({"b": known}, brokers, np.zeros(1, dtype=np.bool_), 0.5, 120_000)
    assert (found[0, 0], found[0, SCALED]) == (left, -200.0)
