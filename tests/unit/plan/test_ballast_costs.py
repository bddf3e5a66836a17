"""What `ballast` learns of costs: a load where half of the CPU is small messages."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.ideal_load import IdealLoadConfig
from lbcore.model.resources import COUNT
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.signals.usage import DIRECT_MEMORY
from tests.support.values.clusters import cluster_of, shed_view

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
