"""Commands in a whole cluster in virtual time: effects, outcomes, reused ids, rebuilds."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.waiting import status_of
from lbcore.config.tree import Config
from lbcore.ownership.changes import Instance
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.validation.check import with_dynamic
from lbcore.wire.messages import Ack, AckOutcome, Acks, Command, Envelope
from tests.support.worlds.checked_world import CheckedWorld, promised
from tests.support.worlds.command_cases import CASES, RecordedWorld, is_carried_out, prepared
from tests.support.worlds.world import CLUSTER, World, copied, is_settled, states

FIRST = "t/n/0x00000000_0x40000000"
LAST = "t/n/0xc0000000_0xffffffff"


@copied
def running(config: Config | None = None, brokers: int = 3, bundles: int = 4) -> CheckedWorld:
    world = CheckedWorld(config or Config(), brokers, seed=5)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(20_000)
    return world


def rows(world: World, command_id: str) -> list[dict[str, Any]]:
    """The rows that the table had of a command, one after the other."""
    found = [dict(row) for row in world.other_rows["commands"] if row["command_id"] == command_id]
    return [{**row, "result": json.loads(row["result"])} for row in found]


def told(world: World, command_id: str) -> list[str]:
    return [row["status"] for row in rows(world, command_id)]


def owner(world: World, bundle: str) -> str:
    (row,) = [row for row in world.newest() if row["bundle"] == bundle]
    return str(row["destination"])


def other(world: World, bundle: str) -> str:
    return next(name for name in sorted(world.brokers) if name != owner(world, bundle))


def send(world: World, kind: str, *, timeout_ms: int, **arguments: object) -> str:
    command = Command(
        cluster=CLUSTER,
        command_id=f"{kind}-{world.now_ms}",
        kind=kind,
        arguments=arguments,
        timeout_ms=timeout_ms,
    )
    world.append(command)
    return command.command_id


def test_unload_to_a_broker_that_can_not_open_the_bundle_fails_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    failures = ["disk full"]

    def finish(world: World, call: Call) -> CallDone:
        done = World.finish(world, call)
        is_first = call.callback is Callback.OPEN and bool(failures)
        return replace(done, failure=failures.pop()) if is_first else done

    monkeypatch.setattr(CheckedWorld, "finish", finish, raising=False)
    had, target = owner(world, FIRST), other(world, FIRST)
    command_id = world.command("unload_bundle", bundle=FIRST, destination=target)
    world.run(30_000)
    assert told(world, command_id) == ["accepted", "failed"]
    now = owner(world, FIRST)
    assert now not in (had, target)
    said = f"{FIRST} was not opened by {target}: disk full. It goes to {now}"
    assert rows(world, command_id)[-1]["reason"] == said
    assert is_settled(world)


def test_unload_that_takes_longer_than_its_timeout_is_timed_out_and_goes_on() -> None:
    world = running()
    had, target = owner(world, FIRST), other(world, FIRST)
    world.pause(had, is_paused=True)
    command_id = send(world, "unload_bundle", timeout_ms=4_000, bundle=FIRST, destination=target)
    world.run(8_000)
    assert told(world, command_id) == ["accepted", "timed_out"]
    assert FIRST in rows(world, command_id)[-1]["reason"]
    world.pause(had, is_paused=False)
    world.run(40_000)
    assert told(world, command_id) == ["accepted", "timed_out"]
    assert is_settled(world)


def test_command_read_after_its_timeout_is_not_begun() -> None:
    world = running()
    command_id = world.command("unload_bundle", bundle=FIRST)
    world.job.is_away = True
    world.run(60_000)
    world.job.is_away = False
    before = len(world.events)
    world.run(5_000)
    assert told(world, command_id) == ["timed_out"]
    assert len(world.events) == before


def test_queued_command_whose_bundle_is_at_rest_only_after_its_timeout_is_not_begun() -> None:
    world = running()
    had = owner(world, FIRST)
    world.pause(had, is_paused=True)
    split = world.command("split_bundle", bundle=FIRST, force=True)
    late = send(world, "unload_namespace", timeout_ms=5_000, namespace="t/n")
    world.run(2_000)
    assert told(world, late) == ["accepted"]
    world.job.is_away = True
    world.pause(had, is_paused=False)
    world.run(10_000)
    world.job.is_away = False
    world.run(20_000)
    assert told(world, split) == ["accepted", "done"]
    assert told(world, late) == ["accepted", "timed_out"]
    assert "it was not begun" in rows(world, late)[-1]["reason"]
    assert not [event for event in world.events if event["command_id"] == late]


def test_command_sent_twice_is_carried_out_once() -> None:
    world = running()
    command = Command(
        cluster=CLUSTER, command_id="twice", kind="unload_bundle", arguments={"bundle": FIRST}
    )
    world.append(command)
    world.append(command)
    world.run(12_000)
    world.append(command)
    world.run(12_000)
    assert told(world, "twice") == ["accepted", "done"]


def test_deleted_namespace_is_closed_everywhere_first_and_versions_go_on_when_made_again() -> None:
    world = running()
    highest = max(int(str(row["version_id"])) for row in world.newest())
    command_id = world.command("delete_namespace", namespace="t/n")
    world.run(12_000)
    assert told(world, command_id) == ["accepted", "done"]
    assert states(world) == {"Deleted": 4}
    assert world.served() == {}
    for bundle in (FIRST, LAST):
        seen = [row["state"] for row in world.events if row["bundle"] == bundle]
        assert seen[-3:] == ["Releasing", "Free", "Deleted"]
    world.command("create_namespace", namespace="t/n", bundles=2)
    world.run(20_000)
    live = [row for row in world.newest() if row["state"] != "Deleted"]
    first = next(row for row in world.events if row["bundle"] == live[0]["bundle"])
    assert int(str(first["version_id"])) > highest
    assert [row["state"] for row in live] == ["Owned", "Owned"]


def test_namespace_is_deleted_also_while_a_broker_of_it_dies() -> None:
    world = running()
    world.kill(owner(world, FIRST))
    since = len(world.events)
    command_id = send(world, "delete_namespace", timeout_ms=120_000, namespace="t/n")
    world.run(60_000)
    assert told(world, command_id) == ["accepted", "done"]
    assert states(world) == {"Deleted": 4}
    assert {row["state"] for row in world.events[since:]} == {"Releasing", "Free", "Deleted"}


def test_namespace_is_deleted_also_when_every_broker_is_gone_for_good() -> None:
    world = running(brokers=2)
    for name in world.brokers:
        world.kill(name)
    world.run(5_000)
    command_id = send(world, "delete_namespace", timeout_ms=0, namespace="t/n")
    world.run(20_000)
    world.start(min(world.brokers))
    world.run(60_000)
    assert told(world, command_id) == ["accepted", "done"]
    assert states(world) == {"Deleted": 4}


def test_deleted_bundles_are_forgotten_after_the_delay_and_their_versions_never_reused() -> None:
    config = with_dynamic(Config(), {"ownership.tombstone_delay_ms": 30_000})
    world = running(config)
    world.command("delete_namespace", namespace="t/n")
    world.run(12_000)
    assert world.state is not None
    assert len(world.state.ledger) == 4
    highest = max(int(str(row["version_id"])) for row in world.newest())
    world.run(31_000)
    assert len(world.state.ledger) == 0
    assert "t/n" not in world.state.namespaces
    assert world.state.times.version_floor == highest
    assert world.other_rows["namespaces"][-1]["highest_version"] == highest
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(20_000)
    assert is_settled(world)
    assert min(int(str(row["version_id"])) for row in world.newest()) > highest


def test_namespace_without_a_number_gets_the_configured_one_and_keeps_its_algorithm() -> None:
    config = with_dynamic(Config(), {"splitting.default_bundles": 7})
    world = CheckedWorld(config, 1, seed=5)
    world.command("create_namespace", namespace="t/n", split_algorithm="topic_count_equally_divide")
    wrong = world.command("create_namespace", namespace="t/m", split_algorithm="by_feeling")
    world.run(3_000)
    assert len(world.newest()) == 7
    assert told(world, wrong) == ["refused"]
    assert "range_equally_divide" in rows(world, wrong)[0]["reason"]
    assert json.loads(str(world.other_rows["namespaces"][0]["properties"])) == {
        "bundles": 7,
        "split_algorithm": "topic_count_equally_divide",
    }


def test_on_demand_a_bundle_waits_for_its_first_lookup() -> None:
    config = with_dynamic(Config(), {"ownership.assign": "on_demand"})
    world = running(config)
    assert states(world) == {"Free": 4}
    first = world.command("assign_bundle", bundle=FIRST)
    second = world.command("assign_bundle", bundle=FIRST)
    world.run(5_000)
    assert told(world, first) == ["accepted", "done"]
    assert told(world, second) == ["done"]
    assert rows(world, first)[-1]["result"]["owner"] == owner(world, FIRST)
    assert rows(world, second)[0]["result"]["owner"] == owner(world, FIRST)
    assert states(world) == {"Free": 3, "Owned": 1}
    unload = world.command("unload_bundle", bundle=FIRST)
    lookup = world.command("assign_bundle", bundle=FIRST)
    world.run(12_000)
    assert told(world, unload) == ["accepted", "done"]
    assert told(world, lookup) == ["accepted", "accepted", "done"]
    assert states(world) == {"Free": 3, "Owned": 1}


def test_override_gives_a_bundle_away_by_force() -> None:
    world = running()
    had, target = owner(world, FIRST), other(world, FIRST)
    world.pause(had, is_paused=True)
    command_id = world.command("override_bundle", bundle=FIRST, destination=target)
    world.run(6_000)
    assert told(world, command_id) == ["accepted", "done"]
    assert owner(world, FIRST) == target
    (forced,) = [row for row in world.events if row["is_forced"]]
    assert (forced["state"], forced["command_id"]) == ("Assigning", command_id)


def test_outcomes_survive_a_restart_and_a_rebuild_of_the_job() -> None:
    world = running()
    world.pause(owner(world, FIRST), is_paused=True)
    moved = send(world, "unload_bundle", timeout_ms=60_000, bundle=FIRST)
    deleted = world.command("create_namespace", namespace="t/m", bundles=1)
    world.run(3_000)
    assert told(world, moved) == ["accepted"]
    world.restart_job()
    assert world.state is not None
    waiting = dict(world.state.waiting)
    world.rebuild_job()
    assert world.state is not None
    assert {**waiting, moved: None} == {**world.state.waiting, moved: None}
    assert world.state.waiting[moved].moving == waiting[moved].moving
    assert world.state.waiting[moved].deadline_ms == waiting[moved].deadline_ms
    for broker in world.brokers:
        world.pause(broker, is_paused=False)
    world.run(20_000)
    assert told(world, moved) == ["accepted", "done"]
    assert told(world, deleted) == ["done"]


def test_answers_that_change_nothing_are_counted_by_reason() -> None:
    world = running()
    had = Instance(broker=owner(world, FIRST), incarnation=f"{owner(world, FIRST)}/1")
    (row,) = [row for row in world.newest() if row["bundle"] == FIRST]
    version = int(str(row["version_id"]))
    forger = other(world, FIRST)
    cases = (
        (had.broker, version - 2, AckOutcome.OPENED, "late"),
        (had.broker, version - 1, AckOutcome.OPENED, "repeated"),
        (had.broker, version + 1, AckOutcome.CLOSED, "out_of_order"),
        (forger, version, AckOutcome.FAILED, "forged"),
        (had.broker, version, AckOutcome.CLOSED, "wrong_outcome"),
    )
    before = len(world.events)
    for number, (broker, version_id, outcome, _) in enumerate(cases):
        envelope = Envelope(
            cluster=CLUSTER,
            broker=broker,
            incarnation=f"{broker}/1",
            seq=1_000 + number,
            reported_at_ms=0,
        )
        ack = Ack(bundle=FIRST, version_id=version_id, outcome=outcome)
        world.append(Acks(envelope=envelope, acks=(ack,)))
    world.run(2_000)
    assert len(world.events) == before
    counts: dict[str, int] = {}
    for report in world.reports:
        found = report["counts"]
        assert isinstance(found, dict)
        for name, count in found.items():
            counts[name] = counts.get(name, 0) + count
    for *_, reason in cases:
        assert counts[f"ack_refused:{reason}"] == 1


def test_assign_of_a_pinned_bundle_goes_to_its_pin_and_nowhere_else() -> None:
    config = with_dynamic(Config(), {"ownership.assign": "on_demand"})
    world = running(config)
    pinned, another = sorted(world.brokers)[:2]
    world.command("pin_bundle", bundle=FIRST, broker=pinned)
    elsewhere = world.command("assign_bundle", bundle=FIRST, destination=another)
    world.run(3_000)
    assert told(world, elsewhere) == ["refused"]
    assert "unpin" in rows(world, elsewhere)[0]["reason"]
    there = world.command("assign_bundle", bundle=FIRST)
    world.run(5_000)
    assert rows(world, there)[-1]["result"]["owner"] == pinned == owner(world, FIRST)


def test_deletion_ends_with_the_namespace_also_when_the_job_is_rebuilt_in_between() -> None:
    world = running()
    had = owner(world, FIRST)
    world.pause(had, is_paused=True)
    command_id = send(world, "delete_namespace", timeout_ms=120_000, namespace="t/n")
    world.run(3_000)
    assert "Releasing" in states(world)
    world.rebuild_job()
    assert world.state is not None
    assert world.state.waiting[command_id].moving == {}
    world.pause(had, is_paused=False)
    while told(world, command_id)[-1] == "accepted":
        world.run(500)
    assert states(world) == {"Deleted": 4}
    assert rows(world, command_id)[-1]["result"]["bundles"] == 4


ID = "one-id"
FIRST_OF_REUSED_IDS: dict[str, Any] = {
    "kind": "create_namespace",
    "arguments": {"namespace": "t/n", "bundles": 4},
    "principal": "ada",
}
OTHERS = {
    "another kind": {"kind": "delete_namespace", "arguments": {"namespace": "t/n"}},
    "other arguments": {"arguments": {"namespace": "t/other", "bundles": 4}},
    "another principal": {"principal": "eve"},
}
AGAIN: dict[str, Callable[[CheckedWorld], object]] = {
    "at once": lambda _: None,
    "after a restart": lambda world: world.restart_job(),
    "after a rebuild": lambda world: world.rebuild_job(),
}


@copied
def world_with_one() -> CheckedWorld:
    world = CheckedWorld(Config(), 3, seed=5)
    world.run(3_000)
    send_reused_ids(world)
    world.run(5_000)
    return world


def send_reused_ids(world: World, command_id: str = ID, **changed: Any) -> None:
    world.append(
        Command(cluster=CLUSTER, command_id=command_id, **{**FIRST_OF_REUSED_IDS, **changed})
    )


def counted(world: World, name: str) -> int:
    rows = [dict(row) for row in world.other_rows["commands"] if row["command_id"] == name]
    return len(rows)


@pytest.mark.parametrize("when", AGAIN)
@pytest.mark.parametrize("what", OTHERS)
def test_another_command_under_a_used_id_does_nothing(what: str, when: str) -> None:
    world = world_with_one()
    AGAIN[when](world)
    before = world.newest()
    assert world.state is not None
    namespaces, remembered = world.state.namespaces, world.state.commands
    send_reused_ids(world, **OTHERS[what])
    world.run(5_000)
    assert world.newest() == before
    assert world.state.namespaces == namespaces
    assert world.state.commands == remembered
    assert counted(world, ID) == 1


def test_command_that_waits_keeps_its_id_for_itself() -> None:
    world = world_with_one()
    bundle = str(world.newest()[0]["bundle"])
    for broker in world.brokers:
        world.pause(broker, is_paused=True)
    moving = {"kind": "unload_bundle", "arguments": {"bundle": bundle}}
    send_reused_ids(world, "moving", **moving)
    world.run(1_000)
    assert world.state is not None
    waiting = world.state.waiting["moving"]
    send_reused_ids(world, "moving", kind="pause", arguments={})
    send_reused_ids(world, "moving", **moving, principal="eve")
    send_reused_ids(world, "moving", **moving)
    world.reports.clear()
    world.run(1_000)
    assert world.state.waiting["moving"] == waiting
    for name, count in (("reused_command_id", 2), ("repeated_command", 1)):
        assert sum(report["counts"].get(name, 0) for report in world.reports) == count, name


def test_two_commands_in_one_batch_under_one_id_are_the_first_alone() -> None:
    world = world_with_one()
    bundle = str(world.newest()[0]["bundle"])
    send_reused_ids(world, "both", kind="assign_bundle", arguments={"bundle": bundle})
    send_reused_ids(
        world, "both", kind="create_namespace", arguments={"namespace": "t/b", "bundles": 1}
    )
    send_reused_ids(world, "both", kind="assign_bundle", arguments={"bundle": bundle})
    world.run(5_000)
    assert world.state is not None
    assert "t/b" not in world.state.namespaces
    kinds = {row["kind"] for row in world.other_rows["commands"] if row["command_id"] == "both"}
    assert kinds == {"assign_bundle"}


_CARRIED_OUT_MS = 30_000


def answers(world: RecordedWorld, command_id: str) -> list[tuple[object, object, object]]:
    """What the tables were told of a command, one after another."""
    found = [row for row in world.other_rows["commands"] if row["command_id"] == command_id]
    return [(row["status"], row["reason"], row["result"]) for row in found]


@pytest.mark.parametrize("kind", sorted(CASES))
def test_command_that_was_carried_out_is_not_done_again(kind: str) -> None:
    world = prepared(CASES[kind])
    command_id = world.command(kind, **CASES[kind].arguments)
    until_ms = world.now_ms + _CARRIED_OUT_MS
    world.run(2_000)
    while not (answers(world, command_id)[-1][0] == "done" and is_settled(world)):
        if world.now_ms >= until_ms:
            break
        world.run(1_000)
    assert is_carried_out(world, command_id)
    told = answers(world, command_id)
    assert told[-1][0] == "done"
    world.rebuild_job()
    assert world.state is not None
    before, events = promised(world.state), len(world.events)
    again = Command(
        cluster=CLUSTER, command_id=command_id, kind=kind, arguments=CASES[kind].arguments
    )
    world.append(again)
    batches = len(world.batches)
    world.run(500)
    assert len(world.batches) > batches, "the first batch after the rebuild"
    assert answers(world, command_id) == told
    assert len(world.events) == events
    after = promised(world.state)
    for name in ("records", "rules", "settings", "created", "commands", "waiting"):
        assert after[name] == before[name], name
    assert status_of(world.state.commands[command_id]) == "done"
