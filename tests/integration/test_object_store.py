"""The whole stack with its tables in a real S3-compatible store; the checkpoint is on the disk.

One story: bundles are assigned and moved, a broker crashes, the job is killed twice and goes on,
the store hangs for a while, another job takes over. Lookups are asked all the while.
"""

import json
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.lookup_client import LookupClient
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS
from tests.integration.replay import comparable, replayed_rows, version_gaps
from tests.integration.stack import Cluster, Stack, running_stack
from tests.object_store import ObjectStore, object_store

pytestmark = pytest.mark.long

# three times conf/test.toml's: a crowded machine may stop a process for three seconds
TIMEOUT_MS = 9_000
CLUSTER = Cluster(settings=(f"ownership.broker_timeout_ms={TIMEOUT_MS}",))
COMPARED = (OWNERSHIP_EVENTS.name, "decisions", "commands")
TOPICS = [f"persistent://demo/{name}/topic-{i}" for i in range(20) for name in ("one", "two")]
AWAY_S = 8


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, store: ObjectStore) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("store")
    with running_stack(folder, CLUSTER, store_uri=store.uri) as running:
        running.start_lookup()
        running.wait("the first answer", lambda: running.lookup(TOPICS[0])[0] == 200)
        yield running


@contextmanager
def asking(stack: Stack) -> Iterator[dict[str, list[str]]]:
    """Asks for topics all the while: the web service URLs of each, as they changed."""
    told: dict[str, list[str]] = defaultdict(list)
    statuses: dict[int, int] = defaultdict(int)
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            for topic in TOPICS:
                status, body = stack.lookup(topic)
                statuses[status] += 1
                if status == 200 and told[topic][-1:] != [body["httpUrl"]]:
                    told[topic].append(body["httpUrl"])
            done.wait(0.1)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        yield told
    finally:
        done.set()
        asker.join()
    print(json.dumps({"answers": statuses}))  # noqa: T201 (a measurement)
    assert statuses[200] > len(TOPICS)
    assert statuses.keys() <= {200, 503}  # a bundle that nobody owns yet


def assert_told_in_order(stack: Stack, told: dict[str, list[str]]) -> None:
    """Each answer named an owner, and the owners came in the order of the events."""
    urls = {row["broker"]: row["web_service_url"] for row in stack.rows("brokers")}
    owners: dict[str, list[str]] = defaultdict(list)
    for row in sorted(stack.rows(OWNERSHIP_EVENTS.name), key=lambda row: int(row["version_id"])):
        if row["destination"]:
            owners[row["bundle"]].append(urls[row["destination"]])
    with LookupClient(stack.tables, "local") as client:
        assert client.wait_ready(60_000)
        bundles = {topic: client.lookup(topic).bundle for topic in TOPICS}
    for topic, answers in told.items():
        left = iter(owners[bundles[topic]])
        assert all(answer in left for answer in answers), (topic, answers, owners[bundles[topic]])


def is_answered(stack: Stack) -> bool:
    """Whether lookups name the owners that the tables have."""
    owners = stack.owners()
    urls = {row["broker"]: row["web_service_url"] for row in stack.rows("brokers")}
    with LookupClient(stack.tables, "local") as client:
        assert client.wait_ready(60_000)
        found = {topic: owners[client.lookup(topic).bundle] for topic in TOPICS}
    answers = {topic: stack.lookup(topic) for topic in TOPICS}
    return all(answers[t][1].get("httpUrl") == urls[owner] for t, owner in found.items())


def dead_brokers(stack: Stack) -> int:
    """How many times a broker was taken for dead so far."""
    return sum(line.get("counts", {}).get("died", 0) for line in stack.batch_lines())


def test_moves_a_crash_and_killed_jobs(stack: Stack, store: ObjectStore) -> None:
    with asking(stack) as told:
        moved = min(stack.owners())
        stack.command("moved", "unload_bundle", {"bundle": moved})
        stack.wait("the move to be done", lambda: stack.outcome("moved") == "done")
        stack.fleet("/kill/broker-2", "POST")
        stack.wait("broker-2 to own nothing", lambda: "broker-2" not in stack.owners().values())
        stack.wait_settled()
        died = dead_brokers(stack)
        stack.fleet("/restart/broker-3", "POST")
        time.sleep(random.Random(7).uniform(0.5, 3.0))
        stack.kill("job")
        stack.start_job()
        stack.wait_for_batches(3)
        stack.fleet("/restart/broker-1", "POST")  # so that there is something to decide
        stack.arm("events_committed")
        stack.wait_end("job")
        stack.start_job()
        stack.wait_for_batches(3)
        stack.wait_settled()
        if store.process is not None:
            hang(stack, store.process)
        assert dead_brokers(stack) == died == 1
    starts = [line for line in stack.batch_lines() if line.get("event") == "start"]
    assert [line["rebuilt_because"] for line in starts] == ["no checkpoint yet", "", ""]
    stack.wait("lookups to name the owners", lambda: is_answered(stack))
    assert_told_in_order(stack, told)


def hang(stack: Stack, process: int) -> None:
    """The store does not answer for a while; lookups do, and the job goes on afterwards."""
    os.kill(process, signal.SIGSTOP)
    try:
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            assert {stack.lookup(topic)[0] for topic in TOPICS} == {200}
            time.sleep(0.5)
    finally:
        os.kill(process, signal.SIGCONT)
    stack.wait_for_batches(3)
    stack.wait_settled()


def test_tables_equal_a_replay_and_no_version_is_missing(stack: Stack) -> None:
    assert stack.stop("job") == 0
    (checkpoint,) = (stack.folder / "job" / "checkpoints").iterdir()
    last, expected = replayed_rows(Path(checkpoint), stack.kafka.bootstrap, stack.config)
    for table in COMPARED:
        written = [row for row in stack.rows(table) if row["batch_id"] <= last]
        assert comparable(written) == comparable(expected[table]), table
    events = stack.rows(OWNERSHIP_EVENTS.name)
    assert version_gaps(events) == []
    newest = {row["bundle"]: max(0, row["version_id"]) for row in events}
    for row in events:
        newest[row["bundle"]] = max(newest[row["bundle"]], row["version_id"])
    records = stack.rows(BUNDLE_OWNERSHIP.name)
    assert {row["bundle"]: row["version_id"] for row in records} == newest
    print_times(stack)


def print_times(stack: Stack) -> None:
    """What a batch takes, ms: all of its commits."""
    took = sorted(
        line["delta_ms"]
        for line in stack.batch_lines()
        if line.get("event") == "batch" and line.get("rows")
    )
    said = {"batches": len(took), "p50": took[len(took) // 2], "p95": took[int(len(took) * 0.95)]}
    print(json.dumps({"delta_ms": said}))  # noqa: T201 (a measurement)


def test_another_job_takes_over(stack: Stack) -> None:
    stack.start_job()
    stack.wait_for_batches(2)
    stack.start_job("other")
    code, words = stack.wait_end("job")
    assert code == 1
    assert "another balance_cluster job was started on the same tables and took over" in words
    stack.wait_for_batches(3, "other")
    stack.wait_settled()
    assert version_gaps(stack.rows(OWNERSHIP_EVENTS.name)) == []
