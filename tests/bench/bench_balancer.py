"""`python -m tests.bench.bench_balancer`: the balancer's steps at 1,000 brokers × 100,000 bundles.

Medians of 20 calls after two to warm up, each from the same state; in-process, without Spark and
without a disk. A step is measured with what the operator does with it: reading its input, packing
the state and its digests, and packing the effects.
Usage: ... [--brokers 1000] [--bundles 100000] [--output X]
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
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
from tests.bench.timing import Timing, show, timed

CLUSTER = "local"
PARTITIONS = 8
PER_NAMESPACE = 100
START_MS = 1_700_000_000_000
INTERVAL_MS = 1_000


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
            messages=tuple(
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

    def measure(self, name: str, update: GroupUpdate, *, is_cycle: bool = False) -> Timing:
        """Time the batch that comes next; the count is that of its ownership events."""
        now_ms = START_MS + (self.number + 1) * INTERVAL_MS
        cycle_ms = 0 if is_cycle else now_ms
        state = replace(self.state, times=replace(self.state.times, cycle_ms=cycle_ms))
        blob, held = pack_update(update), self.balancer.pack(state)

        def run() -> int:
            step = self.balancer.step(state, [unpack_update(blob)], now_ms)
            assert step.state is not None
            chunks = self.balancer.pack(step.state)
            for chunk in (chunks[one] for one in chunks if chunks[one] is not held.get(one)):
                hashlib.blake2b(chunk, digest_size=16).digest()  # as the operator does
            for effect in step.effects:
                pack_effect(effect)
            return sum(len(e.rows) for e in step.effects if e.kind == "ownership_events")

        return timed(name, run)


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


def measure_all(brokers: int, bundles: int) -> list[Timing]:
    bench = opened(brokers, bundles)
    cluster, number = bench.cluster, bench.number + 1
    everyone, tenth = range(brokers), range(brokers // 10)
    spread, whole = (cluster.update(number, everyone, some) for some in (tenth, everyone))
    chunks = bench.balancer.pack(bench.state)
    lines = [
        bench.measure("quiet batch", spread),
        bench.measure("cycle", spread, is_cycle=True),
        bench.measure("cycle, all report", whole, is_cycle=True),
        timed("unpack", lambda: len(bench.balancer.unpack(chunks).brokers)),
    ]
    survivors = range(brokers // 10, brokers)
    for _ in range(Config().ownership.broker_timeout_ms // INTERVAL_MS):
        bench.advance(survivors, ())
    lines.append(bench.measure("failover", cluster.update(bench.number + 1, survivors, ())))
    bench.advance(survivors, ())
    bench.advance(survivors, ())
    acks = cluster.update(bench.number + 1, survivors, (), _acks(bench.state))
    return [*lines, bench.measure("acks", acks)]


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
    title = f"balancer, {args.brokers} brokers × {args.bundles} bundles"
    show(title, lambda: measure_all(args.brokers, args.bundles), args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
