"""One run of one contender, in the hub: even, skewed, enlarged, hurt, changed, counted.

python -m tests.lab.day --hosts NAME --contender avg --run 1 --folder DIR --minutes 7

Decides what happens when, the same for all, on the scene that all runs have (`tests.lab.scene`):
the topics of broker 2 carry four times as much; broker 4 is added; broker 3 is killed; it comes
back, and the heat goes from what was broker 2's to what was broker 1's. Writes a record as JSON,
and shows where it is. Started by `tests.lab`, which makes the hosts.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import say
from tests.lab.bars import CONTENDERS
from tests.lab.records import ADDED, SKEW, Latencies, Record, p99, spread, to_json
from tests.lab.scene import BROKERS, OurSide, Scene, Watch, main_of, placed, scene
from tests.pulsar.distribution import chosen_version
from tests.pulsar.traffic import Traffic

_HOT = 4.0
_PARTS: Mapping[str, float] = {"even": 105, SKEW: 210, ADDED: 125, "killed": 30, "changed": 40}
"""Seconds of each part when a run is as long as `make lab-pulsar` makes it. Even until brokers have
measured a minute without their own start: usages of before tell of a JVM's warming."""
MINUTES = sum(_PARTS.values()) / 60.0
_BEFORE_KILL_S = 3.0


def main() -> int:
    """Run it; 0 when there is a record."""
    parser = argparse.ArgumentParser(prog="tests.lab.day", description=__doc__)
    parser.add_argument("--contender", required=True, choices=sorted(CONTENDERS))
    parser.add_argument("--minutes", type=float, default=MINUTES)
    return main_of(parser, _run)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    with scene(args, CONTENDERS[args.contender]) as begun:
        watch = _day(begun, args.minutes / MINUTES)
        begun.traffic.stop()
        return to_json(_record(args, begun, watch))


def _day(begun: Scene, scale: float) -> Watch:
    cluster, traffic, ours = begun.cluster, begun.traffic, begun.ours
    watch = begun.watch()
    owners = placed(watch)
    homes = {topic: owners[bundle] for topic, bundle in watch.bundles.items()}
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


def _record(args: argparse.Namespace, begun: Scene, watch: Watch) -> Record:
    traffic = begun.traffic
    added = next(one for one in watch.phases if one.name == ADDED)
    used_s = watch.first_used_s.get(BROKERS, -1.0)
    return Record(
        contender=args.contender,
        run=args.run,
        **begun.machine,
        load=spread(watch.loads),
        phases=tuple(watch.phases),
        samples=tuple(watch.samples),
        moves=tuple(watch.moves),
        new_broker_s=round(used_s - added.began_s, 1) if 0 <= used_s < added.ended_s else -1.0,
        latencies=_latencies(watch),
        acknowledged=traffic.acknowledged(),
        lost=traffic.lost().total(),
        errors=len(traffic.errors()),
        notes=begun.notes(),
        pulsar=chosen_version(),
    )


def _latencies(watch: Watch) -> Latencies:
    """Until a broker is killed: what its clients wait then is Pulsar's, and everybody's."""
    until_s = watch.killed_s - _BEFORE_KILL_S

    def of(taken: list[tuple[float, float]], *, is_near: bool) -> float:
        return p99(
            took_ms
            for began_s, took_ms in taken
            if watch.began_s <= began_s < until_s and watch.is_around_move(began_s) == is_near
        )

    sends, arrivals = list(watch.traffic.sends), list(watch.traffic.arrivals)
    return Latencies(
        publish_moves=of(sends, is_near=True),
        publish_else=of(sends, is_near=False),
        end_to_end_moves=of(arrivals, is_near=True),
        end_to_end_else=of(arrivals, is_near=False),
    )


if __name__ == "__main__":
    sys.exit(main())
