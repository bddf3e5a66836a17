"""The whole stack with its tables in a real S3-compatible store; the checkpoint is on the disk.

One story: bundles are assigned and moved, a broker crashes, the job is killed twice and goes on,
the store hangs for a while. Lookups are asked all the while.
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.meanwhile import repeated
from tests.integration.stack import Cluster, Stack, running_stack
from tests.support.processes.frozen import freeze
from tests.support.tables.object_store import ObjectStore, object_store

pytestmark = pytest.mark.long

# three times conf/test.toml's: a crowded machine may stop a process for three seconds
TIMEOUT_MS = 9_000
CLUSTER = Cluster(settings=(f"ownership.broker_timeout_ms={TIMEOUT_MS}",))
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
def asking(stack: Stack) -> Iterator[None]:
    """Asks for topics all the while; each is answered, or nobody owns its bundle yet."""
    statuses: dict[int, int] = defaultdict(int)

    def ask() -> None:
        for topic in TOPICS:
            statuses[stack.lookup(topic)[0]] += 1

    with repeated(ask, 0.1):
        yield
    assert statuses[200] > len(TOPICS)
    assert statuses.keys() <= {200, 503}, statuses


def test_moves_a_crash_and_killed_jobs(stack: Stack, store: ObjectStore) -> None:
    with asking(stack):
        moved = min(stack.owners())
        stack.command("moved", "unload_bundle", {"bundle": moved})
        stack.wait("the move to be done", lambda: stack.outcome("moved") == "done")
        stack.fleet("/kill/broker-2", "POST")
        stack.wait("broker-2 to own nothing", lambda: "broker-2" not in stack.owners().values())
        stack.wait_settled()
        died = stack.died()
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
        assert stack.died() == died == 1
    starts = stack.lines("job", "start")
    assert [line["rebuilt_because"] for line in starts] == ["no checkpoint yet", "", ""]


def hang(stack: Stack, process: int) -> None:
    """The store does not answer for a while; lookups do, and the job goes on afterwards."""
    freeze(process)
    try:
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            assert {stack.lookup(topic)[0] for topic in TOPICS} == {200}
            time.sleep(0.5)
    finally:
        os.kill(process, signal.SIGCONT)
    stack.wait_for_batches(3)
    stack.wait_settled()
