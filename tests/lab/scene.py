"""What each run of the lab begins with, in the hub, and how it ends: brokers, topics, traffic.

Decides what is the same for all: 24 topics that fall off in rate, evenly placed on three brokers.
Ends everything that it began, the brokers last.
"""

import argparse
import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError, complain, say
from tests.lab.contenders import Contender
from tests.lab.hosted_cluster import HostedCluster
from tests.lab.hosts import Hosts
from tests.lab.our_side import OurSide
from tests.lab.watch import Watch
from tests.pulsar.distribution import chosen_version, ensure_distribution
from tests.pulsar.pulsar_stack import create_namespace
from tests.pulsar.traffic import Load, Traffic

NAMESPACE = "public/load"
BROKERS = 4
BUNDLES, _TOPICS, _SIZE, _RATE = 64, 24, 4_000, 150.0
_TRIES, _SETTLE_S = 5, 3.0


def main_of(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Mapping[str, Any]]
) -> int:
    """Run it and keep the record; 0 when there is one. Adds the arguments that all runs have."""
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    args = parser.parse_args()
    try:
        record = run(args)
    except CommandError as error:
        complain(error, as_json=False)
        return int(error.exit_code)
    args.record.parent.mkdir(parents=True, exist_ok=True)
    args.record.write_text(json.dumps(record) + "\n")
    return 0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Brokers with traffic between them. ours: what Ballast runs, None = Pulsar is alone."""

    cluster: HostedCluster
    traffic: Traffic
    ours: OurSide | None
    began: str

    def watch(self) -> Watch:
        """Start the traffic, and look."""
        self.traffic.start()
        bundles = bundles_of(self.cluster, self.traffic)
        return Watch(cluster=self.cluster, traffic=self.traffic, bundles=bundles)

    def notes(self) -> tuple[str, ...]:
        """What went otherwise than it should."""
        died = tuple(f"{name} ended by itself" for name in self.cluster.died())
        return died + (() if self.ours is None else self.ours.notes())

    @property
    def machine(self) -> dict[str, Any]:
        """What a record says of it."""
        return {"began": self.began, "cores": len(os.sched_getaffinity(0))}


@contextmanager
def scene(args: argparse.Namespace, contender: Contender) -> Iterator[Scene]:
    """All but one of the brokers, the namespace, and traffic that has not started."""
    hosts = Hosts(name=args.hosts, count=BROKERS)
    cluster = HostedCluster(
        ensure_distribution(), args.folder / "pulsar", hosts, contender.broker_settings
    )
    ours = OurSide(args.folder, contender.job_settings) if contender.ballast is not None else None
    began = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    with ExitStack() as ends:
        ends.callback(cluster.stop)
        if ours is not None:
            ends.callback(ours.stop)
            ours.start()
        cluster.start(BROKERS - 1)
        say(f"brokers of Pulsar {chosen_version()} are ready")
        create_namespace(cluster.admin_url, NAMESPACE, BUNDLES)
        traffic = Traffic(cluster.admin_url, loads())
        ends.callback(traffic.stop, drain_s=0.0)
        yield Scene(cluster=cluster, traffic=traffic, ours=ours, began=began)


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
