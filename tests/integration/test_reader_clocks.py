"""Clocks that are wrong, and those who follow the tables: nobody refuses, nobody is misled."""

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.adapters.following import view as follower_view
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.processes.clocks import wall_ms
from tests.support.processes.frozen import COMPILER, TurnedClock
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    TOPIC,
    Row,
    TablesWriter,
    bundles_of,
    content,
    fresh,
    move,
    owned,
)

LATE = "acme/late"
PARENT, *OTHERS = bundles_of(LATE, 4)
HALVES = (f"{LATE}/0x00000000_0x20000000", f"{LATE}/0x20000000_0x40000000")
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
BATCH_MS = 1_000
"""So long after the one before is a batch of the tables' writer."""
FAULTS_MS = (-HOUR_MS, -40_000, 5_000, 40_000, HOUR_MS)


@pytest.mark.parametrize("fault_ms", FAULTS_MS)
def test_reader_that_starts_after_a_wrong_hour_of_the_driver_serves_what_is(
    tmp_path: Path, writer: TablesWriter, fault_ms: int
) -> None:
    writer.now_ms += 2 * HOUR_MS
    writer.now_ms += fault_ms
    writer.namespaces({LATE: "crc32"})
    writer.batch(owned(LATE, 4, BROKER_NAMES))
    writer.now_ms -= fault_ms
    children = [Row(bundle=half, version=2, destination="b1") for half in HALVES]
    writer.batch([*children, Row(bundle=PARENT, version=2, state="Deleted", source="b1")])
    writer.now_ms += 15 * MINUTE_MS
    writer.batch([move(BUNDLES[0], 2, "b9")])
    writer.forget(PARENT)
    loaded = fresh(tmp_path)
    assert loaded.view is not None, loaded.counts
    assert not loaded.counts.refused
    found = [bundle for bundle, _, _ in content(loaded)]
    assert found == sorted([*BUNDLES, *HALVES, *OTHERS])


@pytest.mark.parametrize("fault_ms", FAULTS_MS)
def test_silence_of_the_job_is_told_by_no_wrong_clock(
    follower: DeltaFollower, writer: TablesWriter, monkeypatch: pytest.MonkeyPatch, fault_ms: int
) -> None:
    writer.now_ms += fault_ms
    true_ms = writer.now_ms + 1_000 - fault_ms
    writer.batch([move(BUNDLES[0], 2, "b9")])
    follower.poll()
    view = follower.view
    assert view is not None
    boot_ms = view.found_ms
    for silent_ms in (0, 30_000, 2 * HOUR_MS):
        monkeypatch.setattr(follower_view, "boot_ms", lambda: boot_ms + silent_ms)  # noqa: B023 (called at once)
        assert abs(view.writer_silent_ms(true_ms + silent_ms) - silent_ms) <= 60_000
        assert view.writer_silent_ms(true_ms + silent_ms) >= silent_ms - 2_000


@pytest.mark.parametrize("lasts", ["2 s", "from then on"])
@pytest.mark.parametrize("ahead_ms", FAULTS_MS)
def test_wrong_clock_of_a_service_changes_no_age_and_is_named(
    follower: DeltaFollower,
    writer: TablesWriter,
    monkeypatch: pytest.MonkeyPatch,
    ahead_ms: int,
    lasts: str,
) -> None:
    assert follower.view is not None
    looked_ms = follower.view.confirmed_ms
    writer.now_ms = 1_800_000_000_000
    writer.committed_ms = writer.now_ms + BATCH_MS + 1_500
    writer.batch([move(BUNDLES[0], 2, "b9")])
    follower.poll()
    view = follower.view
    assert view is not None
    since_ms = 2_000 if lasts == "2 s" else 8_000
    found_ms = view.found_ms
    assert view.absent_ms == looked_ms < found_ms
    view = replace(view, absent_ms=found_ms - 200)
    monkeypatch.setattr(follower_view, "boot_ms", lambda: found_ms + since_ms)
    now_ms = writer.committed_ms + 300 + since_ms
    assert view.clock_ahead_ms(now_ms) == 0
    assert abs(view.clock_ahead_ms(now_ms + ahead_ms) - ahead_ms) <= 2_000
    silent_ms = view.writer_silent_ms(now_ms)
    assert silent_ms == 1_800 + since_ms
    assert abs(view.writer_silent_ms(now_ms + ahead_ms) - silent_ms) <= 6_000
    assert view.age_ms(found_ms + since_ms) == since_ms


@pytest.mark.parametrize("ahead_ms", FAULTS_MS)
def test_wrong_clock_of_the_jobs_machine_is_not_said_to_be_the_services(
    follower: DeltaFollower, writer: TablesWriter, ahead_ms: int
) -> None:
    """Its batches have the right time all the same: they are the middle of three clocks."""
    writer.now_ms = 1_800_000_000_000
    writer.committed_ms = writer.now_ms + BATCH_MS + 500 + ahead_ms
    writer.batch([move(BUNDLES[0], 2, "b9")])
    follower.poll()
    assert follower.view is not None
    assert follower.view.clock_ahead_ms(writer.now_ms + 800) == 0


@pytest.mark.long
@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler: apt-get install gcc")
def test_service_whose_clock_is_turned_answers_as_before_and_names_it(
    tmp_path: Path, writer: TablesWriter
) -> None:
    clock = TurnedClock(tmp_path / "clock")
    service = LookupService(tmp_path, environment=clock.environment)
    try:
        service.wait_ready()
        for version, ahead_s in enumerate((0, 3_600, -3_600, 40, -40, 5, 0), start=1):
            clock.turn(ahead_s)
            for at in (2 * version, 2 * version + 1):
                writer.now_ms = wall_ms() - 1_000  # a batch's time is a second on
                writer.committed_ms = writer.now_ms + 1_000
                writer.batch([move(BUNDLES[0], at, "b2")])
                threading.Event().wait(1)
            reply = service.get(f"/lookup/v2/topic/{TOPIC.replace('://', '/')}")
            assert reply.status == 200, reply
            assert int(reply.headers["x-ballast-writer-silent-ms"]) < 10_000, ahead_s
            text = service.get("/metrics").body.decode()
            ahead = re.findall(r"^ballast_service_clock_ahead_seconds (\S+)$", text, re.MULTILINE)
            assert abs(float(ahead[0]) - ahead_s) <= 3, ahead_s
    finally:
        assert service.stop() == 0
