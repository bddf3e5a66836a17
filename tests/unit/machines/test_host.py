"""Machine hosts: wake-ups, guarded steps, shares of long work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host, Pace
from lbcore.agent.reporting import Identity
from lbcore.agent.state import (
    Event,
    ReadLoad,
    RecordRead,
    Send,
    Stop,
    Stopped,
)
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.fault_isolation import Fault, Guard
from lbcore.machine import Step, step_safely
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.ownership.records import OwnershipRecord
from tests.support.values.ownership_records import BUNDLE, CLUSTER, A, assigning, owned, served

CALL_MS = 250
CONFIG = AgentConfig()
OPEN = Callback.OPEN
ASSIGNED = RecordRead(record=assigning())


def machine(fencing: str = "token") -> AgentMachine:
    identity = Identity(cluster=CLUSTER, broker=A.broker, incarnation=A.incarnation)
    return AgentMachine(identity, CONFIG, SignalsConfig(), fencing)


@dataclass
class NotingShell:
    """Does what is asked at once and writes it down. answer: what an effect answers."""

    answer: Callable[[Send | ReadLoad | Stopped], Sequence[Event]] = lambda _: ()
    done: list[tuple[int, Send | ReadLoad | Stopped]] = field(default_factory=list)
    due: list[tuple[int, Call | None]] = field(default_factory=list)
    finished: list[tuple[int, Callback]] = field(default_factory=list)

    def do(self, effect: Send | ReadLoad | Stopped, now_ms: int) -> Sequence[Event]:
        self.done.append((now_ms, effect))
        return self.answer(effect)

    def call_ms(self, call: Call) -> int:
        assert call.bundle == BUNDLE
        return CALL_MS

    def schedule(self, at_ms: int, call: Call | None) -> None:
        self.due.append((at_ms, call))

    def finish(self, call: Call, now_ms: int) -> CallDone:
        self.finished.append((now_ms, call.callback))
        return CallDone(callback=call.callback, bundle=call.bundle, version_id=call.version_id)

    @property
    def wakes(self) -> list[int]:
        return [at_ms for at_ms, call in self.due if call is None]

    @property
    def calls(self) -> list[tuple[int, Call | None]]:
        return [(at_ms, call) for at_ms, call in self.due if call is not None]

    @property
    def steps(self) -> list[int]:
        """When something was done."""
        return sorted({at_ms for at_ms, _ in self.done})


def started(events: Sequence[Event] = ()) -> tuple[Host, NotingShell]:
    shell = NotingShell()
    host = Host(machine(), shell)
    host.take(events, 0)
    return host, shell


def records(*made: OwnershipRecord) -> list[RecordRead]:
    return [RecordRead(record=record) for record in made]


def test_frozen_host_does_nothing_and_then_ends_callbacks_before_what_it_hears() -> None:
    host, shell = started([ASSIGNED])
    before = list(shell.done)
    host.freeze()
    host.come_due(shell.due, 20_000)
    host.take(records(owned()), 20_001)
    assert (shell.done, shell.finished) == (before, [])
    host.release(30_000)
    assert shell.finished == [(30_000, OPEN)]
    assert served(host.agent.state) == {BUNDLE: 2}
    assert shell.wakes[-1] > 30_000
    assert host.pace is Pace.FREE


def test_hanging_host_lives_on_but_no_callback_returns() -> None:
    host, shell = started([ASSIGNED])
    host.hang()
    before = host.agent.state
    host.come_due(shell.calls, CALL_MS)
    assert host.agent.state is before, "a callback that hangs is no step"
    (wake,) = shell.wakes
    host.come_due([(wake, None)], wake)
    assert (shell.finished, served(host.agent.state)) == ([], {})
    assert wake in shell.steps
    host.take(records(owned()), wake + 1)
    host.freeze()
    host.release(wake + 2)
    assert shell.finished == [(wake + 2, OPEN)]
    assert served(host.agent.state) == {BUNDLE: 2}


def test_ended_host_does_nothing_whatever_comes_due() -> None:
    host, shell = started([ASSIGNED])
    host.end()
    before = (list(shell.done), list(shell.due), host.agent.state)
    host.come_due(shell.due, 90_000)
    host.take(records(owned()), 90_000)
    host.freeze()
    host.hang()
    host.release(90_000)
    assert (shell.done, shell.due, host.agent.state) == before
    assert (shell.finished, host.pace) == ([], Pace.ENDED)


def test_last_word_ends_the_host_once_the_answers_of_that_moment_are_heard() -> None:
    shell = NotingShell(lambda effect: [ASSIGNED] if isinstance(effect, ReadLoad) else ())
    host = Host(machine(), shell)
    host.take([Stop()], 0)
    assert [one for _, one in shell.done if isinstance(one, Stopped)] == [Stopped()]
    assert (host.pace, host.agent.state.is_stopped) == (Pace.ENDED, True)
    assert host.agent.state.versions == {BUNDLE: 2}
    assert shell.due == []


class Adder:
    """A Machine that adds up numbers.

    raises: True if it raises for these numbers, after it has added them.
    """

    def __init__(self, raises: Callable[[Sequence[int]], bool]) -> None:
        self._raises = raises
        self.attempts = 0

    def step(
        self, state: int | None, events: Sequence[int], now_ms: int, guard: Guard | None = None
    ) -> Step[int, int]:
        guard = guard or Guard()
        self.attempts += 1
        total, aside = [state or 0], list[int]()

        def add(items: Sequence[int]) -> None:
            total.extend(items)
            if self._raises(items):
                raise ValueError(f"{now_ms}")

        def put_aside(item: int, fault: Fault) -> str:
            assert fault.type == "ValueError"
            aside.append(item)
            return str(item)

        guard.each("add", events, add, put_aside)
        guard.run("end", lambda: total.append(0))
        assert [fault.item for fault in guard.faults if fault.item] == list(map(str, aside))
        return Step(state=sum(total), effects=aside)

    def pack(self, state: int) -> dict[str, bytes]:
        return {"sum": str(state).encode()}

    def unpack(self, chunks: Mapping[str, bytes]) -> int:
        return int(chunks["sum"])


def stepped(adder: Adder, events: Sequence[int]) -> tuple[int | None, list[int]]:
    step, _ = step_safely(adder, 1000, events, 0, lambda step: step.state)
    return step.state, list(step.effects)


@pytest.mark.parametrize("bad", [[], [0], [7], [3, 4], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_items_that_raise_are_left_out_and_the_others_count(bad: list[int]) -> None:
    adder = Adder(lambda items: any(one in bad for one in items))
    good = sum(one for one in range(8) if one not in bad)
    assert stepped(adder, range(8)) == (1000 + good, bad)
    assert adder.attempts <= 1 + 2 * len(bad)


def test_a_flood_of_items_that_raise_takes_few_attempts() -> None:
    adder = Adder(lambda items: any(one % 2 for one in items))
    assert stepped(adder, range(1000)) == (1000 + sum(range(0, 1000, 2)), [*range(1, 1000, 2)])
    assert adder.attempts == 3


def test_items_that_raise_only_together_are_worked_on_one_by_one() -> None:
    adder = Adder(lambda items: len(items) > 1)
    assert stepped(adder, range(8)) == (1000 + sum(range(8)), [])


def test_a_step_that_cannot_be_encoded_is_refused_as_a_whole() -> None:
    def encode(step: Step[int, int]) -> int:
        if step.state != 1000:
            raise ValueError
        return 0

    step, _ = step_safely(Adder(lambda _: False), 1000, range(3), 0, encode)
    assert (step.state, step.effects) == (1000, [0, 1, 2])


def test_what_is_raised_although_nothing_is_tried_ends_the_job() -> None:
    def encode(_: Step[int, int]) -> int:
        raise ValueError("of the machine")

    with pytest.raises(ValueError, match="of the machine"):
        step_safely(Adder(lambda _: False), 1000, range(3), 0, encode)
