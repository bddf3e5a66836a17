"""Commands too long to be sent, and outcomes that can't be read; Kafka is stood in for."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.adapters.delta.tables import table_path
from jobs.adapters.kafka import command_client
from jobs.adapters.kafka.clients import Delivered, KafkaAddress
from jobs.adapters.kafka.command_client import CommandClient, NoOutcome, new_command
from jobs.console import MisuseError
from lbcore.model.names import Wire
from lbcore.model.tables import COMMANDS
from lbcore.wire.format import format_message
from lbcore.wire.kinds.balancing_commands import Pause
from tests.support.processes.programs import until
from tests.support.tables.commands_table import CLUSTER, CommandsTable


def test_table_of_commands_that_can_not_be_read_is_named_and_the_balancer_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Delivered(partition=0, offset=0, timestamp_ms=0)
    sender = SimpleNamespace(send=lambda *_, on_delivery: on_delivery(found), close=lambda: None)
    monkeypatch.setattr(command_client, "Sender", lambda *_, **__: sender)
    table = CommandsTable(tmp_path)
    table.beat()
    log = table_path(tmp_path, COMMANDS.name) / "_delta_log"
    log.rename(log.with_name("away"))
    (log / f"{0:020d}.json").mkdir(parents=True)  # a file that can't be read, for root as well
    with CommandClient(KafkaAddress(bootstrap="nowhere:1"), tmp_path, CLUSTER) as client:

        def wait() -> NoOutcome:
            outcome = client.wait(client.send(new_command(CLUSTER, Pause())), 100)
            assert isinstance(outcome, NoOutcome)
            return outcome

        until(lambda: wait().unread, 30.0, wait)


@pytest.mark.parametrize(("spare", "is_sent"), [(0, True), (-1, False)])
def test_command_longer_than_the_job_takes_is_a_misuse_and_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, spare: int, is_sent: bool
) -> None:
    found, sent = Delivered(partition=0, offset=0, timestamp_ms=0), []

    def send(_topic: object, _key: str, value: bytes, *, on_delivery: Any) -> None:
        sent.append(value)
        on_delivery(found)

    sender = SimpleNamespace(send=send, close=lambda: None)
    monkeypatch.setattr(command_client, "Sender", lambda *_, **__: sender)
    short = new_command(CLUSTER, Pause())
    room = Wire().max_message_bytes - len(format_message(short)[2]) - spare
    long = replace(short, principal=short.principal + "x" * room)
    refused = nullcontext() if is_sent else pytest.raises(MisuseError, match="is too long")
    with CommandClient(KafkaAddress(bootstrap="nowhere:1"), tmp_path, CLUSTER) as client, refused:
        client.forget(client.send(long))
    assert [len(value) for value in sent] == [Wire().max_message_bytes] * is_sent
