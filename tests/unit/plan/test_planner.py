"""The plan of a cycle: its phases together."""

import json
from dataclasses import replace

import numpy as np

from lbcore.config.pipeline import Pipeline
from lbcore.config.shedding import SheddingConfig
from lbcore.plain import from_plain, to_plain
from lbcore.plan.decision import Kind, Plan, PlanState, Scope, Skip
from lbcore.plan.planner import place, plan
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import Sections, cluster_of

CYCLE_MS = 10_000
AVG = Sections(shedding=SheddingConfig(strategy="avg"))
SLOW = Sections(shedding=SheddingConfig(strategy="avg", avg_high_hits=9, avg_low_hits=9))


def hot_and_cold() -> Snapshot:
    """90 % and 10 %, in bundles of 1 %."""
    return cluster_of({"cold": [1_000.0] * 10, "hot": [1_000.0] * 90})


def reported_at(cluster: Snapshot, at_ms: int) -> Snapshot:
    """The cluster with newer reports of the same load."""
    updated = np.full(len(cluster.brokers.names), at_ms)
    return replace(cluster, brokers=replace(cluster.brokers, updated_at_ms=updated))


def at_work(cluster: Snapshot, answer: Plan | Skip) -> Snapshot:
    """The cluster while the plan's bundles are on their way."""
    moving = {one.bundle for one in answer.decisions} if isinstance(answer, Plan) else set()
    at_rest = np.array([name not in moving for name in cluster.bundles.names])
    can_move = cluster.bundles.can_move & at_rest
    return replace(cluster, bundles=replace(cluster.bundles, can_move=can_move))


def run(cluster: Snapshot, cycles: int, config: Sections = AVG) -> list[Plan | Skip]:
    """The answers of several cycles, each with newer reports of the load before any move."""
    state, answers = PlanState(), []
    for cycle in range(1, cycles + 1):
        seen = reported_at(cluster, cycle * CYCLE_MS - 5)
        answer, state = plan(seen, state, config, cycle * CYCLE_MS)
        state = from_plain(PlanState, json.loads(json.dumps(to_plain(state))))
        answers.append(answer)
        cluster = at_work(cluster, answer)
    return answers


def test_plan_second_high_hit_moves_half_the_difference() -> None:
    first, second = run(hot_and_cold(), 2)
    assert isinstance(first, Skip)
    assert first.reason == "HitCount"
    assert isinstance(second, Plan)
    assert len(second.decisions) == 40
    assert {decision.kind for decision in second.decisions} == {Kind.TRANSFER}
    assert {(one.source, one.destination) for one in second.decisions} == {("hot", "cold")}


def test_plan_before_the_moves_are_reported_moves_nothing_more() -> None:
    answers = run(hot_and_cold(), 12)
    assert sum(len(one.decisions) for one in answers if isinstance(one, Plan)) == 40


def test_plan_without_fresh_reports_counts_no_hit() -> None:
    cluster, state = hot_and_cold(), PlanState()
    for cycle in range(1, 6):
        answer, state = plan(cluster, state, AVG, cycle * CYCLE_MS)
        assert isinstance(answer, Skip)
    assert state.shed.hits_high == {"hot": 1, "cold": 1}


def test_plan_hits_count_once_a_hit_period() -> None:
    state = PlanState()
    for now_ms in range(10_000, 15_000, 1_000):
        _, state = plan(reported_at(hot_and_cold(), now_ms), state, AVG, now_ms)
    assert state.shed.hits_low == {"hot": 1, "cold": 1}


def test_plan_hit_counts_in_a_cycle_that_follows_a_late_one() -> None:
    state = PlanState()
    for now_ms in (10_000, 21_300, 30_100):
        _, state = plan(reported_at(hot_and_cold(), now_ms), state, SLOW, now_ms)
    assert state.shed.hits_low == {"hot": 3, "cold": 3}


def test_plan_hit_period_that_is_no_number_of_cycles_is_not_shortened() -> None:
    rare = replace(SLOW, pipeline=Pipeline(hit_period_ms=15_000))
    state = PlanState()
    for now_ms in (10_000, 20_000, 30_000, 40_000):
        _, state = plan(reported_at(hot_and_cold(), now_ms), state, rare, now_ms)
    assert state.shed.hits_low == {"hot": 2, "cold": 2}


def test_bundle_without_an_owner_is_placed_by_message_rate_and_not_planned() -> None:
    cluster = cluster_of({"a": [5_000.0], "b": [1_000.0], "c": []})
    unowned = replace(cluster.bundles, owner=np.array([-1, 1]))
    seen = replace(cluster, bundles=unowned)
    places, _ = place(seen, PlanState(), AVG, CYCLE_MS)
    assert list(places.found.values()) in (["a"], ["c"])
    answer, _ = plan(seen, PlanState(), AVG, CYCLE_MS)
    assert isinstance(answer, Skip)


def test_plan_scope_without_shedding_sheds_nothing() -> None:
    state = PlanState()
    for cycle in range(1, 5):
        seen = reported_at(hot_and_cold(), cycle * CYCLE_MS - 5)
        answer, state = plan(seen, state, AVG, cycle * CYCLE_MS, Scope(sheds=False))
        assert isinstance(answer, Skip)
    assert not state.shed.hits_high


def test_plan_trace_has_a_verdict_for_every_bundle_of_the_source() -> None:
    state = PlanState()
    for cycle in range(1, 3):
        seen = reported_at(hot_and_cold(), cycle * CYCLE_MS - 5)
        answer, state = plan(seen, state, AVG, cycle * CYCLE_MS, Scope(is_traced=True))
    shown = [row for row in answer.trace.rows() if row.phase == "shed" and row.broker == "hot"]
    assert [row.verdict for row in shown if row.subject.startswith("t/")].count("taken") == 40
    assert answer.trace.counts()["shed.over_budget"] == 50
    assert answer.trace.counts()["eligible.ok"] == 100
