"""The streaming job on the real stack: crashes anywhere, and the tables equal a replay.

One stack, one story: each test goes on with what the one before left.
"""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from jobs.adapters.kafka.clients import Sender, Tail
from jobs.cli import main as ballast
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS
from lbcore.ownership.records import OwnershipRecord, parse_record
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command, Topic
from tests.integration.replay import comparable, replayed_rows
from tests.integration.stack import PATIENCE_S, Cluster, Stack, running_stack, wait_for
from tests.replay import NoBeginningError
from tests.support.processes.kafka_cluster import make_topics

# twice conf/test.toml's: a crowded machine may stop a process for three seconds
TIMEOUT_MS = 6_000
TIMEOUT = "ownership.broker_timeout_ms"
CLUSTER = Cluster(settings=(f"{TIMEOUT}={TIMEOUT_MS}",))
POINTS = (
    pytest.param("effects_computed", 0, marks=pytest.mark.long),
    ("events_committed", 0),
    pytest.param("tables_committed", 0, marks=pytest.mark.long),
    pytest.param("kafka_sent", 3 * TIMEOUT_MS, marks=pytest.mark.long),
)
"""Where the job is killed, and how many ms it is away then."""

COMPARED = (OWNERSHIP_EVENTS.name, "decisions", "rejected_reports", "commands", "load_history")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack"), CLUSTER) as running:
        yield running


def checkpoint_of(stack: Stack) -> Path:
    (folder,) = (stack.folder / "job" / "checkpoints").iterdir()
    return folder


def events_of(stack: Stack) -> dict[str, list[dict[str, Any]]]:
    """Bundle → its transitions as they were written: after a rebuild batches count from 0 again."""
    found: dict[str, list[dict[str, Any]]] = {}
    order = ("writer_epoch", "batch_id", "seq_in_batch")
    rows = stack.rows(OWNERSHIP_EVENTS.name)
    for row in sorted(rows, key=lambda row: tuple(row[name] for name in order)):
        found.setdefault(row["bundle"], []).append(row)
    return found


def assert_gapless(stack: Stack) -> None:
    """Each bundle's versions count from 1, and each transition starts where the last one ended."""
    for bundle, events in events_of(stack).items():
        versions = [event["version_id"] for event in events]
        assert versions == list(range(1, len(versions) + 1)), bundle
        for last, event in pairwise(events):
            before = (event["state_before"], event["source_before"], event["destination_before"])
            assert before == (last["state"], last["source"], last["destination"]), event


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


def assert_tables_agree(stack: Stack) -> None:
    """The current table has each bundle's newest event; the job must be stopped."""
    events = stack.rows(OWNERSHIP_EVENTS.name)
    newest = {row["bundle"]: row for row in sorted(events, key=lambda row: row["version_id"])}
    fields = ("version_id", "state", "source", "destination", "destination_incarnation")
    for record in stack.rows(BUNDLE_OWNERSHIP.name):
        event = newest.pop(record["bundle"])
        assert {name: record[name] for name in fields} == {name: event[name] for name in fields}
    assert newest == {}


def starts(stack: Stack, name: str = "job") -> list[dict[str, Any]]:
    """The lines that a job has begun with, one a start."""
    return stack.lines(name, "start")


def batches(stack: Stack, name: str = "job") -> list[dict[str, Any]]:
    return stack.lines(name, "batch")


def told_last(stack: Stack) -> dict[str, OwnershipRecord]:
    """Bundle → newest record on the topic `ownership`."""
    tail, found = Tail(stack.address("agent"), Topic.OWNERSHIP, "test-tail"), {}
    while not tail.read_to_end(10_000):
        for message in tail.poll(500):
            record = parse_record(message.key.encode(), message.value)
            assert isinstance(record, OwnershipRecord)
            known = found.get(record.bundle)
            if known is None or known.version_id < record.version_id:
                found[record.bundle] = record
    tail.close()
    return found


def command(stack: Stack, kind: str, name: str, **more: object) -> None:
    sender = Sender(stack.address("operator"), "test-commands")
    # a crowded machine may take a minute to start the job
    sent = Command(cluster="local", command_id=name, kind=kind, arguments=more, timeout_ms=300_000)
    topic, key, value = format_message(sent)
    sender.send(topic, key.decode(), value)
    sender.close(timeout_ms=10_000)


def outcomes(stack: Stack, *command_ids: str) -> list[str | None]:
    known = {row["command_id"]: row["status"] for row in stack.rows("commands")}
    return [known.get(one) for one in command_ids]


def dead_brokers(stack: Stack, name: str = "job") -> int:
    """How many times a broker was taken for dead so far."""
    return sum(line.get("counts", {}).get("died", 0) for line in stack.batch_lines(name))


def read_url(url: str) -> str:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 (a page of this test's own job)
        return str(answer.read().decode())


def send_raw(stack: Stack, topic: Topic, key: bytes | None, values: list[bytes | None]) -> None:
    producer = KafkaProducer(acks="all", **stack.address("agent").client_options("poison"))
    for value in values:
        producer.send(topic.value, key=key, value=value)
    producer.close()


def test_poison_of_every_kind_is_kept_with_its_reason_and_stops_nothing(stack: Stack) -> None:
    envelope = b'"schema":1,"cluster":"local","broker":"broker-1","incarnation":"x","seq":1,'
    envelope += b'"reportedAt":1'
    poison = {
        "not_json": b"\xff\xfe{",
        "not_an_object": b"[1]",
        "unknown_schema": b'{"schema":99}',
        "missing_field": b'{"schema":1,"cluster":"local","broker":"broker-1"}',
        "wrong_type": b"{" + envelope.replace(b'"seq":1', b'"seq":"one"') + b"}",
        "negative": b"{" + envelope + b',"cpu":{"usage":-1,"limit":100}}',
        "key_mismatch": b"{" + envelope.replace(b"broker-1", b"broker-2") + b"}",
    }
    send_raw(stack, Topic.BROKER_LOAD, b"local/broker-1", list(poison.values()))
    elsewhere = b"{" + envelope.replace(b'"local"', b'"nowhere"') + b"}"
    send_raw(stack, Topic.BROKER_LOAD, b"nowhere/broker-1", [elsewhere])
    send_raw(stack, Topic.BUNDLE_LOAD, None, [b"", b"{}"])
    wanted = {*poison, "unknown_cluster"}
    stack.wait(
        "every refused message in its table",
        lambda: wanted <= {row["reason"] for row in stack.rows("rejected_reports")},
    )
    stack.wait(
        "all of them there, also those whose reason another had before",
        lambda: len(stack.rows("rejected_reports")) >= len(poison) + 3,
    )
    rows = stack.rows("rejected_reports")
    kept = {row["reason"]: row["raw"] for row in rows}
    assert {reason: kept[reason] for reason in poison} == poison
    places = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    assert len(places) == len(set(places)) == len(poison) + 3
    stack.wait_for_batches(2)
    stack.wait_settled()


def test_spark_gives_out_its_pages_and_metrics_to_this_machine_alone(stack: Stack) -> None:
    url = str(stack.lines("job", "spark_ui")[-1]["url"])
    assert urlsplit(url).hostname == "localhost"
    served = read_url(f"{url}/metrics/prometheus")
    assert "metrics_ballast_driver_spark_streaming_" in served
    assert "Structured Streaming" in read_url(f"{url}/StreamingQuery/")


def test_killed_broker_loses_its_bundles_to_the_others(stack: Stack) -> None:
    stack.fleet("/kill/broker-2", "POST")
    stack.wait("broker-2 to own nothing", lambda: "broker-2" not in stack.owners().values())
    stack.wait_settled()
    stack.fleet("/start/broker-2", "POST")
    stack.wait_for_batches(3)
    assert_gapless(stack)


@pytest.mark.parametrize(("point", "away_ms"), POINTS)
def test_job_killed_at_a_point_of_a_batch_goes_on_where_it_was_and_takes_nobody_for_dead(
    stack: Stack, point: str, away_ms: int
) -> None:
    stack.fleet("/restart/broker-3", "POST")  # so that there is something to decide
    stack.arm(point)
    stack.wait_end("job")
    before = dead_brokers(stack)
    time.sleep(away_ms / 1_000)
    stack.start_job()
    stack.wait_for_batches(5)
    stack.wait_settled()
    assert dead_brokers(stack) == before
    assert_gapless(stack)


def test_kafka_killed_for_a_while_loses_nothing_and_nobody_is_taken_for_dead(stack: Stack) -> None:
    before = dead_brokers(stack)
    stack.kafka.kill()
    time.sleep(10)
    stack.kafka.start()
    back_ms = time.time() * 1000
    wait_for("a batch with Kafka back", lambda: _goes_on(stack, back_ms), PATIENCE_S)
    stack.wait_settled()
    assert dead_brokers(stack) == before


def test_tables_equal_a_replay_of_the_recorded_batches(stack: Stack) -> None:
    assert stack.stop("job") == 0
    last, expected = replayed_rows(checkpoint_of(stack), stack.kafka.bootstrap, stack.config)
    for table in COMPARED:
        # one that was begun and not ended is repeated, and not compared
        written = [row for row in stack.rows(table) if row["batch_id"] <= last]
        assert comparable(written) == comparable(expected[table]), table
    newest = {str(row["bundle"]): row["version_id"] for row in expected[OWNERSHIP_EVENTS.name]}
    current = stack.rows(BUNDLE_OWNERSHIP.name)
    assert {row["bundle"]: row["version_id"] for row in current} == newest
    assert len(newest) == CLUSTER.bundles
    assert_tables_agree(stack)
    assert stack.told(TIMEOUT) == [(str(TIMEOUT_MS), "--set")]  # once, however often it was killed


def test_lookups_are_answered_while_the_job_is_stopped(stack: Stack) -> None:
    stack.start_lookup()
    urls = {row["broker"]: row["web_service_url"] for row in stack.rows("brokers")}
    owning = {urls[owner] for owner in stack.owners().values()}
    topics = [f"persistent://demo/{name}/topic-{i}" for i in range(20) for name in ("one", "two")]
    stack.wait("the first answer", lambda: stack.lookup(topics[0])[0] == 200)
    answers = [stack.lookup(topic) for topic in topics]
    assert {status for status, _ in answers} == {200}
    assert {body["httpUrl"] for _, body in answers} <= owning
    assert len({body["httpUrl"] for _, body in answers}) > 1


@pytest.mark.long
def test_job_killed_in_its_first_batch_after_a_rebuild_rebuilds_what_that_batch_did(
    stack: Stack,
) -> None:
    assert ballast(["state", "rebuild", "--state-dir", str(stack.folder / "job"), "--yes"]) == 0
    moved = stack.rows(BUNDLE_OWNERSHIP.name)[0]
    command(stack, "unload_bundle", "moved", bundle=moved["bundle"])
    command(stack, "create_namespace", "late", namespace="demo/late", bundles=4)
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
    stack.wait(
        "both commands to be done", lambda: outcomes(stack, "moved", "late") == ["done", "done"]
    )
    stack.wait("the late namespace to be owned", lambda: events <= stack.owners().keys())
    assert_gapless(stack)
    assert stack.told(TIMEOUT) == [(str(TIMEOUT_MS), "--set")]


@pytest.mark.long
def test_checkpoint_that_was_begun_from_the_tables_is_not_replayed(stack: Stack) -> None:
    *_, newest = sorted((stack.folder / "job" / "checkpoints").iterdir())
    with pytest.raises(NoBeginningError, match="can't be replayed from its beginning") as caught:
        replayed_rows(newest, stack.kafka.bootstrap, stack.config)
    assert "read on from where the tables ended" in caught.value.why


@pytest.mark.long
def test_second_job_on_the_same_tables_fences_the_first_which_is_then_refused(
    stack: Stack,
) -> None:
    if "job" not in stack.children:
        stack.start_job()
        stack.wait_for_batches(3)
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
    serving = "other" if "other" in stack.children else "job"  # as the test before left it
    if serving not in stack.children:
        stack.start_job()
        stack.wait_for_batches(3)
    spares = {"next", "spare"}
    for name in sorted(spares):
        stack.start_job(name, "--state-dir", str(stack.folder / serving), "--standby")
    for name in sorted(spares):
        stack.wait(f"{name} to stand by", lambda name=name: stack.lines(name, "standby"))
        assert stack.job_phases(name) == ["standing by"]
    stack.fleet("/kill/broker-5", "POST")
    killed_ms = time.time() * 1_000
    assert stack.stop(serving) == 0
    stopped = stack.batch_lines(serving)[-1]
    assert stopped["event"] == "stop"
    first = taken_over_by(stack, spares, serving, stopped["unfinished_batch"])
    stack.wait("broker-5 to own nothing", lambda: "broker-5" not in stack.owners().values())
    stack.wait("the log to say so", lambda: dead_brokers(stack, first))
    found = next(line for line in batches(stack, first) if line["counts"].get("died"))
    print(json.dumps({"found_ms": found["logged_at_ms"] - killed_ms}))  # noqa: T201 (a measurement)
    assert dead_brokers(stack, first) == 1
    stack.wait_for_batches(1, first)  # what is killed in the batch that found it finds it again
    stack.kill(first)
    second = taken_over_by(stack, spares - {first}, first)
    stack.wait_for_batches(3, second)
    assert dead_brokers(stack, second) == 0
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


@pytest.mark.long
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
    told = told_last(stack)
    assert {row["bundle"] for row in records} == told.keys()
    assert all(told[row["bundle"]].version_id >= row["version_id"] for row in records)
    stack.fleet("/kill/broker-4", "POST")
    stack.wait("broker-4 to own nothing", lambda: "broker-4" not in stack.owners().values())
    assert_goes_on_from(stack, records)
    assert stack.stop(name) == 0
    assert_tables_agree(stack)


def _are_topics_there(admin: KafkaAdminClient) -> bool:
    return bool({topic.value for topic in Topic} & set(admin.list_topics()))


def _is_dead(stack: Stack) -> bool:
    return stack.children["job"].exit_code() is not None


def _goes_on(stack: Stack, since_ms: float) -> bool:
    if _is_dead(stack):
        del stack.children["job"]
        stack.start_job()
    return bool(batches(stack)[-1]["now_ms"] > since_ms)
