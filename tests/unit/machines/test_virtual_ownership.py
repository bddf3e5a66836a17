"""The cluster as a shadow sees it: what a bundle that is elsewhere takes along, and when."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.decisions.placing import make_snapshot, usable_brokers
from lbcore.balancer.decisions.virtual_ownership import reconciled, virtual_snapshot
from lbcore.balancer.state.book import BrokerEntry
from lbcore.balancer.state.shadows import Elsewhere, Shadow, pack_shadows, unpack_shadows
from lbcore.balancer.state.work import Work
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.model.resources import complete
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.plan.decision import PlanState
from lbcore.plan.pending import load_share, load_shares
from lbcore.validation.check import check_config

A, B = "a:1", "b:1"
MOVED_MS, REPORTED_MS = 1_000, 2_000
HALVES = ("t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff")


def work_of(rates: tuple[float, float], *, reported_ms: int = REPORTED_MS) -> Work:
    """A has both bundles and reports 90 points for 90 msg/s, B none and 10 for 10."""
    balancer = ClusterBalancer(cluster="c", config=Config())
    work = Work.on(balancer.empty(), Config(), "", 3_000)
    work.ledger.add(HALVES)
    for name in HALVES:
        record = OwnershipRecord(
            cluster="c",
            bundle=name,
            state=State.OWNED,
            version_id=3,
            destination=A,
            destination_incarnation="1",
            timestamp_ms=500,
        )
        work.ledger.put(record, 0)
    short = np.array([[rate, 0.0, rate * 10.0, 0.0] for rate in rates])
    work.ledger.short = work.ledger.long = short
    for name, points in ((A, 90.0), (B, 10.0)):
        work.brokers[name] = BrokerEntry(
            incarnation="1",
            reported_ms=reported_ms,
            percent=complete([points]),
            traffic=(points, 0.0, points * 10.0, 0.0),
            bundle_count=2 if name == A else 0,
        )
    return work


def seen(work: Work, shadow: Shadow) -> tuple[list[float], list[int], list[int]]:
    """Each broker's CPU in points and bundles, and each bundle's broker, to the shadow."""
    snapshot, rows = make_snapshot(work, usable_brokers(work))
    found = virtual_snapshot(work, shadow, snapshot, rows)
    brokers = found.brokers
    return (
        brokers.percent[:, 0].tolist(),
        brokers.bundle_count.tolist(),
        found.bundles.owner.tolist(),
    )


def shadow_of(broker: str = B, *, since_ms: int = MOVED_MS) -> Shadow:
    place = Elsewhere(broker=broker, since_ms=since_ms, moved_ms=since_ms)
    return Shadow(plan=PlanState(), elsewhere={HALVES[1]: place})


def test_bundle_that_is_elsewhere_takes_its_load_along() -> None:
    assert seen(work_of((60.0, 30.0)), shadow_of()) == ([60.0, 40.0], [1, 1], [0, 1])


def test_load_follows_the_bundle_as_its_real_broker_reports_it() -> None:
    assert seen(work_of((45.0, 45.0)), shadow_of())[0] == [45.0, 55.0]


def test_reports_from_before_the_move_do_not_show_it() -> None:
    found = seen(work_of((60.0, 30.0), reported_ms=MOVED_MS), shadow_of())
    assert found == ([90.0, 10.0], [2, 0], [0, 1])


def test_larger_broker_is_filled_less_by_the_same_bundle() -> None:
    work = work_of((60.0, 30.0))
    work.brokers[B] = replace(work.brokers[B], capacity=2.0)
    assert seen(work, shadow_of())[0] == [60.0, 25.0]


def test_shadow_without_moves_shares_the_very_snapshot() -> None:
    work = work_of((60.0, 30.0))
    snapshot, rows = make_snapshot(work, usable_brokers(work))
    assert virtual_snapshot(work, Shadow(plan=PlanState()), snapshot, rows) is snapshot
    changed = virtual_snapshot(work, shadow_of(), snapshot, rows)
    assert changed.bundles.short is snapshot.bundles.short
    assert changed.bundles.names is snapshot.bundles.names


@pytest.mark.parametrize(("broker", "is_kept"), [(B, True), (A, False), ("gone:1", False)])
def test_what_is_where_the_shadow_has_it_or_can_not_be_there_is_let_go(
    broker: str, *, is_kept: bool
) -> None:
    work = work_of((60.0, 30.0))
    snapshot, _ = make_snapshot(work, usable_brokers(work))
    shadow = shadow_of(broker)
    assert reconciled(work, shadow, snapshot).elsewhere == (shadow.elsewhere if is_kept else {})


def test_shares_of_many_bundles_are_those_of_each() -> None:
    random = np.random.default_rng(7)
    bundles, brokers = random.random((40, 4)), random.random((40, 4)) * 2.0
    brokers[::3, 2:] = 0.0
    brokers[::6] = 0.0
    each = [load_share(one, other) for one, other in zip(bundles, brokers, strict=True)]
    assert load_shares(bundles, brokers).tolist() == each


def test_packed_shadows_come_back_and_the_same_are_not_packed_again() -> None:
    shadows = {
        "ballast": replace(shadow_of(), imbalance=1.5, plan=PlanState(unloaded_ms={"t/n/a": 7})),
        "own/name": Shadow(plan=PlanState(strategy="uniform")),
    }
    memo: dict[str, tuple[object, object]] = {}
    shadows = {"ballast": shadows["ballast"], "mine": shadows["own/name"]}
    chunks = pack_shadows(shadows, memo)
    assert unpack_shadows({**chunks, "plan": b"another's"}) == shadows
    again = pack_shadows(shadows, memo)
    assert all(again[name] is chunks[name] for name in chunks)
    assert unpack_shadows({"clock": b""}) == {}, "a state from before there were any"


def test_settings_name_strategies_that_there_are_each_once() -> None:
    def problems(text: str) -> list[str]:
        config = parse_assignments(Config(), [f"cluster.shadow={text}"])
        found = [one.problem for one in check_config(config) if one.is_error]
        return [one.detail for one in found if one.key == "cluster.shadow"]

    assert problems("ballast, uniform") == []
    assert "'balast' is no strategy: take avg" in problems("balast")[0]
    assert "names one twice" in problems("uniform,UniformLoadShedder")[0]
    assert "at most 4" in problems("avg,ballast,uniform,threshold,overload")[0]
