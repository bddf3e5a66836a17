"""What is said to hold a hot broker does: without it, the same cycle takes something from it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from random import Random

import pytest

from lbcore.balancer.decisions.candidate_rows import held_words
from lbcore.balancer.state.effects import to_json
from lbcore.plan import held
from lbcore.plan.held import HeldBroker, HeldQuestion, givers, held_brokers, refusals, stuck
from lbcore.plan.lifts import RULES, Inputs
from lbcore.plan.planner import giving
from tests.support.worlds.held_cycles import LIFTED, NOW_MS, SCOPE, Cycle, gives, random_cycle


def asked_of(cycle: Cycle) -> HeldQuestion:
    inputs = Inputs(snapshot=cycle.snapshot, state=cycle.state, config=cycle.config)
    refused = refusals(cycle.plan())
    return HeldQuestion(inputs=inputs, now_ms=NOW_MS, scope=SCOPE, refused=refused)


def held_in(cycle: Cycle) -> tuple[HeldBroker, ...]:
    return held_brokers(asked_of(cycle), stuck(cycle.plan()))


def check(seed: int) -> Counter[str]:
    """One cycle: each cause, lifted here, changes the plan; the words name each and no other."""
    cycle = random_cycle(Random(seed))
    found: Counter[str] = Counter()
    for one in held_in(cycle):
        assert not gives(cycle.plan(), one.broker), seed
        names = [cause.rule for cause in one.causes]
        found.update(names or ["nothing"])
        groups = [names] if one.is_joint and names else [[name] for name in names]
        for group in groups:
            without = cycle
            for name in group:
                without = LIFTED[name](without)
            assert gives(without.plan(), one.broker), (seed, one.broker, group)
        if one.is_joint and len(names) > 1:
            for name in names:
                assert not gives(LIFTED[name](cycle).plan(), one.broker), (seed, name)
        if not names:
            for name in LIFTED:
                assert not gives(LIFTED[name](cycle).plan(), one.broker), (seed, name)
        words = held_words({"inputs": to_json(asdict(one))})
        for name, word in zip(names, words, strict=bool(names)):
            assert f"held by {name}: " in word, (seed, words)
    return found


def test_each_cause_of_a_held_broker_lifted_changes_the_plan() -> None:
    found: Counter[str] = sum((check(seed) for seed in range(125)), Counter())
    assert {"grace", "pinned", "cool_down", "unload_budget"} <= set(found), found
    assert found.total() > 25, found


def test_who_would_give_is_who_gives_in_the_plan() -> None:
    for cycle in map(random_cycle, map(Random, range(60))):
        answer = giving(cycle.snapshot, cycle.state, cycle.config, NOW_MS, SCOPE)
        assert answer == givers(cycle.plan())


def planned(
    asked: HeldQuestion, verdicts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[HeldBroker, ...], int]:
    """The answer, and how many plans it took."""
    plans: list[object] = []
    real = HeldQuestion.plan
    with monkeypatch.context() as patched:
        patched.setattr(
            HeldQuestion, "plan", lambda self, inputs: plans.append(inputs) or real(self, inputs)
        )
        return held_brokers(asked, verdicts), len(plans)


def test_rules_that_are_not_in_force_are_not_tried_and_nothing_else_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans, plans_of_all = 0, 0
    for seed in range(125):
        cycle = random_cycle(Random(seed))
        asked, verdicts = asked_of(cycle), stuck(cycle.plan())
        found, count = planned(asked, verdicts, monkeypatch)
        with monkeypatch.context() as patched:
            patched.setattr(held, "in_force", lambda _inputs: frozenset(RULES))
            all_of = replace(asked, refused=None)
            assert planned(all_of, verdicts, monkeypatch)[0] == found, seed
            plans_of_all += planned(all_of, verdicts, monkeypatch)[1]
        plans += count
    assert plans < plans_of_all * 2 / 3, (plans, plans_of_all)


@pytest.mark.parametrize(
    "together",
    [{"max_moves_in_flight", "isolation"}, {"role_cool_down", "max_topics", "policies_not_shed"}],
)
def test_rules_that_hold_only_together_are_found_by_few_plans(
    together: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = next(one for one in map(random_cycle, map(Random, range(125))) if stuck(one.plan()))
    asked, verdicts = replace(asked_of(cycle), refused=None), stuck(cycle.plan())
    plans: list[tuple[str, ...]] = []

    def plan(_: HeldQuestion, lifted: tuple[str, ...]) -> frozenset[str]:
        plans.append(lifted)
        return frozenset(verdicts) if together <= set(lifted) else frozenset()

    monkeypatch.setattr(held, "in_force", lambda _inputs: frozenset(RULES))
    monkeypatch.setattr(held, "lifted", lambda _inputs, rules: rules)
    monkeypatch.setattr(HeldQuestion, "plan", plan)
    for one in held_brokers(asked, verdicts):
        assert {cause.rule for cause in one.causes} == together
        assert one.is_joint
    of_several = [lifted for lifted in plans if len(lifted) > 1]
    assert len(of_several) <= 1 + (len(together) + 1) * len(RULES).bit_length(), of_several


def test_large_cluster_is_answered_one_broker_a_cycle_at_least_and_all_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "_PLANNED_MAX", 0)
    several = 0
    for seed in range(400):
        cycle = random_cycle(Random(seed))
        asked, verdicts = asked_of(cycle), stuck(cycle.plan())
        with monkeypatch.context() as patched:
            patched.setattr(held, "_PLANNED_MAX", 1_000_000)
            whole = held_brokers(asked, verdicts)
        found: list[HeldBroker] = []
        while part := held_brokers(asked, verdicts):
            found += part
            verdicts = {name: why for name, why in verdicts.items() if name not in names(found)}
        assert tuple(found) == whole, seed
        several += len(whole) > 1
    assert several, "some cycle has to hold several brokers"


def names(found: Sequence[HeldBroker]) -> frozenset[str]:
    return frozenset(one.broker for one in found)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_each_cause_of_ten_thousand_cycles_lifted_changes_the_plan(part: int) -> None:
    found: Counter[str] = sum((check(part * 1_000 + at) for at in range(1_000)), Counter())
    assert found.total() > 200, found
