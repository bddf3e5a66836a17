"""Load that was decided to move and that reports don't show yet."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.shedding import SheddingConfig
from lbcore.config.strategies import AVG
from lbcore.model.resources import COUNT, complete
from lbcore.plain import from_plain, to_plain
from lbcore.plan.decision import PlanState, Scope
from lbcore.plan.pending import (
    COLUMNS,
    UnreportedLoad,
    load_share,
    placed_load,
    unreported_arrays,
)
from lbcore.plan.planner import place, plan
from tests.support.values.clusters import Sections, broker_table, cluster_of

NOBODY_BUSY = np.zeros(1, dtype=np.bool_)
KEEP = 0.5


def line(cpu: float) -> tuple[float, ...]:
    """A line of load with one resource."""
    return (cpu, *(0.0,) * (COLUMNS - 1))


def unseen_after(shown: float, *, at_ms: int, busy: bool = False, busy_ms: int = 0) -> float:
    """What is left of 40 points decided to leave a broker at 90, after a report."""
    known = UnreportedLoad(report_ms=1_000, shown=line(90.0), load=line(-40.0), busy_ms=busy_ms)
    brokers = broker_table(
        ["b"], percent=np.array([complete([shown])]), updated_at_ms=np.array([at_ms])
    )
    found = unreported_arrays({"b": known}, brokers, np.array([busy]), KEEP)
    return float(found[0, 0])


@pytest.mark.parametrize(
    ("shown", "left"), [(90.0, -40.0), (60.0, -10.0), (50.0, 0.0), (30.0, 0.0)]
)
def test_report_takes_out_what_it_shows(shown: float, left: float) -> None:
    assert unseen_after(shown, at_ms=2_000, busy=True) == left


def test_report_of_more_load_leaves_the_unseen_load() -> None:
    assert unseen_after(95.0, at_ms=2_000, busy=True) == -40.0


def test_no_newer_report_leaves_the_unseen_load() -> None:
    assert unseen_after(90.0, at_ms=1_000) == -40.0


def test_report_after_the_last_arrival_halves_what_it_does_not_show() -> None:
    assert unseen_after(90.0, at_ms=2_000, busy_ms=1_500) == -20.0
    assert unseen_after(90.0, at_ms=2_000, busy_ms=2_500) == -40.0


@pytest.mark.parametrize(
    ("bundle", "broker", "share"),
    [
        ([0, 0, 10, 10], [0, 0, 60, 40], 0.2),
        ([5, 5, 0, 0], [20, 20, 0, 0], 0.25),
        ([1, 1, 9, 9], [1, 1, 3, 3], 1.0),
        ([1, 1, 1, 1], [0, 0, 0, 0], 0.0),
    ],
)
def test_load_share_is_by_bytes_or_else_by_messages(
    bundle: list[float], broker: list[float], share: float
) -> None:
    assert load_share(np.array(bundle, dtype=float), np.array(broker, dtype=float)) == share


def test_placed_bundles_cost_what_bytes_cost_in_the_cluster() -> None:
    cluster = cluster_of({"a": [10_000.0], "b": [30_000.0]})
    added = placed_load(cluster, np.array([0, 1]), np.array([1, 1]))
    assert added[0].tolist() == [0.0] * COLUMNS
    assert added[1, 0] == pytest.approx(40.0)
    assert added[1, COUNT + 1] == 40_000.0


def test_assignment_counts_until_the_broker_reports_it() -> None:
    cluster = cluster_of({"a": [30_000.0], "b": [20_000.0], "c": []})
    cluster = replace(cluster, bundles=replace(cluster.bundles, owner=np.array([0, -1])))
    config = Sections(shedding=SheddingConfig())
    _, state = place(cluster, PlanState(), config, 10_000)
    (broker,) = state.unseen
    assert state.unseen[broker].load[0] > 0
    shown = cluster.brokers.percent.copy()
    shown[cluster.brokers.names.index(broker), 0] += 60.0
    later = replace(
        cluster,
        brokers=replace(cluster.brokers, percent=shown, updated_at_ms=np.full(3, 15_000)),
        bundles=replace(cluster.bundles, owner=np.array([0, cluster.brokers.names.index(broker)])),
    )
    _, state = plan(later, state, config, 20_000, Scope(sheds=False))
    assert state.unseen.get(broker, None) is None or state.unseen[broker].load[0] == 0


def test_moves_are_remembered_in_name_order() -> None:
    cluster = cluster_of({"cold": [1_000.0] * 10, "hot": [1_000.0 + at for at in range(90)]})
    config = Sections(shedding=SheddingConfig(strategy=AVG, avg_high_hits=1))
    _, state = plan(cluster, PlanState(), config, 10_000)
    assert len(state.moves) > 1
    assert list(state.moves) == sorted(state.moves)
    assert list(from_plain(PlanState, to_plain(state)).moves) == list(state.moves)
