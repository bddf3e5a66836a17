"""A world in which everything comes and goes: days in virtual time, one after the other.

A day is half a minute in which things happen, and a leap over the rest of it, in which job, brokers
and Kafka stand still. All of it through the production Machines. Tables are as the job keeps them:
one row a key, without those of what is long gone; what only grows is dropped, as nothing here reads
it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lbcore.balancer.book import ACCEPTED
from lbcore.config.tree import Config
from lbcore.model.tables import COMMANDS, NAMESPACES, TABLES
from lbcore.validation.check import with_dynamic
from tests.support.values.clusters import with_constants
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import World

DAY_MS = 86_400_000
LIVE = 6
"""Namespaces, and brokers, that are there at the end of each day."""

CONFIG = with_dynamic(
    with_constants(
        Config(),
        {
            "ownership.forget_broker_after_ms": DAY_MS,
            "ownership.brake_brokers": 0,
            "pipeline.settle_ms": 0,
        },
    ),
    {
        "shedding.strategy": "threshold",
        "shedding.multi_hit": True,
        "placement.strategy": "least_resource_usage_with_weight",
        "splitting.enabled": False,
        "ownership.broker_timeout_ms": 5_000,
    },
)
_KEYS: Mapping[str, tuple[str, ...]] = {table.name: table.key for table in TABLES if table.key}


@dataclass(slots=True)
class Lived:
    """How many of each came, all but the last few of which went."""

    namespaces: int = 0
    brokers: int = 0
    commands: int = 0
    topics: int = 0


class LivedWorld(World):
    """A World that `live` lets age. made: numbers of the namespaces that are there."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(CONFIG, LIVE, seed=seed)
        self.topics_else = 0
        self.lived = Lived()
        self.made: list[int] = []

    def live(self, days: int, a_day: int) -> None:
        """Let days pass, in each of which so many of everything come and go."""
        for _ in range(days):
            self._come(a_day)
            self.run(16_000, step_ms=1_000)
            self._go()
            self.run(12_000, step_ms=1_000)
            self.leap(DAY_MS - 34_000)

    def leap(self, duration_ms: int) -> None:
        """Nothing happens for so long: the machines were asleep."""
        self.now_ms += duration_ms
        self.next_batch_ms = self.now_ms
        self._tidy()

    def settle(self) -> None:
        """Let all that has an end come to it, with those that are left."""
        for days in (1, 1, 8):
            self.leap(days * DAY_MS)
            self.run(20_000, step_ms=1_000)
        self._tidy()

    def newest(self) -> list[Mapping[str, object]]:
        return [self.current[name] for name in sorted(self.current)]

    def command(self, kind: str, **arguments: object) -> str:
        self.lived.commands += 1
        return super().command(kind, **arguments)

    def _come(self, count: int) -> None:
        for _ in range(count):
            self.lived.namespaces += 1
            self.lived.topics += 2
            self.make(self.lived.namespaces)
            self.lived.brokers += 1
            name = f"new-{self.lived.brokers:06}:8080"
            self.brokers[name] = Broker(name)
            self.start(name)

    def make(self, number: int) -> None:
        """A namespace with its tenant, topics and rules."""
        self.made.append(number)
        name, tenant = f"tenant-{number:06}/n", f"tenant-{number:06}"
        self.command("create_record", record_type="tenant", name=tenant)
        self.command("create_namespace", namespace=name, bundles=2)
        for at in range(2):
            topic = f"persistent://{name}/topic-{at}"
            self.command("create_record", record_type="topic", name=topic)
            self.topics[topic] = 10.0
        self.command("pause", namespace=name)
        self.command("set_anti_affinity_group", namespace=name, group="g")
        self.command("exclude_namespace", namespace=name)
        others = {"namespaces": [f"{name}-x"], "primary": ["nobody-.*"]}
        self.command("set_isolation_policy", policy=tenant, **others)

    def _go(self) -> None:
        """The oldest go, but for LIVE; one in two of the brokers is drained before it dies."""
        numbers, self.made = self.made[:-LIVE], self.made[-LIVE:]
        for number in numbers:
            self.unmake(number)
        names = sorted(self.brokers)[: len(self.brokers) - LIVE]
        for name in names[::2]:
            self.command("drain_broker", broker=name)
        self.run(6_000, step_ms=1_000)
        for number in numbers:
            self.command("delete_record", record_type="tenant", name=f"tenant-{number:06}")
        for name in names:
            self.kill(name)
            del self.brokers[name]

    def unmake(self, number: int) -> None:
        """The namespace goes, a bundle of it pinned and moving, with all that was made for it."""
        name = f"tenant-{number:06}/n"
        bundle = f"{name}/0x00000000_0x80000000"
        self.command("pin_bundle", bundle=bundle, broker=max(self.brokers))
        self.command("unload_bundle", bundle=bundle)
        self.command("delete_namespace", namespace=name)
        self.command("delete_isolation_policy", policy=f"tenant-{number:06}")
        for at in range(2):
            del self.topics[f"persistent://{name}/topic-{at}"]

    def _tidy(self) -> None:
        """Keep of log and tables what Kafka and upkeep would."""
        self.events, self.decisions, self.reports = [], [], []
        for place, messages in self.log.items():
            self.log[place] = messages[self.read[place] :]
            self.read[place] = 0
        for name in list(self.other_rows):
            if name not in _KEYS:
                self.other_rows[name] = self.other_rows[name][-1:]
                continue
            newest: dict[tuple[object, ...], Mapping[str, object]]
            newest = {tuple(row[key] for key in _KEYS[name]): row for row in self.other_rows[name]}
            self.other_rows[name] = [row for row in newest.values() if not self._is_gone(name, row)]

    def _is_gone(self, table: str, row: Mapping[str, object]) -> bool:
        """Whether upkeep would have removed the row by now: `Table.gone`, and a week has passed.

        Of commands those that ended: a rebuild reads the newest few alone.
        """
        if table == COMMANDS.name:
            return row["status"] != ACCEPTED
        if int(str(row["at_ms"])) > self.now_ms - 7 * DAY_MS:
            return False
        is_gone = not row.get("is_set", True) or row.get("is_deleted", False)
        if table == NAMESPACES.name:
            return bool(is_gone) and row["namespace"] != ""
        return bool(is_gone) or row.get("state") == "forgotten"
