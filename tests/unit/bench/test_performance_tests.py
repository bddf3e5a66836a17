"""What the performance tests on the real pipeline make of the brokers' own log."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.adapters.processes.settings import load_settings
from lbcore.model.bundles import even_boundaries
from tests.bench import bench_performance_tests as bench
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
    assert "**split**: One bundle of 10,000 topics" in text
    assert text.count("Not measured on that day") == 2
    assert "old" not in text


class FakeStack:
    """Ten brokers that share all load, as soon as one stops or starts."""

    def __init__(self, folder: Path, bundles: int) -> None:
        self.folder = folder
        self.life = {f"broker-{at}": "alive" for at in range(1, 11)}
        edges = even_boundaries(bundles)
        self.names = [f"bench/n/0x{a:08x}_0x{b:08x}" for a, b in pairwise(edges)]
        self.log = folder / "fleet" / "fleet-events.jsonl"
        self.log.parent.mkdir()
        self.log.touch()

    def fleet(self, path: str, method: str = "GET") -> dict[str, object]:
        if method == "GET":
            return {"brokers": [self.row(name) for name in self.life]}
        _, action, name = path.split("/")
        self.life[name] = {"drain": "stopped", "start": "alive"}[action]
        return {}

    def row(self, name: str) -> dict[str, object]:
        return {"broker": name, "life": self.life[name], "load": 100.0}

    def served(self) -> dict[str, list[str]]:
        return {name: [f"broker-{at % 10 + 1}"] for at, name in enumerate(self.names)}

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        assert condition(), what

    def wait_settled(self) -> None:
        with self.log.open("a") as file:
            for what, at_ms in (("closed", 10**14), ("opened", 10**14 + 250)):
                file.write(json.dumps(event(what, self.names[0], at_ms)) + "\n")


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[str, ...]]:
    """The clusters that were asked for: bundles → settings; none is real."""
    asked: dict[int, tuple[str, ...]] = {}

    @contextmanager
    def cluster_of(
        bundles: int, *settings: str, fleet: Sequence[str] = (), report_ms: int = 10_000
    ) -> Iterator[FakeStack]:
        assert report_ms >= load_settings((), settings).agent.heartbeat_interval_ms
        asked[bundles] = (*settings, *fleet)
        yield FakeStack(tmp_path, 128 if bundles == 1 else bundles)

    monkeypatch.setattr(bench, "cluster_of", cluster_of)
    for name in ("_KEPT_S", "_LOOK_S", "_BACK_AFTER_S"):
        monkeypatch.setattr(bench, name, 0.0)
    return asked


def test_rolling_restart_tells_of_the_outages_in_it(clusters: dict[int, tuple[str, ...]]) -> None:
    found = bench.rolling_restart()
    assert (found["moves"], found["longest, ms"]) == (1, 250.0)
    assert list(clusters) == [1_000]


def test_scaling_is_balanced_when_load_is_shared(clusters: dict[int, tuple[str, ...]]) -> None:
    found = bench.scaling()
    assert all(isinstance(value, float) for value in found.values())
    assert clusters == {100: ("--utilisation", "0.3")}


def test_split_counts_the_topics_of_each_broker(clusters: dict[int, tuple[str, ...]]) -> None:
    found = bench.split()
    assert 0 < found["most - fewest topics"] < 500
    assert "splitting.max_topics=100" in clusters[1]
