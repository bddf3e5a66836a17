"""A broker in virtual time: the production agent around a service in miniature.

`agent.host` steps the agent. The node carries out what it asks, after a while, and reports the load
of the load model, as truly as the faults of the moment allow.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

import numpy as np

from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host, Pace
from lbcore.agent.reporting import Identity, LoadRead
from lbcore.agent.state import Event, ReadLoad, Send, Stop, Stopped
from lbcore.config.tree import Config
from lbcore.model.names import parse_bundle, range_end
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.sim.engine.coverage import Coverage
from lbcore.sim.engine.log import Action, Clock, Log
from lbcore.sim.engine.saturation import Saturation
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.load.load import Floats, Ints, LoadField, RandomStream, cpu_noise, uniform, usage_of
from lbcore.sim.scenario.model import BrokerSpec, Scenario

_CONSUMERS, _PRODUCERS, _TOPICS, _TRAFFIC = 5, 6, 4, 4

_Range: TypeAlias = tuple[int, int, str]

parse_bundle_once = lru_cache(maxsize=1 << 20)(parse_bundle)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackChange:
    """Change by a callback. opened: bundle → token."""

    opened: Mapping[str, int]
    closed: tuple[str, ...]


class ServedBundles:
    """Bundles that one broker serves, each under its fencing token, and their load.

    Follows the contract of `ownership.holding.Callback`. Delays and failures are the driver's: the
    fleet's in real time, the simulator's in virtual time.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._ranges: dict[str, list[_Range]] = {}  # by namespace: disjoint, ascending
        self._names: tuple[str, ...] = ()
        self._rows: Ints | None = None

    @property
    def tokens(self) -> Mapping[str, int]:
        """Bundle → token of all served bundles."""
        return self._tokens

    def carry_out(self, call: Call) -> CallbackChange:
        """Open, close, split or merge by the contract; repeatable, never fails."""
        if call.callback is Callback.MERGE:  # changes nothing: the merged bundle is opened later
            return CallbackChange(opened={}, closed=())
        opened: dict[str, int] = {}
        if call.callback is Callback.OPEN:
            opened = {call.bundle: call.version_id}
        elif call.callback is Callback.SPLIT:
            opened = dict.fromkeys(call.children, call.version_id)
        namespace, lower, upper = parse_bundle_once(call.bundle)
        ranges = self._ranges.setdefault(namespace, [])
        first = bisect_left(ranges, (lower, 0, ""))
        if first > 0 and ranges[first - 1][1] > lower:
            first -= 1
        last = bisect_left(ranges, (range_end(upper), 0, ""))
        overlapped = [name for _, _, name in ranges[first:last]]
        parts = sorted((parse_bundle_once(name)[1:], name) for name in opened)
        ranges[first:last] = [(low, range_end(high), name) for (low, high), name in parts]
        for name in overlapped:
            del self._tokens[name]
        self._tokens |= opened
        self._rows = None
        return CallbackChange(
            opened=opened, closed=tuple(name for name in overlapped if name not in opened)
        )

    def load_at(
        self, field: LoadField, capacity: float, cpu_noise: float, full_rate: float = math.inf
    ) -> LoadRead:
        """Return the answer to ReadLoad.

        cpu_noise: percentage points, see `usage_of`. full_rate: msg/s that a broker of capacity 1
        serves; above it each bundle gets its share.
        """
        stats = self.stats_at(field)
        total = stats.sum(axis=0)
        if total[:2].sum() > full_rate * capacity:
            stats[:, :_TRAFFIC] *= full_rate * capacity / total[:2].sum()
            total = stats.sum(axis=0)
        usage, limit = usage_of(total, capacity, cpu_noise)
        return LoadRead(
            usage=usage,
            limit=limit,
            traffic=total[:_TRAFFIC],
            bundles=self._names,
            stats=stats,
            topic_count=int(total[_TOPICS]),
            consumer_count=int(total[_CONSUMERS]),
            producer_count=int(total[_PRODUCERS]),
        )

    def stats_at(self, field: LoadField) -> Floats:
        """Return float64[bundles, 8], columns BUNDLE_COLUMNS, in name order.

        All fields must be of one model: positions of bundles are looked up once.
        """
        if self._rows is None:
            self._names = tuple(sorted(self._tokens))
            rows: list[Ints] = [np.zeros((0, 2), dtype=np.int64)]
            parsed = map(parse_bundle_once, self._names)
            for namespace, bundles in groupby(parsed, key=lambda bundle: bundle[0]):
                lowers, uppers = np.array([ends for _, *ends in bundles], dtype=np.int64).T
                rows.append(field.layout.locate(namespace, lowers, uppers))
            self._rows = np.concatenate(rows)
        return field.located(self._rows)


def callback_ms(seed: int, broker: str, call: Call, between_ms: tuple[int, int]) -> int:
    """Return a callback's duration, drawn once per call.

    between_ms: shortest and longest.
    """
    shortest, longest = between_ms
    drawn = uniform(seed, f"{broker} {call.callback.value} {call.bundle} {call.version_id}")
    return shortest + int(drawn * (longest - shortest))


_READS_KEPT = 1_000
_PERCENT = 100.0


@dataclass(slots=True)
class Impairment:
    """Faults of a broker's measurements and callbacks.

    stale_ms: age of reported load. gauge_ms: time in which the CPU gauge falls to 0. failing: share
    of callbacks that fail.
    """

    stale_ms: int = 0
    gauge_ms: int = 0
    failing: float = 0.0
    loses_records: bool = False


class NodeContext:
    """Objects that all brokers share. cluster: its name."""

    def __init__(self, scenario: Scenario, config: Config, cluster: str) -> None:
        """Create them at time 0."""
        self.scenario = scenario
        self.config = config
        self.cluster = cluster
        self.clock = Clock()
        self.rng = RandomStream(scenario.seed)
        self.traffic = Traffic(scenario)
        self.coverage = Coverage(self.traffic.layout, self.traffic.topics, self.clock)
        self.saturation = Saturation(self.traffic, self.coverage)
        self.log = Log(cluster, self.clock, self.rng)


@dataclass(slots=True)
class _Gauge:
    """CPU gauge that falls slowly. shown: value at at_ms; peak: where the fall began."""

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

    number: its index in the coverage. changes: number of changes to the served bundles.
    """

    def __init__(self, spec: BrokerSpec, number: int, context: NodeContext) -> None:
        self.spec = spec
        self.name = spec.name
        self.number = number
        self.starts = 0
        self.impairment = Impairment()
        self.when_stopped: Action | None = None
        self._context = context
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
        """Begin a new start that serves nothing; a running one is crashed first."""
        self.crash()
        self.starts += 1
        self._service = ServedBundles()
        self.changes += 1
        self._reads.clear()
        self._read_key = ()
        config = self._context.config
        identity = Identity(
            cluster=self._context.cluster,
            broker=self.name,
            incarnation=self.incarnation,
            web_service_url=f"http://{self.name}:8080",
            pulsar_service_url=f"pulsar://{self.name}:6650",
            broker_version="4.0.8",
            load_manager_class="ballast",
            failure_domain=self.spec.domain,
            capacity=self.spec.capacity,
        )
        self._host = Host(AgentMachine(identity, config.agent, config.signals), self)
        self.take(records)

    def crash(self) -> None:
        """End the process at once."""
        if self.is_running:
            self._context.coverage.close_all(self._service.tokens, self.number)
        if self._host is not None:
            self._host.end()
        self.when_stopped = None

    def stop(self, when_stopped: Action | None = None) -> None:
        """Ask the broker to stop: it asks to be drained first."""
        if self.is_running:
            self.when_stopped = when_stopped
            self.take([Stop()])

    def pause(self) -> None:
        """Freeze the process; nobody serves its bundles meanwhile."""
        if self._host is not None and self.is_running:
            self._host.freeze()
            self._context.coverage.close_all(self._service.tokens, self.number)

    def resume(self) -> None:
        """Continue the frozen process with all events that came meanwhile."""
        if self._host is None or self._host.pace is not Pace.FROZEN:
            return
        for bundle in sorted(self._service.tokens):
            self._context.coverage.open(bundle, self.number)
        self._host.release(self._context.clock.now_ms)

    def take(self, events: Sequence[Event]) -> None:
        """Take events from outside."""
        if self._host is not None:
            self._host.take(events, self._context.clock.now_ms)

    def do(self, effect: Send | ReadLoad | Stopped, now_ms: int) -> Sequence[Event]:
        """Carry out what the agent asks for."""
        del now_ms
        if isinstance(effect, ReadLoad):
            return [self._read_load()]
        if isinstance(effect, Send):
            self._context.log.send(self.name, effect.message)
        else:
            then = self.when_stopped
            self.crash()
            if then is not None:
                then()
        return ()

    def call_ms(self, call: Call) -> int:
        """Return the duration of a call, the same in every run of a seed."""
        scenario = self._context.scenario
        return callback_ms(scenario.seed, self.name, call, scenario.callback_ms)

    def schedule(self, at_ms: int, call: Call | None) -> None:
        """Schedule for this start; when the start ends, it is void."""
        host, clock = self._host, self._context.clock
        assert host is not None  # noqa: S101 it asks
        clock.at(at_ms, lambda: host.come_due([(at_ms, call)], clock.now_ms))

    def finish(self, call: Call, now_ms: int) -> CallDone:
        """Open, close or split, unless the fault "callbacks-fail" strikes."""
        del now_ms
        done = CallDone(callback=call.callback, bundle=call.bundle, version_id=call.version_id)
        if self._context.rng.happens(self.impairment.failing):
            return replace(done, failure="out of order")
        before = set(self._service.tokens)
        change = self._service.carry_out(call)
        self.changes += 1
        coverage = self._context.coverage
        for bundle in change.closed:
            coverage.close(bundle, self.number)
        for bundle in change.opened:
            if bundle not in before:
                coverage.open(bundle, self.number)
        if call.callback not in (Callback.SPLIT, Callback.MERGE):
            self._context.saturation.charge(self.number, call.bundle)
        return done

    def _read_load(self) -> LoadRead:
        now_ms = self._context.clock.scenario_ms
        noise_step = now_ms // self._context.scenario.noise.step_ms
        saturation = self._context.saturation
        saturation.advance(now_ms)
        step = self._context.traffic.step_at(now_ms)
        key = (step, self.changes, noise_step, saturation.moment)
        is_known = key == self._read_key and self._reads and not self.impairment.gauge_ms
        read = self._reads[-1][1] if is_known else self._measure(now_ms, noise_step)
        self._read_key = key
        self._reads.append((now_ms, read))
        if not self.impairment.stale_ms:
            return read
        wanted_ms = now_ms - self.impairment.stale_ms
        older = [read for at_ms, read in self._reads if at_ms <= wanted_ms]
        return older[-1] if older else self._reads[0][1]

    def _measure(self, now_ms: int, noise_step: int) -> LoadRead:
        context, spec = self._context, self.spec
        field = context.saturation.field_at(now_ms)
        read = self._service.load_at(field, spec.capacity, 0.0)
        noise = cpu_noise(context.scenario.seed, self.name, noise_step, context.scenario.noise.cpu)
        full_rate = context.scenario.full_rate * spec.capacity
        used = _PERCENT * float(read.traffic[0] + read.traffic[1]) / full_rate
        cpu = min(max(0.0, used + spec.foreign + noise), _PERCENT)
        if self.impairment.gauge_ms:
            cpu = self._gauge.read(cpu, now_ms, self.impairment.gauge_ms)
        read.usage[0] = cpu
        if not context.scenario.reports_offered:
            return read
        offered = self._service.stats_at(context.traffic.at(now_ms))[:, :2].sum()
        return replace(read, offered_msg_rate=max(float(offered), float(read.traffic[:2].sum())))
