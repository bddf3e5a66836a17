"""Faults planted in the streaming job on the real stack: put aside, told, and the same ever after.

One story: a message, a command, a row and a phase raise in one batch, cut off and repeated;
the job is killed and comes back from its checkpoint, and then from the tables, of which it can't
read a row either.
"""

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.adapters.kafka.clients import Sender
from jobs.cli import main as ballast
from lbcore.model.tables import BUNDLE_OWNERSHIP
from lbcore.wire.format import format_message
from lbcore.wire.messages import AuditEntry, Command
from tests.integration import planted
from tests.integration.planted.sitecustomize import COMMAND, MESSAGE, PHASE, POISON, ROW
from tests.integration.stack import ROOT, Cluster, Stack, running_stack

ITEMS = {"take_messages", "take_commands", "sink_row"}
CLUSTER = Cluster(brokers=3, namespaces={"demo/one": ("crc32", 6), "demo/two": ("crc32", 6)})
_LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)


class PlantedStack(Stack):
    """A stack whose job has faults in it, while `plant` says so."""

    def environment(self, role: str) -> dict[str, str]:
        """Faults are in the job alone."""
        if role != "job":
            return {}
        (self.folder / "planted").mkdir(exist_ok=True)
        path = f"{Path(planted.__file__).parent}:{ROOT}"
        return {"PYTHONPATH": path, "BALLAST_TEST_PLANTED": str(self.folder / "planted")}

    def plant(self, *names: str) -> None:
        """From now on these raise."""
        for name in names:
            (self.folder / "planted" / name).touch()

    def send(self, *messages: Command | AuditEntry) -> None:
        """Send to the job, without waiting."""
        sender = Sender(self.address("operator"), "test-planted")
        for message in messages:
            topic, key, value = format_message(message)
            sender.send(topic, key.decode(), value)
        sender.close(timeout_ms=10_000)

    def start_again(self) -> None:
        """Start the job; its metrics are at a port of now."""
        self.metrics_file("job").unlink(missing_ok=True)
        self.start_job()

    def metric(self, name: str, label: str) -> float:
        """A number that the job gives out, of the series with this label."""
        port = self.port(self.metrics_file("job"))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            found = _LINE.findall(answer.read().decode())
        return sum(float(value) for one, labels, value in found if one == name and label in labels)

    def faults(self) -> dict[str, dict[str, Any]]:
        """Phase → what the log says of its last fault."""
        lines = self.lines("job", "fault")
        return {line["phase"]: line for line in lines}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlantedStack]:
    folder = tmp_path_factory.mktemp("planted")
    with running_stack(folder, CLUSTER, kind=PlantedStack) as running:
        assert isinstance(running, PlantedStack)
        yield running


def audit(who: str) -> AuditEntry:
    return AuditEntry(cluster="local", principal=who, address="a", action="x", is_allowed=True)


def command(command_id: str, who: str, kind: str, **arguments: object) -> Command:
    return Command(
        cluster="local",
        command_id=command_id,
        kind=kind,
        arguments=arguments,
        principal=who,
        timeout_ms=600_000,
    )


POISONED = command("poisoned", POISON, "pause", reason="x")
GOOD = command("good", "operator", "create_namespace", namespace="demo/late", bundles=2)


def check_outcome(stack: PlantedStack) -> None:
    """The command has failed, under the number that the log explains, and nothing of it is done."""
    (outcome,) = [row for row in stack.rows("commands") if row["command_id"] == "poisoned"]
    fault = stack.faults()["take_commands"]
    assert outcome["status"] == "failed"
    assert outcome["reason"].startswith(f"internal error {fault['number']}: PlantedError at ")
    assert fault["item"] == "pause poisoned"
    assert "sitecustomize.py" in fault["trace"]
    assert not [row for row in stack.rows("policies") if row["kind"] == "paused"]
    (refused,) = stack.rows("rejected_reports")
    assert (refused["reason"], json.loads(refused["raw"])["principal"]) == (
        "internal_error",
        POISON,
    )
    assert [row["principal"] for row in stack.rows("audit")] == ["good"]
    assert stack.outcome("good") == "done"
    assert len(stack.owners()) == CLUSTER.bundles + 2


def check_phase(stack: PlantedStack, number: str) -> None:
    """The phase is left out of each batch, and that is told."""
    name = f'phase="{PHASE}"'
    stack.wait("the metric", lambda: stack.metric("ballast_faults_total", name) >= 2)
    assert stack.metric("ballast_alarm", 'alarm="faults"') == 1
    assert stack.faults()[PHASE]["number"] == number


def numbers(stack: PlantedStack) -> Mapping[str, str]:
    return {phase: fault["number"] for phase, fault in stack.faults().items()}


@pytest.mark.long
def test_what_raises_is_put_aside_in_a_batch_that_is_cut_off_and_repeated(
    stack: PlantedStack,
) -> None:
    assert stack.stop("job") == 0
    stack.plant(MESSAGE, COMMAND, ROW, PHASE)
    stack.send(audit(POISON), audit(f"row of {POISON}"), audit("good"), POISONED, GOOD)
    stack.arm("events_committed")
    stack.start_again()
    stack.wait_end("job")
    stack.start_again()
    stack.wait("the command beside it", lambda: stack.outcome("good") == "done")
    stack.wait("its bundles", lambda: len(stack.owners()) == CLUSTER.bundles + 2)
    assert ITEMS | {PHASE} == stack.faults().keys()
    check_outcome(stack)
    for phase in ITEMS:
        assert stack.metric("ballast_faults_total", f'phase="{phase}"') == 1, phase
    check_phase(stack, stack.faults()[PHASE]["number"])


@pytest.mark.long
def test_a_job_killed_and_started_from_its_checkpoint_says_the_same(stack: PlantedStack) -> None:
    before = numbers(stack)
    stack.kill("job")
    stack.send(POISONED)
    stack.start_again()
    stack.wait_for_batches(3)
    check_outcome(stack)
    check_phase(stack, before[PHASE])
    assert numbers(stack) == before


@pytest.mark.long
def test_a_rebuild_says_the_same_and_puts_aside_a_row_that_it_cannot_read(
    stack: PlantedStack,
) -> None:
    before = numbers(stack)
    stack.kill("job")
    bundle = min(stack.owners())
    damaged = DeltaTable(str(stack.tables / BUNDLE_OWNERSHIP.name))
    damaged.update({"children": "'{'"}, predicate=f"bundle = '{bundle}'")
    assert ballast(["state", "rebuild", "--state-dir", str(stack.folder / "job"), "--yes"]) == 0
    stack.send(POISONED)
    stack.start_again()
    stack.wait_for_batches(3)
    check_outcome(stack)
    check_phase(stack, before[PHASE])
    found = stack.faults()
    assert numbers(stack) == before | {"rebuild_rows": found["rebuild_rows"]["number"]}
    assert found["rebuild_rows"]["item"] == f"{BUNDLE_OWNERSHIP.name} {bundle}"
    assert stack.metric("ballast_faults_total", 'phase="rebuild_rows"') == 1
    owners, served = stack.owners(), stack.served()
    assert {name: served[name] for name in owners} == {name: [who] for name, who in owners.items()}
    (stack.folder / "planted" / PHASE).unlink()
    stack.wait("the alarm to end", lambda: not stack.metric("ballast_alarm", 'alarm="faults"'))
