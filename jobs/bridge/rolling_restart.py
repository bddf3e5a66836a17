"""Restart a Pulsar cluster's brokers one by one without clients noticing.

Runs beside a job and a bridge that acts (or `ballast attach --act`). Each broker, the least loaded
first: its bundles are moved off at the bridge's pace, Pulsar itself shows it empty, --command
restarts it (without: you do), it is back as another process, and gets its former bundles again.
Stops by itself when something is wrong; the same command resumes it, also after Ctrl-C or a crash.
--abort ends it for good.
"""

import argparse
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NoReturn

from jobs.bridge.restarted_cluster import ALLOW_MORE, Observation, PulsarCluster, complaints
from jobs.bridge.rolling_progress import Progress, RestartStage, save_progress
from jobs.console import CommandError, note
from jobs.parser import (
    argument,
    group,
    option_with_default,
    parse_duration_ms,
    positive_number,
    whole_number,
)
from lbcore.model.times import duration
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.kinds import balancing_commands as commands

_NOTE_MS, _SHOWN = 20_000, 3
_SAME_MS, _SETTLE_MS = 120_000, 10_000
"""Time in which the old process may answer after the command, and the new one must answer."""
_STILL_MS, _OPEN_MS = 60_000, 180_000
"""Longest waits for other moves before a drain, and for the end of a drain."""
_CALM_MS, _EASE_MS = 15_000, 600_000
"""After a high latency: how long it must be low again, and the longest wait for that."""
_PLAN_PAUSE_MS, _TRIES = 5_000, 4
"""Shortest time between two plans, and how many may fail before a bundle is left elsewhere."""
_SEE_STATUS = "see `ballast status`"


_TIMES = {
    "ready": ("2m", "all is well before a broker is touched"),
    "drain": ("30m", "a broker is empty; without --command also: is back"),
    "command": ("10m", "the command ends"),
    "return": ("5m", "a broker is back after it"),
    "fill": ("30m", "a broker has its bundles again"),
}
_LATENCY = "mean ms that clients may wait before moves are held back"
_ROOM = "most usage of the others while one is gone, 1 = 100 %%"
_PACE = "bundles on their way at once (default: a twentieth of all, 16 at most)"
BOUNDS = group(
    "pace and bounds",
    argument("--max-in-flight", type=whole_number, default=0, metavar="N", help=_PACE),
    option_with_default("publish-latency-ms", "500", _LATENCY, positive_number),
    option_with_default("room", "0.9", _ROOM, positive_number),
    *(
        option_with_default(
            f"{step}-within", default, f"time until {what}", parse_duration_ms, "TIME"
        )
        for step, (default, what) in _TIMES.items()
    ),
)
"""The pace and the limits of time."""


class CutOffError(Exception):
    """A signal interrupted the process."""


@dataclass
class RollingRestart:
    """One rolling restart, from where its progress is to the end.

    Each tick observes the cluster and takes one step of the stage: wait, send a command, or enter
    the next stage. A command is repeated until a tick shows its effect. bounds: of `BOUNDS`. end:
    set to interrupt it. _drained: number of the broker and turn of the drain seen last. _answer: to
    the stage's last command, as of `PulsarCluster.send`. _is_open: the restarted broker is filled.
    """

    cluster: PulsarCluster
    path: Path
    bounds: argparse.Namespace
    progress: Progress
    end: threading.Event
    tick_s: ClassVar[float] = 2.0
    _wrong_since_ms: dict[str, int] = field(default_factory=dict)
    _noted_ms: int = 0
    _drained: tuple[int, int] = (-1, -1)
    _steady: tuple[object, int] = (None, 0)
    _answer: str | None = ""
    _is_holding: bool = False
    _is_open: bool = False
    _part: list[str] = field(default_factory=list)
    _tried: Counter[str] = field(default_factory=Counter)
    _plan_due_ms: int = 0

    def run(self) -> None:
        """Run until all is done. Raises CommandError, or CutOffError when interrupted."""
        p = self.progress
        p.turn, p.since_ms, p.stopped = p.turn + 1, 0, ""
        if p.is_running:  # an earlier process began the command, its end is unknown
            p.stage = RestartStage.RETURNING
        steps = (self._wait, self._drain, self._restart, self._return, self._fill)
        step_of = dict(zip(RestartStage, steps, strict=False))
        try:
            while p.stage is not RestartStage.DONE:
                seen = self._observe()
                if seen.status is not None and not self._hold_back(seen):
                    step_of[p.stage](seen)
        except CommandError as stop:
            p.stopped = stop.why
            self.halt()
            raise
        except CutOffError:
            if p.is_running:
                note(f"the command of {p.broker} goes on by itself")
            self.halt()
            note(
                f"cut off: {p.at} of {len(p.order)} brokers are done;"
                " the same command goes on, --abort ends it"
            )
            raise

    def halt(self, *, for_good: bool = False) -> None:
        """Cancel the broker's drain unless it may be restarting; save the progress.

        for_good: it will not be resumed.
        """
        p, seen = self.progress, self.cluster.observe(self.progress)
        save_progress(self.path, p)
        is_new = seen.incarnation not in ("", p.incarnation)
        is_up = bool(seen.incarnation) and p.broker in seen.listed and not p.is_running
        may_open = is_up and (for_good or not p.command or is_new)
        was_draining, is_closed = p.stage is RestartStage.DRAINING, p.broker in seen.drains
        if was_draining or p.stage is RestartStage.WAITING:
            may_open, is_new = was_draining, False
        self._withdraw(seen, may_open=may_open)
        after = seen
        if may_open:
            p.stage = RestartStage.FILLING if is_new else RestartStage.WAITING
            p.since_ms = seen.now_ms
            after = self.cluster.observe(p)
        if was_draining or is_closed:
            how, why = "open", "it never was closed"
            if is_closed or self._drained[0] == p.at:
                how, why = "open again", "its drain was cancelled"
            opens = f"`ballast broker cancel-drain {p.broker}` opens it"
            if after.status is None:
                how, why = "perhaps closed, the tables can't be read", opens
            elif not may_open or p.broker in after.drains:
                how, why = "still closed", opens
            elif self._answer is None:
                cause = self._with_cause("the cancellation of its drain is not answered")
                how, why = f"{how}, but {cause}", f"if it closes, {opens}"
            note(f"{p.broker} is {how}: {why}")
        if for_good and self._missing(seen):
            note(
                f"what has left {p.broker} stays where it is:"
                f" `ballast plan undo --drain {p.broker}` moves it back"
            )
        save_progress(self.path, p)

    def _observe(self) -> Observation:
        """Observe after a pause. Raises CommandError for a problem that lasts too long."""
        self.end.wait(self.tick_s)
        p, seen = self.progress, self.cluster.observe(self.progress)
        if not p.since_ms:  # the first look of this process: a status shows that it goes on
            p.since_ms = seen.now_ms
            save_progress(self.path, p)
        if p.broker in seen.drains:
            self._drained = (p.at, p.turn)
        if self.end.is_set():
            raise CutOffError
        wrong = list(complaints(p, seen, self.bounds))
        before = self._wrong_since_ms
        self._wrong_since_ms = {one.key: before.get(one.key, seen.now_ms) for one in wrong}
        least_ms = self.bounds.ready_within if p.stage is RestartStage.WAITING else 0
        for one in wrong:
            if seen.now_ms - self._wrong_since_ms[one.key] >= max(one.patience_ms, least_ms):
                self._stop(one.why, one.next_step)
        if seen.now_ms - self._noted_ms >= _NOTE_MS:
            note("; ".join([p.message(seen.now_ms), *(one.why for one in wrong)]))
            self._noted_ms = seen.now_ms
        return seen

    def _hold_back(self, seen: Observation) -> bool:
        """Hold moves back while they raise clients' latency; return True during this time.

        They then go on at half the pace. The time to load a topic counts only while several bundles
        move at once: one alone can't load faster.
        """
        p, max_ms = self.progress, self.bounds.publish_latency_ms
        publish_ms, load_ms = seen.publish_ms or 0.0, seen.load_ms or 0.0
        if not self._is_holding:
            may_move = p.stage is RestartStage.DRAINING or self._is_open
            is_moving = may_move and bool(seen.plans or seen.drains.get(p.broker))
            if not is_moving or max(publish_ms, load_ms if p.at_once > 1 else 0.0) <= max_ms:
                return False
            self._is_holding = True
            p.at_once = max(1, p.at_once // 2)
            self._enter(
                p.stage,
                seen,
                f": clients wait {publish_ms:.0f} ms to publish, topics take {load_ms:.0f} ms to"
                " load: nothing is moved until that is over",
            )
        is_calm = publish_ms <= max_ms and p.broker not in seen.drains
        if self._unchanged_ms(is_calm, seen) >= _CALM_MS and is_calm:
            self._is_holding = False
            self._enter(p.stage, seen, f": clients feel nothing now; on, {p.at_once} at once")
            return False
        self._withdraw(seen)
        self._limit(
            seen,
            _EASE_MS,
            f"clients wait more than {max_ms:.0f} ms though nothing is moved for"
            f" {duration(_EASE_MS)}",
            ALLOW_MORE,
        )
        return True

    def _wait(self, seen: Observation) -> None:
        p = self.progress
        if self._wrong_since_ms or (seen.moving and seen.now_ms - p.since_ms < _STILL_MS):
            return
        homes = {one for one, at in seen.owners.items() if at == p.broker}
        p.former_bundles, p.incarnation = sorted({*p.former_bundles, *homes}), seen.incarnation
        self._enter(
            RestartStage.DRAINING,
            seen,
            f": {len(homes)} bundles are moved away, {p.at_once} at once",
        )

    def _drain(self, seen: Observation) -> None:
        """Drain the broker until Pulsar itself shows nothing on it."""
        p, limit_ms = self.progress, self.bounds.drain_within
        left = seen.drains.get(p.broker)
        if left == 0 and seen.still_owned == frozenset() and seen.incarnation:
            p.incarnation = seen.incarnation
            self._enter(RestartStage.RESTARTING, seen, " is empty, in Pulsar's own words")
        elif left is not None:
            some = ", ".join(sorted(seen.still_owned or ())[:_SHOWN]) or "what it owns is not told"
            how = f"{left} bundles are still there" if left else "Pulsar shows it not empty"
            self._answer = ""  # it is known by now
            self._limit(
                seen,
                limit_ms,
                f"{how} after {duration(limit_ms)}: {some}",
                "`ballast explain broker` says what holds them",
            )
        elif self._drained == (p.at, p.turn):
            self._stop(f"somebody else has cancelled the drain of {p.broker}", "ask who it was")
        else:
            drain = commands.DrainBroker(broker=p.broker, max_in_flight=p.at_once)
            if refusal := self._send("drain", drain):
                self._stop(refusal, _SEE_STATUS)
            self._limit(
                seen, limit_ms, f"its drain has not begun after {duration(limit_ms)}", _SEE_STATUS
            )

    def _restart(self, seen: Observation) -> None:
        """Run the command once and wait for its end, or ask the person."""
        p, limit_ms = self.progress, self.bounds.command_within
        if p.is_running:
            fix = f"mend it (--command), see that {p.broker} runs"
            end = self.cluster.command_end()
            if end is None:
                self._limit(
                    seen, limit_ms, f"the command still runs after {duration(limit_ms)}", fix
                )
                return
            p.is_running = False
            code, output = end
            if code:
                said = f": {output}" if output else " and said nothing"
                self._stop(f"the command ended with {code}{said}", fix)
        elif not p.command:
            note(f"restart {p.broker} now; this goes on when it is back")
        elif seen.incarnation == p.incarnation:
            p.is_running, p.since_ms = True, seen.now_ms
            save_progress(self.path, p)
            self.cluster.restart(p)
            return
        elif not seen.incarnation and p.broker in seen.listed:  # one missing answer proves nothing
            self._limit(seen, limit_ms, f"{p.broker} does not answer", "see its log")
            return
        self._enter(RestartStage.RETURNING, seen)

    def _return(self, seen: Observation) -> None:
        """Wait until another process answers, and goes on answering for a while."""
        p, bounds = self.progress, self.bounds
        limit_ms = bounds.return_within if p.command else bounds.drain_within
        same_ms = min(_SAME_MS, limit_ms) if p.command else limit_ms
        late_ms = seen.now_ms - p.since_ms - (bounds.command_within if p.is_running else 0)
        process = seen.incarnation if p.broker in seen.listed else ""
        is_new = process not in ("", p.incarnation)
        if self._unchanged_ms(process, seen) >= _SETTLE_MS and is_new:
            p.is_running = False
            self._enter(RestartStage.FILLING, seen, " is back as another process")
        elif process and not is_new and late_ms >= same_ms:
            p.stage, p.is_running = RestartStage.RESTARTING, False
            why = "the command has ended" if p.command else "nobody has restarted it"
            why += f", and {p.broker} is the same process as before"
            self._stop(why, "restart it, or have the command (--command) do it")
        elif late_ms >= limit_ms + _SETTLE_MS:  # one that is back in time may settle after it
            limit_ms += bounds.command_within if p.is_running else 0
            self._stop(
                f"{p.broker} has not come back within {duration(limit_ms)}",
                "read its log and start it",
            )

    def _fill(self, seen: Observation) -> None:
        """Cancel the drain, and move the former bundles back, some at a time."""
        p, missing, limit_ms = self.progress, self._missing(seen), self.bounds.fill_within
        if not self._is_open and p.broker in seen.drains:
            self._withdraw(seen)
            self._limit(seen, _OPEN_MS, "its drain can't be cancelled", _SEE_STATUS)
            return
        if not self._is_open:
            self._is_open, self._tried, self._plan_due_ms = True, Counter(), 0
            self._enter(p.stage, seen, f": {len(missing)} bundles are moved back")
        for plan in sorted(name for name, waits in seen.plans.items() if waits):
            self.cluster.send(f"{plan}-approve-{p.turn}", commands.ApprovePlan(plan=plan))
        if seen.plans:
            return
        if missing:
            self._limit(
                seen,
                limit_ms,
                f"{len(missing)} bundles are not back after {duration(limit_ms)}",
                "`ballast explain bundle` says what holds one",
            )
            if seen.moving.intersection(missing) or seen.now_ms < self._plan_due_ms:
                return
            if self._answer is not None:  # else the same plan is sent again, under its id
                self._part = sorted(missing, key=self._tried.__getitem__)[: p.at_once]
                p.turn += 1
            if self._tried[self._part[0]] < _TRIES:
                self._propose(seen)
                return
            note(
                f"{p.broker}: {len(missing)} bundles stay elsewhere, such as {self._part[0]}:"
                " they are pinned, kept from it by a policy, or moved on"
            )
        note(f"{p.broker} is done, {p.at + 1} of {len(p.order)}")
        p.at, p.former_bundles, p.incarnation = p.at + 1, [], ""
        self._is_open = False
        self._enter(
            RestartStage.DONE if p.at == len(p.order) else RestartStage.WAITING,
            seen,
        )

    def _propose(self, seen: Observation) -> None:
        """Propose that a part of the bundles moves back, and approve it."""
        p = self.progress
        self._plan_due_ms = seen.now_ms + _PLAN_PAUSE_MS
        save_progress(self.path, p)
        moves, why = dict.fromkeys(self._part, p.broker), f"rolling restart: back to {p.broker}"
        plan = commands.ProposePlan(moves=moves, why=why, plan=p.plan)
        if self._send("fill", plan) == "":
            self._send(f"approve-{p.turn}", commands.ApprovePlan(plan=plan.plan))
        self._tried.update(self._part if self._answer == "" else ())

    def _missing(self, seen: Observation) -> list[str]:
        """Return its former bundles that are elsewhere now, or in transit."""
        p, known = self.progress, seen.owners.keys() | seen.moving
        return [
            one for one in p.former_bundles if one in known and seen.owners.get(one) != p.broker
        ]

    def _withdraw(self, seen: Observation, *, may_open: bool = True) -> None:
        """Reject our open plans and cancel our drain."""
        p = self.progress
        self._answer = ""
        for plan in sorted(seen.plans):
            reject = commands.RejectPlan(
                plan=plan, reason="the rolling restart does not go on with it"
            )
            self.cluster.send(f"{plan}-drop", reject)
        # the balancer may yet read an unanswered drain; the cancellation follows it in the log
        is_asked = p.stage is RestartStage.DRAINING or seen.status is None
        if may_open and (is_asked or p.broker in seen.drains):
            self._send("open", commands.CancelDrain(broker=p.broker))

    def _send(self, name: str, command: CommandArguments) -> str | None:
        self._answer = self.cluster.send(f"{self.progress.plan}-{name}", command)
        return self._answer

    def _enter(self, stage: RestartStage, seen: Observation, text: str = "") -> None:
        """Enter a stage, or begin it again, with its own time limits and command ids."""
        p = self.progress
        if text:
            note(f"{p.broker}{text}")
        p.stage, p.since_ms, p.turn = stage, seen.now_ms, p.turn + 1
        self._noted_ms, self._steady, self._answer = seen.now_ms, (None, 0), ""
        save_progress(self.path, p)

    def _unchanged_ms(self, value: object, seen: Observation) -> int:
        """Return for how long the stage has had the same value; 0 = it is new."""
        if value != self._steady[0]:
            self._steady = (value, seen.now_ms)
        return seen.now_ms - self._steady[1]

    def _limit(self, seen: Observation, limit_ms: int, why: str, next_step: str) -> None:
        """Stop if the stage lasts too long; a refusal of its command is the reason then."""
        if seen.now_ms - self.progress.since_ms >= limit_ms:
            self._stop(self._with_cause(why), next_step)

    def _with_cause(self, why: str) -> str:
        if self._answer is None:
            return f"{why}: {self.cluster.kafka_error or 'the balancer has not answered'}"
        return self._answer or why

    def _stop(self, why: str, next_step: str) -> NoReturn:
        p = self.progress
        raise CommandError(
            f"the rolling restart has stopped at {p.broker} ({p.at} of {len(p.order)} done)",
            why=why,
            next_step=f"{next_step}, then give the same command again: it goes on where it was",
        )
