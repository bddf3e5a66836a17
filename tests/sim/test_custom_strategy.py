"""A strategy of the user's own in the job: set while it runs, wrong, and gone after a restart."""

import json
import pickle
from typing import Any

from lbcore.config.custom_strategy import CustomStrategy
from lbcore.config.tree import Config
from lbcore.plan.proposal import Proposal, ProposedMove
from lbcore.plan.snapshot import Snapshot
from tests.support.worlds.world import World

SET = {"shedding.strategy": "mine", "placement.strategy": "least_long_term_message_rate"}


def rotate(snapshot: Snapshot, state: dict[str, Any], _config: Any, _now_ms: int) -> Any:
    """Every cycle the first bundle that may move goes to the next broker."""
    names, owner = snapshot.brokers.names, snapshot.bundles.owner
    rows = [row for row, may in enumerate(snapshot.bundles.can_move.tolist()) if may]
    if not rows:
        return Proposal(), state
    to = names[(int(owner[rows[0]]) + 1) % len(names)]
    move = ProposedMove(bundle=snapshot.bundles.names[rows[0]], destination=to)
    return Proposal(moves=(move,)), {"moved": state.get("moved", 0) + 1}


def fail(*_: Any) -> Any:
    raise RuntimeError("no idea")


def running(decide: Any, problem: str = "") -> World:
    own = CustomStrategy(
        name="mine", origin="p:f", digest="c0de" * 16, decide=decide, problem=problem
    )
    world = World(Config(own={"mine": own}), 3, seed=4)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=12)
    world.run(25_000)
    world.command("set_config", values=SET)
    return world


def of_mine(world: World) -> list[dict[str, Any]]:
    return [dict(row) for row in world.decisions if row["strategy"] == "mine"]


def test_own_strategy_moves_bundles_and_its_state_survives_a_restart() -> None:
    world = running(rotate)
    world.run(31_000)
    before = len(of_mine(world))
    world.restart_job()
    world.run(31_000)
    moves = [row for row in of_mine(world) if row["kind"] == "transfer"]
    assert len(of_mine(world)) > before
    assert {json.loads(row["inputs"])["code"] for row in moves} == {"p:f@c0dec0dec0de"}
    assert {row["reason"] for row in moves} == {"Proposed"}


def test_own_strategy_that_raises_is_an_alarm_and_the_job_goes_on() -> None:
    world = running(fail)
    world.run(21_000)
    (reason,) = {row["reason"] for row in of_mine(world)}
    skipped = json.loads(of_mine(world)[-1]["inputs"])["skipped"]
    assert reason == "StrategyFailed"
    assert "raised RuntimeError in fail, line" in skipped["strategy"]
    assert any("strategy" in report["alarms"] for report in world.reports)  # type: ignore[operator]
    world.command("create_namespace", namespace="t/m", bundles=4)
    world.run(25_000)
    placed = [row for row in world.decisions if row["kind"] == "assign"]
    assert len(placed) > 1


def test_own_strategy_that_is_gone_is_a_skip_that_says_so() -> None:
    world = running(None, problem="mine is not installed any more: install it")
    world.run(21_000)
    assert {row["reason"] for row in of_mine(world)} == {"StrategyMissing"}
    skipped = json.loads(of_mine(world)[-1]["inputs"])["skipped"]
    assert skipped["strategy"] == "mine is not installed any more: install it"


def test_own_strategy_that_was_never_loaded_is_refused_by_name() -> None:
    world = World(Config(), 3, seed=4)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=4)
    command_id = world.command("set_config", values=SET)
    world.run(5_000)
    (row,) = [r for r in world.other_rows["commands"] if r["command_id"] == command_id]
    assert row["status"] == "refused"
    assert "'mine' is none: take avg" in str(row["reason"])


def test_configuration_with_an_own_strategy_goes_to_another_process() -> None:
    own = CustomStrategy(name="mine", origin="p:f", digest="c0de", decide=json.dumps)
    assert pickle.loads(pickle.dumps(Config(own={"mine": own}))).own["mine"] == own  # noqa: S301 ours
