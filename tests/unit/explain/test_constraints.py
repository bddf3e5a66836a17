"""What keeps a hot broker does: without it, the same cycle takes something from the broker."""

from collections import Counter
from random import Random

import pytest

from lbcore.explain.constraints import BindingSet, ConstraintSearch, PlanInputs, binding_messages
from lbcore.plan.blocked import givers, stuck
from lbcore.plan.planner import giving
from tests.support.worlds.blocked_cycles import LIFTED, NOW_MS, SCOPE, Cycle, gives, random_cycle


def bindings_in(cycle: Cycle) -> dict[str, BindingSet]:
    inputs = PlanInputs(snapshot=cycle.snapshot, state=cycle.state, config=cycle.config)
    search = ConstraintSearch(inputs, NOW_MS)
    return {broker: search.bindings(broker) for broker in sorted(stuck(cycle.plan()))}


def check(seed: int) -> Counter[str]:
    """One cycle: each constraint, lifted here, changes the plan; the words name each."""
    cycle = random_cycle(Random(seed))
    found: Counter[str] = Counter()
    for broker, one in bindings_in(cycle).items():
        assert not one.gives
        assert not gives(cycle.plan(), broker), seed
        names = [binding.constraint.name for binding in one.bindings]
        found.update(names or ["nothing"])
        groups = [names] if one.is_joint and names else [[name] for name in names]
        for group in groups:
            without = cycle
            for name in group:
                without = LIFTED[name](without)
            assert gives(without.plan(), broker), (seed, broker, group)
        if one.is_joint and len(names) > 1:
            for name in names:
                assert not gives(LIFTED[name](cycle).plan(), broker), (seed, name)
        if not names:
            for name in LIFTED:
                assert not gives(LIFTED[name](cycle).plan(), broker), (seed, name)
        words = list(binding_messages(one, cycle.config))
        for name, word in zip(names, words, strict=False):
            assert f"({name})" in word, (seed, words)
            assert "To allow it now: " in word
    return found


def test_each_constraint_of_a_blocked_broker_lifted_changes_the_plan() -> None:
    found: Counter[str] = sum((check(seed) for seed in range(125)), Counter())
    assert {"grace", "pinned", "cool_down", "unload_budget"} <= set(found), found
    assert found.total() > 25, found


@pytest.mark.parametrize(("seed", "name"), [(1_344, "in_flight"), (3_108, "cool_down")])
def test_constraint_on_bundles_of_an_exchange_partner_is_named(seed: int, name: str) -> None:
    assert check(seed)[name]
    cycle = random_cycle(Random(seed))
    words = [
        word for one in bindings_in(cycle).values() for word in binding_messages(one, cycle.config)
    ]
    assert any(f"({name})" in word and "bundles of other brokers, which" in word for word in words)


def test_who_would_give_is_who_gives_in_the_plan() -> None:
    for cycle in map(random_cycle, map(Random, range(60))):
        answer = giving(cycle.snapshot, cycle.state, cycle.config, NOW_MS, SCOPE)
        assert answer == givers(cycle.plan())


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_each_constraint_of_ten_thousand_cycles_lifted_changes_the_plan(part: int) -> None:
    found: Counter[str] = sum((check(part * 1_000 + at) for at in range(1_000)), Counter())
    assert found.total() > 200, found
