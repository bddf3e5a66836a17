"""A service that misbehaves, beside the production agent's Machine and threads.

They are joined by a queue instead of Kafka; what is said is written and read as on Kafka, by the
narrowest limits that a job can have. On the real Kafka: test_agent_misbehaviour.
"""

import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import generate_latest

from jobs.agent import Callbacks, Options, ServiceCalls
from jobs.telemetry.agent_metrics import AgentMetrics
from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import RunningAgent
from lbcore.agent.reporting import Identity, LoadRead, TopicsRead
from lbcore.agent.state import Event, ReadLoad, RecordRead, Send
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.names import Wire
from lbcore.model.resources import COUNT
from lbcore.ownership.holding import Call
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.fields import ParseRules
from lbcore.wire.format import format_message
from lbcore.wire.messages import Ack, AckOutcome, Acks, BrokerLoad, Message
from lbcore.wire.parse import parse
from tests.support.values.ownership_records import CLUSTER, A, B

BAD, GOOD = "t/bad/0x00000000_0xffffffff", "t/good/0x00000000_0xffffffff"
CHILDREN = ("t/bad/0x00000000_0x80000000", "t/bad/0x80000000_0xffffffff")
NARROW = ParseRules(
    clusters=frozenset({CLUSTER}), limits=Wire(max_text_chars=256, max_message_bytes=65_536)
)
TIMEOUT_MS, LOOK_S = 60_000, 2
PATIENCE_S = 30.0


class Speechless(Exception):  # noqa: N818 its name is no matter
    """An exception whose words end the process that asks for them."""

    def __str__(self) -> str:
        raise SystemExit("gotcha")


class Unhinged(BaseException):
    """Neither an error nor an exit."""


def raising(error: BaseException) -> Callable[[], Any]:
    def misbehave() -> Any:
        raise error

    return misbehave


RAISED: dict[str, BaseException] = {
    "error": RuntimeError("disk full"),
    "exit": SystemExit(3),
    "exit without words": SystemExit(),
    "interrupt": KeyboardInterrupt(),
    "generator exit": GeneratorExit(),
    "other": Unhinged("?"),
    "surrogate": RuntimeError("name \udc80\ud800 of a file"),
    "controls": RuntimeError("a\x00b\nc\x1b[31m\u2028d\x85"),
    "long": RuntimeError("x" * 1_000_000),
    "long and wide": RuntimeError("\U0001f600" * 10_000),
    "no text": RuntimeError(object(), b"\xff", 1e999),
    "speechless": Speechless(),
}


@dataclass
class Service:
    """A service whose callbacks do for the bundle BAD what `wrong` says; hung ones until `end`."""

    wrong: dict[str, Callable[[], Any]]
    end: threading.Event = field(default_factory=threading.Event)
    ran: list[tuple[str, str, int]] = field(default_factory=list)

    def callbacks(self) -> Callbacks:
        return Callbacks(
            load=self.load, open=self.open, close=self.close, split=self.split, topics=self.topics
        )

    def hang(self) -> None:
        self.end.wait(PATIENCE_S)

    def open(self, bundle: str, token: int) -> None:
        self._do("open", bundle, token)

    def close(self, bundle: str, token: int) -> None:
        self._do("close", bundle, token)

    def split(self, bundle: str, _: Sequence[str], token: int) -> None:
        self._do("split", bundle, token)

    def load(self) -> LoadRead:
        self.ran.append(("load", "", 0))
        answer: LoadRead = self.wrong.get("load", load)()
        return answer

    def topics(self) -> Sequence[TopicsRead]:
        answer: Sequence[TopicsRead] = self.wrong.get("topics", tuple)()
        return answer

    def _do(self, callback: str, bundle: str, token: int) -> None:
        self.ran.append((callback, bundle, token))
        if bundle in (BAD, *CHILDREN):
            self.wrong.get(callback, lambda: None)()


def load(**changed: Any) -> LoadRead:
    usual = LoadRead(
        usage=np.ones(COUNT),
        limit=np.full(COUNT, 100.0),
        traffic=np.ones(4),
        bundles=(BAD, GOOD),
        stats=np.ones((2, 8)),
    )
    return replace(usual, **changed)


class Beside:
    """An agent without Kafka: its Machine, its threads, and what it has said, as a parser reads."""

    def __init__(self, service: Service) -> None:
        identity = Identity(cluster=CLUSTER, broker=A.broker, incarnation=A.incarnation)
        config = AgentConfig(ack_repeat_ms=100, callback_timeout_ms=TIMEOUT_MS)
        machine = AgentMachine(identity, config, SignalsConfig(report_check_ms=100))
        self.agent = RunningAgent(machine)
        self.metrics = AgentMetrics(CLUSTER, A.broker)
        self.service = service
        self.clock_s = 0.0
        self.inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.calls = ServiceCalls(
            service.callbacks(),
            self.inbox.put,
            self.metrics,
            Options(agent=config, threads=1),
            clock_s=lambda: self.clock_s,
        )
        self.said: list[Message] = []

    def give(self, *events: Event) -> None:
        for effect in self.agent.step(events, int(time.monotonic() * 1_000)):
            if isinstance(effect, Call):
                self.calls.call(effect)
            elif isinstance(effect, ReadLoad):
                self.calls.read_load()
            elif isinstance(effect, Send):
                message = parse(*format_message(effect.message), NARROW)
                assert isinstance(message, type(effect.message)), message
                self.said.append(message)

    def read(self, *records: OwnershipRecord) -> None:
        self.give(*(RecordRead(record=record) for record in records))

    def until(self, is_so: Callable[[], bool]) -> None:
        """Let things happen until they have; fails after half a minute."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline_s, (self.said, self.service.ran)
            self.calls.check_overdue()
            try:
                self.give(self.inbox.get(timeout=0.01))
            except queue.Empty:
                self.give()

    def hang(self, callback: str) -> None:
        """Have a callback that has begun take longer than it may."""
        self.until(
            lambda: any(ran[:2] in ((callback, BAD), (callback, "")) for ran in self.service.ran)
        )
        for _ in range(TIMEOUT_MS // 1_000 // LOOK_S):
            self.clock_s += LOOK_S
            self.calls.check_overdue()

    def outcomes(self, bundle: str) -> list[Ack]:
        acks = [ack for said in self.said if isinstance(said, Acks) for ack in said.acks]
        return [ack for ack in acks if ack.bundle == bundle]

    def has_said(self, bundle: str, version: int, outcome: AckOutcome) -> bool:
        said = self.outcomes(bundle)
        return any((ack.version_id, ack.outcome) == (version, outcome) for ack in said)

    def until_said(self, bundle: str, version: int, outcome: AckOutcome) -> None:
        self.until(lambda: self.has_said(bundle, version, outcome))

    def permitted(self) -> dict[str, int]:
        return self.agent.usable()

    def count(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(
            name, {"cluster": CLUSTER, "broker": A.broker, **labels}
        )
        assert value is not None, generate_latest(self.metrics.registry).decode()
        return value

    def callbacks(self, callback: str, result: str) -> float:
        return self.count("ballast_agent_callbacks_total", callback=callback, result=result)

    def own_error_message(self, kind: type) -> list[Any]:
        return [said for said in self.said if isinstance(said, kind)]


def record(bundle: str, version: int, state: State = State.ASSIGNING) -> OwnershipRecord:
    to = {"destination": A.broker, "destination_incarnation": A.incarnation}
    if state in (State.RELEASING, State.SPLITTING):
        to = {"source": A.broker, "source_incarnation": A.incarnation}
    children = dict.fromkeys(CHILDREN, "") if state is State.SPLITTING else {}
    return OwnershipRecord(
        cluster=CLUSTER,
        bundle=bundle,
        state=state,
        version_id=version,
        children=children,
        **to,
    )


def elsewhere(bundle: str, version: int) -> OwnershipRecord:
    made = record(bundle, version)
    return replace(made, destination=B.broker, destination_incarnation=B.incarnation)


def opened(made: list[Beside], wrong: dict[str, Callable[[], Any]], *, hangs: str = "") -> Beside:
    """Both bundles are open, unless opening is what goes wrong."""
    service = Service(wrong)
    if hangs:
        wrong[hangs] = service.hang
    agent = Beside(service)
    made.append(agent)
    agent.read(record(BAD, 1), record(GOOD, 1))
    if hangs == "open":
        agent.hang("open")
    for bundle in [GOOD] if "open" in wrong else [GOOD, BAD]:
        agent.until_said(bundle, 1, AckOutcome.OPENED)
        agent.read(record(bundle, 2, State.OWNED))
    return agent


def asked(agent: Beside, callback: str) -> int:
    """Have the callback run for BAD; the version under which it is."""
    if callback == "open":
        return 1
    agent.read(record(BAD, 3, State.RELEASING if callback == "close" else State.SPLITTING))
    return 3


def hung(agent: Beside, callback: str) -> None:
    """Have the callback run for BAD, and hang until the balancer is told."""
    version = asked(agent, callback)
    if callback != "open":
        agent.hang(callback)
    agent.until_said(BAD, version, AckOutcome.FAILED)


def goes_on(agent: Beside) -> None:
    """The other bundle is closed and opened again, and load is reported."""
    agent.read(record(GOOD, 3, State.RELEASING))
    agent.until_said(GOOD, 3, AckOutcome.CLOSED)
    agent.read(record(GOOD, 4))
    agent.until_said(GOOD, 4, AckOutcome.OPENED)
    assert agent.permitted()[GOOD] == 4
    agent.until(lambda: bool(agent.own_error_message(BrokerLoad)))


ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
MODULES = ("word_store.py", "word_broker.py")


def write_service(folder: Path) -> None:
    for name in MODULES:
        shutil.copyfile(EXAMPLES / name, folder / name)


class StoreFile:
    """The shared store, looked at and changed behind the service's back."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claims(self) -> dict[tuple[int, int], int]:
        """Range of hashes, the end excluded → the token that it was claimed with."""
        rows = self._all("select lower, ends, token from claims") if self.path.exists() else []
        return {(lower, ends): token for lower, ends, token in rows}

    def claim(self, namespace: str, token: int) -> None:
        """As a newer owner of the whole namespace would."""
        with sqlite3.connect(self.path, timeout=30) as database:
            values = (namespace, 0, 1 << 32, token)
            database.execute("insert into claims values (?, ?, ?, ?)", values)

    def lines(self) -> list[tuple[str, str]]:
        """All topics with their lines, in the order in which they were written."""
        return [(topic, line) for topic, line in self._all("select topic, line from lines")]

    def _all(self, query: str) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.path, timeout=30) as database:
            return database.execute(query).fetchall()
