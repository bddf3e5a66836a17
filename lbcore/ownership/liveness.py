"""Liveness: which brokers are silent, judged in Kafka's time alone.

Decides who is dead; not what happens to its bundles. Each partition of broker-load has a clock
that advances with its rows, by at most clock_step_max_ms a row: while nobody wrote, not even the
driver's ticks, the time was ours or Kafka's, and counts for no broker. A broker's silence is its
partition's clock at the newest tick minus the clock at its last arrival. Called by the balancer in
each batch. Source: ours; Kafka's LogAppendTime is the only clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

TICK = -1
ANYWHERE = -1
"""The partition of a broker that is known from the tables and has not reported yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClock:
    """A partition's clock.

    clock_ms: time that counted. timestamp_ms: of its newest row. tick_ms: the clock at its newest
    tick.
    """

    clock_ms: int
    timestamp_ms: int
    tick_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """Where and when a broker was seen last, by that partition's clock."""

    partition: int
    clock_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of broker-load, in any order.

    partition, offset, timestamp_ms: int64[rows]. broker: index into `brokers`, or TICK.
    """

    partition: Ints
    offset: Ints
    timestamp_ms: Ints
    broker: Ints
    brokers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What is known so far.

    elapsed_ms: the cluster's clock, the time that the job has seen pass; for waits that belong to
    no partition. dead: brokers judged dead and not heard of since.
    """

    clocks: Mapping[int, PartitionClock] = field(default_factory=dict)
    seen: Mapping[str, LastSeen] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    elapsed_ms: int = 0
    elapsed_tick_ms: int = 0

    def observe(self, rows: Rows, clock_step_max_ms: int) -> "Liveness":
        """Take in a batch's rows; how rows are cut into batches makes no difference to silences.

        O(rows log rows).
        """
        clocks, seen = dict(self.clocks), dict(self.seen)
        advance = 0
        order = np.lexsort((rows.offset, rows.partition))
        for partition in np.unique(rows.partition).tolist():
            mine = order[rows.partition[order] == partition]
            before = clocks.get(partition)
            times = _clock_times(before, rows.timestamp_ms[mine], clock_step_max_ms)
            clocks[partition] = _advanced(before, times, rows.timestamp_ms[mine], rows.broker[mine])
            advance = max(advance, clocks[partition].clock_ms - (before.clock_ms if before else 0))
            for broker, clock_ms in zip(rows.broker[mine].tolist(), times.tolist(), strict=True):
                if broker != TICK:
                    seen[rows.brokers[broker]] = LastSeen(partition=partition, clock_ms=clock_ms)
        elapsed_ms = self.elapsed_ms + advance
        has_tick = bool((rows.broker == TICK).any())
        return replace(
            self,
            clocks=clocks,
            seen=seen,
            elapsed_ms=elapsed_ms,
            elapsed_tick_ms=elapsed_ms if has_tick else self.elapsed_tick_ms,
        )

    def expect(self, brokers: Sequence[str]) -> "Liveness":
        """Brokers that are known to exist: silent from now on, until they report."""
        waiting = LastSeen(partition=ANYWHERE, clock_ms=self.elapsed_ms)
        return replace(self, seen={**dict.fromkeys(brokers, waiting), **self.seen})

    def forget(self, broker: str) -> "Liveness":
        """A broker that is no longer watched."""
        seen = {name: last for name, last in self.seen.items() if name != broker}
        return replace(self, seen=seen, dead=self.dead - {broker})

    def silence_ms(self, broker: str) -> int:
        """How long a watched broker has been silent, as far as ticks tell; at least 0."""
        last = self.seen[broker]
        if last.partition == ANYWHERE:
            return max(0, self.elapsed_tick_ms - last.clock_ms)
        return max(0, self.clocks[last.partition].tick_ms - last.clock_ms)

    def judge(self, broker_timeout_ms: int) -> "Liveness":
        """Who is dead: silent for longer than the timeout, while somebody else is not.

        When everybody is silent nobody dies of it: more likely it is us. Who was dead stays so
        until heard of again.
        """
        silent = {name for name in self.seen if self.silence_ms(name) > broker_timeout_ms}
        is_anybody_there = len(silent) < len(self.seen)
        return replace(self, dead=frozenset(silent if is_anybody_there else silent & self.dead))

    def to_plain(self) -> dict[str, Any]:
        """JSON-able values."""
        return {
            "clocks": {
                str(p): [c.clock_ms, c.timestamp_ms, c.tick_ms] for p, c in self.clocks.items()
            },
            "seen": {name: [last.partition, last.clock_ms] for name, last in self.seen.items()},
            "dead": sorted(self.dead),
            "elapsed_ms": self.elapsed_ms,
            "elapsed_tick_ms": self.elapsed_tick_ms,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Liveness":
        """The inverse of `to_plain`."""
        return cls(
            clocks={
                int(p): PartitionClock(clock_ms=c, timestamp_ms=t, tick_ms=k)
                for p, (c, t, k) in plain["clocks"].items()
            },
            seen={
                name: LastSeen(partition=p, clock_ms=c) for name, (p, c) in plain["seen"].items()
            },
            dead=frozenset(plain["dead"]),
            elapsed_ms=plain["elapsed_ms"],
            elapsed_tick_ms=plain["elapsed_tick_ms"],
        )


def _clock_times(before: PartitionClock | None, timestamps: Ints, step_max_ms: int) -> Ints:
    """The partition's clock at each row: its steps are those of the timestamps, cut at the most."""
    first = int(timestamps[0]) if before is None else before.timestamp_ms
    newest = np.maximum.accumulate(np.concatenate([[first], timestamps]))
    steps = np.minimum(np.diff(newest), step_max_ms)
    times: Ints = np.cumsum(steps) + (0 if before is None else before.clock_ms)
    return times


def _advanced(
    before: PartitionClock | None, times: Ints, timestamps: Ints, brokers: Ints
) -> PartitionClock:
    ticks = times[brokers == TICK]
    last_tick = 0 if before is None else before.tick_ms
    newest = int(timestamps.max())
    return PartitionClock(
        clock_ms=int(times[-1]),
        timestamp_ms=newest if before is None else max(newest, before.timestamp_ms),
        tick_ms=int(ticks[-1]) if len(ticks) else last_tick,
    )
