"""Faults, own strategies, late workers and many scorer groups in the job on a real stack."""

import json
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
from tests.integration import planted, slow_worker
from tests.integration.planted.sitecustomize import COMMAND, MESSAGE, PHASE, POISON, ROW
from tests.integration.stack import ROOT, Cluster, Stack, running_stack

ITEMS = {"take_messages", "take_commands", "sink_row"}
CLUSTER = Cluster(brokers=3, namespaces={"demo/one": ("crc32", 6), "demo/two": ("crc32", 6)})


class PlantedStack(Stack):
    """A stack whose job has faults in it, while `plant` says so."""

    def environment(self, role: str) -> dict[str, str]:
        if role != "job":
            return {}
        (self.folder / "planted").mkdir(exist_ok=True)
        path = f"{Path(planted.__file__).parent}:{ROOT}"
        return {"PYTHONPATH": path, "BALLAST_TEST_PLANTED": str(self.folder / "planted")}

    def plant(self, *names: str) -> None:
        for name in names:
            (self.folder / "planted" / name).touch()

    def send(self, *messages: Command | AuditEntry) -> None:
        sender = Sender(self.address("operator"), "test-planted")
        for message in messages:
            topic, key, value = format_message(message)
            sender.send(topic, key.decode(), value)
        sender.close(timeout_ms=10_000)

    def start_again(self) -> None:
        """Start the job; its metrics are at a port of now."""
        self.metrics_file("job").unlink(missing_ok=True)
        self.start_job()

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


CLUSTER_OF_LATE_WORKER = Cluster(brokers=2, namespaces={"demo/one": ("crc32", 4)})


class BusyStack(Stack):
    """A stack whose job's first worker takes longer than Spark waits."""

    @property
    def told(self) -> Path:
        return self.folder / "was-late"

    def environment(self, role: str) -> dict[str, str]:
        path = f"{Path(slow_worker.__file__).parent}:{ROOT}"
        return (
            {"PYTHONPATH": path, "BALLAST_TEST_WAS_LATE": str(self.told)} if role == "job" else {}
        )


@pytest.mark.long
def test_job_whose_worker_came_too_late_begins_again_and_serves(tmp_path: Path) -> None:
    with running_stack(tmp_path, CLUSTER_OF_LATE_WORKER, kind=BusyStack) as stack:
        assert isinstance(stack, BusyStack)
        assert stack.told.exists()
        assert stack.stop("job") == 0
        said = (tmp_path / "job.log").read_text()
        assert "Spark's Python worker did not start within 10 s (1 of 6 tries)" in said


OVERLAY = """\
[shedding]
strategy = "turning:decide"

[placement]
strategy = "least_long_term_message_rate"
"""
CODE = '''\
from ballast import Proposal, ProposedMove

STEP = {step}


def decide(snapshot, state, config, now_ms):
    """Every cycle one bundle that may move goes to the broker STEP further on."""
    names, bundles = snapshot.brokers.names, snapshot.bundles
    rows = bundles.can_move.nonzero()[0].tolist()
    if not rows:
        return Proposal(), state
    to = names[(int(bundles.owner[rows[0]]) + STEP) % len(names)]
    return Proposal(moves=(ProposedMove(bundle=bundles.names[rows[0]], destination=to),)), state
'''


class WithOwnCode(Stack):
    """A stack whose job finds the modules of the test's folder."""

    def environment(self, role: str) -> Mapping[str, str]:
        del role
        return {"PYTHONPATH": f"{self.folder}:{ROOT}"}


def codes_of_moves(stack: Stack) -> set[str]:
    """Which code the rows of decisions name, for what it has moved."""
    rows = [row for row in stack.rows("decisions") if row["strategy"] == "turning:decide"]
    inputs: list[dict[str, Any]] = [
        json.loads(row["inputs"]) for row in rows if row["kind"] == "transfer"
    ]
    return {one["code"] for one in inputs}


def reasons_of_rebuilds(stack: Stack) -> list[str]:
    return [one["rebuilt_because"] for one in stack.lines("job", "start")]


@pytest.mark.long
def test_changed_code_of_an_own_strategy_decides_from_the_next_start_on(tmp_path: Path) -> None:
    (tmp_path / "turning.py").write_text(CODE.format(step=1))
    (tmp_path / "mine.toml").write_text(OVERLAY)
    overlays = ("test", str(tmp_path / "mine.toml"))
    cluster = Cluster(brokers=3, namespaces={"demo/one": ("crc32", 12)}, overlays=overlays)
    with running_stack(tmp_path, cluster, kind=WithOwnCode) as stack:
        stack.wait("a move by the first code", lambda: codes_of_moves(stack))
        (first,) = codes_of_moves(stack)
        assert first.startswith("turning:decide@")
        assert stack.stop("job") == 0
        stack.start_job()
        stack.wait_for_batches(2)
        assert reasons_of_rebuilds(stack)[1:] == [""]  # the same code goes on from the checkpoint
        assert stack.stop("job") == 0
        (tmp_path / "turning.py").write_text(CODE.format(step=2))
        records = {row["bundle"]: row["version_id"] for row in stack.rows("bundle_ownership")}
        stack.start_job()
        stack.wait("a move by the other code", lambda: len(codes_of_moves(stack)) > 1)
        # the job ended in order: no batch is half written by the other code
        assert reasons_of_rebuilds(stack)[1:] == ["", ""]
        now = {row["bundle"]: row["version_id"] for row in stack.rows("bundle_ownership")}
        assert now.keys() == records.keys()
        assert all(now[bundle] >= version for bundle, version in records.items())


SETTINGS = ("shedding.is_balancing=false", "splitting.enabled=false")
NAMESPACES = {"demo/one": ("crc32", 16), "demo/two": ("murmur3_32", 16)}


@pytest.mark.long
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_topics_of_every_bundle_are_known_on_the_real_stack(tmp_path: Path, groups: int) -> None:
    cluster = Cluster(
        namespaces=NAMESPACES,
        settings=(*SETTINGS, f"pipeline.scorer_groups={groups}"),
        fleet=("--topics-per-read", "100"),
    )
    with running_stack(tmp_path, cluster) as stack:

        def are_known() -> bool:
            return stack.metric("ballast_bundles_with_topics") == cluster.bundles

        stack.wait("the topics of every bundle", are_known)
        assert stack.metric("ballast_topic_reports_total", 'result="taken"') > 0
        assert not stack.rows("rejected_reports")
