"""Every rule against everything that moves a bundle: what docs/plans.md says of it is what happens.

The table of the page is the expectation: each of its cells is played on the production machines.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lbcore.balancer.rules import STEP_BEGUN, STEP_DONE, PlanProposal, PlanStatus
from tests.support.worlds.checked_world import CheckedWorld, decided, outcome, owners, running
from tests.support.worlds.world import World, copied

PAGE = Path(__file__).parents[2] / "docs" / "plans.md"
SOURCE, DESTINATION = "broker-0:8080", "broker-1:8080"
NAMESPACE = "t/n"
GOES_ON, SKIPPED, WAITS, REFUSED = "goes on", "skipped", "waits", "refused"


def set_config(name: str, value: object) -> Callable[[World], None]:
    return lambda world: note(world, "set_config", values={name: value})


def note(world: World, kind: str, **arguments: object) -> None:
    world.command(kind, **arguments)


def vanish(world: World) -> None:
    for broker in ("broker-3:8080", "broker-4:8080"):
        world.kill(broker)


RULES: Mapping[str, Callable[[World], None]] = {
    "nothing": lambda _: None,
    "cluster paused": lambda world: note(world, "pause", reason="works"),
    "emergency brake": vanish,
    "namespace paused": lambda world: note(world, "pause", namespace=NAMESPACE),
    "namespace excluded": lambda world: note(world, "exclude_namespace", namespace=NAMESPACE),
    "quiet hours": set_config("cluster.quiet_hours", ["00:00-24:00"]),
    "`cluster.observe_only`": set_config("cluster.observe_only", value=True),
    "pinned where it is": lambda world: note(
        world, "pin_bundle", bundle=bundle_of(world), broker=SOURCE
    ),
    "destination drained": lambda world: note(world, "drain_broker", broker=DESTINATION),
    "destination dead": lambda world: world.kill(DESTINATION),
    "destination not in its policy": lambda world: note(
        world, "set_isolation_policy", policy="p", namespaces=[NAMESPACE],
        primary=["broker-[0234].*"],
    ),
}  # fmt: skip


def bundle_of(world: World) -> str:
    return min(bundle for bundle, owner in owners(world).items() if owner == SOURCE)


def proposal(world: World) -> PlanProposal:
    assert world.state is not None
    return world.state.rules.proposals["mine"]


def _plan(world: World, bundle: str, rule: Callable[[World], None]) -> str:
    note(world, "propose_plan", moves={bundle: DESTINATION}, plan="mine")
    world.run(1_000)
    _set(world, rule)
    asked = world.command("approve_plan", plan="mine")
    world.run(25_000)
    if outcome(world, asked)["status"] == "refused":
        assert proposal(world).station is PlanStatus.WAITS
        return REFUSED
    (step,) = proposal(world).steps
    if step.became == STEP_DONE:
        assert (proposal(world).station, owners(world)[bundle]) == (PlanStatus.DONE, DESTINATION)
        return GOES_ON
    assert owners(world)[bundle] == SOURCE
    if step.is_skipped:
        assert proposal(world).station is PlanStatus.STOPPED
        assert step.became in proposal(world).why
        told = json.loads(str(outcome(world, asked)["result"]))
        assert told["why_skipped"] == {bundle: step.became}
        (row,) = decided(world, "plan", "StepSkipped")
        assert json.loads(str(row["inputs"]))["why"] == step.became
        return SKIPPED
    assert (step.became, proposal(world).station) == ("", PlanStatus.APPROVED)
    return WAITS


def _drain(world: World, bundle: str, rule: Callable[[World], None]) -> str:
    _set(world, rule)
    asked = world.command("drain_broker", broker=SOURCE)
    world.run(25_000)
    status = outcome(world, asked)["status"]
    has_moved = owners(world)[bundle] != SOURCE
    assert status == {True: "done", False: "accepted"}[has_moved]
    return GOES_ON if has_moved else WAITS


def _pin(world: World, bundle: str, rule: Callable[[World], None]) -> str:
    _set(world, rule)
    asked = world.command("pin_bundle", bundle=bundle, broker=DESTINATION)
    world.run(25_000)
    if outcome(world, asked)["status"] == "refused":
        return REFUSED
    return GOES_ON if owners(world)[bundle] == DESTINATION else WAITS


def _unload(world: World, bundle: str, rule: Callable[[World], None]) -> str:
    _set(world, rule)
    asked = world.command("unload_bundle", bundle=bundle, destination=DESTINATION)
    world.run(10_000)
    has_moved = owners(world)[bundle] == DESTINATION
    assert outcome(world, asked)["status"] == {True: "done", False: "refused"}[has_moved]
    return GOES_ON if has_moved else REFUSED


def _split(world: World, bundle: str, rule: Callable[[World], None]) -> str:
    _set(world, rule)
    asked = world.command("split_bundle", bundle=bundle, force=True)
    world.run(10_000)
    (state,) = (row["state"] for row in world.newest() if row["bundle"] == bundle)
    assert (outcome(world, asked)["status"], state) == ("done", "Deleted")
    return GOES_ON


def _set(world: World, rule: Callable[[World], None]) -> None:
    rule(world)
    world.run(25_000 if rule in (RULES["destination dead"], RULES["emergency brake"]) else 1_000)


ACTS = {"approved plan": _plan, "drain": _drain, "pin": _pin, "unload": _unload, "split": _split}


def cells() -> Iterator[tuple[str, str, str]]:
    """Rule, act and what the page says of both."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| in force"))
    head = _cells(lines[start])[1:]
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        rule, *said = _cells(line)
        yield from ((rule, act, what) for act, what in zip(head, said, strict=True))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


def test_page_has_every_rule_and_every_act() -> None:
    assert {(rule, act) for rule, act, _ in cells()} == {
        (rule, act) for rule in RULES for act in ACTS
    }


@copied
def settled() -> CheckedWorld:
    return running(5, 10, ownership={"brake_brokers": 2, "brake_percent": 40})


@pytest.mark.parametrize(
    ("rule", "act", "said"), list(cells()), ids=lambda text: re.sub(r"\W+", "-", text)
)
def test_rule_does_to_it_what_the_page_says(rule: str, act: str, said: str) -> None:
    world = settled()
    assert ACTS[act](world, bundle_of(world), RULES[rule]) == said


def test_unload_of_a_namespace_that_moves_nothing_is_refused_with_the_reason() -> None:
    world = settled()
    before = owners(world)
    for bundle, owner in before.items():
        note(world, "pin_bundle", bundle=bundle, broker=owner)
    asked = world.command("unload_namespace", namespace=NAMESPACE, destination=DESTINATION)
    world.run(5_000)
    told = outcome(world, asked)
    assert told["status"] == "refused"
    assert f"{min(before)} stays: it is pinned to {before[min(before)]}: unpin it" in told["reason"]
    assert owners(world) == before


@pytest.mark.parametrize("rule", ["nothing", "cluster paused", "namespace paused"])
def test_children_of_a_cycles_split_stay_when_a_pause_began_meanwhile(rule: str) -> None:
    world = running(4, 8, shedding={"is_shedding": False})
    bundle = min(owners(world))
    owner = owners(world)[bundle]
    world.rates = {bundle: 40_000.0}
    world.brokers[owner].is_hanging = True
    end_ms = world.now_ms + 400_000
    while "Splitting" not in {row["state"] for row in world.newest()}:
        world.run(500)
        assert world.now_ms < end_ms
    _set(world, RULES[rule])
    world.brokers[owner].is_hanging = False
    world.run(4_000)
    (split,) = decided(world, "split")
    children = json.loads(str(split["inputs"]))["children"]
    stay = {owners(world)[child] for child in children} == {owner}
    assert stay is (rule != "nothing")


def test_plan_passes_over_a_bundle_that_had_another_owner_meanwhile() -> None:
    world = settled()
    bundle = bundle_of(world)
    note(world, "propose_plan", moves={bundle: DESTINATION}, plan="mine")
    world.run(1_000)
    for broker in ("broker-2:8080", SOURCE):
        note(world, "unload_bundle", bundle=bundle, destination=broker)
        world.run(10_000)
    assert owners(world)[bundle] == SOURCE
    note(world, "approve_plan", plan="mine")
    world.run(10_000)
    (step,) = proposal(world).steps
    assert step.became.startswith("its ownership has changed since the plan was made: version ")
    assert owners(world)[bundle] == SOURCE


def test_rule_that_is_set_between_two_steps_holds_the_second_back() -> None:
    world = running(5, 10, shedding={"max_drains_in_flight": 1})
    moves = {b: DESTINATION for b, owner in owners(world).items() if owner != DESTINATION}
    note(world, "propose_plan", moves=moves, plan="mine")
    world.run(1_000)
    note(world, "approve_plan", plan="mine")
    while not proposal(world).done:
        world.run(500)
    note(world, "set_config", values={"cluster.observe_only": True})
    world.run(30_000)
    ended = proposal(world)
    assert (ended.station, ended.done + ended.skipped) == (PlanStatus.DONE, len(moves))
    assert 0 < ended.done < len(moves)
    moved = {bundle for bundle in moves if owners(world)[bundle] == DESTINATION}
    assert {step.bundle for step in ended.steps if step.became == STEP_DONE} == moved
    assert all("observe_only is on" in step.became for step in ended.steps if step.is_skipped)


def test_step_that_its_owner_never_carries_out_is_not_done() -> None:
    world = settled()
    bundle = bundle_of(world)
    note(world, "propose_plan", moves={bundle: DESTINATION}, plan="mine")
    world.run(1_000)
    world.brokers[SOURCE].is_hanging = True
    note(world, "approve_plan", plan="mine")
    world.run(3_000)
    assert proposal(world).steps[0].became == STEP_BEGUN
    world.run(60_000)
    assert owners(world)[bundle] == SOURCE
    assert proposal(world).station is PlanStatus.STOPPED
    assert proposal(world).steps[0].became.startswith(f"it is at {SOURCE}, not at {DESTINATION}")
