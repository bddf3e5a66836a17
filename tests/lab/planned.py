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

from jobs.adapters.processes.processes import Child, ProcessSpec, last_lines
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError, say
from tests.integration.stack import ROOT
from tests.lab.bars import CONTENDERS
from tests.lab.hosts import HostedCluster
from tests.lab.planned_page import P99_MS, WAYS, PlannedRecord, to_json
from tests.lab.records import p99, spread
from tests.lab.scene import OurSide, Scene, Watch, main_of, placed, scene
from tests.support.processes.restarter import Restarter

_RESTARTED = (2, 3, 1)
_EVEN_S, _BETWEEN_S, _LONGEST_S, _DRAIN_S = 60.0, 60.0, 2_400.0, 60.0


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
        return to_json(_record(args, begun, watch, (began_s, seconds)))


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
        spec = ProcessSpec(
            name="rolling-restart",
            command=(sys.executable, "-m", "jobs.cli", *words, "--command", restarter.command),
            log_path=log,
            environment={"PYTHONPATH": str(ROOT)},
        )
        code = Child(spec).wait(round(_LONGEST_S * 1_000))
        restarter.stop()
        if code:
            raise CommandError(
                f"the rolling restart ended with {code}",
                why=last_lines(log, count=4),
                next_step=f"read {log} and the bridge's log",
            )

    return restart


def _record(
    args: argparse.Namespace, begun: Scene, watch: Watch, times: tuple[float, float]
) -> PlannedRecord:
    began_s, seconds = times
    traffic = begun.traffic
    sends = [one for one in traffic.sends if began_s <= one[0] <= began_s + seconds]
    arrivals = [one for one in traffic.arrivals if began_s <= one[0] <= began_s + seconds]
    near = [one for one in sends if watch.is_around_move(one[0])]
    planned = watch.phases[-1]
    unowned = _unowned(watch, planned.began_s, planned.ended_s)
    before = [one.ratio for one in watch.samples if one.at_s < planned.began_s]
    return PlannedRecord(
        way=args.way,
        run=args.run,
        **begun.machine,
        load=spread(watch.loads),
        seconds=round(seconds, 1),
        publish_p99=_p99_of(sends),
        publish_most=_most(sends),
        publish_p99_moves=_p99_of(near),
        end_to_end_p99=_p99_of(arrivals),
        end_to_end_most=_most(arrivals),
        sent=len(sends),
        slow=sum(took_ms > P99_MS for _, took_ms in sends),
        lost=traffic.lost().total(),
        errors=len(traffic.errors()),
        unowned_s=round(sum(held for held, count in unowned if count), 1),
        unowned_bundle_s=round(sum(held * count for held, count in unowned), 1),
        moves=sum(one.at_s >= planned.began_s for one in watch.moves),
        before=before[-1] if before else -1.0,
        after=watch.samples[-1].ratio,
        notes=begun.notes(),
    )


def _unowned(watch: Watch, first_s: float, last_s: float) -> list[tuple[float, int]]:
    """(seconds, bundles with traffic and no owner), in that part of the run."""
    ends = [*(one.at_s for one in watch.samples[1:]), last_s]
    return [
        (max(0.0, min(end_s, last_s) - max(one.at_s, first_s)), one.unowned)
        for one, end_s in zip(watch.samples, ends, strict=True)
    ]


def _p99_of(taken: list[tuple[float, float]]) -> float:
    return p99(took_ms for _, took_ms in taken)


def _most(taken: list[tuple[float, float]]) -> float:
    return round(max((took_ms for _, took_ms in taken), default=-1.0), 1)


if __name__ == "__main__":
    sys.exit(main())
