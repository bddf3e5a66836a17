"""The clock that agents live by: what the machine's shows after its start changes nothing."""

import time

import pytest

from jobs.adapters.processes import clocks
from jobs.adapters.processes.clocks import ForwardClock

START_MS = 1_700_000_000_000


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -40_000, 5_000, 40_000, 3_600_000])
def test_agents_clock_goes_on_whatever_its_machines_shows(
    monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    wall_ms, passed_ms = [START_MS], [0]
    monkeypatch.setattr(time, "time_ns", lambda: wall_ms[0] * 1_000_000)
    monkeypatch.setattr(clocks, "boot_ms", lambda: 5_000 + passed_ms[0])
    clock = ForwardClock()
    seen = []
    for passed_ms[0], wall_ms[0] in ((1_000, START_MS + ahead_ms), (3_000, START_MS + 3_000)):
        seen.append(clock.now_ms() - START_MS)
    assert seen == [1_000, 3_000]
