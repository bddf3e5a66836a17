"""Rehearses docs/operate.md on the real stack: upgrade, rollback, backup, restore. One story.

    python -m pytest -m long -s tests/integration/test_upgrades.py

The next version is made of this one's source (`other_versions`). Balancing is paused, so that no
bundle has another reason to move. Figures are printed; none is held against a clock.
"""

import os
import shutil
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.adapters.delta.table_log import newest_version
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.spark.recovery import complete_last_batch
from jobs.cli import main as ballast
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS, TABLES
from tests.integration.other_versions import (
    COLUMN,
    NOTED,
    digest_of,
    make_mended_version,
    make_next_version,
    make_version_before,
)
from tests.integration.replay import wrong_records
from tests.integration.stack import ROOT, Cluster
from tests.integration.versioned_stack import (
    STATE,
    TOPICS,
    VersionedStack,
    gap_ms,
    nobody_notices,
    tell,
)
from tests.support.processes.frozen import freeze_group
from tests.support.processes.kafka_cluster import KafkaNode, make_topics
from tests.support.tables.small_batches import rows

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

# twice conf/test.toml's: a crowded machine may stop a process for three seconds
TIMEOUT_MS = 6_000
CLUSTER = Cluster(settings=(f"ownership.broker_timeout_ms={TIMEOUT_MS}",))
_COPIES = 5


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersionedStack]:
    folder = tmp_path_factory.mktemp("upgrades")
    kafka = KafkaNode(folder / "kafka")
    made = VersionedStack(folder=folder, kafka=kafka, cluster=CLUSTER)
    made.versions["before"] = make_version_before(folder / "before")
    made.versions["next"] = make_next_version(folder / "next")
    made.versions["mended"] = make_mended_version(folder / "mended")
    try:
        kafka.start()
        make_topics(kafka, made.address("operator"))
        made.start_fleet()
        made.start_version("before", "first")
        made.create_namespaces()
        made.wait_settled()
        made.command("quiet", "pause", {})
        made.wait("balancing to be paused", lambda: made.outcome("quiet") == "done")
        made.start_lookup()
        made.wait("the first answer", lambda: made.lookup(TOPICS[0])[0] == 200)
        yield made
    finally:
        made.stop_all()


def test_upgrade_by_handing_over_is_noticed_by_nobody(stack: VersionedStack) -> None:
    """From a checkpoint that an earlier version has laid out otherwise, too."""
    before = stack.code()
    with nobody_notices(stack) as seen:
        stack.stand_by("next", "upgraded")
        assert stack.stop("first") == 0
        assert stack.rebuilt_because("upgraded") == ""
    assert stack.code() == digest_of(stack.versions["next"]) != before
    tell("upgrade", gap_ms=gap_ms(stack, "first", "upgraded"), **seen.figures())


def test_old_agents_and_an_old_lookup_service_work_with_the_new_job(stack: VersionedStack) -> None:
    stack.fleet("/kill/broker-2", "POST")
    stack.wait("broker-2 to own nothing", lambda: "broker-2" not in stack.owners().values())
    stack.wait_settled()
    stack.fleet("/start/broker-2", "POST")
    stack.command("noted", "create_namespace", {"namespace": "demo/noted", "bundles": 1})
    stack.wait("a namespace of the new job", lambda: stack.outcome("noted") == "done")
    notes = {row["namespace"]: row[COLUMN] for row in stack.rows("namespaces")}
    assert notes == {"demo/one": None, "demo/two": None, "demo/noted": NOTED}
    topic = "persistent://demo/noted/topic"
    stack.wait("the old lookup service to know it", lambda: stack.lookup(topic)[0] == 200)
    stack.command("gone", "delete_namespace", {"namespace": "demo/noted"})
    stack.wait("it to be gone again", lambda: len(stack.owners()) == CLUSTER.bundles)
    assert stack.rows("rejected_reports") == []


def test_rollback_past_a_state_schema_is_refused_and_mended_by_a_rebuild(
    stack: VersionedStack, capfd: pytest.CaptureFixture[str]
) -> None:
    with nobody_notices(stack) as seen:
        stack.start_version("this", "refused", "--standby")
        code, words = stack.wait_end("refused")  # while the newer job works
        assert code == 1
        assert "it was written by a newer version of this code" in words
        folder = str(stack.folder / STATE)
        assert f"`ballast state rebuild --state-dir {folder}`" in words
        assert stack.stop("upgraded") == 0
        assert ballast(["state", "rebuild", "--state-dir", folder, "--yes"]) == 0
        capfd.readouterr()
        stack.start_version("this", "back")
        assert stack.rebuilt_because("back") == "no checkpoint yet"
    tell("rollback", gap_ms=gap_ms(stack, "upgraded", "back"), **seen.figures())
    assert stack.code() == digest_of(ROOT)
    stack.command("later", "create_namespace", {"namespace": "demo/later", "bundles": 1})
    stack.wait("a namespace of the old job", lambda: stack.outcome("later") == "done")
    notes = {row["namespace"]: row[COLUMN] for row in stack.rows("namespaces")}
    assert notes["demo/later"] is None
    stack.command("gone-too", "delete_namespace", {"namespace": "demo/later"})
    stack.wait("it to be gone again", lambda: len(stack.owners()) == CLUSTER.bundles)


def test_upgrade_after_a_crash_in_a_batch_rebuilds_and_says_so(stack: VersionedStack) -> None:
    died = stack.died()
    why = _taken_over_after_a_crash(stack, "events_committed", "back", "mended")
    assert why == "a batch was left half written by other code or settings"
    stack.wait_settled()
    assert stack.died() == died
    tell("crash", gap_ms=gap_ms(stack, "back", "mended"))


def _taken_over_after_a_crash(stack: VersionedStack, point: str, old: str, new: str) -> str:
    """Let a job die at a point of a batch; why the next one then rebuilds the state."""
    stack.stand_by("mended", new)
    stack.fleet("/restart/broker-3", "POST")  # so that there is something to decide
    stack.arm(point)
    stack.wait_end(old)
    return stack.rebuilt_because(new)


def test_rollback_by_handing_over_is_noticed_by_nobody(stack: VersionedStack) -> None:
    with nobody_notices(stack) as seen:
        stack.stand_by("this", "older")
        assert stack.stop("mended") == 0
        assert stack.rebuilt_because("older") == ""
    tell("rollback", gap_ms=gap_ms(stack, "mended", "older"), **seen.figures())


def test_snapshot_of_one_moment_while_the_job_writes_is_consistent(stack: VersionedStack) -> None:
    """A stopped process stands for a snapshot: between two of its system calls, anywhere."""
    sizes = []
    for number in range(_COPIES):
        stack.fleet(f"/restart/broker-{1 + number % 2}", "POST")  # so that something is written
        time.sleep(0.9 + 0.17 * number)
        copy = stack.folder / f"snapshot-{number}"
        _snapshot(stack, "older", copy)
        sizes.append(_check_copy(copy))
        stack.wait_settled()
    tell("snapshots", copies=_COPIES, events=sizes)


def _snapshot(stack: VersionedStack, job: str, copy: Path) -> None:
    freeze_group(stack.children[job].pid)
    shutil.copytree(stack.tables, copy)
    os.killpg(stack.children[job].pid, signal.SIGCONT)


def test_snapshot_is_refused_by_the_job_that_wrote_on_after_it(stack: VersionedStack) -> None:
    """Its writer epoch is the checkpoint's: what tells is the commits that the job has seen."""
    copy, events = stack.folder / "same-epoch", OWNERSHIP_EVENTS.name
    _snapshot(stack, "older", copy)
    known = newest_version(copy / events)
    stack.wait("another commit", lambda: newest_version(stack.tables / events) > known)
    stack.wait_for_batches(2, "older")
    assert stack.stop("older") == 0
    stack.start_version("this", "too-soon", "--tables", str(copy))
    code, words = stack.wait_end("too-soon")
    assert code == 1
    assert "they were restored from a backup" in words
    assert f"`ballast state rebuild --restored --state-dir {stack.folder / STATE}`" in words
    stack.start_version("this", "on")
    assert stack.rebuilt_because("on") == ""


def _check_copy(copy: Path) -> int:
    """Every table can be read and written on; the current one has each bundle's newest event."""
    for table in TABLES:
        DeltaTable(str(copy / table.name)).scan().read_all()
    writer = TableWriter(copy)
    writer.claim()
    complete_last_batch(writer)
    events = rows(copy, OWNERSHIP_EVENTS.name)
    assert list(wrong_records(events, rows(copy, BUNDLE_OWNERSHIP.name))) == []
    return len(events)


def test_backup_of_a_stopped_job_and_nobody_is_dead_afterwards(stack: VersionedStack) -> None:
    with nobody_notices(stack) as seen:
        assert stack.stop("on") == 0
        shutil.copytree(stack.tables, stack.folder / "backup")
        time.sleep(2 * TIMEOUT_MS / 1_000)
        stack.start_version("this", "after-backup")
        assert stack.rebuilt_because("after-backup") == ""
    tell("backup", gap_ms=gap_ms(stack, "on", "after-backup"), **seen.figures())


@pytest.mark.parametrize("is_kafka_lost", [False, True], ids=["kafka kept", "kafka empty"])
def test_restore_goes_on_from_the_backup_and_closes_what_came_after_it(
    stack: VersionedStack, *, is_kafka_lost: bool
) -> None:
    before, after = ("restored", "anew") if is_kafka_lost else ("after-backup", "restored")
    _live_on(stack, f"before-{after}")
    _put_back(stack, before)
    if is_kafka_lost:
        _empty_kafka(stack)
        make_topics(stack.kafka, stack.address("operator"))
    kept = rows(stack.folder / "backup", BUNDLE_OWNERSHIP.name)
    live = {row["bundle"] for row in kept if row["state"] != "Deleted"}
    began_ms = int(time.time() * 1_000)
    _start_restored(stack, after, live)
    told = stack.newest_records()
    assert all(told[name].version_id >= began_ms for name in live)
    with nobody_notices(stack):
        stack.wait_for_batches(10, after)


def test_upgrade_after_a_crash_before_anything_was_written_goes_on(stack: VersionedStack) -> None:
    """Nobody has heard of the batch: the new version decides it, over what the old one left."""
    died = stack.died()
    assert _taken_over_after_a_crash(stack, "effects_computed", "anew", "last") == ""
    stack.wait("everything to be served", lambda: _is_settled(stack, len(stack.owners())))
    assert stack.died() == died


def _live_on(stack: VersionedStack, tag: str) -> None:
    """After the backup: a bundle moves, one is split, a namespace is made, a broker restarts."""
    owners = stack.owners()
    moved, split = min(owners), max(owners)
    taker = min(set(owners.values()) - {owners[moved]})
    asked = {
        f"moved-{tag}": ("unload_bundle", {"bundle": moved, "destination": taker}),
        f"halved-{tag}": ("split_bundle", {"bundle": split, "algorithm": "range_equally_divide"}),
        f"new-{tag}": ("create_namespace", {"namespace": f"demo/{tag}", "bundles": 4}),
    }
    for command_id, (kind, arguments) in asked.items():
        stack.command(command_id, kind, arguments)
    for command_id in asked:
        stack.wait(f"{command_id} to end", lambda one=command_id: stack.outcome(one) == "done")
    restarted = "broker-3" if taker == "broker-4" else "broker-4"  # not who has what was moved
    stack.fleet(f"/restart/{restarted}", "POST")
    count = len(owners) + 5
    stack.wait("everything to be served", lambda: _is_settled(stack, count))
    assert stack.owners()[moved] == taker


def _is_settled(stack: VersionedStack, count: int) -> bool:
    owners, served = stack.owners(), stack.served()
    return len(owners) == len(served) == count and all(
        served[name] == [owner] for name, owner in owners.items() if name in served
    )


def _put_back(stack: VersionedStack, job: str) -> None:
    """Stop what reads and writes the tables, and put the backup in their place."""
    stack.stop("lookup")
    assert stack.stop(job) == 0
    shutil.rmtree(stack.tables)
    shutil.copytree(stack.folder / "backup", stack.tables)


def _start_restored(stack: VersionedStack, job: str, bundles: Collection[str]) -> None:
    """Start on the restored tables; at the end these bundles are served, and nothing else."""
    died, began_s = stack.died(), time.monotonic()
    folder = str(stack.folder / STATE)
    stack.start_version("this", f"too-soon-for-{job}")
    code, words = stack.wait_end(f"too-soon-for-{job}")
    assert code == 1
    assert f"`ballast state rebuild --restored --state-dir {folder}`" in words
    assert ballast(["state", "rebuild", "--restored", "--state-dir", folder, "--yes"]) == 0
    stack.start_version("this", job)
    assert stack.rebuilt_because(job) == "no checkpoint yet"
    started_s = time.monotonic() - began_s
    stack.wait(
        "the bundles of the backup to be served", lambda: set(bundles) <= set(stack.served())
    )
    served_s = time.monotonic() - began_s
    stack.wait("no others", lambda: _is_settled(stack, len(bundles)))
    settled_s = time.monotonic() - began_s
    assert stack.owners().keys() == set(bundles)
    assert stack.died() == died
    (stack.folder / "lookup-port").unlink(missing_ok=True)  # of the one that was stopped
    stack.start_lookup()
    stack.wait("the first answer", lambda: stack.lookup(TOPICS[0])[0] == 200)
    urls = {row["broker"]: row["web_service_url"] for row in stack.rows("brokers")}
    owning = {urls[owner] for owner in stack.owners().values()}
    answers = [stack.lookup(topic) for topic in TOPICS]
    assert {status for status, _ in answers} == {200}
    assert {body["httpUrl"] for _, body in answers} <= owning
    figures = {"started_s": started_s, "served_s": served_s, "settled_s": settled_s}
    tell(f"restore {job}", **{name: round(value, 1) for name, value in figures.items()})


def _empty_kafka(stack: VersionedStack) -> None:
    """Another Kafka at the same address, with nothing in it."""
    stack.kafka.stop()
    folder = stack.folder / "kafka-anew"
    folder.mkdir()
    shutil.copy(stack.kafka.folder / "ports.json", folder)
    stack.kafka = KafkaNode(folder)
    stack.kafka.start()
