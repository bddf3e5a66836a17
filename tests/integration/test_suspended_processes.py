"""Real processes that are stopped and go on later, while the tables went on and were cut.

What they say once they go on is right, or as old as it declares itself to be.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.processes.clocks import boot_ms
from tests.support.processes.frozen import freeze
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.away import LivingTables
from tests.support.tables.following import BUNDLES, NAMESPACE, fresh, served
from tests.support.tables.lookup_tables import CLUSTER

STOPPED_MS = 5_000
UNTIL_RIGHT_MS = 20_000
UNHEARD_MS = 3_000
"""For so long a client of a service may have heard nothing without asking anew."""
CLIENT = """
import sys, time
from jobs.adapters.following.watch_follower import WatchAddress
from jobs.lookup_client import LookupClient
with LookupClient(WatchAddress(url=sys.argv[1]), sys.argv[2]) as client:
    assert client.wait_ready(60_000)
    while True:
        found = client.lookup(sys.argv[3])
        boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        print(found.broker, found.freshness.age_ms, boot_ms, flush=True)
        time.sleep(0.005)
"""


@pytest.fixture
def tables(tmp_path: Path) -> LivingTables:
    made = LivingTables(tmp_path / "tables")
    made.go_on(2)
    return made


@pytest.fixture
def service(tables: LivingTables) -> Iterator[LookupService]:
    running = LookupService(tables.root)
    running.wait_ready()
    yield running
    running.stop(signal.SIGKILL)


def topic_that_moves(root: Path) -> str:
    """A local name in the bundle that moves in each step."""
    snapshot = served(fresh(root))
    for number in range(1_000):
        route = snapshot.lookup(f"persistent://{NAMESPACE}/t{number}")
        if route is not None and route.bundle == BUNDLES[0]:
            return f"t{number}"
    raise AssertionError


def stay_away(process: subprocess.Popen[bytes], tables: LivingTables) -> int:
    """Stop a process while the tables go on; when the first of that was written (boot clock)."""
    freeze(process.pid)
    since_ms = boot_ms()
    tables.go_on(4)
    written_ms = boot_ms()
    tables.clean_up()
    tables.go_on(1)
    threading.Event().wait(max(0, since_ms + STOPPED_MS - boot_ms()) / 1_000)
    os.kill(process.pid, signal.SIGCONT)
    return written_ms


def test_stopped_service_is_right_or_says_how_old_it_is(
    tables: LivingTables, service: LookupService
) -> None:
    topic = topic_that_moves(tables.root)
    written_ms = stay_away(service.process, tables)
    newest, deadline_ms = f"new-{tables.step}", boot_ms() + UNTIL_RIGHT_MS
    has_both = False
    while not has_both:
        assert boot_ms() < deadline_ms
        asked_ms = boot_ms()
        reply = service.get(f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
        is_right = reply.headers["x-ballast-broker"] == newest
        assert is_right or int(reply.headers["x-ballast-age-ms"]) >= asked_ms - written_ms
        brokers = service.get("/v1/brokers?max_age_ms=1000")
        names = {row["broker"] for row in brokers.json.get("brokers", ())}
        assert brokers.status == 503 or newest in names
        has_both = is_right and newest in names


def test_stopped_client_of_a_service_is_right_or_says_how_old_it_is(
    tables: LivingTables, service: LookupService
) -> None:
    topic = f"persistent://{NAMESPACE}/{topic_that_moves(tables.root)}"
    words = [sys.executable, "-c", CLIENT, f"http://127.0.0.1:{service.port}", CLUSTER, topic]
    client = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        assert client.stdout.readline()
        written_ms = stay_away(client, tables)
        newest, deadline_ms = f"new-{tables.step}", boot_ms() + UNTIL_RIGHT_MS
        for line in client.stdout:
            broker, age_ms, at_ms = line.decode().split()
            if broker == newest:
                return
            if int(at_ms) > written_ms:
                assert int(age_ms) + UNHEARD_MS >= int(at_ms) - written_ms
            assert boot_ms() < deadline_ms
        raise AssertionError("the client has ended")
    finally:
        client.kill()
        client.wait()
