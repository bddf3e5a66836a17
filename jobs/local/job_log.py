"""Log of the streaming job's batches, folded for a run's view and summary.

The job's sink writes the lines, one per batch and cluster.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbcore.balancer.brokers import SILENCE
from lbcore.explain.recent_findings import Silence, moves_message, silence_message, silence_of


class LineTail:
    """New lines of a file, from its end or its beginning."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """from_end: skip what is in the file already."""
        self._path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0
        self._rest = b""

    def read(self) -> list[Mapping[str, Any]]:
        """Return the objects of new lines; other lines are skipped."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._offset:  # a new file took its place
                self._offset, self._rest = 0, b""
            file.seek(self._offset)
            text = file.read()
        self._offset += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        found: list[Any] = []
        for line in lines:
            with suppress(ValueError):
                found.append(json.loads(line))
        return [one for one in found if isinstance(one, Mapping)]


REPORT_VERDICTS = ("accepted", "late", "duplicate", "rejected")
_DECISION = "decision:"


@dataclass(slots=True)
class JobLog:
    """The batches so far.

    durations_ms: of every batch, from its rows to its records in Kafka; cycle_durations_ms: of
    those with a decision cycle. decisions: "kind:reason" → count. reports: verdict → number of
    messages. brokers: of the newest batch. silence: broker → its newest row of the kind SILENCE,
    "" → that on many silent brokers. new_messages: on brokers; the reader removes them. now_ms,
    cycled_ms: of the newest batch, and of the newest with a cycle; 0 = none.
    """

    batches: int = 0
    durations_ms: list[int] = field(default_factory=list)
    cycle_durations_ms: list[int] = field(default_factory=list)
    decisions: Counter[str] = field(default_factory=Counter)
    reports: Counter[str] = field(default_factory=Counter)
    brokers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bundles: Mapping[str, int] = field(default_factory=dict)
    silence: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    new_messages: list[str] = field(default_factory=list)
    in_flight: int = 0
    now_ms: int = 0
    cycled_ms: int = 0
    moves: int = 0
    last_move: Mapping[str, Any] | None = None
    _cycle: int = -1
    _batch_id: int = -1

    def fold(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add new lines in order."""
        for line in lines:
            if line.get("event") == "batch":
                self._fold_batch(line)

    def live_bundles(self) -> int:
        """Return the number of bundles, without kept records of deleted ones."""
        return sum(count for state, count in self.bundles.items() if state != "Deleted")

    def groups(self) -> dict[str, str]:
        """Return broker → the first broker of its isolation group; empty for one group."""
        return {name: one["group"] for name, one in self.brokers.items() if "group" in one}

    def _fold_batch(self, line: Mapping[str, Any]) -> None:
        duration_ms = int(line["duration_ms"])
        if line["batch_id"] != self._batch_id:  # one line per cluster, one duration per batch
            self.batches += 1
            self.durations_ms.append(duration_ms)
        self._batch_id = line["batch_id"]
        self.now_ms = line["now_ms"]
        if line["cycle"] != self._cycle:
            self._cycle = line["cycle"]
            self.cycled_ms = line["now_ms"]
            self.cycle_durations_ms.append(duration_ms)
        for name, count in line["counts"].items():
            if name.startswith(_DECISION):
                self.decisions[name.removeprefix(_DECISION)] += count
            elif name in REPORT_VERDICTS:
                self.reports[name] += count
        self.brokers, self.bundles = line.get("brokers", self.brokers), line["bundles"]
        self.in_flight = line["in_flight"]
        self.moves += len(line["moves"])
        if line["moves"]:
            move = line["moves"][-1]
            self.last_move = {
                "at_ms": line["now_ms"],
                "bundle": move["bundle"],
                "source": move["from"],
                "destination": move["to"],
                "cause": move["cause"],
            }
        self._add_silence(line)

    def silent_now(self, now_ms: int) -> Silence:
        """Return the brokers that are silent, as of the newest batch."""
        return silence_of(self.silence.values(), now_ms)

    def _add_silence(self, line: Mapping[str, Any]) -> None:
        for row in line.get(SILENCE, ()):
            timed = {**row, "at_ms": line["now_ms"]}
            self.silence[row["source"]] = timed
            if row["source"]:
                self.new_messages.append(silence_message(timed, line["now_ms"]))
        moved: dict[str, Counter[str]] = {}
        for move in line["moves"]:
            if move["cause"] == "failover":
                moved.setdefault(move["from"], Counter())[move["to"]] += 1
        for broker, to in sorted(moved.items()):
            inputs = {"bundles": to.total(), "destinations": to}
            self.new_messages.append(f"{broker} is dead: {moves_message([inputs])}")
