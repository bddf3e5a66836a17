"""A cluster as a rolling restart sees it: commands are carried out a while after they are given.

Time is a number that goes on with each look. What a fault does to it, a test says.
"""

import argparse
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobs.bridge.restarted_cluster import Complaint, Observation, PulsarCluster
from jobs.bridge.rolling_progress import Progress, RestartStage, read_progress, save_progress
from jobs.bridge.rolling_restart import BOUNDS, RollingRestart
from jobs.console import CommandError
from lbcore.config.tree import Config
from lbcore.explain.status import StatusRows, make_status
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.kinds.balancing_commands import (
    ApprovePlan,
    CancelDrain,
    DrainBroker,
    ProposePlan,
    RejectPlan,
)

TICK_MS = 2_000
BROKERS = ("a:1", "b:1", "c:1")
_NO_ROWS = ("bundles", "brokers", "decisions", "policies", "pins", "load", "rejected")
STATUS = make_status(
    "local", StatusRows(writer_ms=None, **dict.fromkeys(_NO_ROWS, ())), Config(), 0
)
HOMES = {f"public/load/{number}": BROKERS[number % 3] for number in range(9)}


class KilledError(BaseException):
    """The process of the restart is gone, as after kill -9."""


def new_progress(command: str = "restart {broker}") -> Progress:
    return Progress(
        run="r",
        cluster="local",
        pulsar_cluster="pulsar",
        by="ada",
        command=command,
        began_ms=0,
        order=list(BROKERS),
        brokers=list(BROKERS),
        at_once=2,
    )


@dataclass
class RollingCluster(PulsarCluster):
    """Brokers that have a process each; its number goes up when it is restarted."""

    now_ms: int = 0
    owners: dict[str, str] = field(default_factory=lambda: dict(HOMES))
    processes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 1))
    listed: set[str] = field(default_factory=lambda: set(BROKERS))
    drains: dict[str, int] = field(default_factory=dict)
    plans: dict[str, dict[str, str]] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    down_until_ms: dict[str, int] = field(default_factory=dict)
    command: tuple[int, str] | None = None
    command_until_ms: int = 0
    restarts: list[str] = field(default_factory=list)
    dropped_while_owning: list[str] = field(default_factory=list)
    observed: Mapping[str, object] = field(default_factory=dict)
    complaints: tuple[Complaint, ...] = ()
    refuses: str = ""
    is_job_away: bool = False
    kafka_error: str = ""
    unanswered: list[CommandArguments] = field(default_factory=list)
    code: int = 0
    command_ms: int = 0
    comes_back: bool = True
    before_observe: Callable[[Progress], None] = lambda _: None
    looks: int = 0

    def observe(self, p: Progress) -> Observation:
        self.looks += 1
        assert self.looks < 6_000, f"it goes on and on, at {p.message(self.now_ms)}"
        self.now_ms += TICK_MS
        self._go_on()
        self.before_observe(p)
        broker = p.broker
        left = {name: sum(at == name for at in self.owners.values()) for name in self.drains}
        found = Observation(
            now_ms=self.now_ms,
            listed=frozenset(self.listed),
            owners=dict(self.owners),
            drains=left,
            plans={name: name in self.waiting for name in self.plans},
            incarnation=str(self.processes[broker]) if broker in self.listed else "",
            still_owned=frozenset(one for one, at in self.owners.items() if at == broker)
            if p.stage is RestartStage.DRAINING
            else None,
            complaints=self.complaints,
            others_usage=0.5,
            status=STATUS,
        )
        return replace(found, **self.observed)  # type: ignore[arg-type]

    def send(self, name: str, arguments: CommandArguments) -> str | None:
        assert name.startswith("rolling-r-")
        if self.is_job_away or self.kafka_error:
            self.unanswered.append(arguments)
            return None
        match arguments:
            case DrainBroker(broker=broker, max_in_flight=at_once) if not self.refuses:
                self.drains[broker] = at_once
            case ProposePlan(plan=plan, moves=moves) if not self.refuses:
                self.plans[plan] = dict(moves)
            case DrainBroker() | ProposePlan():
                return self.refuses
            case CancelDrain(broker=broker):
                self.drains.pop(broker, None)
            case ApprovePlan(plan=plan):
                self.waiting.discard(plan)
            case RejectPlan(plan=plan):
                self.plans.pop(plan, None)
            case _:
                raise AssertionError(f"{arguments} is no command of a rolling restart")
        return ""

    def restart(self, p: Progress) -> None:
        broker = p.broker
        self.restarts.append(broker)
        self.command = (self.code, "no such host" if self.code else "")
        if self.code:
            return
        if broker in self.owners.values():
            self.dropped_while_owning.append(broker)
        self.listed.discard(broker)
        self.command_until_ms = self.now_ms + self.command_ms
        self.down_until_ms[broker] = self.command_until_ms + 5 * TICK_MS

    def command_end(self) -> tuple[int, str] | None:
        return self.command if self.now_ms >= self.command_until_ms else None

    def _go_on(self) -> None:
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


class QuickRestart(RollingRestart):
    """Without a wait between two looks."""

    tick_s = 0.0


@dataclass
class RestartRun:
    """The verb's process, again and again, over one progress file."""

    path: Path
    cluster: RollingCluster = field(default_factory=RollingCluster)
    end: threading.Event = field(default_factory=threading.Event)

    def begin(self, progress: Progress | None = None) -> None:
        save_progress(self.path, progress or new_progress())

    def progress(self) -> Progress:
        found = read_progress(self.path)
        assert found is not None
        return found

    def restart(self) -> QuickRestart:
        self.end = threading.Event()
        parser = argparse.ArgumentParser()
        BOUNDS(parser)
        bounds = parser.parse_args([])
        return QuickRestart(self.cluster, self.path, bounds, self.progress(), self.end)

    def run(self, command: str | None = None, *, is_new: bool = False) -> CommandError | None:
        """Until it is done, or None for the error with which it stops; may raise as its cluster."""
        if not is_new:
            self.cluster.command = None
            known = self.progress()
            save_progress(self.path, replace(known, command=command or known.command))
        restart = self.restart()
        try:
            restart.run()
        except CommandError as error:
            return error
        return None

    def until(self, stage: RestartStage, looks: int = 1) -> None:
        """Be killed at that look of the first broker's stage."""
        count = 0

        def kill(progress: Progress) -> None:
            nonlocal count
            count += progress.stage is stage
            if count == looks:
                raise KilledError

        self.cluster.before_observe = kill
        try:
            self.run(is_new=True)
        except KilledError:
            self.cluster.before_observe = lambda _: None
        else:
            raise AssertionError(f"{stage} was not reached")
