"""The streaming job on the real stack, 30 brokers x 3,000 bundles: crashes, and a replay of them.

One stack, one story: each test goes on with what the one before left. How fast a failover goes is
printed. The tests hold that it takes few batches, however long a crowded machine takes for one.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from kafka import KafkaProducer

from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS
from lbcore.wire.messages import Topic
from tests.integration.meanwhile import repeated
from tests.integration.replay import assert_replayed, wrong_records
from tests.integration.stack import PATIENCE_S, Cluster, Stack, running_stack, wait_for

# twice conf/test.toml's: a crowded machine may stop a process for three seconds
TIMEOUT_MS = 6_000
TIMEOUT = "ownership.broker_timeout_ms"
CLUSTER = Cluster(
    brokers=30,
    settings=(f"{TIMEOUT}={TIMEOUT_MS}",),
    namespaces={f"demo/ns-{i}": (("crc32", "murmur3_32")[i % 2], 750) for i in range(4)},
)
AFTER_TIMEOUT_MS = 15_000
AFTER_TIMEOUT_BATCHES = 15
FIRST, SECOND = ("broker-1", "broker-2", "broker-3"), ("broker-11", "broker-12", "broker-13")
POINTS = (
    ("effects_computed", 0),
    ("events_committed", 0),
    ("tables_committed", 0),
    ("kafka_sent", 3 * TIMEOUT_MS),
)
"""Where the job is killed, and how many ms it is away then; every day once amid a failover."""

COMPARED = (OWNERSHIP_EVENTS.name, "decisions", "rejected_reports", "commands", "load_history")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack"), CLUSTER) as running:
        yield running


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


def assert_tables_agree(stack: Stack) -> None:
    """The current table has each bundle's newest event; the job must be stopped."""
    events, current = stack.rows(OWNERSHIP_EVENTS.name), stack.rows(BUNDLE_OWNERSHIP.name)
    assert list(wrong_records(events, current, "writer_epoch")) == []


def batches(stack: Stack, name: str = "job") -> list[dict[str, Any]]:
    return stack.lines(name, "batch")


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


@contextmanager
def watched(stack: Stack) -> Iterator[set[str]]:
    """Looks all the while which bundles are open at two brokers at once."""
    doubled: set[str] = set()

    def look() -> None:
        doubled.update(bundle for bundle, by in stack.served().items() if len(by) > 1)

    with repeated(look, 0.5):
        yield doubled


def crash(stack: Stack, brokers: tuple[str, ...]) -> int:
    """Kill brokers together; how many bundles they served."""
    served = stack.served()
    for broker in brokers:
        stack.fleet(f"/kill/{broker}", "POST")
    return sum(bool(set(by) & set(brokers)) for by in served.values())


def served_again_ms(stack: Stack) -> float:
    """Wait until every bundle is open somewhere, soon after the timeout; ms until then."""
    begun_s = time.monotonic()
    stack.wait("a timeout to pass", lambda: time.monotonic() - begun_s > TIMEOUT_MS / 1_000)
    done = stack.batches_done()
    stack.wait("every bundle to be served", lambda: len(stack.served()) == CLUSTER.bundles)
    ms = (time.monotonic() - begun_s) * 1_000
    batches = stack.batches_done() - done
    assert ms < TIMEOUT_MS + AFTER_TIMEOUT_MS or batches <= AFTER_TIMEOUT_BATCHES, (ms, batches)
    return ms


def test_brokers_crash_together_twice_and_the_driver_in_between(stack: Stack) -> None:
    with watched(stack) as doubled:
        assert crash(stack, FIRST) > 0
        first_ms = served_again_ms(stack)
        stack.fleet("/restart/broker-5", "POST")  # so that there is something to decide
        stack.arm("events_committed")
        stack.wait_end("job")
        begun_s = time.monotonic()
        assert crash(stack, SECOND) > 0
        stack.start_job()
        stack.wait_for_batches(1)
        away_ms = (time.monotonic() - begun_s) * 1_000
        second_ms = served_again_ms(stack)  # the time that the driver was away counts for nobody
        stack.wait_settled()
    times = {"first_ms": first_ms, "second_ms": second_ms, "away_ms": away_ms}
    print(json.dumps({name: round(ms) for name, ms in times.items()}))  # noqa: T201 (a measurement)
    assert doubled == set()
    assert stack.died() == len({*FIRST, *SECOND})
    assert set(stack.owners().values()).isdisjoint({*FIRST, *SECOND})
    stack.fleet(f"/start/{FIRST[0]}", "POST")
    stack.wait_for_batches(3)
    assert_gapless(stack)


@pytest.mark.long
@pytest.mark.parametrize(("point", "away_ms"), POINTS)
def test_job_killed_at_a_point_of_a_batch_goes_on_where_it_was_and_takes_nobody_for_dead(
    stack: Stack, point: str, away_ms: int
) -> None:
    stack.fleet("/restart/broker-5", "POST")  # so that there is something to decide
    stack.arm(point)
    stack.wait_end("job")
    before = stack.died()
    time.sleep(away_ms / 1_000)
    stack.start_job()
    stack.wait_for_batches(5)
    stack.wait_settled()
    assert stack.died() == before
    assert_gapless(stack)


@pytest.mark.long
def test_kafka_killed_for_a_while_loses_nothing_and_nobody_is_taken_for_dead(stack: Stack) -> None:
    before = stack.died()
    stack.kafka.kill()
    time.sleep(10)
    stack.kafka.start()
    back_ms = time.time() * 1000
    wait_for("a batch with Kafka back", lambda: _goes_on(stack, back_ms), PATIENCE_S)
    stack.wait_settled()
    assert stack.died() == before


def test_tables_equal_a_replay_of_the_recorded_batches(stack: Stack) -> None:
    assert stack.stop("job") == 0
    expected = assert_replayed(stack, *COMPARED)
    newest = {str(row["bundle"]): row["version_id"] for row in expected[OWNERSHIP_EVENTS.name]}
    current = stack.rows(BUNDLE_OWNERSHIP.name)
    assert {row["bundle"]: row["version_id"] for row in current} == newest
    assert len(newest) == CLUSTER.bundles
    assert_tables_agree(stack)
    assert stack.told(TIMEOUT) == [(str(TIMEOUT_MS), "--set")]  # once, however often it was killed


def test_lookups_are_answered_while_the_job_is_stopped(stack: Stack) -> None:
    stack.start_lookup()
    urls = {row["broker"]: row["web_service_url"] for row in stack.rows("brokers")}
    records = stack.rows(BUNDLE_OWNERSHIP.name)  # some were on their way when the job stopped
    owning = {urls[row["destination"] or row["source"]] for row in records}
    topics = [f"persistent://demo/ns-{i % 4}/topic-{i}" for i in range(40)]
    stack.wait("the first answer", lambda: stack.lookup(topics[0])[0] == 200)
    answers = [stack.lookup(topic) for topic in topics]
    assert {status for status, _ in answers} == {200}
    assert {body["httpUrl"] for _, body in answers} <= owning
    assert len({body["httpUrl"] for _, body in answers}) > 1


def _is_dead(stack: Stack) -> bool:
    return stack.children["job"].exit_code() is not None


def _goes_on(stack: Stack, since_ms: float) -> bool:
    if _is_dead(stack):
        del stack.children["job"]
        stack.start_job()
    return bool(batches(stack)[-1]["now_ms"] > since_ms)
