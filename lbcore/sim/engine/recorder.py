"""Record of a run: samples of true load, moves, decisions, reports, trace hash.

`measures` computes numbers from it.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lbcore.balancer.effects import Effect
from lbcore.ownership.records import Cause, State
from lbcore.plan.shed.custom import FAULTS
from lbcore.sim.engine.job import report_of
from lbcore.sim.engine.log import Clock
from lbcore.sim.load.load import Floats, Ints
from lbcore.sim.summary import ObservedMove

Row = Mapping[str, Any]

_MICRO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGroup:
    """An isolation group of `plan.groups` at one moment.

    brokers: int64[n], running ones. floor: percent that its hottest bundle alone makes of a broker
    of mean capacity.
    """

    brokers: Ints
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The true state at one moment.

    loads: float64[brokers], percent of each broker's capacity, NaN for one that isn't running.
    groups: those of the last cycle that have a running broker.
    """

    at_ms: int
    loads: Floats
    groups: Sequence[SampledGroup]
    bundles: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A row of the table decisions. wrong: fault of a custom strategy."""

    at_ms: int
    kind: str
    reason: str
    wrong: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CausedMove:
    """A move and its cause; at_ms of the move counts from the scenario's start."""

    move: ObservedMove
    cause: str


@dataclass(slots=True)
class Recorder:
    """A run's record, in the order of time. splits: ms; commands: (ms, id, status)."""

    clock: Clock
    samples: list[Sample] = field(default_factory=list)
    moves: list[CausedMove] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    decisions: list[Decided] = field(default_factory=list)
    commands: list[tuple[int, str, str]] = field(default_factory=list)
    reports: list[tuple[int, Row]] = field(default_factory=list)
    owner: dict[str, str] = field(default_factory=dict)
    _causes: dict[str, str] = field(default_factory=dict)
    _hash: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=8))

    def take(self, effects: Sequence[Effect]) -> None:
        """Record a batch's effects."""
        for effect in effects:
            if effect.kind == "ownership_events":
                self._take_events(effect.rows)
            elif effect.kind == "decisions":
                for row in effect.rows:
                    self._trace(
                        row, "kind", "reason", "strategy", "bundle", "source", "destination"
                    )
                    is_faulty = row["reason"] in FAULTS
                    skipped = json.loads(str(row["inputs"]))["skipped"] if is_faulty else {}
                    self.decisions.append(
                        Decided(
                            at_ms=self.clock.scenario_ms,
                            kind=str(row["kind"]),
                            reason=str(row["reason"]),
                            wrong=str(skipped.get("strategy", "")),
                        )
                    )
            elif effect.kind == "commands":
                now_ms = self.clock.scenario_ms
                self.commands += [(now_ms, r["command_id"], r["status"]) for r in effect.rows]
        report = report_of(effects)
        if report:
            self.reports.append((self.clock.scenario_ms, report))

    def sample(self, sample: Sample) -> None:
        """Record the true state of one moment."""
        self.samples.append(sample)
        rounded = np.rint(np.nan_to_num(sample.loads, nan=-1.0) * _MICRO).astype("<i8")
        self._hash.update(struct.pack("<q", sample.at_ms) + rounded.tobytes())

    def hash(self) -> str:
        """Return the hash of all decisions, ownership events and samples."""
        return str(self._hash.hexdigest())

    def _take_events(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._trace(
                row, "bundle", "version_id", "state", "source", "destination", "cause", "is_forced"
            )
            bundle, state = str(row["bundle"]), row["state"]
            if state == State.SPLITTING.value:
                self.splits.append(self.clock.scenario_ms)
            if state == State.OWNED.value:
                broker, at_ms = str(row["destination"]), self.clock.scenario_ms
                cause = self._causes.pop(bundle, str(row["cause"]))
                source = self.owner.get(bundle, broker)
                self.owner[bundle] = broker
                if source != broker:  # neither the first owner nor the same one
                    move = ObservedMove(
                        bundle=bundle, source=source, destination=broker, at_ms=at_ms
                    )
                    self.moves.append(CausedMove(move=move, cause=cause))
            elif row["cause"] != Cause.ACK.value:
                self._causes[bundle] = str(row["cause"])
            if state == State.DELETED.value:
                self.owner.pop(bundle, None)

    def _trace(self, row: Row, *names: str) -> None:
        line = "\t".join([str(self.clock.scenario_ms), *(str(row[name]) for name in names)])
        self._hash.update(line.encode() + b"\n")
