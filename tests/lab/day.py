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
from tests.lab.contenders import CONTENDERS
from tests.lab.records import ADDED, SKEW, Figures, balance_figures, p99
from tests.lab.scene import BROKERS, OurSide, Scene, Watch, main_of, placed, scene
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
        return {"name": args.contender, "figures": _figures(begun, watch)}


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


def _figures(begun: Scene, watch: Watch) -> Figures:
    """Latencies are those until a broker is killed: after that clients wait with any shedder."""
    added = next(one for one in watch.phases if one.name == ADDED)
    used_s = watch.first_used_s.get(BROKERS, -1.0)
    until_s = watch.killed_s - _BEFORE_KILL_S
    sends = [one for one in watch.traffic.sends if watch.began_s <= one[0] < until_s]
    near = {one for one in sends if watch.is_around_move(one[0])}
    return {
        **balance_figures(watch.phases, watch.samples, watch.moves),
        "broker 4 used (s)": used_s - added.began_s if 0 <= used_s < added.ended_s else -1.0,
        "publish p99 around moves (ms)": p99(took_ms for _, took_ms in near),
        "else": p99(took_ms for at, took_ms in sends if (at, took_ms) not in near),
        **begun.common_figures(watch),
    }


if __name__ == "__main__":
    sys.exit(main())
