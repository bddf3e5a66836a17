"""Liveness over random histories: our own gaps kill nobody, a silent broker is found in time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.ownership.liveness import TICK, Liveness, Rows

TICK_MS = 1_000
HEARTBEAT_MS = 3_000
STEP_MAX_MS = 2_000
TIMEOUT_MS = 15_000


@dataclass(frozen=True, kw_only=True)
class Written:
    """A row of broker-load; broker TICK is a tick."""

    partition: int
    timestamp_ms: int
    broker: int


@dataclass(frozen=True, kw_only=True)
class World:
    """Brokers by number, each in a partition, beating with its own phase; broker 0 may fall silent.

    gaps: (start, length) in which nothing at all is written: Kafka, the network, everything away.
    """

    partitions: tuple[int, ...]
    phases: tuple[int, ...]
    gaps: tuple[tuple[int, int], ...]
    end_ms: int
    silent_from_ms: int | None = None

    def written(self) -> list[Written]:
        """All rows, in the order of Kafka's clock."""
        found = [
            Written(partition=partition, timestamp_ms=at_ms, broker=TICK)
            for partition in sorted(set(self.partitions))
            for at_ms in range(0, self.end_ms, TICK_MS)
        ]
        for broker, partition in enumerate(self.partitions):
            found += [
                Written(partition=partition, timestamp_ms=at_ms, broker=broker)
                for at_ms in self.beats(broker)
            ]
        shifted = [self._shift(row) for row in found]
        return sorted(shifted, key=lambda row: (row.timestamp_ms, row.partition, row.broker))

    def beats(self, broker: int) -> Iterator[int]:
        """When the broker sends its heartbeats, gaps left out."""
        for at_ms in range(self.phases[broker], self.end_ms, HEARTBEAT_MS):
            if broker == 0 and self.silent_from_ms is not None and at_ms >= self.silent_from_ms:
                return
            yield at_ms

    def _shift(self, row: Written) -> Written:
        """Later by every gap that began before: nothing is written meanwhile, all goes on after."""
        away_ms = sum(length for start, length in self.gaps if row.timestamp_ms >= start)
        return Written(
            partition=row.partition, timestamp_ms=row.timestamp_ms + away_ms, broker=row.broker
        )


@st.composite
def worlds(draw: st.DrawFn, *, has_silent: bool = False) -> World:
    count = draw(st.integers(2, 6))
    end_ms = draw(st.integers(40_000, 90_000))
    gaps = draw(st.lists(st.tuples(st.integers(0, end_ms), st.integers(0, 3_600_000)), max_size=3))
    return World(
        partitions=tuple(draw(st.integers(0, 2)) for _ in range(count)),
        phases=tuple(draw(st.integers(0, HEARTBEAT_MS - 1)) for _ in range(count)),
        gaps=tuple(gaps),
        end_ms=end_ms,
        silent_from_ms=draw(st.integers(HEARTBEAT_MS, 15_000)) if has_silent else None,
    )


def observe(liveness: Liveness, batch: Sequence[tuple[int, Written]], count: int) -> Liveness:
    """A batch of (offset, row)."""
    columns = np.array(
        [[row.partition, offset, row.timestamp_ms, row.broker] for offset, row in batch],
        dtype=np.int64,
    ).reshape(-1, 4)
    partition, offset, timestamp_ms, broker = columns.T
    rows = Rows(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        broker=broker,
        brokers=[f"broker-{i}" for i in range(count)],
    )
    return liveness.observe(rows, STEP_MAX_MS)


def with_offsets(written: Sequence[Written]) -> list[tuple[int, Written]]:
    ends: dict[int, int] = {}
    numbered = []
    for row in written:
        offset = ends.get(row.partition, 0)
        numbered.append((offset, row))
        ends[row.partition] = offset + 1
    return numbered


@settings(deadline=None)
@given(world=worlds(), batch_ms=st.integers(500, 120_000))
def test_gap_in_everything_of_any_length_kills_nobody(world: World, batch_ms: int) -> None:
    liveness = Liveness()
    batch: list[tuple[int, Written]] = []
    until_ms = batch_ms
    for offset, row in with_offsets(world.written()):
        if row.timestamp_ms >= until_ms:
            liveness = observe(liveness, batch, len(world.partitions)).judge(TIMEOUT_MS)
            assert liveness.dead == frozenset()
            batch, until_ms = [], row.timestamp_ms + batch_ms
        batch.append((offset, row))
    liveness = observe(liveness, batch, len(world.partitions)).judge(TIMEOUT_MS)
    assert liveness.dead == frozenset()


@settings(deadline=None)
@given(world=worlds(has_silent=True))
def test_silent_broker_is_found_within_the_timeout_and_three_seconds(world: World) -> None:
    liveness = Liveness()
    for offset, row in with_offsets(world.written()):
        liveness = observe(liveness, [(offset, row)], len(world.partitions)).judge(TIMEOUT_MS)
        if "broker-0" in liveness.dead:
            break
    assert liveness.dead == {"broker-0"}
    last_beat_ms = max(world.beats(0))
    ticks_since = sum(
        earlier.broker == TICK and earlier.partition == world.partitions[0]
        for earlier in world.written()
        if earlier.timestamp_ms <= row.timestamp_ms
    ) - len(range(0, last_beat_ms, TICK_MS))
    assert ticks_since * TICK_MS <= TIMEOUT_MS + 3_000


@settings(deadline=None)
@given(world=worlds(has_silent=True), data=st.data())
def test_state_does_not_depend_on_how_rows_are_cut(world: World, data: st.DataObject) -> None:
    numbered = with_offsets(world.written())
    whole = observe(Liveness(), numbered, len(world.partitions)).judge(TIMEOUT_MS)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(numbered)), max_size=8)))
    liveness = Liveness()
    for start, end in zip([0, *cuts], [*cuts, len(numbered)], strict=True):
        batch = (
            data.draw(st.permutations(numbered[start:end]))
            if end - start < 40
            else (numbered[start:end])
        )
        liveness = observe(liveness, batch, len(world.partitions))
    cut = liveness.judge(TIMEOUT_MS)
    assert cut.dead == whole.dead
    assert cut.seen == whole.seen
    assert cut.elapsed_ms == whole.elapsed_ms
    assert {b: cut.silence_ms(b) for b in cut.seen} == {b: whole.silence_ms(b) for b in cut.seen}
