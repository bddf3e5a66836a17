"""A whole cluster in virtual time: the production Machines joined by a log in memory.

The scorers, the balancer and the agents are the ones that run in production, the job is the
simulator's; only the messenger is of the test: it can lose, repeat and delay what agents say, kill,
pause and restart brokers. Time comes from the caller; every choice comes from a seeded generator.
"""

import json
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host
from lbcore.agent.reporting import Identity, LoadRead
from lbcore.agent.state import Event, RecordRead, RecordTombstone, Stopped
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import REPORT, Effect
from lbcore.balancer.rebuild import record_from_row
from lbcore.config.tree import Config
from lbcore.foresight.planning_memory import with_recalled_plan
from lbcore.machine import Step
from lbcore.model.resources import COUNT, complete
from lbcore.model.tables import BUNDLE_OWNERSHIP, DECISIONS, OWNERSHIP_EVENTS, TABLES
from lbcore.ownership.holding import Call, CallDone
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.scorer.broker_states import RawMessage, ScorerState
from lbcore.scorer.group_update import GroupUpdate, pack_update, unpack_update
from lbcore.scorer.scorer import parser_of
from lbcore.sim.engine.job import Committed, Job, record_events
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command, Message, Position, Tick, Topic
from tests.support.worlds.simulated_brokers import (
    Broker,
    BrokerShell,
    Faults,
    rate_of,
    topics_in,
)

CLUSTER = "local"
PARTITIONS = 4
KAFKA_BROKERS = 3
"""They lead the partitions in turn, each with a clock of its own."""
KEPT = {one.name for one in TABLES if one not in (OWNERSHIP_EVENTS, BUNDLE_OWNERSHIP, DECISIONS)}


_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def copied(make: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Make what is costly once for the same arguments, and give copies of it."""
    made: dict[str, tuple[object, _Made]] = {}

    @wraps(make)
    def copy(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        given = (args, kwargs)
        key = repr(given)
        if key not in made:
            made[key] = given, make(*args, **kwargs)  # kept, so that no address names another one
        return deepcopy(made[key][1])

    return copy


class World:
    """A cluster, its log and its job; `run` lets time pass.

    driver_ahead_ms, log_ahead_ms: how wrong the clocks of the job's driver and of Kafka are;
    leaders_ahead_ms: and that of each of Kafka's brokers beside that.
    rates: bundle → msg/s in, and as much out; 100 where it has none. topics: full name → the same;
    a bundle with such topics has their rates, and its owner reports them; another has topics_else.
    partitions: of each of Kafka's topics but commands; more may be added.
    """

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.config = config
        self.random = random.Random(seed)
        self.now_ms = 1_700_000_000_000
        self.driver_ahead_ms = 0
        self.log_ahead_ms = 0
        self.leaders_ahead_ms = [0] * KAFKA_BROKERS
        self.log: dict[tuple[str, int], list[RawMessage]] = defaultdict(list)
        self.read: dict[tuple[str, int], int] = defaultdict(int)
        self.delayed: list[tuple[int, Message]] = []
        self.faults = Faults()
        self.parse = parser_of(config, json.loads)
        self.job = WorldJob(self)
        self.current = self.job.committed.ownership
        self.other_rows = self.job.committed.rows
        self.events: list[Mapping[str, object]] = []
        self.decisions: list[Mapping[str, object]] = []
        self.reports: list[Mapping[str, Any]] = []
        self.next_batch_ms = self.now_ms
        self.partitions = PARTITIONS
        self.topics_else = 10
        self.rates: dict[str, float] = {}
        self.topics: dict[str, float] = {}
        self.brokers = {f"broker-{i}:8080": Broker(f"broker-{i}:8080") for i in range(brokers)}
        self.command_count = 0
        for name in self.brokers:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a broker, or start it anew: what it served is gone."""
        broker = self.brokers[name]
        broker.starts += 1
        identity = Identity(
            cluster=CLUSTER,
            broker=name,
            incarnation=f"{name}/{broker.starts}",
            web_service_url=f"http://{name}",
        )
        config = self.config
        agent = AgentMachine(identity, config.agent, config.signals, config.ownership.fencing)
        broker.host = Host(agent, BrokerShell(self, broker))
        broker.ahead_ms = broker.machine_ahead_ms
        broker.calls = []
        broker.unsent = []
        broker.is_paused = broker.is_cut_off = broker.is_hanging = False
        broker.inbox = [record_from_row(row) for row in self.newest()]

    def kill(self, name: str) -> None:
        self.brokers[name].host = None

    def pause(self, name: str, *, is_paused: bool) -> None:
        self.brokers[name].is_paused = is_paused

    def cut_off(self, name: str, *, is_cut_off: bool) -> None:
        """Take the broker's network to the log away, or give it back: what it said comes late."""
        broker = self.brokers[name]
        broker.is_cut_off = is_cut_off
        if not is_cut_off:
            unsent, broker.unsent = broker.unsent, []
            for message in unsent:
                self.append(message)

    def command(self, kind: str, **arguments: object) -> str:
        """Send a command, perhaps twice as clients do that doubt; returns its id."""
        self.command_count += 1
        command_id = f"command-{self.command_count}"
        command = Command(cluster=CLUSTER, command_id=command_id, kind=kind, arguments=arguments)
        self.append(command)
        if self.random.random() < self.faults.repeated:
            self.append(command)
        return command_id

    @property
    def state(self) -> BalancerState | None:
        return self.job.state

    @property
    def batch_ms(self) -> int:
        return self.now_ms + self.driver_ahead_ms

    def stamp_ms(self, partition: int) -> int:
        """What the clock of a partition's Kafka broker shows."""
        return self.now_ms + self.log_ahead_ms + self.leaders_ahead_ms[partition % KAFKA_BROKERS]

    def put(
        self, place: tuple[str, int], key: bytes | None, value: bytes | None, timestamp_ms: int
    ) -> None:
        """Put any bytes at the end of a partition of a topic."""
        topic, partition = place
        found = self.log[place]
        position = Position(
            topic=topic, partition=partition, offset=len(found), timestamp_ms=timestamp_ms
        )
        found.append(RawMessage(position=position, key=key, value=value))

    def newest(self) -> list[Mapping[str, object]]:
        found = {row["bundle"]: row for row in self.events}
        return [found[name] for name in sorted(found)]

    def served(self) -> dict[str, dict[str, int]]:
        """Bundle → broker → fencing token, of everything that is open anywhere."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for name, broker in self.brokers.items():
            for bundle, token in broker.served().items():
                found[bundle][name] = token
        return found

    def run(self, duration_ms: int, step_ms: int = 500) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms += step_ms
            self._deliver()
            for name in sorted(self.brokers):
                self._step_broker(self.brokers[name])
            if self.now_ms >= self.next_batch_ms and not self.job.is_away:
                self.next_batch_ms = self.now_ms + self.config.pipeline.trigger_ms
                self.step_job()
            self.look()

    def look(self) -> None:
        """Called after each moment; a checked world looks whether all is well."""

    def step_job(self) -> None:
        """One micro-batch of the job, with its driver's ticks before it."""
        self.job.run_batch(self.batch_ms)

    def tick(self) -> None:
        for partition in range(self.partitions):
            self.append(Tick(cluster=CLUSTER, number=0), partition)

    def step_scorer(self, group: int, messages: Sequence[RawMessage]) -> Step[Any, Any]:
        return self.job.scorers[group].step(self.job.scored.get(group), messages, self.batch_ms)

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        return self.job.balancer.step(self.state, updates, self.batch_ms)

    def read_rows(self) -> list[RawMessage]:
        """What nobody has read yet of the log, or a part of it."""
        found: list[RawMessage] = []
        for place in sorted(self.log):
            fresh = self.log[place][self.read[place] :]
            if self.faults.read < 1:
                fresh = fresh[: round(len(fresh) * self.random.uniform(self.faults.read, 1))]
            self.read[place] += len(fresh)
            found += fresh
        return found

    def restart_job(self) -> None:
        self.job.restart()

    def rebuild_job(self) -> None:
        """The job comes back without a checkpoint: from the tables, reading where it stopped."""
        self.job.rebuild()

    def take_effects(self, effects: Sequence[Effect]) -> None:
        """Keep what a batch came to, and have the brokers read it."""
        kept = {"ownership_events": self.events, "decisions": self.decisions, REPORT: self.reports}
        for effect in effects:
            kept.get(effect.kind, []).extend(effect.rows)
        for event in record_events(effects):
            if isinstance(event, RecordTombstone):
                self._forget(event.bundle)
            else:
                self._announce(event.record)

    def _forget(self, bundle: str) -> None:
        """The log forgets the bundle, and whoever reads it does."""
        for broker in self.brokers.values():
            if broker.agent is not None and self.random.random() >= self.faults.unread:
                broker.inbox.append(RecordTombstone(bundle=bundle))

    def _announce(self, record: OwnershipRecord) -> None:
        for broker in self.brokers.values():
            if broker.agent is not None and self.random.random() >= self.faults.unread:
                broker.inbox.append(record)

    def _deliver(self) -> None:
        due = [item for item in self.delayed if item[0] <= self.now_ms]
        self.delayed = [item for item in self.delayed if item[0] > self.now_ms]
        for _, message in due:
            self.append(message)

    def send(self, broker: Broker, message: Message) -> None:
        if broker.is_cut_off:
            broker.unsent.append(message)
            return
        if self.random.random() < self.faults.lost:
            return
        copies = 2 if self.random.random() < self.faults.repeated else 1
        for _ in range(copies):
            delay_ms = self.random.randint(0, self.faults.delay_ms)
            if delay_ms:
                self.delayed.append((self.now_ms + delay_ms, message))
            else:
                self.append(message)

    def append(self, message: Message, partition: int | None = None) -> None:
        topic, key, value = format_message(message)
        if partition is None:
            partition = 0 if topic is Topic.COMMANDS else zlib.crc32(key) % self.partitions
        self.put((topic.value, partition), key, value, self.stamp_ms(partition))

    def _step_broker(self, broker: Broker) -> None:
        if broker.agent is None or broker.is_paused:
            return
        records = [] if broker.is_cut_off else broker.inbox
        events: list[Event] = [
            one if isinstance(one, RecordTombstone) else RecordRead(record=one) for one in records
        ]
        broker.inbox = broker.inbox[len(records) :]
        until_ms = 0 if broker.is_hanging else self.now_ms
        done = [call for at_ms, call in broker.calls if at_ms <= until_ms]
        broker.calls = [(at_ms, call) for at_ms, call in broker.calls if at_ms > until_ms]
        self.advance(broker, [*events, *map(self.finish, done)])

    def advance(self, broker: Broker, events: Sequence[Event]) -> None:
        """Step a broker's agent; here at every moment, not only when it wants to be woken."""
        if broker.host is not None:
            broker.host.take(events, self.now_ms + broker.ahead_ms)

    def call_ms(self, broker: Broker) -> int:
        del broker
        return self.random.choice((0, 100, 700))

    def finish(self, call: Call) -> CallDone:
        failure = "out of order" if self.random.random() < self.faults.failing else ""
        return CallDone(
            callback=call.callback, bundle=call.bundle, version_id=call.version_id, failure=failure
        )

    def stopped(self, broker: Broker, last: Stopped) -> None:
        """Called with an agent's last word; a world that tells brokers to stop notes it."""

    def load(self, broker: Broker) -> LoadRead:
        bundles = tuple(broker.served())
        rates = np.array([rate_of(self.topics, b) or self.rates.get(b, 100.0) for b in bundles])
        stats = np.zeros((len(bundles), 8))
        stats[:, 0] = stats[:, 1] = rates
        stats[:, 2] = stats[:, 3] = rates * 1_000
        stats[:, 4] = [len(topics_in(self.topics, one)) or self.topics_else for one in bundles]
        total = float(rates.sum())
        return LoadRead(
            usage=np.array(complete([total / 100])),
            limit=np.full(COUNT, 100.0),
            traffic=np.array([total, total, total * 1_000, total * 1_000]),
            bundles=bundles,
            stats=stats,
        )


class WorldJob(Job):
    """A Job whose World takes its steps, and perhaps looks at them or does something else."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.config, CLUSTER, world, Committed(tables=KEPT), world.take_effects)
        self._world = world

    def step_scorer(
        self, group: int, messages: Sequence[RawMessage], _now_ms: int
    ) -> Step[ScorerState, GroupUpdate]:
        """The World's step; updates go on as bytes, as between Spark's operators."""
        step = self._world.step_scorer(group, messages)
        updates = [unpack_update(pack_update(update)) for update in step.effects]
        return Step(state=step.state, effects=updates)

    def step_balancer(
        self, updates: Sequence[GroupUpdate], _now_ms: int
    ) -> Step[BalancerState, Effect]:
        return self._world.step_balancer(updates)

    def rebuilt(self) -> BalancerState:
        """With what planning remembers, as the streaming job's first batch has it."""
        world = self._world
        return with_recalled_plan(super().rebuilt(), world.decisions, world.config, world.now_ms)


def states(world: World) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in world.newest():
        found[str(row["state"])] += 1
    return dict(found)


def is_settled(world: World) -> bool:
    """Whether every bundle is owned and open at its owner, and nowhere else."""
    served = world.served()
    return all(
        row["state"] == State.OWNED.value
        and list(served.get(str(row["bundle"]), {})) == [row["destination"]]
        for row in world.newest()
    )


def gapless(world: World) -> bool:
    """Whether each bundle's versions rise by one.

    A new life begins anywhere above the last, and so does a restored one (with the time in ms).
    """
    last: dict[str, tuple[int, bool]] = {}
    for row in world.events:
        bundle, version = str(row["bundle"]), int(str(row["version_id"]))
        known, is_over = last.get(bundle, (0, True))
        is_new = is_over or (row["is_forced"] and version == row["at_ms"])
        if version <= known or (not is_new and version != known + 1):
            return False
        last[bundle] = version, row["state"] == State.DELETED.value
    return True
