"""The command client against the real Kafka: sent for good, waited for, never pretended."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.delta.table_tail import newest_version
from jobs.adapters.delta.tables import table_path
from jobs.adapters.following.outcome_follower import CommandOutcome
from jobs.adapters.kafka.clients import KafkaAddress, Tail
from jobs.adapters.kafka.command_client import (
    NEVER,
    CommandClient,
    NoOutcome,
    new_command,
    writer_silent_ms,
)
from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka
from jobs.adapters.processes.preflight import free_ports
from jobs.console import CommandError, MisuseError
from lbcore.model.tables import OWNERSHIP_EVENTS
from lbcore.wire.kinds.balancing_commands import Pause
from lbcore.wire.kinds.bundle_commands import UnpinBundle
from lbcore.wire.kinds.namespace_commands import CreateNamespace
from lbcore.wire.messages import Command, Topic
from lbcore.wire.parse import parse
from tests.support.processes.kafka_cluster import running_kafka
from tests.support.tables.commands_table import CLUSTER, CommandsTable
from tests.support.values.wire_messages import RULES


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def table(tmp_path: Path) -> CommandsTable:
    return CommandsTable(tmp_path)


@pytest.fixture
def client(kafka: EmbeddedKafka, table: CommandsTable) -> Iterator[CommandClient]:
    with CommandClient(KafkaAddress(bootstrap=kafka.bootstrap), table.root, CLUSTER) as made:
        yield made


def sent_commands(kafka: EmbeddedKafka) -> dict[str, Command]:
    tail = Tail(KafkaAddress(bootstrap=kafka.bootstrap), Topic.COMMANDS, "test")
    found: dict[str, Command] = {}
    while not tail.read_to_end(10_000):
        for one in tail.poll(200):
            command = parse(Topic.COMMANDS, one.key.encode(), one.value, RULES)
            assert isinstance(command, Command)
            found[command.command_id] = command
    tail.close()
    return found


def test_client_sends_what_the_job_reads(kafka: EmbeddedKafka, client: CommandClient) -> None:
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
    now_ms = time.time_ns() // 1_000_000
    clocks_ms = [now_ms + ahead_ms * (wrong == "client"), now_ms + ahead_ms * (wrong == "kafka")]
    for silent_ms in (1_000, 7_200_000):
        table.beat(silent_ms)
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
