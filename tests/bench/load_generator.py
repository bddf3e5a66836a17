"""Many brokers in one cheap process: heartbeats, load reports and acks, for benches of the job.

Speaks the wire as agents do, without their lease, callbacks and topic lists: what it is told to
open is open at once. Load is skewed between bundles and wanders between namespaces. Writes a JSON
line of itself (its CPU, what it sent) each second, and ends at SIGTERM. With several clusters each
has so many brokers, namespaces and bundles of its own.

    python -m tests.bench.load_generator --bootstrap 127.0.0.1:9092 --log load.jsonl
        --brokers 1000 --namespaces 1000 --bundles 100000
"""

import argparse
import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from jobs.adapters.kafka.clients import KafkaAddress, Received, Sender, Tail
from jobs.adapters.processes.signals import on_signals
from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.wire.format import format_message
from lbcore.wire.messages import BUNDLE_COLUMNS, TRAFFIC, Command, Topic

LOCAL = "local"
INCARNATION = "one"
HEARTBEAT_S = 3.0
_STEP_S = 0.05
_MAKING_S = 3.0
_WANDER_S = 600.0
_ANSWERS = {"Assigning": "opened", "Releasing": "closed", "Splitting": "split"}

Encoded = tuple[Topic, str, bytes]


class Load:
    """What each bundle carries: a heavy-tailed base, and a wave through the namespaces."""

    def __init__(self, namespaces: int, bundles: int) -> None:
        per_namespace = bundles // namespaces
        texts = [
            each.text for each in NamespaceBundles("b/n", even_boundaries(per_namespace)).ranges()
        ]
        self.namespaces = [f"bench/ns-{number:05}" for number in range(namespaces)]
        self.per_namespace = per_namespace
        names = (f"{namespace}/{text}" for namespace in self.namespaces for text in texts)
        self._rows = {name: row for row, name in enumerate(names)}
        self._space = np.repeat(np.arange(namespaces) / namespaces, per_namespace)
        self._base = np.round(np.random.default_rng(1).pareto(2.0, len(self._rows)) * 50.0, 1)

    def stats(self, names: Sequence[str], at_s: float) -> np.ndarray[Any, Any]:
        """float64[names, 8] in the order of BUNDLE_COLUMNS; children of a split carry little."""
        rows = np.array([self._rows.get(name, -1) for name in names], dtype=np.int64)
        wave = 1.0 + 0.8 * np.sin(2 * math.pi * (at_s / _WANDER_S + self._space[rows]))
        rate = np.where(rows < 0, 10.0, np.round(self._base[rows] * wave, 1))
        columns = [rate, rate, rate * 1e3, rate * 1e3, *([np.full(len(rows), 10.0)] * 4)]
        return np.ascontiguousarray(np.stack(columns))


class Broker:
    """One broker of a cluster: what it has open, and its counters."""

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.is_up = True
        self.bundles: set[str] = set()
        self.reported_s = 0.0
        # above those of an earlier run: it is the same start of the same broker
        self._seqs = Counter(dict.fromkeys(Topic, int(time.time())))

    def envelope(self, topic: Topic) -> dict[str, Any]:
        self._seqs[topic] += 1
        return {
            "schema": 1,
            "cluster": self.cluster,
            "broker": self.name,
            "incarnation": INCARNATION,
            "seq": self._seqs[topic],
            "reportedAt": 0,
        }


class Fleet:
    """All brokers of a cluster, and what `ownership` has told them."""

    def __init__(self, sender: Sender, load: Load, cluster: str, brokers: int) -> None:
        self._sender, self._load, self.cluster = sender, load, cluster
        self.brokers = [Broker(cluster, f"broker-{number:05}") for number in range(brokers)]
        self._by_name = {broker.name: broker for broker in self.brokers}
        self._versions: dict[str, int] = {}
        self._held_by: dict[str, str] = {}
        self._lost: set[str] = set()
        self._lost_s = 0.0
        self.sent: Counter[str] = Counter()
        self.recoveries: list[Mapping[str, Any]] = []

    @property
    def open(self) -> int:
        return sum(len(broker.bundles) for broker in self.brokers if broker.is_up)

    def heartbeat(self, broker: Broker, now_s: float) -> None:
        if broker.is_up:
            broker.reported_s = now_s
            self.send([_encoded(Topic.BROKER_LOAD, broker, {})])

    def reports(self, broker: Broker, now_s: float) -> list[Encoded]:
        """Its own load, then all its bundles; none of one that is down."""
        if not broker.is_up:
            return []
        broker.reported_s = now_s
        names = sorted(broker.bundles)
        stats = self._load.stats(names, now_s)
        total = stats[: len(TRAFFIC)].sum(axis=1)
        usage = min(100.0, round(float(total[0]) / 100.0, 3))
        fields = {
            "cpu": {"usage": usage, "limit": 100.0},
            **dict(zip(TRAFFIC, total.tolist(), strict=True)),
            "numBundles": len(names),
            "webServiceUrl": f"http://{broker.name}.example:8080",
            "pulsarServiceUrl": f"pulsar://{broker.name}.example:6650",
        }
        own = _encoded(Topic.BROKER_LOAD, broker, fields)
        columns: dict[str, Any] = {
            name: stats[i] if name in TRAFFIC else stats[i].astype(np.int64)
            for i, name in enumerate(BUNDLE_COLUMNS)
        }
        bundles = {"name": names, **columns}
        part = {"part": 0, "parts": 1, "bundles": bundles}
        return [own, _encoded(Topic.BUNDLE_LOAD, broker, part)]

    def take(self, records: Sequence[Received], now_s: float) -> None:
        """Open, close and split what the records say, and acknowledge it."""
        answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in records:
            if record.value is not None:
                self._take_one(orjson.loads(record.value), answers)
        for name in sorted(answers):
            acks = {"acks": answers[name]}
            self.send([_encoded(Topic.ACKS, self._by_name[name], acks)])
        if self._lost and not self._lost & self._orphans():
            took_s = round(now_s - self._lost_s, 2)
            self.recoveries.append({"bundles": len(self._lost), "served_again_s": took_s})
            self._lost = set()

    def _orphans(self) -> set[str]:
        return {name for name in self._lost if not self._by_name[self._held_by[name]].is_up}

    def _take_one(self, record: dict[str, Any], answers: dict[str, list[dict[str, Any]]]) -> None:
        bundle, version, state = record["bundle"], record["versionId"], record["state"]
        if version <= self._versions.get(bundle, 0):
            return
        self._versions[bundle] = version
        is_leaving = state in ("Releasing", "Splitting")
        broker = self._by_name.get(record["sourceBroker" if is_leaving else "dstBroker"])
        if broker is None or not broker.is_up:
            return
        if state in ("Assigning", "Owned"):
            old = self._by_name.get(self._held_by.get(bundle, ""))
            if old is not None:
                old.bundles.discard(bundle)
            broker.bundles.add(bundle)
            self._held_by[bundle] = broker.name
        elif is_leaving:
            broker.bundles.discard(bundle)
        if state in _ANSWERS:
            answer = {"bundle": bundle, "versionId": version, "outcome": _ANSWERS[state]}
            answers[broker.name].append(answer)

    def crash(self, count: int, now_s: float, *, is_heard_last: bool) -> None:
        """The brokers with the most bundles fall silent; is_heard_last: after a last heartbeat."""
        alive = [broker for broker in self.brokers if broker.is_up]
        for broker in sorted(alive, key=lambda broker: -len(broker.bundles))[:count]:
            if is_heard_last:
                self.heartbeat(broker, now_s)
            broker.is_up = False
            self._lost |= broker.bundles
        self._lost_s = now_s

    def send(self, messages: Sequence[Encoded]) -> None:
        for topic, key, value in messages:
            self._sender.send(topic, key, value)
            self.sent[topic.value] += 1
            self.sent["bytes"] += len(value)


def _encoded(topic: Topic, broker: Broker, fields: Mapping[str, Any]) -> Encoded:
    value = orjson.dumps({**broker.envelope(topic), **fields}, option=orjson.OPT_SERIALIZE_NUMPY)
    return topic, f"{broker.cluster}/{broker.name}", value


class Schedule:
    """Schedule that has every number once in an interval."""

    def __init__(self, count: int, interval_s: float) -> None:
        self._count, self._interval_s = count, interval_s
        self._done = 0

    def due(self, since_s: float) -> list[int]:
        """The numbers that became due since the last call; a stall skips no more than one turn."""
        goal = int(since_s / self._interval_s * self._count)
        start = max(self._done, goal - self._count)
        self._done = goal
        return [number % self._count for number in range(start, goal)]


class Bursts:
    """Everybody's reports at once, every interval: made early, so that they leave together."""

    def __init__(self, everybody: Sequence[tuple[Fleet, Broker]], interval_s: float) -> None:
        self._everybody, self._interval_s = everybody, interval_s
        self._made: list[tuple[Fleet, Broker, list[Encoded]]] = []
        self.next_s = interval_s

    @property
    def is_waiting(self) -> bool:
        """Whether reports are made and not sent: what is sent meanwhile makes them late."""
        return bool(self._made)

    def turn(self, now_s: float) -> None:
        if not self._made and now_s >= self.next_s - _MAKING_S:
            self._made = [
                (fleet, broker, fleet.reports(broker, now_s)) for fleet, broker in self._everybody
            ]
        elif self._made and now_s >= self.next_s:
            for fleet, broker, messages in self._made:
                if broker.is_up:  # still
                    fleet.send(messages)
            self._made = []
            self.next_s += self._interval_s


def create_namespaces(sender: Sender, load: Load, cluster: str) -> None:
    for namespace in load.namespaces:
        command = Command(
            cluster=cluster,
            command_id=f"create-{namespace}",
            kind="create_namespace",
            arguments={"namespace": namespace, "bundles": load.per_namespace},
            timeout_ms=600_000,
        )
        topic, key, value = format_message(command)
        sender.send(topic, key.decode(), value)


def run(args: argparse.Namespace, stop: threading.Event) -> None:
    address = KafkaAddress(bootstrap=args.bootstrap)
    sender = Sender(address, "load-generator")
    tail = Tail(address, Topic.OWNERSHIP, "load-generator-ownership")
    load = Load(args.namespaces, args.bundles)
    fleets = {name: Fleet(sender, load, name, args.brokers) for name in args.clusters.split(",")}
    everybody = [
        (fleet, fleet.brokers[number])
        for number in range(args.brokers)
        for fleet in fleets.values()
    ]
    for name in fleets if args.create else ():
        create_namespaces(sender, load, name)
    heartbeats = Schedule(len(everybody), HEARTBEAT_S)
    reports = Schedule(len(everybody), args.interval)
    bursts = Bursts(everybody, args.interval)
    started_s, logged_s = time.monotonic(), 0.0
    with args.log.open("a") as log:
        while not stop.is_set():
            now_s = time.monotonic() - started_s
            if not bursts.is_waiting:
                for fleet, broker in map(everybody.__getitem__, heartbeats.due(now_s)):
                    fleet.heartbeat(broker, now_s)
            if args.burst:
                bursts.turn(now_s)
            else:
                for fleet, broker in map(everybody.__getitem__, reports.due(now_s)):
                    fleet.send(fleet.reports(broker, now_s))
            records: dict[str, list[Received]] = {name: [] for name in fleets}
            for record in tail.poll(timeout_ms=int(_STEP_S * 1e3)):
                records[record.key.partition("/")[0]].append(record)
            for name, fleet in fleets.items():
                fleet.take(records[name], now_s)
            _carry_out(args.orders, fleets, bursts, now_s)
            if now_s - logged_s >= 1.0:
                logged_s = now_s
                log.write(json.dumps(_line(list(fleets.values()), sender)) + "\n")
                log.flush()
    sender.close()
    tail.close()


def _carry_out(
    orders: Path | None, fleets: Mapping[str, Fleet], bursts: Bursts, now_s: float
) -> None:
    if orders is None or not orders.exists():
        return
    order = json.loads(orders.read_text())
    orders.unlink()
    if "crash" in order:
        fleet = fleets[order.get("cluster", next(iter(fleets)))]
        fleet.crash(order["crash"], now_s, is_heard_last=order.get("is_heard_last", False))
    if "burst_at_s" in order:
        bursts.next_s = now_s + order["burst_at_s"] - time.time()


def _line(fleets: Sequence[Fleet], sender: Sender) -> dict[str, Any]:
    return {
        "at_ms": int(time.time() * 1e3),
        "cpu_s": round(time.process_time(), 3),
        "sent": dict(sum((fleet.sent for fleet in fleets), Counter())),
        "not_delivered": sender.not_delivered,
        "open": sum(fleet.open for fleet in fleets),
        "recoveries": [one for fleet in fleets for one in fleet.recoveries],
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="load_generator", description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="Kafka's address, host:port")
    parser.add_argument("--clusters", default=LOCAL, metavar="A,B", help="each as big as told")
    parser.add_argument("--brokers", type=int, required=True, help="of a cluster")
    parser.add_argument("--namespaces", type=int, required=True, help="of a cluster")
    parser.add_argument("--bundles", type=int, required=True, help="of all namespaces of a cluster")
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between reports")
    parser.add_argument("--burst", action="store_true", help="all brokers report at once")
    parser.add_argument("--create", action="store_true", help="ask for the namespaces first")
    parser.add_argument("--orders", type=Path, help="JSON that appears: crash, burst_at_s")
    parser.add_argument("--log", type=Path, required=True, help="file for a JSON line a second")
    args = parser.parse_args(argv)
    stop = threading.Event()
    on_signals(stop.set)
    run(args, stop)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
