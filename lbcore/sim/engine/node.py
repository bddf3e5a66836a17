"""A broker in virtual time: the production agent's Machine around a service in miniature.

Decides nothing about the protocol; carries out what the agent asks, after a while, and tells it
what the load model says, as truly as the faults of the moment allow. Source: ours.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from lbcore.agent.agent import AgentMachine
from lbcore.agent.reporting import Identity, LoadRead
from lbcore.agent.state import AgentState, Effect, Event, ReadLoad, Send, Stop, Stopped
from lbcore.config.tree import Config
from lbcore.ownership.holding import Call, CallDone
from lbcore.sim.engine.clock import Action, Clock
from lbcore.sim.engine.coverage import Coverage
from lbcore.sim.engine.dice import Dice
from lbcore.sim.engine.log import Log
from lbcore.sim.engine.service import ServedBundles
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.load.noise import uniform
from lbcore.sim.load.usage import cpu_noise, usage_of
from lbcore.sim.scenario.model import BrokerSpec, Scenario

_READS_KEPT = 1_000
_PERCENT = 100.0
_TRAFFIC = 4
_TOPICS, _CONSUMERS, _PRODUCERS = 4, 5, 6


class Life(str, Enum):
    """What a broker is at the moment."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


@dataclass(slots=True)
class Trouble:
    """What is wrong with a broker's measurements and callbacks."""

    stale_ms: int = 0
    gauge_ms: int = 0
    failing: float = 0.0
    loses_records: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What all brokers share."""

    cluster: str
    config: Config
    scenario: Scenario
    clock: Clock
    log: Log
    traffic: Traffic
    coverage: Coverage
    dice: Dice


@dataclass(slots=True)
class _Gauge:
    """A cpu gauge that falls slowly. shown: what it shows, as of at_ms; peak: where it began."""

    shown: float = 0.0
    peak: float = 0.0
    at_ms: int = 0

    def read(self, true: float, now_ms: int, keep_ms: int) -> float:
        fallen = self.shown - self.peak * (now_ms - self.at_ms) / keep_ms
        if true >= fallen:
            self.shown = self.peak = true
        else:
            self.shown = fallen
        self.at_ms = now_ms
        return self.shown


@dataclass(slots=True)
class _Held:
    """What waits while the broker stands still."""

    events: list[Event] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


class Node:
    """A broker. number: its index in the coverage. until_ms: when each of its faults ends."""

    def __init__(self, spec: BrokerSpec, number: int, around: Around) -> None:
        self.spec = spec
        self.name = spec.name
        self.number = number
        self.life = Life.GONE
        self.starts = 0
        self.trouble = Trouble()
        self.when_stopped: Action | None = None
        self.until_ms: dict[object, int] = {}
        self._around = around
        self._agent: AgentMachine | None = None
        self._state: AgentState | None = None
        self._service = ServedBundles()
        self._changes = 0
        self._wake_at_ms: int | None = None
        self._held = _Held()
        self._gauge = _Gauge()
        self._reads: deque[tuple[int, LoadRead]] = deque(maxlen=_READS_KEPT)
        self._read_key: tuple[int, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether its process exists."""
        return self.life is not Life.GONE

    @property
    def incarnation(self) -> str:
        """The name of its present start."""
        return f"{self.name}/{self.starts}"

    def served(self) -> dict[str, int]:
        """Bundle → token of what its service has open."""
        return dict(self._service.tokens) if self.is_there else {}

    def start(self, records: Sequence[Event]) -> None:
        """A new start that serves nothing; one that runs is gone first."""
        self.crash()
        self.starts += 1
        self.life = Life.RUNNING
        self._service, self._state, self._held = ServedBundles(), None, _Held()
        self._changes += 1
        self._reads.clear()
        self._read_key = ()
        config = self._around.config
        self._agent = AgentMachine(self._identity(), config.agent, config.signals)
        self._step(records)

    def crash(self) -> None:
        """The process is gone without a word."""
        if self.life is Life.RUNNING:
            self._around.coverage.close_all(self._service.tokens, self.number)
        self.life = Life.GONE
        self._wake_at_ms = None
        self.when_stopped = None

    def stop(self, when_stopped: Action | None = None) -> None:
        """Ask the broker to end in order: it asks to be emptied first."""
        if self.life is Life.RUNNING:
            self.when_stopped = when_stopped
            self._step([Stop()])

    def pause(self) -> None:
        """The process stands still; what it serves nobody gets meanwhile."""
        if self.life is Life.RUNNING:
            self.life = Life.PAUSED
            self._around.coverage.close_all(self._service.tokens, self.number)

    def resume(self) -> None:
        """The process goes on where it stood, with all that came meanwhile."""
        if self.life is not Life.PAUSED:
            return
        self.life = Life.RUNNING
        for bundle in sorted(self._service.tokens):
            self._around.coverage.open(bundle, self.number)
        held, self._held = self._held, _Held()
        done = [self._end(call) for call in held.calls]
        self._step([*done, *held.events])

    def take(self, events: Sequence[Event]) -> None:
        """Events from outside."""
        if self.life is Life.PAUSED:
            self._held.events += events
        elif self.life is Life.RUNNING:
            self._step(events)

    def _step(self, events: Sequence[Event]) -> None:
        """Step the Machine until it wants nothing more at once."""
        waiting: Sequence[Event] | None = events
        clock, before_ms = self._around.clock, self._wake_at_ms
        wake_at_ms: int | None = None
        while waiting is not None and self._agent is not None and self.is_there:
            step = self._agent.step(self._state, waiting, clock.now_ms)
            self._state, wake_at_ms = step.state, step.wake_at_ms
            results = [event for effect in step.effects for event in self._do(effect)]
            waiting = results or None
        self._wake_at_ms = wake_at_ms if self.is_there else None
        if self._wake_at_ms is not None and self._wake_at_ms != before_ms:
            self._schedule_wake(self._wake_at_ms)

    def _schedule_wake(self, at_ms: int) -> None:
        start = self.starts

        def wake() -> None:
            if start == self.starts and self._wake_at_ms == at_ms:
                self._wake_at_ms = None
                if self.life is Life.RUNNING:
                    self._step(())

        self._around.clock.at(at_ms, wake)

    def _do(self, effect: Effect) -> Sequence[Event]:
        if isinstance(effect, ReadLoad):
            return [self._read_load()]
        if isinstance(effect, Send):
            self._around.log.send(self.name, effect.message)
        elif isinstance(effect, Call):
            self._schedule_call(effect)
        elif isinstance(effect, Stopped):
            then, self.when_stopped = self.when_stopped, None
            self.crash()
            if then is not None:
                then()
        return ()

    def _schedule_call(self, call: Call) -> None:
        start = self.starts

        def end() -> None:
            if start != self.starts or not self.is_there:
                return
            if self.life is Life.PAUSED:
                self._held.calls.append(call)
            else:
                self._step([self._end(call)])

        shortest, longest = self._around.scenario.callback_ms
        stream = f"{self.name} {call.callback.value} {call.bundle} {call.version_id}"
        drawn = uniform(self._around.scenario.seed, stream)
        self._around.clock.after(shortest + int(drawn * (longest - shortest)), end)

    def _end(self, call: Call) -> CallDone:
        done = CallDone(callback=call.callback, bundle=call.bundle, version_id=call.version_id)
        if self._around.dice.happens(self.trouble.failing):
            return replace(done, failure="out of order")
        before = set(self._service.tokens)
        change = self._service.carry_out(call)
        self._changes += 1
        coverage = self._around.coverage
        for bundle in change.closed:
            coverage.close(bundle, self.number)
        for bundle in change.opened:
            if bundle not in before:
                coverage.open(bundle, self.number)
        return done

    def _read_load(self) -> LoadRead:
        now_ms = self._around.clock.scenario_ms
        noise_step = now_ms // self._around.scenario.noise.step_ms
        key = (self._around.traffic.step_at(now_ms), self._changes, noise_step)
        if key != self._read_key or self.trouble.gauge_ms or not self._reads:
            self._read_key = key
            self._reads.append((now_ms, self._measure(now_ms, noise_step)))
        else:
            self._reads.append((now_ms, self._reads[-1][1]))
        return self._as_shown(now_ms)

    def _as_shown(self, now_ms: int) -> LoadRead:
        """The newest measurement, or one that is as old as the trouble says."""
        if not self.trouble.stale_ms:
            return self._reads[-1][1]
        wanted_ms = now_ms - self.trouble.stale_ms
        older = [read for at_ms, read in self._reads if at_ms <= wanted_ms]
        return older[-1] if older else self._reads[0][1]

    def _measure(self, now_ms: int, noise_step: int) -> LoadRead:
        around, spec = self._around, self.spec
        stats = self._service.stats_at(around.traffic.at(now_ms))
        total = stats.sum(axis=0)
        noise = cpu_noise(around.scenario.seed, self.name, noise_step, around.scenario.noise.cpu)
        full_rate = around.scenario.full_rate * spec.capacity
        used = _PERCENT * float(total[0] + total[1]) / full_rate
        cpu = max(0.0, used + spec.foreign + noise)
        if self.trouble.gauge_ms:
            cpu = self._gauge.read(cpu, now_ms, self.trouble.gauge_ms)
        measured = usage_of(total, spec.capacity, 0.0)
        measured.usage[0] = cpu
        return LoadRead(
            usage=measured.usage,
            limit=measured.limit,
            traffic=total[:_TRAFFIC],
            bundles=tuple(sorted(self._service.tokens)),
            stats=stats,
            topic_count=int(total[_TOPICS]),
            consumer_count=int(total[_CONSUMERS]),
            producer_count=int(total[_PRODUCERS]),
        )

    def _identity(self) -> Identity:
        return Identity(
            cluster=self._around.cluster,
            broker=self.name,
            incarnation=self.incarnation,
            web_service_url=f"http://{self.name}:8080",
            pulsar_service_url=f"pulsar://{self.name}:6650",
            broker_version="4.0.8",
            load_manager_class="ballast",
            failure_domain=self.spec.domain,
            capacity=self.spec.capacity,
        )
