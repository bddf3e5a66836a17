"""Runs a scenario: a whole cluster in virtual time on the production Machines.

Brokers start, each trigger makes a batch, its records reach brokers a moment later, events of the
scenario happen, true load is sampled. Scorers, balancer, agents and planner are those of
production. After CockroachDB's asim, which calls the production allocator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lbcore.agent.state import Event, RecordRead, RecordTombstone
from lbcore.balancer.effects import Effect
from lbcore.config.ownership import ON_DEMAND
from lbcore.config.tree import Config
from lbcore.model.bundles import NamespaceBundles
from lbcore.ownership.records import Cause, OwnershipRecord, State, named_brokers
from lbcore.plan.groups import members_by_group
from lbcore.plan.snapshot import Bools
from lbcore.sim.engine.coverage import Coverage
from lbcore.sim.engine.job import Committed, Job, record_events
from lbcore.sim.engine.log import START_MS, Action
from lbcore.sim.engine.node import Node, NodeContext
from lbcore.sim.engine.recorder import Recorder, Sample, SampledGroup
from lbcore.sim.load.load import Floats, total
from lbcore.sim.scenario.model import BrokerSpec, Scenario
from lbcore.wire.messages import Command

CLUSTER = "local"
_STARTS_WITHIN_MS = 900
_FIRST_VERSION = 1
_ASK_INTERVAL_MS = 5_000
"""Shortest time between two requests for a bundle's owner, as in the service's `OwnerRequests`."""
_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Result of a run."""

    scenario: Scenario
    recorder: Recorder
    coverage: Coverage
    job: Job
    nodes: dict[str, Node]


class Engine(NodeContext):
    """A scenario's cluster."""

    def __init__(self, scenario: Scenario, config: Config, cluster: str = CLUSTER) -> None:
        """Create all parts at time 0."""
        super().__init__(scenario, config, cluster)
        self.recorder = Recorder(clock=self.clock)
        self.job = Job(config, cluster, self.log, Committed(), self._take_effects)
        self.nodes: dict[str, Node] = {}
        self._concerned: dict[str, set[str]] = {}
        self._named_bundles: dict[str, set[str]] = {}
        self._commands = 0
        self._asked_ms: dict[str, int] = {}
        self.fault_ends_ms: dict[object, int] = {}
        self.when_committed: Callable[[Sequence[Effect]], None] | None = None
        self.when_sampled: Action | None = None
        for spec in scenario.brokers:
            self.add_node(spec)
        self._begin()

    def run(self) -> Run:
        """Run the scenario to its end."""
        self.schedule_first()
        self.clock.run_until(START_MS + self.scenario.run_ms)
        return self.result()

    def schedule_first(self) -> None:
        """Schedule the first batch and the first sample."""
        self.clock.after(self.config.pipeline.trigger_ms, self._batch)
        self.clock.after(self.scenario.sample_ms, self._sample)

    def result(self) -> Run:
        """Return the result of the run so far."""
        return Run(
            scenario=self.scenario,
            recorder=self.recorder,
            coverage=self.coverage,
            job=self.job,
            nodes=self.nodes,
        )

    def add_node(self, spec: BrokerSpec) -> Node:
        """Add a broker, which `start` starts."""
        node = Node(spec, len(self.nodes), self)
        left = spec.capacity * (1.0 - spec.foreign / _PERCENT)
        self.saturation.add_broker(self.scenario.full_rate * left)
        self.nodes[spec.name] = node
        return node

    def start(self, name: str) -> None:
        """Start or restart a broker; it reads the records that name it."""
        records = self.job.committed.records
        named = [
            RecordRead(record=records[bundle])
            for bundle in sorted(self._named_bundles.get(name, ()))
            if bundle in records and name in named_brokers(records[bundle])
        ]
        self.nodes[name].start(named)

    def command(self, kind: str, **arguments: object) -> None:
        """Send a command."""
        self._commands += 1
        command_id = f"command-{self._commands}"
        command = Command(
            cluster=self.cluster, command_id=command_id, kind=kind, arguments=arguments
        )
        self.log.append(command)

    def _begin(self) -> None:
        """Set up the initial state: owned namespaces, and brokers that start."""
        owned = {spec.namespace for spec in self.scenario.owners}
        records = _records(self.scenario, self.cluster)
        namespaces = [
            {
                "namespace": space.name,
                "hash": space.hash.value,
                "is_deleted": False,
                "highest_version": _FIRST_VERSION,
                "properties": "{}",
            }
            for space in self.scenario.namespaces
            if space.name in owned
        ]
        self.job.begin(records, namespaces)
        for record in records:
            self._note(record)
            self.recorder.owner[record.bundle] = record.destination
        there = [spec.name for spec in self.scenario.brokers if not spec.is_absent]
        for at, name in enumerate(there):
            self.clock.after(at * _STARTS_WITHIN_MS // len(there), partial(self.start, name))
        for space in self.scenario.namespaces:
            if space.name not in owned:
                self.command(
                    "create_namespace",
                    namespace=space.name,
                    bundles=space.bundles,
                    hash=space.hash.value,
                )

    def _batch(self) -> None:
        self.clock.after(self.config.pipeline.trigger_ms, self._batch)
        if self.config.ownership.assign == ON_DEMAND:
            self._ask()
        self.job.run_batch(self.clock.now_ms)

    def _ask(self) -> None:
        """Ask for owners of new bundles whose load begins, as clients' lookups do."""
        now_ms, rates = self.clock.scenario_ms, self.traffic.rates_at(self.clock.scenario_ms)
        for bundle, record in sorted(self.job.committed.records.items()):
            is_new = record.state is State.FREE and record.cause is Cause.CREATE
            is_due = is_new and now_ms >= self._asked_ms.get(bundle, 0)
            if is_due and self.coverage.rate_of(bundle, rates) > 0.0:
                self._asked_ms[bundle] = now_ms + _ASK_INTERVAL_MS
                self.command("assign_bundle", bundle=bundle)

    def _take_effects(self, effects: Sequence[Effect]) -> None:
        self.recorder.take(effects)
        if self.when_committed is not None:
            self.when_committed(effects)
        events: dict[str, list[Event]] = {}
        for event in record_events(effects):
            if isinstance(event, RecordTombstone):
                concerned = self._concerned.pop(event.bundle, set())
            else:
                concerned = self._note(event.record)
            for name in concerned:
                events.setdefault(name, []).append(event)
        for name in sorted(events):
            self._deliver(name, events[name])

    def _note(self, record: OwnershipRecord) -> set[str]:
        """Note the brokers that a record names; return those of earlier records too."""
        concerned = self._concerned.setdefault(record.bundle, set())
        for name in named_brokers(record) - concerned:
            concerned.add(name)
            self._named_bundles.setdefault(name, set()).add(record.bundle)
        return concerned

    def _deliver(self, name: str, events: Sequence[Event]) -> None:
        """Let a broker's present start read records, after the time of a commit."""
        node = self.nodes.get(name)
        if node is None or not node.is_there or node.impairment.loses_records:
            return
        start = node.starts

        def read() -> None:
            if node.starts != start:
                return
            path = self.log.paths[name]
            if path.is_cut:
                self.clock.after(self.config.pipeline.trigger_ms, read)
            else:
                node.take(events)

        self.clock.after(self.scenario.commit_ms, read)

    def _sample(self) -> None:
        self.clock.after(self.scenario.sample_ms, self._sample)
        now_ms = self.clock.scenario_ms
        rates = self.traffic.rates_at(now_ms)
        self.coverage.rates = rates
        nodes = list(self.nodes.values())
        per_point = self.scenario.full_rate / _PERCENT
        points = self.coverage.loads(len(nodes), rates) / per_point
        capacity = np.array([node.spec.capacity for node in nodes])
        foreign = np.array([node.spec.foreign for node in nodes])
        is_running = np.array([node.is_running for node in nodes])
        loads = np.where(is_running, points / capacity + foreign, np.nan)
        self.recorder.sample(
            Sample(
                at_ms=now_ms,
                loads=loads,
                groups=self._groups(capacity, is_running),
                bundles=len(self.recorder.owner),
                rate=total(rates),
            )
        )
        if self.when_sampled is not None:
            self.when_sampled()

    def _groups(self, capacity: Floats, is_running: Bools) -> list[SampledGroup]:
        """The isolation groups of the last cycle, without brokers that don't run."""
        hottest = self.coverage.hottest_bundles(len(self.nodes)) * (
            _PERCENT / self.scenario.full_rate
        )
        named = self.job.state.plan.groups if self.job.state is not None else {}
        found = []
        for members in members_by_group(list(self.nodes), named).values():
            own = members[is_running[members]]
            if len(own):
                mean_capacity = total(capacity[own]) / len(own)
                floor = float(hottest[own].max()) / mean_capacity
                found.append(SampledGroup(brokers=own, floor=floor))
        return found


def _records(scenario: Scenario, cluster: str) -> list[OwnershipRecord]:
    """Return the ownership records at the start; later lines win."""
    spaces = {space.name: space for space in scenario.namespaces}
    owner: dict[str, str] = {}
    for spec in scenario.owners:
        space = spaces[spec.namespace]
        names = NamespaceBundles(space.name, space.edges).names()
        for number in range(spec.first, spec.last + 1):
            owner[names[number]] = spec.brokers[(number - spec.first) % len(spec.brokers)]
    return [
        OwnershipRecord(
            cluster=cluster,
            bundle=bundle,
            state=State.OWNED,
            version_id=_FIRST_VERSION,
            destination=owner[bundle],
            destination_incarnation=f"{owner[bundle]}/1",
            timestamp_ms=START_MS,
            cause=Cause.CREATE,
        )
        for bundle in sorted(owner)
    ]
