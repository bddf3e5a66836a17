"""`make demo-pulsar`: a real Pulsar cluster on this machine, skewed, balanced, hurt and enlarged.

Starts ZooKeeper, a bookie and three brokers, produces and consumes with real clients, gives all of
it to one broker, and starts Ballast with the bridge; then it kills a broker, whose bundles the
guardian finds before Pulsar does, and adds one. All is on loopback, in a temporary folder, and gone
at the end.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from jobs.cli import main as ballast
from jobs.console import CommandError, complain, say
from tests.pulsar.pulsar_cluster import EXTENSIBLE, MODULAR
from tests.pulsar.pulsar_stack import PULSAR, SPARK, PulsarStack, running_pulsar

_MANAGERS = {"modular": MODULAR, "extensible": EXTENSIBLE}
_POINTS = 40.0
_SHOW_S = 5.0


def main() -> int:
    """Run it; 0 when every message that was acknowledged has arrived."""
    parser = argparse.ArgumentParser(prog="demo-pulsar", description=__doc__)
    parser.add_argument("--manager", choices=sorted(_MANAGERS), default="modular")
    args = parser.parse_args()
    began_s = time.monotonic()
    say(f"starting Kafka, the job, and three Pulsar brokers ({args.manager} load manager)")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ballast-pulsar-") as folder,
            running_pulsar(Path(folder), _MANAGERS[args.manager], job=SPARK) as cluster,
        ):
            say(f"up after {time.monotonic() - began_s:.0f} s; traffic flows")
            return _day(cluster)
    except CommandError as error:
        complain(error, as_json=False)
        return int(error.exit_code)


def _day(cluster: PulsarStack) -> int:
    hot = cluster.pulsar.broker(2)
    cluster.gather(hot)
    say(f"\nall traffic is given to {hot}; the bridge starts, and acts")
    cluster.start_bridge("--act")
    _watch(cluster, "balanced", lambda: cluster.moves() and cluster.spread() < _POINTS)
    moved = cluster.moves()[0]
    say(f"\nwhy was the first bundle moved? ballast explain bundle {moved}")
    ballast(["explain", "bundle", moved, *cluster.tables_words()])
    dead = cluster.pulsar.broker(3)
    say(f"\nkill -9 of {dead}: Pulsar gives its bundles away, the mirror follows")
    cluster.pulsar.kill_broker(3)
    _show_found(cluster, "unserved")
    _watch(
        cluster,
        "mirrored again",
        lambda: dead not in cluster.admin.brokers(PULSAR) and cluster.is_mirrored(),
    )
    cluster.pulsar.start_broker(4)
    new = cluster.pulsar.broker(4)
    say(f"\n{new} is added, and broker 1 gets everything by hand")
    cluster.gather(cluster.pulsar.broker(1))
    _watch(
        cluster,
        "balanced over all",
        lambda: new in cluster.owners().values() and cluster.spread() < _POINTS,
    )
    say("\nballast status")
    ballast(["status", *cluster.tables_words()])
    cluster.traffic.stop()
    moves = Counter(cluster.moves())
    lost, errors = cluster.traffic.lost(), cluster.traffic.errors()
    say(
        f"\n{cluster.traffic.acknowledged()} messages acknowledged, {lost.total()} of them lost,"
        f" {len(errors)} errors, {moves.total()} moves of {len(moves)} bundles,"
        f" p99 of a send {cluster.traffic.p99_ms():.0f} ms (a killed broker is missed after 20 s)"
    )
    return 1 if lost or errors else 0


def _show_found(cluster: PulsarStack, trouble: str) -> None:
    """What the guardian finds, in its words, and what the status makes of it."""
    began_s = time.monotonic()

    def found() -> list[Mapping[str, object]]:
        return [one for one in cluster.bridge_events("found") if one["trouble"] == trouble]

    def is_told() -> bool:
        return any(trouble in str(row["result"]) for row in cluster.rows("commands"))

    cluster.wait(f"the guardian to find {trouble} bundles", found)
    first, seconds = found()[0], time.monotonic() - began_s
    say(f"  the guardian after {seconds:.0f} s: {first['subject']}: {first['evidence']}")
    cluster.wait("the tables to have it", is_told)
    say("\nballast status")
    ballast(["status", *cluster.tables_words()])


def _watch(cluster: PulsarStack, what: str, condition: Callable[[], object]) -> None:
    began_s = time.monotonic()
    shown_s = 0.0

    def shown() -> bool:
        nonlocal shown_s
        holds = bool(condition())
        if holds or time.monotonic() - shown_s >= _SHOW_S:
            shown_s = time.monotonic()
            say(_line(cluster, time.monotonic() - began_s))
        return holds

    cluster.wait(what, shown)
    say(f"  {what} after {time.monotonic() - began_s:.0f} s")


def _line(cluster: PulsarStack, age_s: float) -> str:
    held = Counter(cluster.owners().values())
    brokers = "  ".join(f"{name} {held[name]:>2}" for name in cluster.admin.brokers(PULSAR))
    agreed = "agreed" if cluster.is_mirrored() else "differs"
    return (
        f"  {age_s:>4.0f} s  bundles: {brokers}   spread {cluster.spread():>5.1f} points"
        f"   mirror {agreed}   moves {len(cluster.moves())}"
    )


if __name__ == "__main__":
    sys.exit(main())
