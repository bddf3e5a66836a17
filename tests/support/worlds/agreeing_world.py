"""What everything that speaks of a cluster says of one moment: status, page, explain, metrics.

The world is virtual, its Machines, sink, tables, readers and words are production's.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.status import (
    ExplainQuestion,
    explain,
    read_overview,
    read_status_rows,
    status_lines,
)
from lbcore.agent.reporting import LoadRead
from lbcore.config.tree import Config
from lbcore.explain.bundle import explain_bundle
from lbcore.explain.explanation import Explanation
from lbcore.explain.status import ClusterStatus, make_status
from tests.support.worlds.checked_world import owners
from tests.support.worlds.explained_world import about, write_tables
from tests.support.worlds.measured_world import MeasuredWorld
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import CLUSTER

INTERVAL_MS = 5_000
Samples = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]
_COMMANDS: Mapping[str, Mapping[str, Any]] = {
    "pin_bundle": {"reason": "release day"},
    "drain_broker": {},
    "cancel_drain": {},
    "forget_broker": {},
    "pause": {"reason": "upgrade"},
    "resume": {},
    "exclude_namespace": {"namespace": "t/n"},
}
"""What may be asked for, with the arguments that don't name a bundle or a broker."""
_EVENTS = ("heat", "load", "unload", "kill", "wait", *_COMMANDS)


class AgreeingWorld(MeasuredWorld):
    """Brokers whose resources differ: heap and direct memory are nearly full, which weighs little.

    Only some of them count: what is worst is not what is compared, unless the weights say so.
    """

    def load(self, broker: Broker) -> LoadRead:
        found = super().load(broker)
        number = int(broker.name.partition("-")[2].partition(":")[0])
        others = np.array([0.0, 99.0, 80.0 + number, 10.0 + number, 30.0])
        return replace(found, usage=found.usage + others)


def random_world(seed: int) -> tuple[AgreeingWorld, random.Random]:
    """A small cluster at rest, under settings that differ by seed."""
    dice = random.Random(seed)
    names = ("decision_interval_ms", "shed_interval_ms", "hit_period_ms")
    config = Config()
    config = replace(
        config,
        pipeline=replace(
            config.pipeline,
            **dict.fromkeys(names, INTERVAL_MS),
            load_history_interval_ms=INTERVAL_MS,
        ),
        shedding=replace(
            config.shedding,
            strategy=dice.choice(("avg", "ballast", "threshold")),
            grace_period_ms=dice.choice((0, 60_000, 1_800_000)),
        ),
        signals=replace(
            config.signals,
            report_max_interval_ms=dice.choice((INTERVAL_MS, 60_000)),
            cpu_weight=dice.choice((1.0, 0.5)),
            direct_memory_weight=dice.choice((0.0, 1.0, 0.3)),
        ),
    )
    world = AgreeingWorld(config, dice.randint(3, 5), seed=seed)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=dice.choice((12, 24)))
    world.run(40_000)
    world.rates = {name: dice.uniform(100, 1_500) for name in sorted(owners(world))}
    return world, dice


def reserved_world(stores: tuple[float, float] = (10.0, 10.0)) -> AgreeingWorld:
    """Eight brokers at rest, two of them reserved by a policy for a namespace with little load.

    stores: msg/s of each bundle of the reserved brokers.
    """
    config = Config()
    names = ("decision_interval_ms", "shed_interval_ms", "load_history_interval_ms")
    pipeline = replace(config.pipeline, **dict.fromkeys(names, INTERVAL_MS))
    world = AgreeingWorld(replace(config, pipeline=pipeline), 8, seed=3)
    world.run(2_000)
    own = ["broker-[67].*"]
    world.command("set_isolation_policy", policy="stores", namespaces=["t/stores"], primary=own)
    world.run(2_000)
    world.command("create_namespace", namespace="t/stores", bundles=8)
    world.command("create_namespace", namespace="t/n", bundles=48)
    world.run(40_000)
    of = dict(zip(("broker-6:8080", "broker-7:8080"), stores, strict=True))
    count = Counter(owners(world).values())
    world.rates = {
        name: of.get(owner, 4_000.0 / count[owner]) for name, owner in sorted(owners(world).items())
    }
    world.run(60_000)
    return world


def happen(world: AgreeingWorld, dice: random.Random) -> None:
    """Something, and up to a minute in which the job does what it does."""
    bundle = dice.choice(sorted(owners(world)))
    broker = dice.choice(sorted(world.brokers))
    what = dice.choice(_EVENTS)
    alive = [one for one in world.brokers.values() if one.agent is not None]
    if what in ("heat", "unload"):
        count = len(owners(world)) // 2 if what == "heat" else 2
        for one in dice.sample(sorted(owners(world)), count):
            world.command("unload_bundle", bundle=one, destination=broker)
    elif what == "load":
        world.rates |= {bundle: dice.uniform(100, 6_000)}
    elif what == "kill" and len(alive) > 2:
        world.kill(broker)
    elif what in _COMMANDS:
        names = {"bundle": bundle} if what == "pin_bundle" else {}
        if what in ("pin_bundle", "drain_broker", "cancel_drain", "forget_broker"):
            names["broker"] = broker
        world.command(what, **names, **_COMMANDS[what])
    world.run(dice.choice((1_000, 8_000, 30_000, 60_000)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """All of it at `now_ms`, which is that of the newest batch. page: the JSON it is drawn from."""

    now_ms: int
    status: ClusterStatus
    lines: str
    page: Mapping[str, Any]
    cluster: Explanation
    brokers: Mapping[str, Explanation]
    bundles: Mapping[str, Explanation]
    records: tuple[Mapping[str, Any], ...]
    samples: Samples

    def by(self, metric: str, *names: str) -> dict[tuple[str, ...], float]:
        """A metric's series by the values of these labels."""
        series = self.samples.get(metric, {})
        return {tuple(dict(key)[name] for name in names): value for key, value in series.items()}


def everything_said(world: AgreeingWorld) -> Said:
    """Waits for a batch that wrote load_history, so that tables and metrics are of one moment."""
    for _ in range(60):
        world.run(500)
        written = {int(str(row["at_ms"])) for row in world.other_rows["load_history"]}
        if world.now_ms in written:
            break
    else:
        raise AssertionError("no batch writes load_history")
    with TemporaryDirectory() as folder:
        write_tables(world, Path(folder))
        return _said(world, Path(folder), world.now_ms)


def _said(world: AgreeingWorld, root: Path, now_ms: int) -> Said:
    reader = TableReader(root, CLUSTER)

    def asked(kind: str, name: str = "") -> Explanation:
        found = explain(reader, world.config, ExplainQuestion(kind=kind, name=name, now_ms=now_ms))
        assert found is not None, (kind, name)
        return found

    records = tuple(row for row in world.newest() if row["state"] not in ("Deleted", "Init"))
    bundles: dict[str, Explanation] = {}
    for name in (str(row["bundle"]) for row in records):
        known = explain_bundle(about(world, name), name)  # reading the tables for each takes long
        assert known is not None, name
        bundles[name] = known
    one = min(bundles)
    assert asked("bundle", one) == bundles[one]
    status = make_status(CLUSTER, read_status_rows(reader, now_ms), world.config, now_ms)
    page = read_overview(reader, world.config, now_ms).to_json()
    return Said(
        now_ms=now_ms,
        status=status,
        lines="\n".join(status_lines(status)),
        page=json.loads(json.dumps(page)),
        cluster=asked("cluster"),
        brokers={row.broker: asked("broker", row.broker) for row in status.broker_rows},
        bundles=bundles,
        records=records,
        samples=world.samples(),
    )
