"""The plan as packed chunks: what changes, and what is made again."""

from dataclasses import replace

from lbcore.balancer.state.book import Memo, pack_plan, unpack_plan
from lbcore.plan.decision import PlanState

MINUTE_MS = 60_000
PLAN = PlanState(
    strategy="avg",
    gave_ms={"broker-1": 5},
    unloaded_ms={"t/n/b": MINUTE_MS + 7, "t/n/a": MINUTE_MS, "t/n/c": 3 * MINUTE_MS},
)


def test_unpacking_is_the_inverse() -> None:
    assert unpack_plan(pack_plan(PLAN, {})) == PLAN
    assert unpack_plan(pack_plan(PlanState(), {})) == PlanState()


def test_chunks_do_not_tell_in_which_order_bundles_were_moved() -> None:
    turned = replace(PLAN, unloaded_ms=dict(reversed(PLAN.unloaded_ms.items())))
    assert pack_plan(turned, {}) == pack_plan(PLAN, {})
    assert list(unpack_plan(pack_plan(turned, {})).unloaded_ms) == ["t/n/a", "t/n/b", "t/n/c"]


def test_only_the_minutes_that_moves_came_to_or_left_change() -> None:
    before = pack_plan(PLAN, {})
    moved = {"t/n/a": MINUTE_MS, "t/n/b": 3 * MINUTE_MS + 1, "t/n/c": 3 * MINUTE_MS}
    after = pack_plan(replace(PLAN, unloaded_ms=moved), {})
    assert {name for name in after if before[name] != after[name]} == {"moved/1", "moved/3"}
    grown = pack_plan(replace(PLAN, unloaded_ms={**PLAN.unloaded_ms, "t/n/d": 0}), {})
    assert grown == {**before, "moved/0": grown["moved/0"]}


def test_the_very_same_plan_is_not_packed_again() -> None:
    memo: Memo = {}
    first = pack_plan(PLAN, memo)
    assert pack_plan(PLAN, memo) is first
    other = pack_plan(replace(PLAN, strategy="threshold"), memo)
    assert other["plan"] != first["plan"]
    assert pack_plan(PLAN, {}) == first


def test_minutes_with_the_same_moves_are_not_packed_again() -> None:
    memo: Memo = {}
    first = pack_plan(PLAN, memo)
    again = {**PLAN.unloaded_ms, "t/n/c": 3 * MINUTE_MS + 1}
    after = pack_plan(replace(PLAN, unloaded_ms=again), memo)
    assert after["moved/1"] is first["moved/1"]
    assert after == pack_plan(replace(PLAN, unloaded_ms=again), {})
    assert after["moved/3"] != first["moved/3"]
    left = pack_plan(replace(PLAN, unloaded_ms={"t/n/a": MINUTE_MS}), memo)
    assert sorted(left) == ["moved/1", "plan"]
    assert unpack_plan(left).unloaded_ms == {"t/n/a": MINUTE_MS}
