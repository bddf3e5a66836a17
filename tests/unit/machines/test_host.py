"""A host: what waits while its process stands still, which wake-ups count, and how it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Thread

import pytest

from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host, Pace, RunningAgent
from lbcore.agent.lease import EndConfirmed, ReportConfirmed
from lbcore.agent.reporting import Identity
from lbcore.agent.state import Event, ReadLoad, RecordRead, Send, Stop, Stopped
from lbcore.config.ownership import FENCING_LEASE, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.ownership.records import OwnershipRecord
from lbcore.wire.messages import Acks
from tests.support.values.ownership_records import (
    BUNDLE,
    CLUSTER,
    A,
    assigning,
    owned,
    releasing,
)

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


def acks(shell: NotingShell) -> int:
    sent = [effect for _, effect in shell.done if isinstance(effect, Send)]
    return sum(isinstance(one.message, Acks) for one in sent)


def records(*made: OwnershipRecord) -> list[RecordRead]:
    return [RecordRead(record=record) for record in made]


def test_callback_ends_when_the_shell_says_and_the_agent_hears_of_it() -> None:
    host, shell = started([ASSIGNED])
    assert [at_ms for at_ms, _ in shell.calls] == [CALL_MS]
    assert host.agent.served() == {}
    host.come_due(shell.calls, CALL_MS + 3)
    assert shell.finished == [(CALL_MS + 3, OPEN)]
    assert host.agent.served() == {BUNDLE: 2}
    assert acks(shell) == 1


def test_answers_of_an_effect_are_stepped_before_anything_else_comes() -> None:
    shell = NotingShell(lambda effect: [ASSIGNED] if isinstance(effect, ReadLoad) else ())
    host = Host(machine(), shell)
    host.take((), 0)
    assert [call.callback for _, call in shell.calls if call is not None] == [OPEN]
    assert host.agent.state.versions == {BUNDLE: 2}


def test_wake_up_is_scheduled_once_until_it_comes_due_or_changes() -> None:
    host, shell = started()
    (first,) = shell.wakes
    host.take((), 1)
    assert shell.wakes == [first]
    host.come_due([(first, None)], first)
    assert len(shell.wakes) == 2
    assert first in shell.steps


def test_wake_up_that_was_replaced_steps_nothing_and_the_one_that_replaced_it_does() -> None:
    host, shell = started()
    (first,) = shell.wakes
    host.take((), first + 10)  # the events that came late have done what was due
    second = shell.wakes[-1]
    assert second > first
    before = list(shell.done)
    host.come_due([(first, None)], first + 11)
    assert shell.done == before
    host.come_due([(second, None)], second)
    assert shell.done != before


def test_wake_up_that_was_scheduled_twice_steps_once() -> None:
    host, shell = started()
    (first,) = shell.wakes
    host.come_due([(first, None), (first, None)], first)
    before = list(shell.done)
    host.come_due([(first, None)], first)
    assert shell.done == before


def test_frozen_host_does_nothing_and_then_ends_callbacks_before_what_it_hears() -> None:
    host, shell = started([ASSIGNED])
    before = list(shell.done)
    host.freeze()
    host.come_due(shell.due, 20_000)
    host.take(records(owned()), 20_001)
    assert (shell.done, shell.finished) == (before, [])
    host.release(30_000)
    assert shell.finished == [(30_000, OPEN)]
    assert host.agent.served() == {BUNDLE: 2}
    assert shell.wakes[-1] > 30_000
    assert host.pace is Pace.FREE


def test_hanging_host_lives_on_but_no_callback_returns() -> None:
    host, shell = started([ASSIGNED])
    host.hang()
    (wake,) = shell.wakes
    host.come_due([*shell.calls, (wake, None)], wake)
    assert (shell.finished, host.agent.served()) == ([], {})
    assert wake in shell.steps
    host.take(records(owned()), wake + 1)
    host.freeze()
    host.release(wake + 2)
    assert shell.finished == [(wake + 2, OPEN)]
    assert host.agent.served() == {BUNDLE: 2}


def test_hanging_callback_alone_is_no_step() -> None:
    host, shell = started([ASSIGNED])
    host.hang()
    before = host.agent.state
    host.come_due(shell.calls, CALL_MS)
    assert host.agent.state is before


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
    assert (host.pace, host.agent.is_stopped) == (Pace.ENDED, True)
    assert host.agent.state.versions == {BUNDLE: 2}
    assert shell.due == []


def test_process_that_ends_with_the_last_word_hears_nothing_more() -> None:
    def answer(effect: Send | ReadLoad | Stopped) -> Sequence[Event]:
        if isinstance(effect, Stopped):
            host.end()
        return [ASSIGNED] if isinstance(effect, ReadLoad) else ()

    host = Host(machine(), NotingShell(answer))
    host.take([Stop()], 0)
    assert (host.pace, host.agent.state.versions) == (Pace.ENDED, {})


def test_agent_that_must_close_first_ends_when_it_has() -> None:
    host, shell = started([ASSIGNED])
    host.come_due(shell.calls, CALL_MS)
    host.take([*records(owned()), Stop()], 1_000)
    assert host.pace is Pace.FREE
    host.take(records(releasing()), 2_000)
    host.come_due(shell.calls[1:], 2_000 + CALL_MS)
    assert host.agent.served() == {}
    assert shell.finished[-1] == (2_000 + CALL_MS, Callback.CLOSE)


def test_what_is_put_from_another_thread_comes_first_in_the_next_step() -> None:
    host = Host(machine(FENCING_LEASE), NotingShell())
    host.take((), 0)
    confirm = Thread(target=host.put, args=(ReportConfirmed(sent_ms=0),))
    confirm.start()
    confirm.join()
    assert host.agent.state.lease.reported_ms < 0
    host.take([EndConfirmed(asked_ms=0)], 1)
    assert (host.agent.state.lease.reported_ms, host.agent.state.lease.read_ms) == (0, 0)


@pytest.mark.parametrize(("after_ms", "is_usable"), [(0, True), (1, False)])
def test_lease_counts_to_its_last_moment(after_ms: int, *, is_usable: bool) -> None:
    agent = RunningAgent(machine(FENCING_LEASE))
    agent.step([ReportConfirmed(sent_ms=0), EndConfirmed(asked_ms=0)], 0)
    opened = CallDone(callback=OPEN, bundle=BUNDLE, version_id=2)
    agent.step(records(assigning()), 1)
    agent.step([opened, *records(owned())], 2)
    assert agent.usable() == agent.served() == {BUNDLE: 2}
    assert bool(agent.usable_at(agent.until_ms + after_ms)) is is_usable


def test_lease_that_nothing_has_confirmed_allows_nothing() -> None:
    agent = RunningAgent(machine(FENCING_LEASE))
    assert agent.usable_at(0) == {}
    agent.step((), 0)
    assert agent.usable_at(0) == {}
