"""A broker in virtual time: the production agent around a service in miniature.

Decides nothing about the protocol, nor when the agent is stepped (`agent.host` does); carries out
what it asks, after a while, and tells it what the load model says, as truly as the faults of the
moment allow.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host, Pace
from lbcore.agent.reporting import Identity, LoadRead
from lbcore.agent.state import Event, ReadLoad, Send, Stop, Stopped
from lbcore.config.tree import Config
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.sim.engine.clock import Action, Clock
from lbcore.sim.engine.coverage import Coverage
from lbcore.sim.engine.log import Log
from lbcore.sim.engine.saturation import Saturation
from lbcore.sim.engine.service import ServedBundles, callback_ms
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.load.noise import RandomStream
from lbcore.sim.load.usage import cpu_noise
from lbcore.sim.scenario.model import BrokerSpec, Scenario

_READS_KEPT = 1_000
_PERCENT = 100.0


@dataclass(slots=True)
class Impairment:
    """Faults of a broker's measurements and callbacks."""

    stale_ms: int = 0
    gauge_ms: int = 0
    failing: float = 0.0
    loses_records: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Objects that all brokers share."""

    cluster: str
    config: Config
    scenario: Scenario
    clock: Clock
    log: Log
    traffic: Traffic
    coverage: Coverage
    saturation: Saturation
    rng: RandomStream


@dataclass(slots=True)
class _Gauge:
    """A cpu gauge that falls slowly.

    shown: what it shows, as of at_ms; peak: where it began.
    """

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


class Node:
    """A broker.

    number: its index in the coverage. until_ms: when each of its faults ends. changes: counts those
    of what it serves.
    """

    def __init__(self, spec: BrokerSpec, number: int, around: Around) -> None:
        self.spec = spec
        self.name = spec.name
        self.number = number
        self.starts = 0
        self.impairment = Impairment()
        self.when_stopped: Action | None = None
        self.until_ms: dict[object, int] = {}
        self._around = around
        self._host: Host | None = None
        self._service = ServedBundles()
        self.changes = 0
        self._gauge = _Gauge()
        self._reads: deque[tuple[int, LoadRead]] = deque(maxlen=_READS_KEPT)
        self._read_key: tuple[int, ...] = ()

    @property
    def is_there(self) -> bool:
        """True if the broker's process exists."""
        return self._host is not None and self._host.pace is not Pace.ENDED

    @property
    def is_running(self) -> bool:
        """True if the broker's process runs, neither hanging nor frozen."""
        return self._host is not None and self._host.pace is Pace.FREE

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
        self._service = ServedBundles()
        self.changes += 1
        self._reads.clear()
        self._read_key = ()
        config = self._around.config
        self._host = Host(AgentMachine(self._identity(), config.agent, config.signals), self)
        self.take(records)

    def crash(self) -> None:
        """The process is gone without a word."""
        if self.is_running:
            self._around.coverage.close_all(self._service.tokens, self.number)
        if self._host is not None:
            self._host.end()
        self.when_stopped = None

    def stop(self, when_stopped: Action | None = None) -> None:
        """Ask the broker to end in order: it asks to be emptied first."""
        if self.is_running:
            self.when_stopped = when_stopped
            self.take([Stop()])

    def pause(self) -> None:
        """The process stands still; what it serves nobody gets meanwhile."""
        if self._host is not None and self.is_running:
            self._host.freeze()
            self._around.coverage.close_all(self._service.tokens, self.number)

    def resume(self) -> None:
        """The process goes on where it stood, with all that came meanwhile."""
        if self._host is None or self._host.pace is not Pace.FROZEN:
            return
        for bundle in sorted(self._service.tokens):
            self._around.coverage.open(bundle, self.number)
        self._host.release(self._around.clock.now_ms)

    def take(self, events: Sequence[Event]) -> None:
        """Events from outside."""
        if self._host is not None:
            self._host.take(events, self._around.clock.now_ms)

    def do(self, effect: Send | ReadLoad | Stopped, now_ms: int) -> Sequence[Event]:
        """Carry out what the agent asks for."""
        del now_ms
        if isinstance(effect, ReadLoad):
            return [self._read_load()]
        if isinstance(effect, Send):
            self._around.log.send(self.name, effect.message)
        else:
            then = self.when_stopped
            self.crash()
            if then is not None:
                then()
        return ()

    def call_ms(self, call: Call) -> int:
        """The same for a call in every run of a seed."""
        scenario = self._around.scenario
        return callback_ms(scenario.seed, self.name, call, scenario.callback_ms)

    def schedule(self, at_ms: int, call: Call | None) -> None:
        """Put it down for this start; what the start leaves undone its end makes void."""
        host, clock = self._host, self._around.clock
        assert host is not None  # noqa: S101 it asks
        clock.at(at_ms, lambda: host.come_due([(at_ms, call)], clock.now_ms))

    def finish(self, call: Call, now_ms: int) -> CallDone:
        """Open, close or split, unless the service is out of order."""
        del now_ms
        done = CallDone(callback=call.callback, bundle=call.bundle, version_id=call.version_id)
        if self._around.rng.happens(self.impairment.failing):
            return replace(done, failure="out of order")
        before = set(self._service.tokens)
        change = self._service.carry_out(call)
        self.changes += 1
        coverage = self._around.coverage
        for bundle in change.closed:
            coverage.close(bundle, self.number)
        for bundle in change.opened:
            if bundle not in before:
                coverage.open(bundle, self.number)
        if call.callback not in (Callback.SPLIT, Callback.MERGE):
            self._around.saturation.charge(self.number, call.bundle)
        return done

    def _read_load(self) -> LoadRead:
        now_ms = self._around.clock.scenario_ms
        noise_step = now_ms // self._around.scenario.noise.step_ms
        saturation = self._around.saturation
        saturation.advance(now_ms)
        step = self._around.traffic.step_at(now_ms)
        key = (step, self.changes, noise_step, saturation.moment)
        if key != self._read_key or self.impairment.gauge_ms or not self._reads:
            self._read_key = key
            self._reads.append((now_ms, self._measure(now_ms, noise_step)))
        else:
            self._reads.append((now_ms, self._reads[-1][1]))
        return self._as_shown(now_ms)

    def _as_shown(self, now_ms: int) -> LoadRead:
        """The newest measurement, or one that is as old as the trouble says."""
        if not self.impairment.stale_ms:
            return self._reads[-1][1]
        wanted_ms = now_ms - self.impairment.stale_ms
        older = [read for at_ms, read in self._reads if at_ms <= wanted_ms]
        return older[-1] if older else self._reads[0][1]

    def _measure(self, now_ms: int, noise_step: int) -> LoadRead:
        around, spec = self._around, self.spec
        field = around.saturation.field_at(now_ms)
        read = self._service.load_at(field, spec.capacity, 0.0)
        noise = cpu_noise(around.scenario.seed, self.name, noise_step, around.scenario.noise.cpu)
        full_rate = around.scenario.full_rate * spec.capacity
        used = _PERCENT * float(read.traffic[0] + read.traffic[1]) / full_rate
        cpu = min(max(0.0, used + spec.foreign + noise), _PERCENT)
        if self.impairment.gauge_ms:
            cpu = self._gauge.read(cpu, now_ms, self.impairment.gauge_ms)
        read.usage[0] = cpu
        if not around.scenario.reports_offered:
            return read
        offered = self._service.stats_at(around.traffic.at(now_ms))[:, :2].sum()
        return replace(read, offered_msg_rate=max(float(offered), float(read.traffic[:2].sum())))

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
