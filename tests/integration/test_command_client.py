"""Commands on the real Kafka and Delta tables: sent for good, waited for, never pretended."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace

import pytest
from deltalake import DeltaTable

from jobs.adapters.delta.table_log import commits_from, newest_version
from jobs.adapters.delta.table_scan import read_file
from jobs.adapters.delta.tables import table_path
from jobs.adapters.kafka import command_client
from jobs.adapters.kafka.clients import Delivered, KafkaAddress, Tail
from jobs.adapters.kafka.command_client import (
    NEVER,
    CommandClient,
    CommandOutcome,
    NoOutcome,
    OutcomeFollower,
    new_command,
    writer_silent_ms,
)
from jobs.adapters.processes.preflight import free_ports
from jobs.console import CommandError, MisuseError
from lbcore.balancer.waiting import identity_of
from lbcore.model.tables import COMMANDS, OWNERSHIP_EVENTS
from lbcore.wire.kinds.balancing_commands import Pause
from lbcore.wire.kinds.bundle_commands import UnpinBundle
from lbcore.wire.kinds.namespace_commands import CreateNamespace
from lbcore.wire.messages import Command, Topic
from lbcore.wire.parse import parse
from tests.support.processes.kafka_cluster import KafkaNode
from tests.support.tables.commands_table import CLUSTER, CommandsTable
from tests.support.values.wire_messages import RULES


@pytest.fixture
def table(tmp_path: Path) -> CommandsTable:
    return CommandsTable(tmp_path)


@pytest.fixture
def client(kafka: KafkaNode, table: CommandsTable) -> Iterator[CommandClient]:
    with CommandClient(KafkaAddress(bootstrap=kafka.bootstrap), table.root, CLUSTER) as made:
        yield made


def sent_commands(kafka: KafkaNode) -> dict[str, Command]:
    tail = Tail(KafkaAddress(bootstrap=kafka.bootstrap), Topic.COMMANDS, "test")
    found: dict[str, Command] = {}
    while not tail.read_to_end(10_000):
        for one in tail.poll(200):
            command = parse(Topic.COMMANDS, one.key.encode(), one.value, RULES)
            assert isinstance(command, Command)
            found[command.command_id] = command
    tail.close()
    return found


def test_client_sends_what_the_job_reads(kafka: KafkaNode, client: CommandClient) -> None:
    command = new_command(CLUSTER, Pause(reason="three o'clock"), timeout_ms=5_000)
    client.forget(client.send(command))
    found = sent_commands(kafka)[command.command_id]
    assert found == command
    assert (found.kind, found.arguments) == ("pause", {"reason": "three o'clock"})
    assert "@" in found.principal
    assert found.timeout_ms == 5_000


def test_client_waits_for_the_final_outcome(client: CommandClient, table: CommandsTable) -> None:
    command = new_command(CLUSTER, Pause(), command_id="final")
    ticket = client.send(command)
    table.add("final", "accepted", 1, kind=command.kind, principal=command.principal)
    table.add("final", "done", 2, kind=command.kind, principal=command.principal)
    outcome = client.wait(ticket, 30_000)
    assert isinstance(outcome, CommandOutcome)
    assert outcome.status == "done"


def test_client_without_outcome_says_how_long_the_job_is_silent(
    client: CommandClient, table: CommandsTable
) -> None:
    first = client.wait(client.send(new_command(CLUSTER, Pause())), 10)
    assert isinstance(first, NoOutcome)
    assert (first.writer_silent_ms, first.accepted) == (NEVER, None)
    assert first.is_job_away(10_000)
    table.beat(silent_ms=1_000)
    second = client.wait(client.send(new_command(CLUSTER, Pause())), 10)
    assert isinstance(second, NoOutcome)
    assert not second.is_job_away(1_000_000)


@pytest.mark.parametrize("wrong", ["client", "kafka"])
@pytest.mark.parametrize("ahead_ms", [-3_600_000, -40_000, 5_000, 40_000, 3_600_000])
def test_one_wrong_clock_does_not_decide_whether_the_job_is_away(
    table: CommandsTable, ahead_ms: int, wrong: str
) -> None:
    for silent_ms in (1_000, 7_200_000):
        table.beat(silent_ms)
        now_ms = time.time_ns() // 1_000_000  # after the batch, which is no younger then
        clocks_ms = [now_ms + ahead_ms * (wrong == one) for one in ("client", "kafka")]
        version = newest_version(table_path(table.root, OWNERSHIP_EVENTS.name))
        for known, age_ms in ((-1, 30_000), (version, min(silent_ms, 30_000))):
            found_ms = writer_silent_ms(
                table.root, clocks_ms, known_version=known, known_age_ms=age_ms
            )
            outcome = NoOutcome(
                command_id="c", waited_ms=30_000, accepted=None, writer_silent_ms=found_ms
            )
            assert outcome.is_job_away(10_000) == (silent_ms > 20_000), (known, age_ms, found_ms)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_client_by_a_wrong_clock_says_rightly_whether_the_job_is_away(
    client: CommandClient, table: CommandsTable, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    own_ns = time.time_ns
    for silent_ms in (1_800_000, 1_000):
        monkeypatch.setattr(time, "time_ns", own_ns)
        table.beat(silent_ms)
        monkeypatch.setattr(time, "time_ns", lambda: own_ns() + ahead_ms * 1_000_000)
        ticket = client.send(new_command(CLUSTER, Pause()))
        told_ms = client.writer_silent_ms()
        outcome = client.wait(ticket, 10)
        assert isinstance(outcome, NoOutcome)
        assert outcome.is_job_away(60_000) == (silent_ms > 60_000), outcome
        assert told_ms <= outcome.writer_silent_ms < told_ms + 60_000


def test_client_serves_asyncio_with_many_commands_at_once(
    client: CommandClient, table: CommandsTable
) -> None:
    async def one(number: int) -> str:
        command = new_command(CLUSTER, Pause(), command_id=f"many-{number}")
        ticket = await asyncio.to_thread(client.send, command)
        table.add(command.command_id, "done")
        return (await asyncio.wait_for(asyncio.wrap_future(ticket.final), 30)).command_id

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*map(one, range(10)))

    assert asyncio.run(all_of_them()) == [f"many-{number}" for number in range(10)]


def test_client_without_kafka_is_an_error_in_three_parts(table: CommandsTable) -> None:
    address = KafkaAddress(
        bootstrap=f"127.0.0.1:{free_ports(1)[0]}", security={"bootstrap_timeout_ms": 500}
    )
    with (
        CommandClient(address, table.root, CLUSTER) as client,
        pytest.raises(CommandError, match="can't be reached"),
    ):
        client.send(new_command(CLUSTER, Pause()))


def test_client_that_cannot_read_the_tables_leaves_no_watch_behind(
    table: CommandsTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower would look for a command that was never sent, ten times a second."""

    def fail(_: object) -> None:
        raise OSError("away")

    sender = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(command_client, "Sender", lambda *_, **__: sender)
    monkeypatch.setattr(command_client, "newest_version", fail)
    before = threading.active_count()
    with CommandClient(KafkaAddress(bootstrap="nowhere:1"), table.root, CLUSTER) as client:
        with pytest.raises(OSError, match="away"):
            client.send(new_command(CLUSTER, Pause()))
        assert threading.active_count() == before


@pytest.mark.parametrize("is_accepted", [False, True])
def test_client_that_can_not_read_the_tables_any_more_gives_no_outcome(
    table: CommandsTable, monkeypatch: pytest.MonkeyPatch, *, is_accepted: bool
) -> None:
    found = Delivered(partition=0, offset=0, timestamp_ms=0)
    sender = SimpleNamespace(send=lambda *_, on_delivery: on_delivery(found), close=lambda: None)
    monkeypatch.setattr(command_client, "Sender", lambda *_, **__: sender)
    with CommandClient(KafkaAddress(bootstrap="nowhere:1"), table.root, CLUSTER) as client:
        command = new_command(CLUSTER, Pause(), command_id="unread")
        ticket = client.send(command)
        if is_accepted:
            table.add("unread", "accepted", kind=command.kind, principal=command.principal)
            ticket.first.result(30)
        log = table_path(table.root, OWNERSHIP_EVENTS.name) / "_delta_log"
        log.rename(log.with_name("away"))
        (log / f"{0:020d}.json").mkdir(parents=True)  # a file that can't be read, for root as well
        outcome = client.wait(ticket, 10)
    assert isinstance(outcome, NoOutcome)
    assert (outcome.accepted is not None) is is_accepted
    assert "IsADirectoryError" in outcome.unread
    assert not outcome.is_job_away(10_000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (CreateNamespace(namespace="no-slash"), "namespace"),
        (UnpinBundle(bundle="acme/a/0x0"), "bundle"),
    ],
)
def test_command_that_can_never_be_carried_out_is_misuse(
    arguments: CreateNamespace | UnpinBundle, words: str
) -> None:
    with pytest.raises(MisuseError) as raised:
        new_command(CLUSTER, arguments)
    assert words in raised.value.why


_WAIT_S = 60.0


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[OutcomeFollower]:
    made = OutcomeFollower(tmp_path, CLUSTER, poll_ms=10)
    yield made
    made.close()


def test_outcome_that_comes_later_is_told_first_accepted_then_done_over_a_compaction(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    watch = follower.watch("a")
    table.add("b", "done")
    table.add("a", "accepted", 5)
    first = watch.first.result(_WAIT_S)
    assert (first.status, first.is_final, watch.final.done()) == ("accepted", False, False)
    DeltaTable(str(table.root / "commands")).optimize.compact()
    table.add("a", "done", 9, result={"children": ["x"]})
    final = watch.final.result(_WAIT_S)
    assert (final.status, final.at_ms, final.result) == ("done", 9, {"children": ["x"]})
    assert watch.first.result().status == "accepted"


def test_file_that_a_merge_has_written_can_be_read_alone(table: CommandsTable) -> None:
    table.add("a", "accepted")
    table.add("a", "done", cluster="other")
    folder = table_path(table.root, COMMANDS.name)
    files = [name for commit in commits_from(folder, 1) for name in commit.added]
    assert [len(read_file(folder / name, ("status",), CLUSTER)) for name in files] == [1, 0]


def test_outcome_that_was_there_before_is_told_at_once(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    table.add("it's", "accepted", 1)
    table.add("it's", "refused", 2, reason="it's gone")
    table.add("it's", "done", 3, cluster="other")
    final = follower.watch("it's").final.result(_WAIT_S)
    assert (final.status, final.reason) == ("refused", "it's gone")


def test_outcomes_of_many_waiters_come_from_one_follower(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    watches = [follower.watch(f"c{number % 20}") for number in range(60)]
    for number in range(20):
        table.add(f"c{number}", "done", number)
    assert not wait([watch.final for watch in watches], _WAIT_S).not_done
    assert [watch.final.result().command_id for watch in watches] == [
        f"c{number % 20}" for number in range(60)
    ]
    assert sum(thread.name == "ballast-outcomes" for thread in threading.enumerate()) == 1


def test_outcome_is_told_though_the_tables_are_made_later(tmp_path: Path) -> None:
    follower = OutcomeFollower(tmp_path / "late", CLUSTER, poll_ms=10)
    watch = follower.watch("a")
    CommandsTable(tmp_path / "late").add("a", "done")
    assert watch.final.result(_WAIT_S).status == "done"
    follower.close()


def test_watch_that_is_forgotten_is_cancelled_and_others_go_on(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    gone, stays = follower.watch("a"), follower.watch("a")
    follower.forget(gone)
    table.add("a", "done")
    assert stays.final.result(_WAIT_S).status == "done"
    assert gone.final.cancelled()
    follower.forget(stays)
    assert follower.watch("a").final.result(_WAIT_S).status == "done", "after a rest"


def test_writer_silence_is_the_time_since_its_last_commit(
    table: CommandsTable, tmp_path: Path
) -> None:
    now_ms, hour_ms = time.time_ns() // 1_000_000, 3_600_000
    for nowhere in (tmp_path / "nowhere", table.root):
        assert writer_silent_ms(nowhere, [now_ms], known_version=-1, known_age_ms=0) == NEVER
    table.beat(silent_ms=hour_ms)
    assert (
        0
        <= hour_ms - writer_silent_ms(table.root, [now_ms], known_version=-1, known_age_ms=0)
        < 60_000
    )


def test_outcome_that_cannot_be_read_keeps_no_other_from_being_told(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    table.add("b", "done", 1, raw_result="{no JSON")
    bad, watch = follower.watch("b"), follower.watch("a")
    table.add("c", "done", 1, raw_result="[")
    worse = follower.watch("c")
    table.add("a", "done", 2)
    assert watch.final.result(_WAIT_S).status == "done"
    assert not bad.final.done()
    assert not worse.final.done()


def test_who_comes_with_another_command_under_a_used_id_is_told_that_and_nothing_more(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    words = {"kind": "pause", "arguments": '{"reason":"x"}', "principal": "ada"}
    same = identity_of("pause", {"reason": "x"}, "ada")
    others = [
        identity_of("resume", {"reason": "x"}, "ada"),
        identity_of("pause", {"reason": "y"}, "ada"),
        identity_of("pause", {"reason": "x"}, "eve"),
    ]
    early = [follower.watch("a", asked) for asked in (same, *others)]
    table.add("a", "done", result={"secret": 1}, **words)
    late = [follower.watch("a", asked) for asked in (same, *others)]
    for first, *rest in (early, late):
        assert first.final.result(_WAIT_S).result == {"secret": 1}
        for watch in rest:
            told = watch.final.result(_WAIT_S)
            assert (told.status, told.result, told.kind) == ("refused", {}, "")
            assert "was used before" in told.reason
