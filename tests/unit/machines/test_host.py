"""Machine hosts: wake-ups, guarded steps, shares of long work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any

import numpy as np
import pytest

from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host, Pace, RunningAgent
from lbcore.agent.reporting import Identity
from lbcore.agent.state import (
    EndConfirmed,
    Event,
    ReadLoad,
    RecordRead,
    ReportConfirmed,
    Send,
    Stop,
    Stopped,
)
from lbcore.balancer.state.batch_context import Times
from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.tasks.creations import adapt_creation_rate
from lbcore.config.ownership import FENCING_LEASE, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.config.tree import Config
from lbcore.fault_isolation import Fault, Guard
from lbcore.machine import Step, step_safely
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.messages import Acks
from tests.support.values.ownership_records import BUNDLE, CLUSTER, A, assigning, owned, releasing

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


MOST = Config().limits.bundles_made_max


@dataclass
class Opened:
    """Bundles that have been open for so long."""

    open_ms: list[int]
    state: Any = field(init=False)
    at_ms: Any = field(init=False)

    def __post_init__(self) -> None:
        self.state = np.full(len(self.open_ms), STATE_CODE[State.OWNED], dtype="u1")
        self.at_ms = -np.array(self.open_ms, dtype="<i8")


SERVED, NEW = 600_001, 600_000
"""For how long the oldest bundle of a cluster has been open."""


@dataclass
class Paced:
    """What `adapt_creation_rate` knows of a batch."""

    oldest_ms: int = SERVED
    now_ms: int = 0
    config: Config = field(default_factory=Config)
    times: Times = field(default_factory=lambda: Times(stepped_ms=1))
    wall_ms: int = 1

    @property
    def ledger(self) -> Opened:
        return Opened([0, self.oldest_ms])

    @property
    def share_made(self) -> int:
        return self.times.share or MOST

    def note(self, **times: Any) -> None:
        self.times = replace(self.times, **times)

    def follow(self, took_ms: float) -> None:
        """The next batch, so long after the last."""
        self.times = replace(self.times, stepped_ms=self.wall_ms)
        self.wall_ms += round(took_ms)
        adapt_creation_rate(self)  # type: ignore[arg-type]


def shares(base_ms: float, bundle_ms: float, oldest_ms: int = SERVED) -> list[tuple[int, float]]:
    """Each batch's share, and how long it took, where one takes so long and each bundle as much."""
    paced, found = Paced(oldest_ms=oldest_ms), []
    for _ in range(60):
        took_ms = max(1_000.0, base_ms + bundle_ms * paced.share_made)
        found.append((paced.share_made, took_ms))
        paced.follow(took_ms)
    return found


@pytest.mark.parametrize("base_ms", [300, 900, 1_300, 2_500, 8_000])
@pytest.mark.parametrize("bundle_ms", [0.05, 0.25, 1.0, 4.0])
def test_share_is_what_a_batch_bears_beside_what_it_takes_anyway(
    base_ms: float, bundle_ms: float
) -> None:
    later = shares(base_ms, bundle_ms)[20:]
    usual_ms = max(1_000.0, base_ms)
    assert all(took_ms - usual_ms <= 1_400 or share <= MOST // 16 for share, took_ms in later)
    fits = min(MOST, max(500.0 / bundle_ms, MOST / 32))
    assert sum(share for share, _ in later) / len(later) >= fits / 3


def test_one_jump_of_the_clock_costs_a_few_batches() -> None:
    paced = Paced(times=Times(stepped_ms=1, share=MOST, usual_ms=900))
    paced.follow(3_600_000)
    assert paced.share_made == MOST // 2
    for _ in range(3):
        paced.follow(1_000)
    assert paced.share_made == MOST


@pytest.mark.parametrize("base_ms", [300, 900, 1_300, 2_500, 8_000])
@pytest.mark.parametrize("bundle_ms", [0.05, 0.25, 0.5, 1.0, 4.0])
def test_new_cluster_is_made_in_longer_batches_and_sooner(base_ms: float, bundle_ms: float) -> None:
    later = shares(base_ms, bundle_ms, NEW)[20:]
    usual_ms = max(4_000.0, base_ms)
    assert all(took_ms - usual_ms <= 5_600 or share <= MOST // 16 for share, took_ms in later)
    fits = min(4 * MOST, max(2_000.0 / bundle_ms, MOST / 32))
    assert sum(share for share, _ in later) / len(later) >= fits / 3


def test_cluster_that_serves_makes_no_more_than_its_limit() -> None:
    paced = Paced(oldest_ms=NEW, times=Times(stepped_ms=1, share=4 * MOST))
    paced.oldest_ms = SERVED
    paced.follow(1_000)
    assert paced.share_made == MOST
