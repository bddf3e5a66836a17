"""Brokers crash together, twice, the driver in between: 30 brokers × 3,000 bundles, real stack.

Protocol times are those of conf/test.toml, but that a broker is dead after 6 s. How fast it goes
is printed; what is held is that it takes few batches, however long a crowded machine takes for one.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS
from tests.integration.meanwhile import repeated
from tests.integration.replay import comparable, replayed_rows, version_gaps
from tests.integration.stack import Cluster, Stack, running_stack

# twice conf/test.toml's: a crowded machine may stop a process for three seconds
TIMEOUT_MS = 6_000
CLUSTER = Cluster(
    brokers=30,
    settings=(f"ownership.broker_timeout_ms={TIMEOUT_MS}",),
    namespaces={f"demo/ns-{i}": (("crc32", "murmur3_32")[i % 2], 750) for i in range(4)},
)
AFTER_TIMEOUT_MS = 15_000
AFTER_TIMEOUT_BATCHES = 15
FIRST, SECOND = ("broker-1", "broker-2", "broker-3"), ("broker-11", "broker-12", "broker-13")
_LOOK_S = 0.5


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("failover"), CLUSTER) as running:
        yield running


@contextmanager
def watched(stack: Stack) -> Iterator[set[str]]:
    """Looks all the while which bundles are open at two brokers at once."""
    doubled: set[str] = set()

    def look() -> None:
        doubled.update(bundle for bundle, by in stack.served().items() if len(by) > 1)

    with repeated(look, _LOOK_S):
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
        stack.kill("job")
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
    assert set(stack.owners().values()).isdisjoint({*FIRST, *SECOND})


def test_tables_equal_a_replay_and_versions_have_no_gap(stack: Stack) -> None:
    assert stack.stop("job") == 0
    (checkpoint,) = (stack.folder / "job" / "checkpoints").iterdir()
    last, expected = replayed_rows(Path(checkpoint), stack.kafka.bootstrap, stack.config)
    events = [row for row in stack.rows(OWNERSHIP_EVENTS.name) if row["batch_id"] <= last]
    assert comparable(events) == comparable(expected[OWNERSHIP_EVENTS.name])
    assert version_gaps(events) == []
    newest = {row["bundle"]: row["version_id"] for row in events}
    current = {row["bundle"]: row["version_id"] for row in stack.rows(BUNDLE_OWNERSHIP.name)}
    assert current == {bundle: max(version, newest[bundle]) for bundle, version in current.items()}
    assert len(current) == CLUSTER.bundles
