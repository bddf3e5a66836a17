"""Random histories: the guardian, liveness, rolling restarts."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.bridge.restarted_cluster import Complaint
from jobs.bridge.rolling_progress import Progress
from jobs.bridge.rolling_restart import CutOffError
from lbcore.bridge.guardian import GuardianTimeouts, GuardState, Judged, ProbeRound, Trouble, judge
from lbcore.ownership.liveness import TICK, Liveness, Rows
from tests.support.values.clusters import few
from tests.support.worlds.rolling_cluster import BROKERS, HOMES, KilledError, RestartRun

BROKERS_OF_GUARDIAN = ("a:8080", "b:8080", "c:8080")
BUNDLES = tuple(f"acme/ns{number}/0x00000000_0xffffffff" for number in range(4))
PATIENCE = GuardianTimeouts()
LOOK_MS = 5_000
claims = st.fixed_dictionaries(
    {one: st.none() | st.frozensets(st.sampled_from(BUNDLES)) for one in BROKERS_OF_GUARDIAN}
)
rounds = st.builds(
    ProbeRound,
    listed=st.frozensets(st.sampled_from(BROKERS_OF_GUARDIAN)),
    owned=claims,
    closing=st.frozensets(st.sampled_from(BUNDLES)),
    used_bundles=st.frozensets(st.sampled_from(BUNDLES)),
)
histories = st.lists(st.tuples(rounds, st.integers(0, 6_000)), max_size=12)


def lived(history: list[tuple[ProbeRound, int]], *, acts: bool = True) -> list[tuple[int, Judged]]:
    state, now_ms, found = GuardState(), 0, []
    for seen, later_ms in history:
        now_ms += later_ms
        found.append((now_ms, judge(state, seen, now_ms, PATIENCE, acts=acts)))
        state = found[-1][1].state
    return found


def turned(seen: ProbeRound) -> ProbeRound:
    """The same in another order."""
    owned: Mapping[str, frozenset[str] | None] = dict(reversed(list(seen.owned.items())))
    return ProbeRound(
        listed=seen.listed, owned=owned, closing=seen.closing, used_bundles=seen.used_bundles
    )


@given(histories)
def test_order_in_which_brokers_answered_changes_nothing(
    history: list[tuple[ProbeRound, int]],
) -> None:
    once, again = lived(history), lived([(turned(seen), at) for seen, at in history])
    assert [(one.findings, one.repairs) for _, one in once] == [
        (one.findings, one.repairs) for _, one in again
    ]


@given(histories)
def test_whatever_happens_findings_have_lasted_and_mends_are_few(
    history: list[tuple[ProbeRound, int]],
) -> None:
    found = lived(history)
    for now_ms, judged in found:
        for one in judged.findings:
            assert now_ms - one.since_ms >= PATIENCE.of(one.trouble)
        assert judged.look_in_ms is None or 0 <= judged.look_in_ms <= PATIENCE.confirm_ms
        asked = sum(len(one.repairs) for at_ms, one in found if now_ms - 60_000 < at_ms <= now_ms)
        assert asked <= PATIENCE.repairs_per_minute
    asked_of = [
        (one.trouble, one.subject, one.since_ms) for _, judged in found for one in judged.repairs
    ]
    assert len(asked_of) == len(set(asked_of))


@given(
    st.lists(st.tuples(st.sampled_from(BUNDLES), st.sampled_from(BROKERS_OF_GUARDIAN)), max_size=30)
)
def test_moves_that_are_seen_at_both_places_or_at_none_are_no_findings(
    moves: list[tuple[str, str]],
) -> None:
    """A bundle's move shows in one look, as in the worst order of questions; looks go on after."""
    where = dict.fromkeys(BUNDLES, BROKERS_OF_GUARDIAN[0])
    looks = [where]
    for bundle, broker in moves:
        looks.append({**looks[-1], bundle: broker})
    history = [(settled(looks[0]), 0)]
    for number, (before, after) in enumerate(pairwise(looks)):
        both = dict.fromkeys(BROKERS_OF_GUARDIAN, frozenset[str]())
        for each in (before, after) if number % 2 else ():
            both = {one: both[one] | settled(each).owned[one] for one in BROKERS_OF_GUARDIAN}  # type: ignore[operator]
        mixed = ProbeRound(
            listed=frozenset(BROKERS_OF_GUARDIAN), owned=both, used_bundles=frozenset(BUNDLES)
        )
        history += [(mixed, LOOK_MS), (settled(after), LOOK_MS)]
    assert not any(judged.findings for _, judged in lived(history))


def settled(where: Mapping[str, str]) -> ProbeRound:
    owned: dict[str, frozenset[str] | None] = {
        broker: frozenset(bundle for bundle, owner in where.items() if owner == broker)
        for broker in BROKERS_OF_GUARDIAN
    }
    return ProbeRound(
        listed=frozenset(BROKERS_OF_GUARDIAN), owned=owned, used_bundles=frozenset(BUNDLES)
    )


@given(st.integers(0, LOOK_MS - 1), st.sampled_from(BUNDLES))
def test_second_owner_is_found_within_ten_seconds_at_the_default_looks(
    fault_ms: int, bundle: str
) -> None:
    sound = settled(dict.fromkeys(BUNDLES, BROKERS_OF_GUARDIAN[0]))
    hurt = ProbeRound(
        listed=sound.listed, owned={**sound.owned, BROKERS_OF_GUARDIAN[1]: frozenset((bundle,))}
    )
    state, now_ms = GuardState(), 0
    while True:
        judged = judge(state, hurt if now_ms >= fault_ms else sound, now_ms, PATIENCE, acts=False)
        state = judged.state
        if judged.findings:
            break
        now_ms += LOOK_MS if judged.look_in_ms is None else min(LOOK_MS, judged.look_in_ms)
    assert [(one.trouble, one.subject) for one in judged.findings] == [(Trouble.DOUBLED, bundle)]
    assert now_ms - fault_ms <= 10_000


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
class WorldOfLiveness:
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
def worlds(draw: st.DrawFn, *, has_silent: bool = False) -> WorldOfLiveness:
    count = draw(st.integers(2, 6))
    end_ms = draw(st.integers(40_000, 90_000))
    gaps = draw(st.lists(st.tuples(st.integers(0, end_ms), st.integers(0, 3_600_000)), max_size=3))
    return WorldOfLiveness(
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
def test_gap_in_everything_of_any_length_kills_nobody(
    world: WorldOfLiveness, batch_ms: int
) -> None:
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
def test_silent_broker_is_found_within_the_timeout_and_three_seconds(
    world: WorldOfLiveness,
) -> None:
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
def test_state_does_not_depend_on_how_rows_are_cut(
    world: WorldOfLiveness, data: st.DataObject
) -> None:
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


@pytest.mark.parametrize("seed", few(range(60), 15))
def test_cuts_and_faults_at_any_time_end_in_all_restarted_and_all_at_home(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    run = RestartRun(tmp_path / "state.json")
    cluster = run.cluster
    fault = Complaint(key="x", why="something", next_step="see", patience_ms=0)

    def disturb(_: Progress) -> None:
        assert len(set(BROKERS) - cluster.listed) <= 1
        cluster.complaints = (fault,) if chance.random() < 0.02 else ()
        if chance.random() < 0.02:
            run.end.set()
        if chance.random() < 0.02:
            raise KilledError

    run.begin()
    cluster.before_observe = disturb
    while run.path.exists():
        with suppress(CutOffError, KilledError):
            run.run()
    assert cluster.dropped_while_owning == []
    assert set(cluster.restarts) == set(BROKERS)
    assert cluster.owners == HOMES
    assert cluster.drains == {}
