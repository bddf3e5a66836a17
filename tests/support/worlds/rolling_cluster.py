"""A cluster as a rolling restart sees it: actions are carried out a while after they are asked for.

Time is a number that goes on with each look. What a fault does to it, a test says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lbcore.bridge.rolling import Advance, advance, halted, resumed
from lbcore.bridge.rollout import (
    ApproveIt,
    CommandResult,
    Complaint,
    Deed,
    DrainIt,
    DrainState,
    DropIt,
    FillIt,
    GiveUp,
    ReopenIt,
    RestartBounds,
    RestartIt,
    RestartStage,
    Rollout,
    RolloutObservation,
)

TICK_MS = 2_000
BROKERS = ("a:1", "b:1", "c:1")
HOMES = {f"public/load/{number}": BROKERS[number % 3] for number in range(9)}


def new_rollout(command: str = "restart {broker}") -> Rollout:
    """One of three brokers, that has not begun."""
    return Rollout(
        run="r",
        cluster="local",
        pulsar_cluster="pulsar",
        by="ada",
        command=command,
        began_ms=0,
        order=BROKERS,
        brokers=BROKERS,
        at_once=2,
        settings={"shedding.strategy": '"avg"'},
    )


@dataclass
class RollingCluster:
    """Brokers that have a process each; its number goes up when it is restarted."""

    now_ms: int = 0
    owners: dict[str, str] = field(default_factory=lambda: dict(HOMES))
    processes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 1))
    listed: set[str] = field(default_factory=lambda: set(BROKERS))
    drains: dict[str, int] = field(default_factory=dict)
    plans: dict[str, dict[str, str]] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    down_until_ms: dict[str, int] = field(default_factory=dict)
    command: CommandResult | None = None
    restarts: list[str] = field(default_factory=list)
    dropped_while_owning: list[str] = field(default_factory=list)
    observed: Mapping[str, object] = field(default_factory=dict)
    complaints: tuple[Complaint, ...] = ()
    code: int = 0
    comes_back: bool = True

    def look(self, rollout: Rollout) -> RolloutObservation:
        """What is seen a moment later."""
        self.now_ms += TICK_MS
        self._go_on()
        broker = rollout.broker
        is_up = broker in self.listed
        found = RolloutObservation(
            now_ms=self.now_ms,
            listed=frozenset(self.listed),
            owners=dict(self.owners),
            drains={
                name: DrainState(left=self._held(name), is_done=not self._held(name))
                for name in self.drains
            },
            plans={name: "waits" if name in self.waiting else "approved" for name in self.plans},
            incarnation=str(self.processes[broker]) if is_up else "",
            held=tuple(one for one, at in self.owners.items() if at == broker)
            if rollout.stage is RestartStage.EMPTIED
            else None,
            command=self.command,
            complaints=self.complaints,
            others_usage=0.5,
            imbalance=1.1,
            settings=rollout.settings,
        )
        return replace(found, **self.observed)  # type: ignore[arg-type]

    def do(self, rollout: Rollout, actions: Iterable[Deed]) -> None:
        """Carry them out."""
        for rollout_action in actions:
            self._do(rollout, rollout_action)

    def cut(self) -> None:
        """Who has begun the command is gone, and nobody sees its end."""
        self.command = None

    def run(self, rollout: Rollout, bounds: RestartBounds, looks: int = 2_000) -> Advance:
        """Until it is done or has stopped."""
        for _ in range(looks):
            taken = advance(rollout, self.look(rollout), bounds)
            rollout = taken.rollout
            if rollout.stage is not RestartStage.RESTARTING:
                self.command = None
            self.do(rollout, taken.actions)
            if rollout.stage is RestartStage.DONE or taken.stop is not None:
                return taken
        raise AssertionError(f"it goes on and on, at {rollout.progress_message(self.now_ms)}")

    def again(self, rollout: Rollout, command: str | None = None) -> Rollout:
        """Go on after a cut or a stop, out of the file."""
        kept = Rollout.from_json(rollout.to_json())
        return resumed(kept, self.look(kept), command)

    def halt(self, rollout: Rollout, *, for_good: bool = False) -> Rollout:
        """Cut it off as Ctrl-C does."""
        taken = halted(rollout, self.look(rollout), for_good=for_good)
        self.do(taken.rollout, taken.actions)
        return taken.rollout

    def _held(self, broker: str) -> int:
        return sum(at == broker for at in self.owners.values())

    def _go_on(self) -> None:
        """A bundle a look, of each drain and plan."""
        for broker in self.drains:
            others = sorted(self.listed - self.drains.keys())
            held = sorted(one for one, at in self.owners.items() if at == broker)
            if held and others:
                self.owners[held[0]] = others[len(held) % len(others)]
        for name, moves in list(self.plans.items()):
            if name in self.waiting:
                continue
            if moves:
                bundle, broker = moves.popitem()
                self.owners[bundle] = broker
            else:
                del self.plans[name]
        for broker, until_ms in list(self.down_until_ms.items()):
            if self.now_ms >= until_ms and self.comes_back:
                del self.down_until_ms[broker]
                self.processes[broker] += 1
                self.listed.add(broker)

    def _do(self, rollout: Rollout, rollout_action: Deed) -> None:
        broker = rollout.broker
        if isinstance(rollout_action, DrainIt):
            self.drains[broker] = rollout_action.at_once
        elif isinstance(rollout_action, ReopenIt):
            self.drains.pop(broker, None)
        elif isinstance(rollout_action, FillIt):
            self.plans[rollout.plan] = dict(rollout_action.moves)
        elif isinstance(rollout_action, ApproveIt):
            self.waiting.discard(rollout_action.plan)
        elif isinstance(rollout_action, DropIt):
            self.plans.pop(rollout_action.plan, None)
        elif isinstance(rollout_action, RestartIt):
            self._restart(broker)
        else:
            assert not isinstance(rollout_action, GiveUp) or rollout_action.why

    def _restart(self, broker: str) -> None:
        self.restarts.append(broker)
        self.command = CommandResult(code=self.code, said="" if not self.code else "no such host")
        if self.code:
            return
        if self._held(broker):
            self.dropped_while_owning.append(broker)
        self.listed.discard(broker)
        self.down_until_ms[broker] = self.now_ms + 3 * TICK_MS
