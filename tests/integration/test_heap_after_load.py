"""What the garbage collector of a lookup service still goes through after a load of the tables."""

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.delta.table_location import table_place
from jobs.service.assemble import Service, start_service
from lbcore.config.tree import Config
from lbcore.route.snapshot import LookupSnapshot
from tests.support.tables.lookup_tables import CLUSTER, Row, TablesWriter, bundles_of, owned

_TIMEOUT_S = 60.0


@pytest.fixture(name="writer")
def written(tmp_path: Path) -> TablesWriter:
    writer = TablesWriter(tmp_path)
    writer.namespaces({"acme/ns1": "crc32"})
    writer.brokers("b1", "b2")
    writer.batch(owned("acme/ns1", 4, ["b1"]))
    return writer


@pytest.fixture(name="service")
def started(tmp_path: Path, writer: TablesWriter) -> Iterator[Service]:
    """The service's threads, in this process, whose heap is given back afterwards."""
    del writer
    running = start_service(Config(), table_place(str(tmp_path)), CLUSTER)
    try:
        yield running
    finally:
        running.stop()
        gc.unfreeze()


def snapshot_with(service: Service, broker: str) -> LookupSnapshot:
    """The first snapshot in which the broker has the namespace's first bundle."""
    pause = threading.Event()
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        view = service.app.follower.view
        if view is not None and view.snapshot.namespaces["acme/ns1"].live[0].broker == broker:
            return view.snapshot
        pause.wait(0.01)
    raise AssertionError("nothing was loaded")


def is_gone_through(thing: object) -> bool:
    return any(one is thing for one in gc.get_objects())


def test_what_a_load_has_made_is_in_no_pass_and_what_a_commit_makes_is(
    service: Service, writer: TablesWriter
) -> None:
    loaded = snapshot_with(service, "b1").namespaces["acme/ns1"]
    deadline_s = time.monotonic() + _TIMEOUT_S  # published first, taken out a moment later
    while is_gone_through(loaded.records) and time.monotonic() < deadline_s:
        threading.Event().wait(0.01)
    assert not is_gone_through(loaded.records)
    assert not is_gone_through(loaded.live)
    moved = Row(bundle=bundles_of("acme/ns1", 4)[0], version=2, destination="b2")
    writer.batch([moved], current=False)
    changed = snapshot_with(service, "b2").namespaces["acme/ns1"]
    assert is_gone_through(changed.records)
