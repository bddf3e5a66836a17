"""The streaming job on the real stack: crashes anywhere, and the tables equal a replay."""

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from jobs.adapters.kafka_clients import KafkaAddress
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS
from lbcore.wire.messages import Topic
from tests.integration.replay import read_batches, read_log, replay
from tests.integration.stack import BUNDLES, Stack, running_stack, wait_for

POINTS = ("effects_computed", "events_committed", "tables_committed", "kafka_sent", "batch_ended")
COMPARED = (OWNERSHIP_EVENTS.name, "decisions", "rejected_reports", "commands", "load_history")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def checkpoint_of(stack: Stack) -> Path:
    (folder,) = (stack.folder / "job" / "checkpoints").iterdir()
    return folder


def versions_of(stack: Stack) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    rows = stack.rows(OWNERSHIP_EVENTS.name)
    for row in sorted(rows, key=lambda row: (row["batch_id"], row["seq_in_batch"])):
        found.setdefault(row["bundle"], []).append(row["version_id"])
    return found


def assert_gapless(stack: Stack) -> None:
    for bundle, versions in versions_of(stack).items():
        assert versions == list(range(1, len(versions) + 1)), bundle


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


def dead_brokers(stack: Stack) -> int:
    """How many times a broker was taken for dead so far."""
    return sum(line.get("counts", {}).get("died", 0) for line in stack.batch_lines())


def send_raw(stack: Stack, topic: Topic, key: bytes | None, values: list[bytes | None]) -> None:
    address = KafkaAddress(bootstrap=stack.kafka.bootstrap)
    producer = KafkaProducer(acks="all", **address.client_options("poison"))
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
    wait_for(
        "every refused message in its table",
        lambda: wanted <= {row["reason"] for row in stack.rows("rejected_reports")},
        60,
    )
    rows = stack.rows("rejected_reports")
    kept = {row["reason"]: row["raw"] for row in rows}
    assert {reason: kept[reason] for reason in poison} == poison
    places = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    assert len(places) == len(set(places)) == len(poison) + 3
    stack.wait_for_batches(2)
    stack.wait_settled()


def test_killed_broker_loses_its_bundles_to_the_others(stack: Stack) -> None:
    stack.fleet("/kill/broker-2", "POST")
    wait_for("broker-2 to own nothing", lambda: "broker-2" not in stack.owners().values(), 60)
    stack.wait_settled()
    stack.fleet("/start/broker-2", "POST")
    stack.wait_for_batches(3)
    assert_gapless(stack)


@pytest.mark.parametrize("point", POINTS)
def test_job_killed_at_a_point_of_a_batch_goes_on_where_it_was(stack: Stack, point: str) -> None:
    stack.fleet("/restart/broker-3", "POST")  # so that there is something to decide
    stack.arm(point)
    wait_for(f"the job to die at {point}", lambda: _is_dead(stack), 60)
    del stack.children["job"]
    stack.start_job()
    stack.wait_for_batches(3)
    stack.wait_settled()
    assert_gapless(stack)


def test_job_killed_at_random_moments_goes_on_where_it_was(stack: Stack) -> None:
    moments = random.Random(7)
    for _ in range(3):
        stack.fleet("/restart/broker-1", "POST")
        time.sleep(moments.uniform(0.5, 4.0))
        stack.kill("job")
        stack.start_job()
        stack.wait_for_batches(1)
    stack.wait_settled()
    assert_gapless(stack)


def test_kafka_killed_for_a_while_loses_nothing_and_nobody_is_taken_for_dead(stack: Stack) -> None:
    before = dead_brokers(stack)
    stack.kafka.kill()
    time.sleep(10)
    stack.kafka.start()
    wait_for("the job to go on", lambda: _goes_on(stack), 90)
    stack.wait_settled()
    assert dead_brokers(stack) == before


def test_job_away_longer_than_the_timeout_takes_nobody_for_dead(stack: Stack) -> None:
    before = dead_brokers(stack)
    records = stack.rows("bundle_ownership")
    stack.kill("job")
    time.sleep(30)  # ten times broker_timeout_ms of conf/test.toml
    stack.start_job()
    stack.wait_for_batches(5)
    assert dead_brokers(stack) == before
    assert_goes_on_from(stack, records)


def test_tables_equal_a_replay_of_the_recorded_batches(stack: Stack) -> None:
    assert stack.stop("job") == 0
    batches = read_batches(checkpoint_of(stack))
    expected: dict[str, list[dict[str, object]]] = {name: [] for name in COMPARED}
    for number, table, rows in replay(batches, read_log(stack.kafka.bootstrap), stack.config):
        if table in expected:
            expected[table] += [{**row, "batch_id": number} for row in rows]
    last = batches[-1].number  # one that was begun and not ended is repeated, and not compared
    for table in COMPARED:
        written = [row for row in stack.rows(table) if row["batch_id"] <= last]
        assert _comparable(written) == _comparable(expected[table]), table
    newest = {str(row["bundle"]): row["version_id"] for row in expected[OWNERSHIP_EVENTS.name]}
    current = stack.rows(BUNDLE_OWNERSHIP.name)
    assert {row["bundle"]: row["version_id"] for row in current} == newest
    assert len(newest) == BUNDLES


def test_lookups_are_answered_while_the_job_is_stopped(stack: Stack) -> None:
    stack.start_lookup()
    urls = {row["broker"]: row["web_service_url"] for row in stack.rows("brokers")}
    owning = {urls[owner] for owner in stack.owners().values()}
    topics = [f"persistent://demo/{name}/topic-{i}" for i in range(20) for name in ("one", "two")]
    wait_for("the first answer", lambda: stack.lookup(topics[0])[0] == 200, 30)
    answers = [stack.lookup(topic) for topic in topics]
    assert {status for status, _ in answers} == {200}
    assert {body["httpUrl"] for _, body in answers} <= owning
    assert len({body["httpUrl"] for _, body in answers}) > 1


def test_checkpoint_deleted_is_rebuilt_from_the_tables(stack: Stack) -> None:
    records = stack.rows("bundle_ownership")
    shutil.rmtree(checkpoint_of(stack))
    stack.start_job()
    stack.wait_for_batches(3)
    assert stack.batch_lines()[-1]["brokers"]
    started = [line for line in stack.batch_lines() if line.get("event") == "start"]
    assert started[-1]["rebuilt_because"] == "the checkpoint is gone"
    assert_goes_on_from(stack, records)
    stack.fleet("/kill/broker-4", "POST")
    wait_for("broker-4 to own nothing", lambda: "broker-4" not in stack.owners().values(), 60)
    stack.wait_settled()


def _is_dead(stack: Stack) -> bool:
    return stack.children["job"].exit_code() is not None


def _goes_on(stack: Stack) -> bool:
    if _is_dead(stack):
        del stack.children["job"]
        stack.start_job()
    now_ms = time.time() * 1000
    lines = [line for line in stack.batch_lines() if "batch_id" in line]
    return now_ms - lines[-1]["logged_at_ms"] < 2_000 and now_ms - lines[-1]["now_ms"] < 10_000


def _comparable(rows: list[dict[str, object]]) -> list[str]:
    """Rows in an order of their own, without what differs between attempts."""
    plain = [{k: v for k, v in row.items() if k != "writer_epoch"} for row in rows]
    return sorted(repr(sorted(row.items())) for row in plain)
