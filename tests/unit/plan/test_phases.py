"""Phases of the plan, together and one by one, with pending load and hourly limits."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig
from lbcore.config.signals import SignalsConfig
from lbcore.config.splitting import Splitting
from lbcore.plan.decision import (
    EVERYTHING,
    Decision,
    Kind,
    Plan,
    PlanState,
    Scope,
    Skip,
)
from lbcore.plan.filter.policies import Policies
from lbcore.plan.phases.adjust import adjust
from lbcore.plan.phases.eligible import eligible
from lbcore.plan.planner import initial_draft, plan
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.split.algorithms import TopicLoads
from tests.support.values.clusters import Sections, cluster_of

NOW_MS = 10_000
AT_ONCE = Sections(shedding=SheddingConfig(strategy="avg", avg_high_hits=1))
HOT_AND_COLD = {"cold": [1_000.0] * 10, "hot": [1_000.0] * 90}


def decisions(answer: Plan | Skip) -> tuple[Decision, ...]:
    """The decisions; none of a skip."""
    return answer.decisions if isinstance(answer, Plan) else ()


def with_brokers(cluster: Snapshot, **columns: object) -> Snapshot:
    """The cluster with other columns of its broker table."""
    return replace(cluster, brokers=replace(cluster.brokers, **columns))


def with_bundles(cluster: Snapshot, **columns: object) -> Snapshot:
    """The cluster with other columns of its bundle table."""
    return replace(cluster, bundles=replace(cluster.bundles, **columns))


def test_drain_moves_at_most_its_bound_and_nothing_to_the_draining_broker() -> None:
    config = Sections(shedding=SheddingConfig(strategy="avg", max_drains_in_flight=7))
    cluster = cluster_of({"a": [1_000.0] * 20, "b": [1_000.0] * 20, "c": [1_000.0] * 20})
    cluster = with_brokers(cluster, is_draining=np.array([True, False, False]))
    answer, state = plan(cluster, PlanState(), config, NOW_MS)
    found = decisions(answer)
    assert [one.kind for one in found] == [Kind.DRAIN] * 7
    assert {one.source for one in found} == {"a"}
    assert {one.destination for one in found} == {"b", "c"}
    assert len(state.moves) == 7


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_moves_per_cycle": 5}, 5),
        ({"max_moves_per_broker": 3}, 3),
        ({"max_moves_in_flight": 4}, 4),
        ({"max_moves_per_cycle": 0}, 0),
        ({"max_moves_per_hour": 4}, 4),
        ({"max_moves_per_hour": 0}, 0),
        ({"max_moves_per_hour_of_tenant": 3}, 3),
    ],
)
def test_limit_holds_back_what_is_above_it(limits: dict[str, int], expected: int) -> None:
    config = replace(AT_ONCE, shedding=replace(AT_ONCE.shedding, **limits))
    answer, _ = plan(cluster_of(HOT_AND_COLD), PlanState(), config, NOW_MS)
    assert len(decisions(answer)) == expected
    if not expected:
        assert isinstance(answer, Skip)


BALLAST = Sections(
    shedding=SheddingConfig(strategy="ballast"),
    placement=PlacementConfig(strategy="ballast"),
    ideal_load=IdealLoadConfig(low_hits=1, high_hits=1),
)
EXCHANGE = {"hot": [33_500.0, 33_500.0], "cold": [16_500.0, 16_500.0]}
"""No move helps, for the other broker would be as hot; of two bundles exchanged both do."""


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 2),
        ({"max_moves_per_cycle": 2}, 2),
        ({"max_moves_per_cycle": 1}, 0),
        ({"max_moves_per_broker": 1}, 0),
        ({"max_moves_in_flight": 1}, 0),
        ({"max_moves_per_hour": 1}, 0),
        ({"max_moves_per_hour_of_tenant": 1}, 0),
    ],
)
def test_limit_lets_both_bundles_of_an_exchange_move_or_none(
    limits: dict[str, int], expected: int
) -> None:
    config = replace(BALLAST, shedding=replace(BALLAST.shedding, **limits))
    answer, _ = plan(cluster_of(EXCHANGE), PlanState(), config, NOW_MS)
    found = sorted((one.source, one.destination) for one in decisions(answer))
    assert found == [("cold", "hot"), ("hot", "cold")][:expected]


def test_bundle_whose_partner_in_an_exchange_finds_no_destination_stays() -> None:
    cluster = cluster_of({**EXCHANGE, "other": [50_000.0]})
    of = np.array([0, 0, 1, 2, 1])
    cluster = with_bundles(cluster, namespaces=("t/x", "t/y", "t/z"), namespace=of)
    answer, _ = plan(cluster, PlanState(), BALLAST, NOW_MS)
    assert len(decisions(answer)) == 2
    apart = replace(cluster, policies=Policies(anti_affinity={"t/x": "g", "t/y": "g", "t/z": "g"}))
    answer, _ = plan(apart, PlanState(), BALLAST, NOW_MS)
    assert decisions(answer) == ()


def test_limit_in_flight_counts_moves_under_way() -> None:
    config = replace(AT_ONCE, shedding=replace(AT_ONCE.shedding, max_moves_in_flight=4))
    cluster = cluster_of(HOT_AND_COLD)
    answer, state = plan(cluster, PlanState(), config, NOW_MS)
    moving = {one.bundle for one in decisions(answer)}
    can_move = np.array([name not in moving for name in cluster.bundles.names])
    later = with_bundles(cluster, can_move=can_move)
    later = with_brokers(later, updated_at_ms=np.full(2, NOW_MS * 2))
    answer, state = plan(later, state, config, NOW_MS * 3)
    assert isinstance(answer, Skip)
    assert answer.reason == "Limit"
    assert len(state.moves) == 4


def test_hot_namespace_of_an_anti_affinity_group_leaves_its_broker_for_a_cold_one() -> None:
    cluster = cluster_of({"a": [10_000.0] * 6, "b": [5_000.0], "c": [40_000.0]})
    of = np.array([0] * 6 + [1, 1])
    cluster = with_bundles(cluster, namespaces=("t/x", "t/y"), namespace=of)
    cluster = replace(cluster, policies=Policies(anti_affinity={"t/x": "group"}))
    at_once = IdealLoadConfig(low_hits=1, high_hits=1)
    ballast = {"shedding": SheddingConfig(strategy="ballast"), "ideal_load": at_once}
    config = Sections(placement=PlacementConfig(strategy="ballast"), **ballast)
    answer, _ = plan(cluster, PlanState(), config, NOW_MS)
    found = [(one.source, one.destination) for one in decisions(answer)]
    assert found == [("a", "b")]  # a second one would have to go to c, which is hotter than a then


@pytest.mark.parametrize("others", ["y", "yz"])
def test_bundle_that_its_group_keeps_leaves_room_for_another_bundle_to_move(others: str) -> None:
    cluster = cluster_of(
        {
            "a": [6_000.0] + [4_000.0] * 10,
            "b": [6_000.0] + [3_000.0] * 8,
            "c": [6_000.0] + [4_000.0] * 9,
        }
    )
    of = np.zeros(len(cluster.bundles.names), dtype=np.int64)
    of[[0, 11, 20]] = 1, 2, 3
    cluster = with_bundles(cluster, namespaces=("t/n", "t/x", "t/y", "t/z"), namespace=of)
    group = {f"t/{name}": "g" for name in ("x", *others)}
    apart = replace(cluster, policies=Policies(anti_affinity=group))
    (best,) = decisions(plan(cluster, PlanState(), BALLAST, NOW_MS)[0])
    assert (best.bundle, best.source, best.destination) == (cluster.bundles.names[0], "a", "b")
    (other,) = decisions(plan(apart, PlanState(), BALLAST, NOW_MS)[0])
    assert (other.bundle, other.source, other.destination) == (cluster.bundles.names[1], "a", "b")


def test_move_that_is_given_up_is_no_longer_counted() -> None:
    cluster = cluster_of(HOT_AND_COLD)
    _, state = plan(cluster, PlanState(), AT_ONCE, NOW_MS)
    assert state.moves
    assert state.unseen
    later = with_brokers(cluster, updated_at_ms=np.full(2, NOW_MS * 2))
    answer, state = plan(later, state, AT_ONCE, NOW_MS * 3, Scope(sheds=False))
    assert isinstance(answer, Skip)
    assert not state.moves
    assert not state.unseen


def test_bundle_that_was_shed_rests_for_the_grace_period() -> None:
    grace_ms = 60_000
    config = replace(AT_ONCE, shedding=replace(AT_ONCE.shedding, grace_period_ms=grace_ms))
    cluster = cluster_of(HOT_AND_COLD)
    first, state = plan(cluster, PlanState(), config, NOW_MS)
    moved = {one.bundle for one in decisions(first)}
    again, _ = plan(
        with_brokers(cluster, updated_at_ms=np.full(2, 20_000)), state, config, NOW_MS + 20_000
    )
    assert not moved & {one.bundle for one in decisions(again)}
    _, later = plan(cluster, state, config, NOW_MS + grace_ms + 1, Scope(sheds=False))
    assert not later.unloaded_ms


@pytest.mark.parametrize(
    ("strategy", "signals", "rests_ms"),
    [
        ("avg", SignalsConfig(), 1_800_000),
        ("ballast", SignalsConfig(report_max_interval_ms=30_000), 60_000),
        ("ballast", SignalsConfig(usage_window_ms=60_000), 240_000),
        ("ballast", SignalsConfig(report_max_interval_ms=3_600_000), 1_800_000),
    ],
)
def test_ballast_lets_a_bundle_move_again_once_reports_show_its_last_move(
    strategy: str, signals: SignalsConfig, rests_ms: int
) -> None:
    config = Sections(shedding=SheddingConfig(strategy=strategy), signals=signals)
    cluster = cluster_of(HOT_AND_COLD)
    state = PlanState(unloaded_ms=dict.fromkeys(cluster.bundles.names, NOW_MS))

    def can_move(age_ms: int) -> bool:
        draft = initial_draft(cluster, state, config, NOW_MS + age_ms, EVERYTHING)
        return bool(eligible(adjust(draft)).snapshot.bundles.can_move.all())

    assert not can_move(rests_ms)
    assert can_move(rests_ms + 1)


def split_cluster() -> tuple[Snapshot, Sections]:
    """Two brokers; the only bundle of one has 90,000 msg/s in four topics."""
    base = cluster_of({"a": [90_000.0], "b": [1_000.0]})
    bundles = replace(
        base.bundles,
        names=("t/n0/0x00000000_0x80000000", "t/n1/0x00000000_0xffffffff"),
        topics=np.array([4, 2]),
    )
    loads = TopicLoads(
        hashes=np.array([0x10000000, 0x30000000, 0x50000000, 0x70000000]),
        msg_rate=np.array([20_000.0, 25_000.0, 25_000.0, 20_000.0]),
        throughput=np.array([2e7, 2.5e7, 2.5e7, 2e7]),
    )
    cluster = replace(
        base,
        bundles=bundles,
        topics_of=lambda name: loads if name.startswith("t/n0") else None,
    )
    splitting = Splitting(hit_count_threshold=0)
    return cluster, Sections(splitting=splitting)


def test_split_places_its_children_at_once_or_keeps_them_without_auto_unload() -> None:
    cluster, config = split_cluster()
    answer, _ = plan(cluster, PlanState(), config, NOW_MS)
    (found,) = [one for one in decisions(answer) if one.kind is Kind.SPLIT]
    assert found.split is not None
    assert tuple(found.children) == found.split.children
    assert set(found.children.values()) == {"", "b"}
    splitting = replace(config.splitting, auto_unload_split_bundles=False)
    answer, _ = plan(cluster, PlanState(), replace(config, splitting=splitting), NOW_MS)
    (found,) = [one for one in decisions(answer) if one.kind is Kind.SPLIT]
    assert set(found.children.values()) == {""}


@pytest.mark.parametrize("kept", ["merging", "rejected"])
def test_bundle_that_waits_for_its_merge_or_was_rejected_is_not_split(kept: str) -> None:
    cluster, config = split_cluster()
    answer, _ = plan(cluster, PlanState(), config, NOW_MS)
    (found,) = [one for one in decisions(answer) if one.kind is Kind.SPLIT]
    held = replace(cluster, **{kept: [found.bundle]})  # type: ignore[arg-type]
    answer, _ = plan(held, PlanState(), config, NOW_MS)
    assert not any(one.kind is Kind.SPLIT for one in decisions(answer))
