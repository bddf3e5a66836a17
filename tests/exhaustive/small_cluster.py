"""What a small cluster is made of: messages, records, the job and the brokers, each numbered.

The job is the production scorer and balancer, a broker the production agent with a service that
keeps the callbacks' contract to the letter. Both are run once for each different state, input and
time; what they answered is remembered, so that millions of worlds need only as many runs as there
are different jobs and brokers among them. Every run of the job is held against the invariants of
records. Time is counted in instants of INSTANT_MS.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from lbcore.agent.agent import AgentMachine
from lbcore.agent.reporting import Identity, LoadRead
from lbcore.agent.state import AgentState, EndConfirmed, ReadLoad, RecordRead, ReportConfirmed, Send
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.rebuild import record_from_row
from lbcore.config.load import parse_config
from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.model.resources import COUNT, complete
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.ownership.records import OwnershipRecord, format_record
from lbcore.packing import to_plain
from lbcore.scorer.broker_states import RawMessage
from lbcore.scorer.group_update import pack_update, unpack_update
from lbcore.scorer.scorer import BrokerScorer, parser_of
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command, Message, Position, Tick, Topic
from tests.exhaustive.interned import Interned, Tuples
from tests.support.values.clusters import with_constants
from tests.support.values.ownership_records import served
from tests.support.worlds.checked_world import check_records, rows_of

CLUSTER = "local"
BROKERS = ("a:1", "b:1")
START_MS = 1_700_000_000_000
INSTANT_MS = 2_000
TICK_MS = 1_000
NAMESPACE = "t/n"


def config_of(fencing: str) -> Config:
    """Short times, so that a few instants see a broker die and its bundles move; no balancing."""
    config = parse_config(
        {
            "pipeline": {
                "scorer_groups": 1,
                "decision_interval_ms": INSTANT_MS,
                "shed_interval_ms": INSTANT_MS,
                "split_interval_ms": INSTANT_MS,
            },
            "shedding": {"is_balancing": False},
            "splitting": {"enabled": False},
            "ownership": {
                "fencing": fencing,
                "broker_timeout_ms": 6_000,
                "in_flight_timeout_ms": 6_000,
            },
            "agent": {
                "heartbeat_interval_ms": 2_000,
            },
        }
    )
    constants = {
        "agent.agent_lease_ms": 4_000,
        "ownership.brake_brokers": 0,
        "pipeline.load_history_interval_ms": 3_600_000,
        "pipeline.settle_ms": 0,
    }
    return with_constants(config, constants)


def at_ms(instant: int) -> int:
    """The time of an instant."""
    return START_MS + instant * INSTANT_MS


class Said(NamedTuple):
    """A message on its way to the job; sent_ms: of a report, which a lease hangs on, else 0."""

    topic: str
    key: bytes
    value: bytes
    sent_ms: int


class JobStep(NamedTuple):
    """What a batch came to: the next job's number, and the records that it wrote."""

    job: int
    records: tuple[int, ...]


class ProcessStep(NamedTuple):
    """What a step of an agent came to: the next process's number, and what it said."""

    process: int
    said: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A broker's running process: its agent's state, and what its service really does.

    open: what is really served, by name, and under which token. calls: callbacks that run.
    """

    broker: str
    start: int
    state: AgentState | None = None
    open: tuple[tuple[str, int], ...] = ()
    calls: tuple[Call, ...] = ()

    def did(self, call: Call, failure: str) -> "Process":
        """The process after a callback has run, by the callbacks' contract."""
        left = tuple(other for other in self.calls if other != call)
        if call.callback is Callback.MERGE:
            return replace(self, calls=left)
        rest = {b: t for b, t in self.open if not overlap(b, call.bundle)}
        if failure:
            now_open = rest if call.callback is Callback.OPEN else dict(self.open)
        elif call.callback is Callback.OPEN:
            now_open = {**rest, call.bundle: call.version_id}
        elif call.callback is Callback.CLOSE:
            now_open = rest
        else:
            token = max(t for b, t in self.open if overlap(b, call.bundle))
            now_open = {**rest, **dict.fromkeys(call.children, token)}
        return replace(self, open=tuple(sorted(now_open.items())), calls=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job: what its operators hold, packed, and the instant of its last batch."""

    scored: bytes | None
    chunks: bytes
    instant: int


@dataclass(slots=True)
class Cluster:
    """Everything that has a number, and what the Machines answered so far."""

    fencing: str
    config: Config = field(init=False)
    messages: Interned[Said] = field(default_factory=Interned)
    records: Interned[OwnershipRecord] = field(default_factory=Interned)
    jobs: Interned[_Job] = field(default_factory=Interned)
    processes: Interned[Process] = field(default_factory=Interned)
    lists: Tuples = field(default_factory=Tuples)
    batches: int = 0
    agent_steps: int = 0
    _balancer: ClusterBalancer = field(init=False)
    _scorer: Any = field(init=False)
    _agents: dict[tuple[str, int], AgentMachine] = field(default_factory=dict)
    _job_steps: dict[tuple[int, int, int], JobStep] = field(default_factory=dict)
    _process_steps: dict[tuple[Any, ...], ProcessStep] = field(default_factory=dict)
    _used: dict[tuple[int, int], tuple[tuple[str, int], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = config_of(self.fencing)
        self._balancer = ClusterBalancer(cluster=CLUSTER, config=self.config)
        self._scorer = BrokerScorer(
            self.config, cluster=CLUSTER, group=0, parse=parser_of(self.config, json.loads)
        )

    def say(self, message: Message) -> int:
        """The message's number."""
        topic, key, value = format_message(message)
        sent_ms = 0
        if topic is Topic.BROKER_LOAD and not isinstance(message, Tick):
            sent_ms = message.envelope.reported_at_ms
        said = Said(topic=topic.value, key=key, value=value, sent_ms=sent_ms)
        return self.messages.add(said, said)

    def new_job(self) -> int:
        """The number of a job that knows nothing."""
        return self.jobs.add(None, _Job(scored=None, chunks=b"", instant=0))

    def new_process(self, broker: str, start: int) -> int:
        """The number of a process that has just been started."""
        return self._number(Process(broker=broker, start=start))

    # -- the job

    def run_batch(self, job: int, inbox: Sequence[tuple[int, int]], instant: int) -> JobStep:
        """One batch of what arrived since the last one: (message, instant of its arrival)."""
        arrived = self.lists.of(tuple(n for pair in inbox for n in pair))
        known = self._job_steps.get((job, arrived, instant))
        if known is None:
            known = self._run_batch(job, inbox, instant)
            self._job_steps[job, arrived, instant] = known
        return known

    def _run_batch(self, job: int, inbox: Sequence[tuple[int, int]], instant: int) -> JobStep:
        self.batches += 1
        scored, state = self._unpacked(job)
        raw = self._raw_messages(self.jobs[job].instant, inbox, instant)
        score = self._scorer.step(scored, raw, at_ms(instant))
        updates = [unpack_update(pack_update(update)) for update in score.effects]
        step = self._balancer.step(state, updates, at_ms(instant))
        check_records(state, step)
        assert step.state is not None
        packed = _Job(
            scored=self._scorer.pack(score.state)["brokers"],
            chunks=_join(self._balancer.pack(step.state)),
            instant=instant,
        )
        rows = rows_of(step.effects, "ownership_events") + rows_of(step.effects, "resend")
        records = tuple(self._record(record_from_row(row)) for row in rows)
        return JobStep(job=self.jobs.add(packed, packed), records=records)

    def _unpacked(self, job: int) -> tuple[Any, BalancerState | None]:
        held = self.jobs[job]
        if held.scored is None:
            return None, None
        scored = self._scorer.unpack({"brokers": held.scored})
        return scored, self._balancer.unpack(_split(held.chunks))

    def records_of(self, job: int) -> dict[str, OwnershipRecord]:
        """The records that a job holds, by bundle."""
        _, state = self._unpacked(job)
        if state is None:
            return {}
        return {name: state.ledger.record(name) for name in state.ledger.names}

    def _raw_messages(
        self, since: int, inbox: Sequence[tuple[int, int]], instant: int
    ) -> list[RawMessage]:
        """What a batch reads, in the log's order: what arrived by each instant, then the ticks."""
        found: list[RawMessage] = []
        for each in range(since, instant + 1):
            for number, arrived in inbox:
                if arrived == each or (each == since and arrived < each):
                    said = self.messages[number]
                    self._place(found, said.topic, said.key, said.value, at_ms(each))
            topic, key, value = format_message(Tick(cluster=CLUSTER, number=0))
            for tick_ms in range(at_ms(each), at_ms(min(each + 1, instant)) + 1, TICK_MS):
                self._place(found, topic.value, key, value, tick_ms)
        return found

    @staticmethod
    def _place(
        found: list[RawMessage], topic: str, key: bytes, value: bytes, timestamp_ms: int
    ) -> None:
        position = Position(topic=topic, partition=0, offset=len(found), timestamp_ms=timestamp_ms)
        found.append(RawMessage(position=position, key=key, value=value))

    def _record(self, record: OwnershipRecord) -> int:
        _, value = format_record(record)
        return self.records.add((record.bundle, value), record)

    # -- a broker

    def step_process(self, process: int, events: tuple[Any, ...], instant: int) -> ProcessStep:
        """One step of an agent. events: (name, argument ...), see `_events`."""
        known = self._process_steps.get((process, events, instant))
        if known is None:
            known = self._step_process(self.processes[process], events, instant)
            self._process_steps[process, events, instant] = known
        return known

    def _step_process(self, process: Process, events: tuple[Any, ...], instant: int) -> ProcessStep:
        self.agent_steps += 1
        agent, said = self._agent(process), []
        process, pending = self._events(process, events, instant)
        while True:
            step = agent.step(process.state, pending, at_ms(instant))
            assert step.state is not None
            process, pending = replace(process, state=step.state), []
            for effect in step.effects:
                if isinstance(effect, Send):
                    said.append(self.say(effect.message))
                elif isinstance(effect, Call):
                    process = _called(process, effect)
                elif isinstance(effect, ReadLoad):
                    pending.append(_load(tuple(served(step.state))))
            if not pending:
                break
        assert dict(process.open) == served(process.state) or process.calls
        return ProcessStep(process=self._number(process), said=tuple(said))

    def _events(
        self, process: Process, events: tuple[Any, ...], instant: int
    ) -> tuple[Process, list[Any]]:
        found: list[Any] = []
        for name, *arguments in events:
            if name == "record":
                found.append(RecordRead(record=self.records[arguments[0]]))
            elif name == "end":
                found.append(EndConfirmed(asked_ms=at_ms(instant)))
            elif name == "confirmed":
                found.append(ReportConfirmed(sent_ms=arguments[0]))
            elif name == "done":
                call, failure = process.calls[arguments[0]], arguments[1]
                process = process.did(call, failure)
                found.append(
                    CallDone(
                        callback=call.callback,
                        bundle=call.bundle,
                        version_id=call.version_id,
                        failure=failure,
                    )
                )
        return process, found

    def used(self, process: int, instant: int) -> tuple[tuple[str, int], ...]:
        """(bundle, token) of what a service may use at an instant, unless it is frozen."""
        known = self._used.get((process, instant))
        if known is None:
            held = self.processes[process]
            agent = self._agent(held)
            may = held.state is not None and at_ms(instant) <= agent.until_ms(held.state)
            known = tuple(agent.usable(held.state).items()) if may and held.state else ()
            self._used[process, instant] = known
        return known

    def _agent(self, process: Process) -> AgentMachine:
        key = (process.broker, process.start)
        if key not in self._agents:
            identity = Identity(
                cluster=CLUSTER,
                broker=process.broker,
                incarnation=f"{process.broker}/{process.start}",
                web_service_url=f"http://{process.broker}",
            )
            config = self.config
            self._agents[key] = AgentMachine(identity, config.agent, config.signals, self.fencing)
        return self._agents[key]

    def _number(self, process: Process) -> int:
        agent = "" if process.state is None else _text(process.state)
        key = (process.broker, process.start, agent, process.open, process.calls)
        return self.processes.add(key, process)


def _text(state: AgentState) -> str:
    """The state as canonical text, without what follows from the rest."""
    none: frozenset[str] = frozenset()
    kept = replace(state, pending=none, stuck=none, merging=none, busy={})
    return json.dumps(to_plain(kept), sort_keys=True)


def command(number: int, kind: str, **arguments: object) -> Command:
    """A command; it has no timeout."""
    return Command(cluster=CLUSTER, command_id=f"command-{number}", kind=kind, arguments=arguments)


def overlap(one: str, other: str) -> bool:
    """Whether two bundles share a hash."""
    return Bundle.parse(one).range.overlaps(Bundle.parse(other).range)


def _called(process: Process, call: Call) -> Process:
    for other in process.calls:
        assert not overlap(other.range, call.range), f"{call} and {other} run at once"
    return replace(process, calls=(*process.calls, call))


def _load(bundles: tuple[str, ...]) -> LoadRead:
    return LoadRead(
        usage=np.array(complete([20.0])),
        limit=np.full(COUNT, 100.0),
        traffic=np.full(4, 100.0),
        bundles=bundles,
        stats=np.zeros((len(bundles), 8)),
    )


def _join(chunks: Any) -> bytes:
    plain = {name: bytes(blob).hex() for name, blob in sorted(chunks.items())}
    return zlib.compress(json.dumps(plain).encode(), 1)


def _split(blob: bytes) -> dict[str, bytes]:
    plain = json.loads(zlib.decompress(blob))
    return {name: bytes.fromhex(text) for name, text in plain.items()}
