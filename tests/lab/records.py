"""What one run of one contender came to, as values; and what a reader wants to know of it.

Decides what is counted: time above 1.25, moves without those that a dead broker made necessary,
repeated moves, the first use of a new broker. No clock, no I/O.

Ratio: what the busiest live broker is offered over the mean of them; 1.0 = even.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tests.pulsar.distribution import DEFAULT

BOUND = 1.25
SKEW, ADDED = "skew", "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a run. began_s, ended_s: of the run's own time, which stands still between two."""

    name: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What holds from at_s on, until the next one. unowned: bundles with traffic and no owner."""

    at_s: float
    ratio: float
    unowned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A bundle seen at another broker. is_failover: the one that had it was killed."""

    at_s: float
    bundle: str
    source: int
    target: int
    rate: float
    is_failover: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The 99th percentiles in ms, of what was sent around moves and of all else; -1 = no such."""

    publish_moves: float
    publish_else: float
    end_to_end_moves: float
    end_to_end_else: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One run. new_broker_s: from when broker 4 was ready to its first traffic; -1 = not seen.

    pulsar: the version of the brokers.
    load: the machine's load average at the least, in the middle, at the most.
    """

    contender: str
    run: int
    began: str
    cores: int
    load: tuple[float, float, float]
    phases: tuple[Phase, ...]
    samples: tuple[Sample, ...]
    moves: tuple[Move, ...]
    new_broker_s: float
    latencies: Latencies
    acknowledged: int
    lost: int
    errors: int
    notes: tuple[str, ...] = ()
    pulsar: str = DEFAULT

    def phase(self, name: str) -> Phase | None:
        """The part of that name."""
        return next((one for one in self.phases if one.name == name), None)

    @property
    def watched_s(self) -> float:
        """How long it was watched in all."""
        return self.phases[-1].ended_s

    def stretches(self, name: str = "") -> list[tuple[float, Sample]]:
        """(how long it held in s, sample), within a phase or in all."""
        phase = self.phase(name)
        first_s, last_s = (phase.began_s, phase.ended_s) if phase else (0.0, self.watched_s)
        ends = [*(one.at_s for one in self.samples[1:]), self.watched_s]
        found = [
            (min(end_s, last_s) - max(one.at_s, first_s), one)
            for one, end_s in zip(self.samples, ends, strict=True)
        ]
        return [(held_s, one) for held_s, one in found if held_s > 0]

    def above_s(self, name: str = "") -> float:
        """Seconds above BOUND."""
        return sum(held_s for held_s, one in self.stretches(name) if one.ratio > BOUND)

    def mean_ratio(self, name: str = "") -> float:
        """Over time."""
        held = self.stretches(name)
        return sum(s * one.ratio for s, one in held) / max(sum(s for s, _ in held), 1e-9)

    def last_ratio(self, name: str) -> float:
        """At the end of a phase."""
        held = self.stretches(name)
        return held[-1][1].ratio if held else float("nan")

    @property
    def unowned_s(self) -> float:
        """Seconds in which some bundle with traffic had no owner."""
        return sum(held_s for held_s, one in self.stretches() if one.unowned)

    @property
    def own_moves(self) -> tuple[Move, ...]:
        """Those that somebody decided."""
        return tuple(move for move in self.moves if not move.is_failover)

    @property
    def repeated(self) -> int:
        """Moves of bundles that had moved before."""
        counts = Counter(move.bundle for move in self.own_moves)
        return sum(count - 1 for count in counts.values())

    @property
    def first_move_s(self) -> float:
        """From the beginning of the skew to the first move in it; -1 = none."""
        phase = self.phase(SKEW)
        if phase is None:
            return -1.0
        times = [move.at_s for move in self.own_moves]
        inside = [one - phase.began_s for one in times if phase.began_s <= one < phase.ended_s]
        return min(inside, default=-1.0)


def to_json(record: Record) -> dict[str, Any]:
    """As JSON has it; samples and moves as rows, for they are many."""
    found = asdict(record)
    found["samples"] = [[s.at_s, s.ratio, s.unowned] for s in record.samples]
    found["moves"] = [
        [m.at_s, m.bundle, m.source, m.target, m.rate, m.is_failover] for m in record.moves
    ]
    return found


def from_json(found: Mapping[str, Any]) -> Record:
    """What `to_json` made."""
    samples = tuple(Sample(at_s=a, ratio=r, unowned=u) for a, r, u in found["samples"])
    moves = tuple(
        Move(at_s=a, bundle=b, source=s, target=t, rate=r, is_failover=f)
        for a, b, s, t, r, f in found["moves"]
    )
    return Record(
        **{
            **found,
            "load": tuple(found["load"]),
            "phases": tuple(Phase(**one) for one in found["phases"]),
            "samples": samples,
            "moves": moves,
            "latencies": Latencies(**found["latencies"]),
            "notes": tuple(found["notes"]),
        }
    )


def p99(took_ms: Iterable[float]) -> float:
    """The 99th percentile in ms, -1 of nothing."""
    found = sorted(took_ms)
    return round(found[int(0.99 * (len(found) - 1))], 1) if found else -1.0


def spread(loads: Sequence[float]) -> tuple[float, float, float]:
    """The least, the median, the most."""
    return round(min(loads), 1), round(median(loads), 1), round(max(loads), 1)


def middle(values: Sequence[float]) -> float:
    """The median of what is known; -1 stands for what was not seen, and counts as the worst."""
    worst = sorted((float("inf") if one < 0 else one) for one in values)
    found = median(worst) if worst else -1.0
    return -1.0 if found == float("inf") else found


def cell(values: Sequence[float]) -> str:
    """The median, and the least and the most in brackets; "-" for what was not seen (below 0).

    Without brackets where least and most are shown alike.
    """
    if len(values) == 1:
        return _number(values[0])
    least, most = min(values), max(values)
    if min(values) < 0:  # not seen is more than the most
        seen = [one for one in values if one >= 0]
        least, most = min(seen, default=-1.0), -1.0
    if _number(least) == _number(most):
        return _number(least)
    return f"{_number(middle(values))} ({_number(least)}, {_number(most)})"


def _number(value: float) -> str:
    if value < 0:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
