"""Liveness: which brokers are silent, judged in Kafka's time alone.

Each partition of broker-load has a clock that advances with its rows, by at most clock_step_max_ms
a row. The driver's ticks are such rows: a longer gap means that the job or Kafka was down, and does
not count as any broker's silence. A broker's silence is its partition's clock at the newest tick
minus the clock at its last arrival. The scorer has already dropped rows of superseded incarnations.
Called by the balancer in each batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.signals.averages import Ints

TICK = -1
ANYWHERE = -1
"""Partition of a broker that is known from the tables and has not reported yet."""
NEVER = -(10**12)
"""Last time of a broker that was already dead at a rebuild: longer ago than any timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClock:
    """A partition's clock.

    clock_ms: its time. timestamp_ms: of its last row. tick_ms: the clock at its last tick;
    ticked_at_ms: the cluster's clock after the batch of that tick (or of its first row).
    """

    clock_ms: int
    timestamp_ms: int
    tick_ms: int
    ticked_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """Partition of a broker's last report, and its time by the partition's clock."""

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
    """Known liveness of brokers.

    clocks: by partition. seen: by broker. dead: brokers judged dead that have not reported since.
    all_silent_ms: the cluster's clock when all brokers were last silent.
    """

    clocks: Mapping[int, PartitionClock] = field(default_factory=dict)
    seen: Mapping[str, LastRecord] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    all_silent_ms: int = NEVER

    @property
    def elapsed_ms(self) -> int:
        """The cluster's clock: the running time of the job, ms.

        For waits that concern no single partition. It is the clock of the partition that has
        advanced furthest. A sum of each batch's longest advance would run too fast, because the
        partitions' rows of one second may come in several batches.
        """
        return max((clock.clock_ms for clock in self.clocks.values()), default=0)

    def observe(self, rows: Rows, clock_step_max_ms: int) -> "Liveness":
        """Return the liveness after a batch's rows. O(rows log rows).

        Silences do not depend on how rows are divided into batches.
        """
        if not len(rows.partition):
            return self
        clocks, seen = dict(self.clocks), dict(self.seen)
        order = np.lexsort((rows.offset, rows.partition))
        partitions, starts = np.unique(rows.partition[order], return_index=True)
        for partition, mine in zip(partitions.tolist(), np.split(order, starts[1:]), strict=True):
            before = clocks.get(partition)
            timestamps, brokers = rows.timestamp_ms[mine], rows.broker[mine]
            times = _clock_times(before, timestamps, clock_step_max_ms)
            ticks = times[brokers == TICK]
            clocks[partition] = PartitionClock(
                clock_ms=int(times[-1]),
                timestamp_ms=int(timestamps[-1]),
                tick_ms=int(ticks[-1]) if len(ticks) else (0 if before is None else before.tick_ms),
                ticked_at_ms=0 if before is None else before.ticked_at_ms,
            )
            last = dict(zip(brokers.tolist(), times.tolist(), strict=True))
            for broker, clock_ms in last.items():
                if broker != TICK:
                    seen[rows.brokers[broker]] = LastRecord(partition=partition, clock_ms=clock_ms)
        ticked = set(rows.partition[rows.broker == TICK].tolist()) | (clocks.keys() - self.clocks)
        heard = replace(self, clocks=clocks, seen=seen)
        for partition in ticked:
            clocks[partition] = replace(clocks[partition], ticked_at_ms=heard.elapsed_ms)
        return heard

    def missing_ticks(self, tick_alarm_ms: int) -> list[int]:
        """Return the partitions without ticks for longer: no broker in them is judged.

        Also empty if no partition gets any rows: `elapsed_ms` stands still then.
        """
        elapsed_ms = self.elapsed_ms
        return sorted(
            partition
            for partition, clock in self.clocks.items()
            if elapsed_ms - clock.ticked_at_ms > tick_alarm_ms
        )

    def expect(self, brokers: Sequence[str], dead: Sequence[str] = ()) -> "Liveness":
        """Return the liveness with known brokers, whose silence begins now.

        dead: those that were dead already, and stay so until they report.
        """
        waiting = LastRecord(partition=ANYWHERE, clock_ms=self.elapsed_ms)
        gone = LastRecord(partition=ANYWHERE, clock_ms=NEVER)
        expected = {**dict.fromkeys(brokers, waiting), **dict.fromkeys(dead, gone)}
        return replace(self, seen={**expected, **self.seen}, dead=self.dead | {*dead})

    def forget(self, broker: str) -> "Liveness":
        """Return the liveness without a broker."""
        seen = {name: last for name, last in self.seen.items() if name != broker}
        return replace(self, seen=seen, dead=self.dead - {broker})

    def silence_ms(self, broker: str) -> int:
        """Return the silence of a watched broker by the ticks, at least 0, ms."""
        last = self.seen[broker]
        if last.partition == ANYWHERE:
            ticks = (clock.tick_ms for clock in self.clocks.values())
            return max(0, max(ticks, default=0) - last.clock_ms)
        return max(0, self.clocks[last.partition].tick_ms - last.clock_ms)

    def unheard_ms(self, broker: str) -> int:
        """Return the time since a watched broker reported, ms; at least `silence_ms`.

        Unlike `silence_ms`, it grows while the broker's partition gets no ticks.
        """
        last = self.seen[broker]
        if last.partition == ANYWHERE:
            return self.silence_ms(broker)
        clock = self.clocks[last.partition]
        since_tick_ms = self.elapsed_ms - clock.ticked_at_ms
        return max(self.silence_ms(broker), since_tick_ms + clock.tick_ms - last.clock_ms)

    def judge(self, broker_timeout_ms: int, heard_ms: int = 0) -> "Liveness":
        """Return the liveness with the dead brokers: silent for longer than the timeout.

        heard_ms: if the latest report of any broker is older (0 = than the timeout), no broker is
        judged: more likely the job or Kafka is at fault. Once one reports again, the others have
        heard_ms to report as well. A dead broker stays dead until it reports.
        """
        silence_ms = {name: self.silence_ms(name) for name in self.seen}
        silent = {name for name, ms in silence_ms.items() if ms > broker_timeout_ms}
        elapsed_ms, all_silent_ms = self.elapsed_ms, self.all_silent_ms
        if silent and min(silence_ms.values()) > (heard_ms or broker_timeout_ms):
            all_silent_ms = elapsed_ms
        if elapsed_ms - all_silent_ms <= heard_ms:
            silent &= self.dead
        return replace(self, dead=frozenset(silent), all_silent_ms=all_silent_ms)


def _clock_times(before: PartitionClock | None, timestamps: Ints, step_max_ms: int) -> Ints:
    """Return the partition's clock at each row, from the steps of its timestamps.

    Each step is limited to 0 .. step_max_ms. After a step back (another Kafka broker leads the
    partition) the clock advances with the next row.
    """
    first = int(timestamps[0]) if before is None else before.timestamp_ms
    steps = np.clip(np.diff(timestamps, prepend=first), 0, step_max_ms)
    return np.cumsum(steps) + (0 if before is None else before.clock_ms)
