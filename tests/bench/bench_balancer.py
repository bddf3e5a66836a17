"""`python -m tests.bench.bench_balancer`: the balancer's steps at 1,000 brokers × 100,000 bundles.

Medians of 20 calls after two to warm up, each from the same state; in-process, without Spark and
without a disk. A step is measured with what the operator does with it: reading its input, packing
the state and its digests, and packing the effects. CPU time is given besides the wall's, because
other processes may share the machine. Usage: ... [--brokers 1000] [--bundles 100000] [--output X]
"""

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import pack_effect
from lbcore.balancer.rebuild import TableRows, rebuild_state
from lbcore.config.tree import Config
from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.model.resources import COUNT, complete
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.scorer.group_update import (
    TICK,
    Arrivals,
    BrokerReport,
    BundleReport,
    GroupUpdate,
    PositionedMessage,
    pack_update,
    unpack_update,
)
from lbcore.wire.messages import Ack, AckOutcome, Acks, BrokerLoad, Envelope, Position
from tests.bench.calibration import machine

Chunks = Mapping[str, bytes]

CLUSTER = "local"
REPETITIONS = 20
WARM_UPS = 2
PARTITIONS = 8
PER_NAMESPACE = 100
START_MS = 1_700_000_000_000
INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One line of the table. Times in ms, medians: of the step alone, and with all packing."""

    name: str
    step_ms: float
    total_ms: float
    total_cpu_ms: float
    slowest_ms: float
    events: int


@dataclass
class Cluster:
    """A big cluster at rest: who owns what, and the making of its brokers' messages."""

    brokers: int
    bundles: int
    per_namespace: int = PER_NAMESPACE

    def __post_init__(self) -> None:
        cuts = even_boundaries(self.per_namespace)
        ranges = [each.text for each in NamespaceBundles("t/n", cuts).ranges()]
        spaces = range(self.bundles // self.per_namespace)
        self.names = [f"t/n{space:05}/{text}" for space in spaces for text in ranges]
        rng = np.random.default_rng(1)
        self.owner = rng.permutation(len(self.names)) % self.brokers
        self.rates = rng.pareto(1.5, len(self.names)) * 100.0
        self.owned = [np.flatnonzero(self.owner == broker) for broker in range(self.brokers)]

    def records(self) -> list[OwnershipRecord]:
        return [
            OwnershipRecord(
                cluster=CLUSTER,
                bundle=name,
                state=State.OWNED,
                version_id=3,
                destination=_name(owner),
                destination_incarnation="1",
                cause=Cause.ACK,
                decision_id=f"{CLUSTER}-{START_MS}-{owner}",
                timestamp_ms=START_MS,
            )
            for name, owner in zip(self.names, self.owner.tolist(), strict=True)
        ]

    def update(
        self, number: int, alive: Sequence[int], reporting: Sequence[int], acks: Sequence[Acks] = ()
    ) -> GroupUpdate:
        """A batch: a tick in each partition, some heartbeats, and some whole reports."""
        at_ms = START_MS + number * INTERVAL_MS
        rows = [(p, 10_000 * number, at_ms, TICK) for p in range(PARTITIONS)]
        rows += [(b % PARTITIONS, 10_000 * number + 1 + b, at_ms, i) for i, b in enumerate(alive)]
        columns = np.array(rows, dtype=np.int64).T
        return GroupUpdate(
            group=0,
            brokers=tuple(_name(broker) for broker in alive),
            incarnations=("1",) * len(alive),
            arrivals=Arrivals(
                partition=columns[0],
                offset=columns[1],
                timestamp_ms=columns[2],
                broker=columns[3],
            ),
            loads=tuple(self._load(broker, at_ms) for broker in reporting),
            bundles=tuple(self._bundles(broker, at_ms) for broker in reporting),
            placed=tuple(
                PositionedMessage(
                    position=Position(topic="acks", partition=0, offset=i, timestamp_ms=at_ms),
                    message=message,
                )
                for i, message in enumerate(acks)
            ),
            ends={"broker-load": dict.fromkeys(range(PARTITIONS), 10_000 * number)},
        )

    def _load(self, broker: int, at_ms: int) -> BrokerReport:
        rate = float(self.rates[self.owned[broker]].sum())
        usage = np.array(complete([rate / 1_000]))
        load = BrokerLoad(
            envelope=_envelope(broker),
            usage=usage,
            limit=np.full(COUNT, 100.0),
            traffic=np.array([rate, rate, rate * 1_000, rate * 1_000]),
            bundle_count=len(self.owned[broker]),
            web_service_url=f"http://{_name(broker)}",
        )
        return BrokerReport(
            load=load,
            percent=usage,
            weighted_max_ema=float(usage[0]) / 100,
            throughput_ema=rate * 2_000,
            reported_ms=at_ms,
        )

    def _bundles(self, broker: int, at_ms: int) -> BundleReport:
        rows = self.owned[broker]
        rates = self.rates[rows]
        stats = np.stack(
            [rates, rates, rates * 1e3, rates * 1e3, *np.full((4, len(rows)), 10.0)], axis=1
        )
        return BundleReport(
            broker=_name(broker),
            incarnation="1",
            names=[self.names[row] for row in rows.tolist()],
            stats=stats,
            reported_ms=at_ms,
        )


def _name(broker: int) -> str:
    return f"broker-{broker:04}.example:8080"


def _envelope(broker: int) -> Envelope:
    return Envelope(
        cluster=CLUSTER, broker=_name(broker), incarnation="1", seq=1, reported_at_ms=START_MS
    )


@dataclass(slots=True)
class Bench:
    """A balancer and the state that each measurement starts from."""

    cluster: Cluster
    balancer: ClusterBalancer
    state: BalancerState
    number: int = 0

    def advance(self, alive: Sequence[int], reporting: Sequence[int]) -> None:
        self.number += 1
        update = self.cluster.update(self.number, alive, reporting)
        now_ms = START_MS + self.number * INTERVAL_MS
        step = self.balancer.step(self.state, [update], now_ms)
        assert step.state is not None
        self.state = step.state
        self.balancer.pack(self.state)

    def measure(self, name: str, update: GroupUpdate, *, is_cycle: bool) -> Measured:
        now_ms = START_MS + (self.number + 1) * INTERVAL_MS
        cycle_ms = 0 if is_cycle else now_ms
        state = replace(self.state, times=replace(self.state.times, cycle_ms=cycle_ms))
        blob = pack_update(update)
        held = self.balancer.pack(state)
        times: list[tuple[float, float, float]] = []
        events = 0
        for _ in range(WARM_UPS + REPETITIONS):
            started, started_cpu = time.perf_counter(), time.process_time()
            updates = [unpack_update(blob)]
            read = time.perf_counter()
            step = self.balancer.step(state, updates, now_ms)
            stepped = time.perf_counter()
            assert step.state is not None
            _digests(self.balancer.pack(step.state), held)
            for effect in step.effects:
                pack_effect(effect)
            ended = time.perf_counter()
            cpu = time.process_time() - started_cpu
            times.append((stepped - read, ended - started, cpu))
            events = sum(len(e.rows) for e in step.effects if e.kind == "ownership_events")
        return _measured(name, times, events)


def _digests(chunks: Chunks, held: Chunks) -> list[bytes]:
    """Of the chunks that are not the very same as before, as the operator makes them."""
    new = [name for name in sorted(chunks) if chunks[name] is not held.get(name)]
    return [hashlib.blake2b(chunks[name], digest_size=16).digest() for name in new]


def _measured(name: str, times: Sequence[tuple[float, float, float]], events: int) -> Measured:
    step, total, cpu = (
        [kind * 1e3 for kind in column] for column in zip(*times[WARM_UPS:], strict=True)
    )
    return Measured(
        name=name,
        step_ms=round(statistics.median(step), 1),
        total_ms=round(statistics.median(total), 1),
        total_cpu_ms=round(statistics.median(cpu), 1),
        slowest_ms=round(max(total), 1),
        events=events,
    )


def opened(brokers: int, bundles: int, per_namespace: int = PER_NAMESPACE) -> Bench:
    cluster = Cluster(brokers, bundles, per_namespace)
    balancer = ClusterBalancer(cluster=CLUSTER, config=Config())
    rows = TableRows(
        bundle_ownership=[_row(record) for record in cluster.records()],
        brokers=[],
        namespaces=[],
        commands=[],
        records=[],
    )
    bench = Bench(cluster, balancer, rebuild_state(CLUSTER, rows))
    everyone = range(brokers)
    bench.advance(everyone, everyone)
    bench.advance(everyone, ())
    return bench


def _row(record: OwnershipRecord) -> dict[str, Any]:
    plain = {**asdict(record), "children": "{}", "at_ms": record.timestamp_ms}
    return {**plain, "state": record.state.value, "cause": record.cause.value}


def measure_all(brokers: int, bundles: int) -> list[Measured]:
    bench = opened(brokers, bundles)
    everyone, tenth = range(brokers), range(brokers // 10)
    measured = []

    def line(name: str, update: GroupUpdate, *, is_cycle: bool = False) -> None:
        measured.append(bench.measure(name, update, is_cycle=is_cycle))

    number = bench.number + 1
    line("quiet batch", bench.cluster.update(number, everyone, tenth))
    line("cycle", bench.cluster.update(number, everyone, tenth), is_cycle=True)
    line("cycle, all report", bench.cluster.update(number, everyone, everyone), is_cycle=True)
    chunks = bench.balancer.pack(bench.state)
    measured.append(_timed("unpack", lambda: bench.balancer.unpack(chunks)))
    survivors = range(brokers // 10, brokers)
    timeout_ms = Config().ownership.broker_timeout_ms
    for _ in range(timeout_ms // INTERVAL_MS):
        bench.advance(survivors, ())
    line("failover", bench.cluster.update(bench.number + 1, survivors, ()))
    bench.advance(survivors, ())
    bench.advance(survivors, ())
    line("acks", bench.cluster.update(bench.number + 1, survivors, (), _acks(bench.state)))
    return measured


def _timed(name: str, call: Callable[[], object]) -> Measured:
    times = []
    for _ in range(WARM_UPS + REPETITIONS):
        started, started_cpu = time.perf_counter(), time.process_time()
        call()
        wall = time.perf_counter() - started
        times.append((wall, wall, time.process_time() - started_cpu))
    return _measured(name, times, 0)


def _acks(state: BalancerState) -> list[Acks]:
    """What the new owners answer: everything Assigning was opened."""
    by_broker: dict[str, list[Ack]] = {}
    for row in state.ledger.rows_in(State.ASSIGNING).tolist():
        record = state.ledger.record_at(row)
        ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=AckOutcome.OPENED)
        by_broker.setdefault(record.destination, []).append(ack)
    return [
        Acks(
            envelope=Envelope(
                cluster=CLUSTER, broker=name, incarnation="1", seq=2, reported_at_ms=START_MS
            ),
            acks=tuple(by_broker[name]),
        )
        for name in sorted(by_broker)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=1_000)
    parser.add_argument("--bundles", type=int, default=100_000)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    on = machine()
    measured = measure_all(args.brokers, args.bundles)
    write = sys.stdout.write
    write(f"{args.brokers} brokers × {args.bundles} bundles on {on}\n")
    heads = ("step", "total", "cpu", "slowest")
    write(f"{'ms':20}" + "".join(f"{head:>9}" for head in heads) + "  events\n")
    for each in measured:
        numbers = (each.step_ms, each.total_ms, each.total_cpu_ms, each.slowest_ms)
        write(f"{each.name:20}" + "".join(f"{n:>9}" for n in numbers) + f"  {each.events}\n")
    figures = json.dumps({"machine": on, "measured": [asdict(each) for each in measured]})
    write(figures + "\n")
    if args.output:
        args.output.write_text(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
