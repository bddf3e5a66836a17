"""One run of one contender, in the hub: even, skewed, enlarged, hurt, changed, counted.

    python -m tests.lab.day --hosts NAME --contender avg --run 1 --folder DIR --minutes 7

Decides what happens when, the same for all: 24 topics fall off in rate; evenly placed on three
brokers; the topics of broker 2 carry four times as much; broker 4 is added; broker 3 is killed; it
comes back, and the heat goes from what was broker 2's to what was broker 1's. Writes a record as
JSON, and shows where it is. Started by `tests.lab`, which makes the hosts. Source: ours.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError, complain, say
from tests.lab.contenders import CONTENDERS
from tests.lab.hosted_cluster import HostedCluster
from tests.lab.hosts import Hosts
from tests.lab.our_side import OurSide
from tests.lab.records import ADDED, SKEW, Latencies, Record, to_json
from tests.lab.watch import Watch
from tests.pulsar.distribution import chosen_version, ensure_distribution
from tests.pulsar.pulsar_stack import create_namespace
from tests.pulsar.traffic import Load, Traffic

NAMESPACE = "public/load"
BROKERS = 4
BUNDLES, _TOPICS, _SIZE, _RATE, _HOT = 64, 24, 4_000, 150.0, 4.0
_PARTS: Mapping[str, float] = {"even": 105, SKEW: 210, ADDED: 125, "killed": 30, "changed": 40}
"""Seconds of each part when a run is as long as `make lab-pulsar` makes it. Even until brokers have
measured a minute without their own start: usages of before tell of a JVM's warming."""
MINUTES = sum(_PARTS.values()) / 60.0
_TRIES, _SETTLE_S = 5, 3.0


def main() -> int:
    """Run it; 0 when there is a record."""
    parser = argparse.ArgumentParser(prog="tests.lab.day", description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--contender", required=True, choices=sorted(CONTENDERS))
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--record", type=Path, required=True)
    args = parser.parse_args()
    hosts = Hosts(name=args.hosts, count=BROKERS)
    try:
        record = _run(args, hosts)
    except CommandError as error:
        complain(error, as_json=False)
        return int(error.exit_code)
    args.record.parent.mkdir(parents=True, exist_ok=True)
    args.record.write_text(json.dumps(to_json(record)) + "\n")
    return 0


def _run(args: argparse.Namespace, hosts: Hosts) -> Record:
    contender = CONTENDERS[args.contender]
    home = ensure_distribution()
    cluster = HostedCluster(home, args.folder / "pulsar", hosts, contender.broker_settings)
    ours = OurSide(args.folder, contender.job_settings) if contender.ballast is not None else None
    began = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    try:
        if ours is not None:
            ours.start()
        cluster.start(BROKERS - 1)
        say(f"brokers of Pulsar {chosen_version()} are ready")
        create_namespace(cluster.admin_url, NAMESPACE, BUNDLES)
        traffic = Traffic(cluster.admin_url, loads())
        try:
            watch = _day(cluster, traffic, ours, args.minutes / MINUTES)
            traffic.stop()
            notes = tuple(f"{name} ended by itself" for name in cluster.died())
            notes += () if ours is None else ours.notes()
            return _record(args, watch, began, notes)
        finally:
            traffic.stop(drain_s=0.0)
    finally:
        if ours is not None:
            ours.stop()
        cluster.stop()


def loads() -> list[Load]:
    """The topics, each with less than the one before."""
    weights = [(number + 1) ** -0.5 for number in range(_TOPICS)]
    return [
        Load(
            topic=f"persistent://{NAMESPACE}/topic-{number}",
            rate_per_s=_RATE * weight / sum(weights),
            size=_SIZE,
        )
        for number, weight in enumerate(weights)
    ]


def _day(cluster: HostedCluster, traffic: Traffic, ours: OurSide | None, scale: float) -> Watch:
    traffic.start()
    watch = Watch(cluster=cluster, traffic=traffic, bundles=bundles_of(cluster, traffic))
    begun = placed(watch)
    homes = {topic: begun[bundle] for topic, bundle in watch.bundles.items()}
    if ours is None:
        admin = PulsarAdmin(AdminAddress(url=cluster.admin_url))
        admin.set_dynamic("loadBalancerSheddingEnabled", "true")
    else:
        ours.start_bridge(cluster.admin_url)
    _watched(watch, ours, "even", scale)
    _heat(traffic, homes, 2, _HOT)
    _watched(watch, ours, SKEW, scale)
    cluster.launch(BROKERS)
    cluster.await_ready(BROKERS)
    _watched(watch, ours, ADDED, scale)
    watch.kill(3)
    _watched(watch, ours, "killed", scale)
    cluster.launch(3)
    cluster.await_ready(3)
    _heat(traffic, homes, 2, 1 / _HOT)
    _heat(traffic, homes, 1, _HOT)
    _watched(watch, ours, "changed", scale)
    return watch


def _watched(watch: Watch, ours: OurSide | None, name: str, scale: float) -> None:
    if ours is not None:
        ours.keep_job()
    watch.phase(name, _PARTS[name] * scale)
    moves = sum(not move.is_failover for move in watch.moves)
    say(f"{name}: max/mean {watch.samples[-1].ratio}, {moves} moves so far")


def _heat(traffic: Traffic, homes: Mapping[str, int], home: int, factor: float) -> None:
    for topic, rate in traffic.rates().items():
        if homes[topic] == home:
            traffic.set_rate(topic, rate * factor)


def bundles_of(cluster: HostedCluster, traffic: Traffic) -> dict[str, str]:
    """Topic → its bundle, as Pulsar says."""

    def bundle_of(topic: str) -> str:
        path = topic.replace("://", "/")
        url = f"{cluster.admin_url}/lookup/v2/topic/{path}/bundle"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (the hub's own network)
            return str(answer.read().decode())

    return {topic: f"{NAMESPACE}/{bundle_of(topic)}" for topic in traffic.rates()}


def placed(watch: Watch) -> dict[str, int]:
    """Bundle → the broker that it was given to: the heaviest first, each to the idlest."""
    offered = dict.fromkeys(range(1, BROKERS), 0.0)
    wanted: dict[str, int] = {}
    for bundle, rate in sorted(watch.rates().items(), key=lambda one: (-one[1], one[0])):
        wanted[bundle] = min(offered, key=lambda number: (offered[number], number))
        offered[wanted[bundle]] += rate
    admin = PulsarAdmin(AdminAddress(url=watch.cluster.admin_url))
    for _ in range(_TRIES):
        owners = watch.owners()
        wrong = [bundle for bundle, number in wanted.items() if owners.get(bundle) != number]
        if not wrong:
            return wanted
        for bundle in wrong:
            with contextlib.suppress(PulsarAdminError):  # it is asked again
                admin.unload(bundle, watch.cluster.broker(wanted[bundle]))
        time.sleep(_SETTLE_S)
    raise CommandError(
        "the bundles could not be placed evenly at the beginning",
        why=f"{len(wrong)} of {len(wanted)} are elsewhere after {_TRIES} tries",
        next_step="run it again; read the brokers' logs if it stays so",
    )


def _record(args: argparse.Namespace, watch: Watch, began: str, notes: tuple[str, ...]) -> Record:
    traffic, loads = watch.traffic, sorted(watch.loads)
    added = next(one for one in watch.phases if one.name == ADDED)
    used_s = watch.first_used_s.get(BROKERS, -1.0)
    ends = added.ended_s
    return Record(
        contender=args.contender,
        run=args.run,
        began=began,
        cores=len(os.sched_getaffinity(0)),
        load=(round(loads[0], 1), round(statistics.median(loads), 1), round(loads[-1], 1)),
        phases=tuple(watch.phases),
        samples=tuple(watch.samples),
        moves=tuple(watch.moves),
        new_broker_s=round(used_s - added.began_s, 1) if 0 <= used_s < ends else -1.0,
        latencies=_latencies(watch),
        acknowledged=traffic.acknowledged(),
        lost=traffic.lost().total(),
        errors=len(traffic.errors()),
        notes=notes,
        pulsar=chosen_version(),
    )


def _latencies(watch: Watch) -> Latencies:
    """Until a broker is killed: what its clients wait then is Pulsar's, and everybody's."""
    until_s = watch.killed_s - _SETTLE_S

    def p99(taken: list[tuple[float, float]], *, is_near: bool) -> float:
        found = sorted(
            took_ms
            for began_s, took_ms in taken
            if watch.began_s <= began_s < until_s and watch.is_around_move(began_s) == is_near
        )
        return round(found[int(0.99 * (len(found) - 1))], 1) if found else -1.0

    sends, arrivals = list(watch.traffic.sends), list(watch.traffic.arrivals)
    return Latencies(
        publish_moves=p99(sends, is_near=True),
        publish_else=p99(sends, is_near=False),
        end_to_end_moves=p99(arrivals, is_near=True),
        end_to_end_else=p99(arrivals, is_near=False),
    )


if __name__ == "__main__":
    sys.exit(main())
