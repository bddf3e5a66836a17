"""Shedding and splitting keep intervals of their own, whole numbers of cycles."""

from itertools import pairwise
from typing import Any

import pytest

from lbcore.balancer.decisions import cycle
from lbcore.config.load import parse_config
from tests.support.worlds.world import World


def test_a_cycle_sheds_and_splits_only_when_the_interval_of_each_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = {
        "decision_interval_ms": 10_000,
        "shed_interval_ms": 30_000,
        "split_interval_ms": 50_000,
    }
    world = World(parse_config({"pipeline": pipeline}), 3, seed=2)
    scopes: list[tuple[int, bool, bool]] = []
    plan = cycle.plan  # type: ignore[attr-defined]

    def seen(snapshot: Any, state: Any, config: Any, now_ms: int, scope: Any) -> Any:
        scopes.append((now_ms, scope.sheds, scope.splits))
        return plan(snapshot, state, config, now_ms, scope)

    monkeypatch.setattr(cycle, "plan", seen)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(310_000)
    sheds = [at for at, is_shedding, _ in scopes if is_shedding]
    splits = [at for at, _, is_splitting in scopes if is_splitting]
    # the first ones come at once, the others on the grid
    assert {b - a for a, b in pairwise(sheds[1:])} == {30_000}
    assert {b - a for a, b in pairwise(splits[1:])} == {50_000}
    assert len(scopes) >= 30
    assert any(not is_shedding and not is_splitting for _, is_shedding, is_splitting in scopes)
