"""The line to the balancer: how long a command is waited for, and that no audit entry is lost."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.clients import Delivered, KafkaAddress, NotDelivered
from jobs.adapters.kafka.command_client import CommandOutcome, OutcomeWatch
from jobs.console import CommandError, MisuseError
from jobs.service import context
from jobs.service.access_control import ServiceCounts
from jobs.service.context import KafkaPort
from jobs.service.exchange import HttpError
from lbcore.wire.messages import AuditEntry, Command

ENTRY = AuditEntry(
    cluster="c1", principal="ada", address="10.0.0.1", action="PUT /x", is_allowed=True
)


class FakeSender:
    """Takes messages, after as many refusals as were set."""

    refusals = 0
    taken: tuple[bytes | None, ...] = ()

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def send(self, _topic: object, _key: str, value: bytes, *, on_delivery: Any) -> None:
        if FakeSender.refusals:
            FakeSender.refusals -= 1
            on_delivery(NotDelivered(topic="audit", reason="Kafka is away"))
            return
        FakeSender.taken += (value,)
        on_delivery(Delivered(partition=0, offset=0, timestamp_ms=0))

    def close(self, _timeout_ms: int = 0) -> None:
        pass


class FakeClient:
    """Remembers what was sent; a test tells the outcome."""

    def __init__(self) -> None:
        self.tickets: list[OutcomeWatch] = []
        self.forgotten = 0
        self.error: CommandError | None = None

    def send(self, command: Command) -> OutcomeWatch:
        if self.error is not None:
            raise self.error
        self.tickets.append(OutcomeWatch(command_id=command.command_id))
        return self.tickets[-1]

    def forget(self, _ticket: OutcomeWatch) -> None:
        self.forgotten += 1

    def close(self) -> None:
        pass


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def port(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaPort]:
    monkeypatch.setattr(context, "Sender", FakeSender)
    monkeypatch.setattr(context, "CommandClient", lambda *_, **__: client)
    monkeypatch.setattr(context, "_RETRY_S", 0.01)
    monkeypatch.setattr(context, "_GRACE_S", 0.0)
    FakeSender.refusals, FakeSender.taken = 0, ()
    address = KafkaAddress(bootstrap="nowhere:1")
    made = KafkaPort(address, Path("nowhere"), "c1", waiting_max=1, counts=ServiceCounts())
    yield made
    made.close()


def command(timeout_ms: int = 20_000) -> Command:
    return Command(cluster="c1", command_id="c", kind="pause", arguments={}, timeout_ms=timeout_ms)


def row(status: str) -> CommandOutcome:
    return CommandOutcome(
        command_id="c", kind="pause", status=status, reason="", result={}, at_ms=1
    )


def until(is_reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1_000):
        if is_reached():
            return
        pause.wait(0.005)
    raise AssertionError


async def sent(client: FakeClient) -> OutcomeWatch:
    for _ in range(1_000):
        if client.tickets:
            return client.tickets[-1]
        await asyncio.sleep(0.005)
    raise AssertionError


def test_entry_that_kafka_does_not_take_is_sent_again(port: KafkaPort) -> None:
    FakeSender.refusals = 3
    port.record(ENTRY)
    until(lambda: len(FakeSender.taken) == 1)
    assert b'"ada"' in (FakeSender.taken[0] or b"")
    assert port.counts.dropped == 0


def test_command_is_answered_with_its_end(port: KafkaPort, client: FakeClient) -> None:
    async def run() -> Any:
        asking = asyncio.ensure_future(port.ask(command(), 20_000))
        ticket = await sent(client)
        ticket.notify(row("accepted"))
        with pytest.raises(HttpError, match="Too many commands"):
            await port.ask(command(), 20_000)
        ticket.notify(row("done"))
        return await asyncio.wait_for(asking, 5)

    assert asyncio.run(run()).status == "done"
    assert client.forgotten == 1


@pytest.mark.parametrize("is_taken_up", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_command_without_an_end_is_answered_with_what_is_known(
    port: KafkaPort, client: FakeClient, *, is_taken_up: bool, ends: bool
) -> None:
    async def run() -> Any:
        wait_ms = 20_000 if ends else 200
        asking = asyncio.ensure_future(port.ask(command(wait_ms), wait_ms))
        ticket = await sent(client)
        if is_taken_up:
            ticket.notify(row("accepted"))
        if ends:
            port.end_waits()
        return await asyncio.wait_for(asking, 5)

    outcome = asyncio.run(run())
    assert (outcome is not None) == is_taken_up
    assert outcome is None or outcome.status == "accepted"


def test_command_that_kafka_does_not_take_is_503_with_its_id(
    port: KafkaPort, client: FakeClient
) -> None:
    client.error = CommandError("not sent", why="secret=hunter2", next_step="")
    with pytest.raises(HttpError, match="command c") as raised:
        asyncio.run(port.ask(command(), 20_000))
    assert raised.value.status == 503
    assert "hunter2" not in raised.value.reason


def test_command_that_is_too_long_is_refused_for_good(port: KafkaPort, client: FakeClient) -> None:
    client.error = MisuseError("the command set_policies is too long", why="N bytes", next_step="")
    with pytest.raises(HttpError, match="too long: N bytes") as raised:
        asyncio.run(port.ask(command(), 20_000))
    assert raised.value.status == 413
