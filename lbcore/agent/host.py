"""Host of an agent: one start of it, in a process that may pause, hang and end.

Steps the Machine until it wants nothing more at once, keeps its wake-up, and queues events
meanwhile. The shells of the simulator, the fleet and the tests carry out what the agent asks.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from lbcore.agent.agent import AgentMachine
from lbcore.agent.state import AgentState, Effect, Event, ReadLoad, Send, Stopped
from lbcore.ownership.holding import Call, CallDone


class RunningAgent:
    """A Machine and its state. machine: may be replaced when settings change."""

    def __init__(self, machine: AgentMachine) -> None:
        self.machine = machine
        self.state = AgentState()
        self.wake_at_ms: int | None = None

    def step(self, events: Sequence[Event], now_ms: int) -> Sequence[Effect]:
        """Step the Machine once; return effects to carry out, in order."""
        step = self.machine.step(self.state, events, now_ms)
        self.state, self.wake_at_ms = step.state or AgentState(), step.wake_at_ms
        return step.effects

    @property
    def until_ms(self) -> int:
        """The last moment at which `usable` holds."""
        return self.machine.until_ms(self.state)

    def usable(self) -> dict[str, int]:
        """Bundle → token of what may be used, `until_ms`; see `AgentMachine.usable`."""
        return self.machine.usable(self.state)

    def usable_at(self, now_ms: int) -> dict[str, int]:
        """Return bundle → token of what may be used now, by the agent's own clock."""
        return self.usable() if now_ms <= self.until_ms else {}


class Shell(Protocol):
    """Operations of the process around a host.

    Within these it may call only `end` and `put` of the host.
    """

    def do(self, effect: Send | ReadLoad | Stopped, now_ms: int) -> Sequence[Event]:
        """Carry out an effect; return its immediate answers, in order."""
        ...

    def call_ms(self, call: Call) -> int:
        """Return the duration of a callback that begins now, at least 0."""
        ...

    def schedule(self, at_ms: int, call: Call | None) -> None:
        """Call `Host.come_due` at that time: with a callback's end, or None = a wake-up."""
        ...

    def finish(self, call: Call, now_ms: int) -> CallDone:
        """Carry out a callback whose time is over; return its outcome."""
        ...


class Pace(str, Enum):
    """State of a host's process.

    HANGING: it goes on, but no callback returns. FROZEN: nothing happens.
    """

    FREE = "free"
    HANGING = "hanging"
    FROZEN = "frozen"
    ENDED = "ended"


class Host:
    """One start of an agent.

    A new start is a new host, so pending work of an old one is dropped. now_ms never goes back. One
    thread uses it, except for `put`.
    """

    def __init__(self, machine: AgentMachine, shell: Shell) -> None:
        """It does nothing before the first `take`, which may have no events."""
        self.agent = RunningAgent(machine)
        self.pace = Pace.FREE
        self._shell = shell
        self._scheduled_ms: int | None = None
        self._put: deque[Event] = deque()
        self._held_events: list[Event] = []
        self._held_calls: list[Call] = []

    def put(self, event: Event) -> None:
        """Put an event before the next step; any thread may."""
        self._put.append(event)

    def take(self, events: Sequence[Event], now_ms: int) -> None:
        """Take events from outside, and step even without any."""
        if self.pace is Pace.FROZEN:
            self._held_events += events
        elif self.pace is not Pace.ENDED:
            self._run(events, now_ms)

    def come_due(self, due: Sequence[tuple[int, Call | None]], now_ms: int) -> None:
        """Take what was scheduled, as one step.

        due: each with its scheduled time. Of wake-ups only the one scheduled last counts; it
        replaced the others.
        """
        calls = [call for _, call in due if call is not None]
        is_woken = any(call is None and at_ms == self._scheduled_ms for at_ms, call in due)
        if is_woken:
            self._scheduled_ms = None
        if self.pace in (Pace.HANGING, Pace.FROZEN):
            self._held_calls += calls
            calls = []
        if self.pace in (Pace.FREE, Pace.HANGING) and (calls or is_woken):
            self._run(self._finish(calls, now_ms), now_ms)

    def freeze(self) -> None:
        """Stop everything, as a stopped process or a very long garbage collection does."""
        if self.pace is not Pace.ENDED:
            self.pace = Pace.FROZEN

    def hang(self) -> None:
        """Let no callback return; all else goes on."""
        if self.pace is Pace.FREE:
            self.pace = Pace.HANGING

    def release(self, now_ms: int) -> None:
        """Resume after a pause in one step: finished callbacks first, then events."""
        if self.pace not in (Pace.HANGING, Pace.FROZEN):
            return
        self.pace = Pace.FREE
        calls, self._held_calls = self._held_calls, []
        events, self._held_events = self._held_events, []
        self._run([*self._finish(calls, now_ms), *events], now_ms)

    def end(self) -> None:
        """Stop for good.

        After the effect Stopped the agent ends by itself, once it has taken the immediate answers.
        """
        self.pace = Pace.ENDED

    def _run(self, events: Sequence[Event], now_ms: int) -> None:
        """Step the agent until it wants nothing more at once, or has ended."""
        waiting = [*(self._put.popleft() for _ in range(len(self._put))), *events]
        while True:
            effects, waiting = self.agent.step(waiting, now_ms), []
            for effect in effects:
                if isinstance(effect, Call):
                    self._shell.schedule(now_ms + self._shell.call_ms(effect), effect)
                else:
                    waiting += self._shell.do(effect, now_ms)
            if self.pace is Pace.ENDED:
                return
            if not waiting:
                break
        if self.agent.state.is_stopped:
            self.end()
            return
        wake_at_ms = self.agent.wake_at_ms
        if wake_at_ms is not None and wake_at_ms != self._scheduled_ms:
            self._shell.schedule(wake_at_ms, None)
        self._scheduled_ms = wake_at_ms

    def _finish(self, calls: Sequence[Call], now_ms: int) -> list[CallDone]:
        return [self._shell.finish(call, now_ms) for call in calls]
