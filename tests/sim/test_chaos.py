"""Rounds of chaos: a fixed set of seeds passes, and what looks at them sees what is wrong.

`make chaos` runs a thousand; a failure names its seed and the command that replays it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lbcore.agent.state import RecordRead
from lbcore.balancer.rebuild import record_from_row
from lbcore.balancer.state.effects import Effect
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Engine
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.sim.scenario.scenario_events import HAPPENINGS
from tests.support.chaos import rounds
from tests.support.chaos.__main__ import main
from tests.support.chaos.chaos import chaos_text
from tests.support.chaos.rounds import (
    Bound,
    ChaosRound,
    SafetyWatch,
    hold_bounds,
    judge_round,
    run_round,
    sides_of,
)
from tests.support.values.clusters import few

SEEDS = tuple(range(1, 21))
BUNDLE = "t/n/0x00000000_0x80000000"
CLUSTER = "brokers 2\nnamespace t/n bundles=2 topics=1\nown t/n all b1\nload t/n even 5%\nrun 10s\n"


@pytest.mark.parametrize("seed", few(SEEDS, 8))
def test_round_of_a_fixed_seed_passes(seed: int) -> None:
    assert run_round(seed, Config()).faults == ()


def test_round_is_the_same_again() -> None:
    assert run_round(3, Config()) == run_round(3, Config())


def test_every_fault_there_is_comes_up() -> None:
    texts = [chaos_text(seed) for seed in range(400)]
    happened = {one.verb for text in texts for one in parse_scenario(text).scenario_events}
    assert happened == HAPPENINGS.keys() - {"cancel-drain"}


def watched() -> tuple[Engine, SafetyWatch]:
    engine = Engine(parse_scenario(CLUSTER), Config())
    watch = SafetyWatch(engine)
    watch.begin()
    return engine, watch


def event(engine: Engine, bundle: str = BUNDLE, **changes: object) -> Effect:
    row: Mapping[str, Any] = {**engine.job.committed.ownership[bundle], **changes}
    return Effect(kind="ownership_events", rows=[row])


def seen(changes: Mapping[str, object]) -> list[str]:
    engine, watch = watched()
    effect = event(engine, **changes)
    engine.job.committed.put(effect.rows[0])
    watch.look([effect])
    return watch.faults


def test_watch_is_content_with_the_next_version() -> None:
    assert seen({"version_id": 2, "destination": "b2"}) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version_id": 3}, "went from version 1 to 3"),
        ({"version_id": 1, "destination": "b2"}, "version"),
        ({"version_id": 2, "state": "Deleted", "destination": ""}, "cover"),
        ({"version_id": 2, "destination": ""}, "state_and_brokers"),
    ],
)
def test_watch_sees_a_record_that_must_not_be(changes: dict[str, object], told: str) -> None:
    assert any(told in fault for fault in seen(changes))


@pytest.mark.parametrize(("is_forced", "is_fault"), [(False, True), (True, False)])
def test_two_that_serve_are_a_fault_unless_one_was_forced_out(
    is_forced: bool,  # noqa: FBT001 a case of the table
    is_fault: bool,  # noqa: FBT001 same
) -> None:
    engine, watch = watched()
    engine.clock.run_until(engine.clock.now_ms + 5_000)
    token = engine.nodes["b1"].served()[BUNDLE]
    effect = event(
        engine,
        state="Assigning",
        version_id=token + 1,
        destination="b2",
        destination_incarnation="b2/1",
        is_forced=is_forced,
    )
    engine.job.committed.put(effect.rows[0])
    watch.look([effect])
    (record,) = map(record_from_row, effect.rows)
    engine.nodes["b2"].take([RecordRead(record=record)])
    engine.clock.run_until(engine.clock.now_ms + 1_000)
    assert engine.nodes["b2"].served() == {BUNDLE: token + 1}
    assert bool([one for one in watch.faults if "two serve" in one]) == is_fault


def faults_of(lines: str) -> tuple[str, ...]:
    scenario = parse_scenario(CLUSTER.replace("run 10s\n", "") + lines)
    return judge_round(1, run_scenario(scenario, Config()), ()).faults


def test_move_that_the_end_cuts_short_is_no_fault() -> None:
    moved = f"at 59s command unload_bundle bundle={BUNDLE} destination=b2\n"
    assert faults_of(f"callbacks 1500ms 1500ms\n{moved}run 1m") == ()


def test_what_is_left_behind_is_a_fault() -> None:
    assert faults_of("at 20s crash all\nrun 1m") == (
        "at the end 2 bundles are not open at their owner",
        "at the end 2 topics have no service",
    )


@pytest.mark.parametrize(
    ("loads", "hottest", "expected"),
    [
        ([60, 10, 20], [55, 2, 3], (5, 5)),
        ([60, 10, 20], [5, 2, 3], (30, 20)),
        ([30, 30], [1, 1], (0, 0)),
        ([80, 20], [80, 1], (0, 0)),
        ([7], [7], (0, 0)),
    ],
)
def test_over_and_underload_leave_out_what_no_move_helps(
    loads: list[float], hottest: list[float], expected: tuple[float, float]
) -> None:
    assert sides_of(loads, hottest) == expected


def a_round(over: float) -> ChaosRound:
    return ChaosRound(
        seed=1, faults=(), over=over, under=0.0, moves=0, doubles=0, batches=0, hash="",
    )  # fmt: skip


def test_bound_of_a_quantile_counts_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {"over": (Bound(percent=50, limit=4.0), Bound(percent=100, limit=4.0))}
    monkeypatch.setattr(rounds, "BOUNDS", bounds)
    usual, rare = hold_bounds([a_round(3.0), a_round(3.0), a_round(9.0)])
    assert (usual.value, usual.is_met) == (3.0, True)
    assert (rare.value, rare.is_met) == (9.0, False)


@pytest.mark.long
def test_hundred_rounds_are_safe_and_within_the_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--rounds", "100", "--workers", "2"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "100 passed, 0 failed" in out


def test_round_that_fails_is_reported_with_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = replace(a_round(0.0), seed=7, faults=("two serve",))
    monkeypatch.setattr("tests.support.chaos.__main__.run_round", lambda _, **__: failed)
    assert main(["--rounds", "1", "--workers", "1"]) == 1
    out = capsys.readouterr().out
    assert "0 passed, 1 failed" in out
    assert "python -m tests.support.chaos --seed 7 --rounds 1" in out


def test_scenario_of_a_round_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "--seed", "5"]) == 0
    assert parse_scenario(capsys.readouterr().out).seed == 5
