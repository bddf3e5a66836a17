"""What is said to hold a hot broker does: without it, the same cycle takes something from it."""

from collections import Counter
from dataclasses import asdict
from random import Random

import pytest

from lbcore.balancer.decisions.held_words import held_words
from lbcore.balancer.state.effects import to_json
from lbcore.plan.held import HeldBroker, HeldQuestion, held_brokers, stuck
from lbcore.plan.lifts import Inputs
from tests.support.worlds.held_cycles import LIFTED, NOW_MS, SCOPE, Cycle, gives, random_cycle


def held_in(cycle: Cycle) -> tuple[HeldBroker, ...]:
    inputs = Inputs(snapshot=cycle.snapshot, state=cycle.state, config=cycle.config)
    return held_brokers(
        HeldQuestion(inputs=inputs, now_ms=NOW_MS, scope=SCOPE), stuck(cycle.plan())
    )


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


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_each_cause_of_ten_thousand_cycles_lifted_changes_the_plan(part: int) -> None:
    found: Counter[str] = sum((check(part * 1_000 + at) for at in range(1_000)), Counter())
    assert found.total() > 200, found
