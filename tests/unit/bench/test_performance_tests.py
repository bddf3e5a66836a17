"""What the performance tests on the real pipeline make of the brokers' own log."""

from pathlib import Path

import pytest

from tests.bench.bench_performance_tests import (
    Outage,
    outages_of,
    publish_percentile,
    write_section,
)


def event(what: str, bundle: str, at_ms: int) -> dict[str, object]:
    return {"event": what, "bundle": bundle, "at_ms": at_ms}


def test_outage_lasts_from_closing_to_the_next_opening() -> None:
    events = [
        event("opened", "a", 5),
        event("closed", "b", 8),
        event("closed", "a", 10),
        event("opened", "b", 11),
        event("opened", "a", 30),
        event("closed", "a", 40),
    ]
    assert outages_of(events, 9) == [Outage(bundle="a", began_ms=10, lasted_ms=20)]


def test_messages_wait_for_the_rest_of_the_outage_that_they_fall_into() -> None:
    closed = [Outage(bundle="a", began_ms=0, lasted_ms=100)]
    assert publish_percentile(closed, 2, 1_000, 90) == 5.0
    assert publish_percentile(closed, 2, 1_000, 99) == pytest.approx(85, abs=1)
    assert publish_percentile([], 2, 1_000, 99.99) == 5.0


def test_section_replaces_the_one_that_was_there_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nrows\n\n## On the real pipeline\n\nold\n", encoding="utf-8")
    machine = {"measured_at": "2026-01-01", "cores": 1, "cpu": "X", "memory_gib": 1, "python": "3"}
    for figure in (1, 2):
        write_section(page, {"machine": machine, "tests": {"scaling": {"moves": figure}}})
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Page\n\nrows\n\n## On the real pipeline\n")
    assert text.count("On the real pipeline") == 1
    assert "| moves | 2 |" in text
    assert "old" not in text
