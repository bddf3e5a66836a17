"""Every broker restarted under traffic, in the hub: Pulsar's own way, or by `rolling-restart`.

python -m tests.lab.planned --hosts NAME --way ballast --run 1 --folder DIR --record FILE

Decides what happens when: the scene of `tests.lab.scene`, evenly placed on three brokers; then each
is stopped with SIGTERM and started again, by the clock (pulsar), or when the verb asks for it
(ballast). Writes a record as JSON. Started by `tests.lab`, which makes the hosts.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from jobs.adapters.processes.processes import last_lines
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError, say
from tests.lab.contenders import CONTENDERS, WAYS
from tests.lab.hosts import HostedCluster
from tests.lab.records import Figures, p99, stretches
from tests.lab.scene import OurSide, Scene, Watch, main_of, placed, scene
from tests.support.processes.programs import start_ballast
from tests.support.processes.restarter import Restarter

_RESTARTED = (2, 3, 1)
_EVEN_S, _BETWEEN_S, _LONGEST_S, _DRAIN_S = 60.0, 60.0, 2_400.0, 60.0
_SLOW_MS = 500.0


def main() -> int:
    """Run it; 0 when there is a record."""
    parser = argparse.ArgumentParser(prog="tests.lab.planned", description=__doc__)
    parser.add_argument("--way", required=True, choices=sorted(WAYS))
    return main_of(parser, _run)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    contender = CONTENDERS["threshold" if args.way == "pulsar" else "ballast-avg"]
    with scene(args, contender) as begun:
        watch = begun.watch()
        placed(watch)
        cluster, ours = begun.cluster, begun.ours
        restart = _by_pulsar(cluster) if ours is None else _by_ballast(args, cluster, ours)
        began_s = _watched(watch, restart)
        seconds = time.monotonic() - began_s
        begun.traffic.stop(drain_s=_DRAIN_S)
        return {"name": args.way, "figures": _figures(begun, watch, began_s, seconds)}


def _watched(watch: Watch, restart: Callable[[], None]) -> float:
    """Look until all is restarted; when the work began, by `time.monotonic`."""
    watch.phase("even", _EVEN_S)
    failed: list[CommandError] = []

    def work() -> None:
        try:
            restart()
        except CommandError as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="planned-work")
    began_s = time.monotonic()
    thread.start()
    watch.phase("planned", _LONGEST_S, lambda: not thread.is_alive())
    thread.join()
    if failed:
        raise failed[0]
    return began_s


def _by_pulsar(cluster: HostedCluster) -> Callable[[], None]:
    admin = PulsarAdmin(AdminAddress(url=cluster.admin_url))
    admin.set_dynamic("loadBalancerSheddingEnabled", "true")

    def restart() -> None:
        for number in _RESTARTED:
            cluster.restart(number)
            say(f"broker {number} was restarted")
            time.sleep(_BETWEEN_S)

    return restart


def _by_ballast(
    args: argparse.Namespace, cluster: HostedCluster, ours: OurSide
) -> Callable[[], None]:
    ours.start_bridge(cluster.admin_url)
    log = args.folder / "rolling.out"

    def restart() -> None:
        numbers = {cluster.broker(number): number for number in _RESTARTED}
        restarter = Restarter(args.folder / "asked", lambda name: cluster.restart(numbers[name]))
        words = ["bridge", "rolling-restart", "--yes", "--admin-url", cluster.admin_url]
        words += [*ours.words(), "--state", str(args.folder / "rolling.json")]
        child = start_ballast("rolling-restart", [*words, "--command", restarter.command], log)
        code = child.wait(round(_LONGEST_S * 1_000))
        restarter.stop()
        if code:
            raise CommandError(
                f"the rolling restart ended with {code}",
                why=last_lines(log, count=4),
                next_step=f"read {log} and the bridge's log",
            )

    return restart


def _figures(begun: Scene, watch: Watch, began_s: float, seconds: float) -> Figures:
    """Slow: acknowledged after more than 500 ms."""
    traffic, planned = begun.traffic, watch.phases[-1]
    sends = [one for one in traffic.sends if began_s <= one[0] <= began_s + seconds]
    arrivals = [one for one in traffic.arrivals if began_s <= one[0] <= began_s + seconds]
    held = stretches(watch.samples, planned)
    before = [one.ratio for one in watch.samples if one.at_s < planned.began_s]
    return {
        "publish p99 (ms)": p99(took_ms for _, took_ms in sends),
        "most": max((took_ms for _, took_ms in sends), default=-1.0),
        "p99 around moves": p99(took_ms for at, took_ms in sends if watch.is_around_move(at)),
        "end to end p99 (ms)": p99(took_ms for _, took_ms in arrivals),
        "slow": float(sum(took_ms > _SLOW_MS for _, took_ms in sends)),
        "s with a bundle unowned": sum(held_s for held_s, one in held if one.unowned),
        "bundle-seconds unowned": sum(held_s * one.unowned for held_s, one in held),
        "moves": float(sum(one.at_s >= planned.began_s for one in watch.moves)),
        "max/mean before": before[-1] if before else -1.0,
        "after": watch.samples[-1].ratio,
        "duration (s)": seconds,
        **begun.common_figures(watch),
    }


if __name__ == "__main__":
    sys.exit(main())
