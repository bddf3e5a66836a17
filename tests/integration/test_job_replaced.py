"""A job replaced by another: rebuilt from the tables, fenced, handed over, its topics made anew.

One stack, one story: each test goes on with what the one before left.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from jobs.cli import main as ballast
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS
from lbcore.wire.messages import Topic
from tests.integration.replay import replayed_rows
from tests.integration.stack import PATIENCE_S, Cluster, Stack, running_stack, wait_for
from tests.integration.test_job import (
    TIMEOUT,
    TIMEOUT_MS,
    assert_gapless,
    assert_tables_agree,
    batches,
)
from tests.replay import NoBeginningError
from tests.support.processes.kafka_cluster import make_topics

pytestmark = pytest.mark.long
CLUSTER = Cluster(settings=(f"{TIMEOUT}={TIMEOUT_MS}",))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack"), CLUSTER) as running:
        yield running


def starts(stack: Stack, name: str = "job") -> list[dict[str, Any]]:
    """The lines that a job has begun with, one a start."""
    return stack.lines(name, "start")


def assert_goes_on_from(stack: Stack, records: list[dict[str, Any]]) -> None:
    """No version is missing, and each bundle's next transition starts from what was its record.

    A cycle may have moved bundles by now: that they are where they were is no rule.
    """
    assert_gapless(stack)
    events = {(row["bundle"], row["version_id"]): row for row in stack.rows(OWNERSHIP_EVENTS.name)}
    for record in records:
        following = events.get((record["bundle"], record["version_id"] + 1))
        if following is not None:
            before = (following["state_before"], following["destination_before"])
            assert before == (record["state"], record["destination"]), following


def test_job_killed_in_its_first_batch_after_a_rebuild_rebuilds_what_that_batch_did(
    stack: Stack,
) -> None:
    stack.wait_settled()
    assert stack.stop("job") == 0
    assert ballast(["state", "rebuild", "--state-dir", str(stack.folder / "job"), "--yes"]) == 0
    moved = stack.rows(BUNDLE_OWNERSHIP.name)[0]
    stack.command("moved", "unload_bundle", {"bundle": moved["bundle"]})
    stack.command("late", "create_namespace", {"namespace": "demo/late", "bundles": 4})
    stack.arm("events_committed")
    stack.start_job()
    stack.wait_end("job")
    behind = {row["bundle"] for row in stack.rows(BUNDLE_OWNERSHIP.name)}
    events = {row["bundle"] for row in stack.rows(OWNERSHIP_EVENTS.name)}
    assert len(events - behind) == 4  # so the batch was left half written
    stack.start_job()
    stack.wait_for_batches(3)
    reasons = [line["rebuilt_because"] for line in starts(stack)[-2:]]
    assert reasons == ["no checkpoint yet", "the checkpoint has no finished batch"]
    for name in ("moved", "late"):
        stack.wait(f"{name} to be done", lambda name=name: stack.outcome(name) == "done")
    stack.wait("the late namespace to be owned", lambda: events <= stack.owners().keys())
    assert_gapless(stack)
    *_, newest = sorted((stack.folder / "job" / "checkpoints").iterdir())
    with pytest.raises(NoBeginningError, match="can't be replayed from its beginning") as caught:
        replayed_rows(newest, stack.kafka.bootstrap, stack.config)
    assert "read on from where the tables ended" in caught.value.why
    assert stack.told(TIMEOUT) == [(str(TIMEOUT_MS), "--set")]  # once, also over the rebuilds


def test_second_job_on_the_same_tables_fences_the_first_which_is_then_refused(
    stack: Stack,
) -> None:
    records = stack.rows(BUNDLE_OWNERSHIP.name)
    stack.start_job("other")
    code, words = stack.wait_end("job")
    assert code == 1
    assert "another balance_cluster job was started on the same tables and took over" in words
    stack.wait_for_batches(3, "other")
    assert_goes_on_from(stack, records)
    stack.start_job()
    code, words = stack.wait_end("job")
    assert code == 1
    assert "another job has taken over the tables since" in words
    assert f"`ballast state rebuild --state-dir {stack.folder / 'job'}`" in words
    stack.start_job("third", "--state-dir", str(stack.folder / "other"))
    code, words = stack.wait_end("third")
    assert code == 1
    assert "is in use" in words
    stack.wait_for_batches(2, "other")


def test_job_handed_over_and_then_killed_goes_on_in_its_standbys_by_the_checkpoint(
    stack: Stack,
) -> None:
    spares = {"next", "spare"}
    for name in sorted(spares):
        stack.start_job(name, "--state-dir", str(stack.folder / "other"), "--standby")
    for name in sorted(spares):
        stack.wait(f"{name} to stand by", lambda name=name: stack.lines(name, "standby"))
        assert stack.job_phases(name) == ["standing by"]
    stack.fleet("/kill/broker-5", "POST")
    killed_ms = time.time() * 1_000
    assert stack.stop("other") == 0
    stopped = stack.batch_lines("other")[-1]
    assert stopped["event"] == "stop"
    first = taken_over_by(stack, spares, "other", stopped["unfinished_batch"])
    stack.wait("broker-5 to own nothing", lambda: "broker-5" not in stack.owners().values())
    stack.wait("the log to say so", lambda: stack.died(first))
    found = next(line for line in batches(stack, first) if line["counts"].get("died"))
    print(json.dumps({"found_ms": found["logged_at_ms"] - killed_ms}))  # noqa: T201 (a measurement)
    assert stack.died(first) == 1
    stack.wait_for_batches(1, first)  # what is killed in the batch that found it finds it again
    stack.kill(first)
    second = taken_over_by(stack, spares - {first}, first)
    stack.wait_for_batches(3, second)
    assert stack.died(second) == 0
    stack.fleet("/start/broker-5", "POST")
    assert_gapless(stack)


def taken_over_by(
    stack: Stack, spares: set[str], before: str, unfinished: int | None = None
) -> str:
    """The one standby that goes on, with the next batch of the checkpoint, while others wait.

    unfinished: the batch that the job before it says it has left, which is repeated.
    """
    stack.wait("one of the standbys to go on", lambda: any(batches(stack, n) for n in spares))
    (name,) = (name for name in sorted(spares) if starts(stack, name))
    assert starts(stack, name)[-1]["rebuilt_because"] == ""
    stack.wait(f"{name} to say so", lambda: stack.job_phases(name) == ["at work"])
    last, first = batches(stack, before)[-1], batches(stack, name)[0]
    gap_ms = first["logged_at_ms"] - last["logged_at_ms"]
    print(json.dumps({"before": before, "gap_ms": gap_ms}))  # noqa: T201 (a measurement)
    # what was begun is repeated; a crowded machine may let Spark begin one more
    begun = {last["batch_id"], last["batch_id"] + 1} if unfinished is None else {unfinished}
    assert first["batch_id"] in begun
    return name


def test_topics_deleted_are_filled_again_from_the_tables(stack: Stack) -> None:
    (name,) = {"next", "spare"} & stack.children.keys()
    admin = KafkaAdminClient(bootstrap_servers=stack.kafka.bootstrap)
    admin.delete_topics([topic.value for topic in Topic])
    code, words = stack.wait_end(name)
    assert code == 1
    assert "it has lost topics" in words
    wait_for("the topics to be gone", lambda: not _are_topics_there(admin), PATIENCE_S)
    admin.close()
    records = stack.rows(BUNDLE_OWNERSHIP.name)
    make_topics(stack.kafka, stack.address("operator"))
    stack.start_job(name, "--state-dir", str(stack.folder / "other"))
    stack.wait_for_batches(3, name)
    assert "topics were made anew" in starts(stack, name)[-1]["rebuilt_because"]
    told = stack.newest_records()
    assert {row["bundle"] for row in records} == told.keys()
    assert all(told[row["bundle"]].version_id >= row["version_id"] for row in records)
    stack.fleet("/kill/broker-4", "POST")
    stack.wait("broker-4 to own nothing", lambda: "broker-4" not in stack.owners().values())
    assert_goes_on_from(stack, records)
    assert stack.stop(name) == 0
    assert_tables_agree(stack)


def _are_topics_there(admin: KafkaAdminClient) -> bool:
    return bool({topic.value for topic in Topic} & set(admin.list_topics()))
