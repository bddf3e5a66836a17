"""Steps of a rolling restart: drain, command, wait, fill, one broker at a time.

Each step looks until what it waits for has come, and repeats its command until a look shows it.
What lasts too long stops the restart: the broker in hand is opened again unless it may be in the
middle of its restart.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from jobs.bridge.restarted_cluster import PulsarCluster
from jobs.bridge.rolling_progress import (
    GO_ON,
    Complaint,
    Observation,
    Progress,
    RestartStage,
    keep_progress,
)
from jobs.console import CommandError, note
from lbcore.model.times import duration

_SAY_MS, _SHOWN = 20_000, 3
_RESTART_MS, _SETTLE_MS, _STUCK_MS, _CONFIRM_MS = 120_000, 10_000, 240_000, 5_000
_STILL_MS, _CALM_MS, _EASE_MS, _AGAIN_MS, _OPEN_MS = 60_000, 15_000, 600_000, 5_000, 180_000
_FILLS = 4
"""Plans in a row that may move nothing; then the bundles stay where they are."""


def _bound(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBounds:
    """Limits of a rolling restart, times in ms: options of the verb."""

    max_in_flight: int = _bound(
        0, "bundles on their way at once, 0 = a twentieth of all, 16 at most"
    )
    publish_latency_ms: float = _bound(
        500.0, "ms that clients may wait on the mean before moves are held back"
    )
    room: float = _bound(0.9, "usage of the others while a broker is gone, 1 = 100 %%")
    ready_ms: int = _bound(120_000, "time until all is well before a broker is touched")
    drain_ms: int = _bound(
        1_800_000, "time until a broker is empty; without --command: is restarted"
    )
    command_ms: int = _bound(600_000, "time until the command ends")
    return_ms: int = _bound(300_000, "time until a broker is back after it")
    fill_ms: int = _bound(1_800_000, "time until a broker has its bundles again")


class CutOffError(Exception):
    """The person ends the process."""


class StoppedError(CommandError):
    """The restart goes no further."""


def complaints(p: Progress, seen: Observation, bounds: RestartBounds) -> Iterator[Complaint]:
    """All that is wrong now, in a fixed order."""
    is_away = p.stage in (RestartStage.RESTARTING, RestartStage.RETURNING)
    for broker in p.brokers:
        if broker not in seen.listed and not (is_away and broker == p.broker):
            why = f"{broker} is gone from Pulsar's list of active brokers"
            why += "" if broker != p.broker else ", and it was not being restarted"
            yield Complaint(f"gone {broker}", why, "see why it ended and start it", _CONFIRM_MS)
    if seen.oldest_move_ms >= _STUCK_MS:
        why = f"a bundle has been on its way for {duration(seen.oldest_move_ms)}"
        yield Complaint("stuck", why, "`ballast status` names it: see the log of its broker")
    for broker in sorted(seen.drains.keys() - {p.broker}):
        why = f"{broker} is being drained, too, or was and is still closed"
        fix = f"`ballast broker cancel-drain {broker}` opens it"
        yield Complaint(f"drain {broker}", why, fix, _CONFIRM_MS)
    if len(p.brokers) == 1:
        why = f"{p.broker} is the only broker: nobody could take its bundles"
        yield Complaint("alone", why, "start another broker first")
    if p.stage is RestartStage.WAITING and (seen.publish_ms or 0.0) > bounds.publish_latency_ms:
        why = f"clients wait {seen.publish_ms:.0f} ms though nothing is moved yet"
        fix = "see what hurts them, or allow more with --publish-latency-ms"
        yield Complaint("latency", why, fix)
    if p.stage is RestartStage.WAITING and (seen.others_usage or 0.0) > bounds.room:
        why = f"without {p.broker} the others would be at {seen.others_usage:.0%}, which is more"
        fix = "wait for a quieter hour, add a broker, or allow more with --room"
        yield Complaint("room", f"{why} than {bounds.room:.0%}", fix)
    for one in seen.complaints:
        if not (is_away and one.key.endswith(f" {p.broker}")):
            yield one


def missing_of(progress: Progress, seen: Observation) -> list[str]:
    """Return bundles that the broker had and another has now.

    Those in transit count, those that are gone don't.
    """
    return [
        one
        for one in progress.homes
        if seen.owners.get(one) != progress.broker and (one in seen.owners or one in seen.moving)
    ]


class RollingRestart:
    """One rolling restart, from where its progress is to the end."""

    tick_s = 2.0

    def __init__(
        self,
        cluster: PulsarCluster,
        path: Path,
        bounds: RestartBounds,
        progress: Progress,
        end: threading.Event,
    ) -> None:
        self._cluster, self._path, self._bounds, self._p = cluster, path, bounds, progress
        self._end = end
        self._doubts: dict[str, int] = {}
        self._said_ms = 0

    def run(self) -> None:
        """Run until all is done.

        Raises StoppedError where it stops, CutOffError where it is cut.
        """
        p = self._p
        steps = {
            RestartStage.WAITING: self._wait_until_well,
            RestartStage.DRAINING: self._drain,
            RestartStage.RESTARTING: self._restart,
            RestartStage.RETURNING: self._wait_until_back,
            RestartStage.FILLING: self._fill,
        }
        try:
            while p.stage is not RestartStage.DONE:
                steps[p.stage]()
        except StoppedError as stop:
            p.stopped = stop.why
            self.halt()
            raise
        except CutOffError:
            if p.stage is RestartStage.RESTARTING and p.pid:
                note(f"the command of {p.broker} goes on by itself")
            self.halt()
            left = f"{p.at} of {len(p.order)} brokers are done"
            note(f"cut off: {left}; the same command goes on, --abort lets it be")
            raise

    def resume(self, command: str | None = None) -> None:
        """Go on after a cut or a stop, with new ids."""
        p, seen = self._p, self._cluster.look(self._p)
        p.command = p.command if command is None else command
        p.since_ms, p.stopped = seen.now_ms, ""
        p.turn += 1

    def halt(self, *, for_good: bool = False) -> None:
        """Undo what can be undone, and keep the stage to resume from.

        for_good: nobody will resume.
        """
        p, seen = self._p, self._cluster.look(self._p)
        for plan in sorted(seen.plans):
            self._cluster.drop(plan)
        if self._may_open(seen, for_good=for_good):
            if p.broker in seen.drains:
                self._cluster.reopen(p)
                note(f"{p.broker} is open again: its drain was cancelled")
            is_new = p.stage is not RestartStage.DRAINING and self._is_other(seen)
            p.stage = RestartStage.FILLING if is_new else RestartStage.WAITING
            p.since_ms = seen.now_ms
        elif p.broker in seen.drains:
            opens = f"`ballast broker cancel-drain {p.broker}`"
            note(f"{p.broker} is still closed: {opens} opens it")
        if for_good and missing_of(p, seen):
            undo = f"`ballast plan undo --drain {p.broker}`"
            note(f"what has left {p.broker} stays where it is: {undo} moves it back")
        keep_progress(self._path, p)

    def _may_open(self, seen: Observation, *, for_good: bool) -> bool:
        """False while the broker is being restarted, or drained by somebody else."""
        p = self._p
        if p.stage in (RestartStage.WAITING, RestartStage.DRAINING):
            return p.stage is RestartStage.DRAINING
        if not seen.incarnation or p.broker not in seen.listed or p.pid:
            return False
        return for_good or not p.command or self._is_other(seen)

    def _is_other(self, seen: Observation) -> bool:
        """True if the process that answers is not the one that was to be restarted."""
        return bool(seen.incarnation) and seen.incarnation != self._p.incarnation

    def _look(self) -> Observation:
        """Look after a tick; raises StoppedError for what is wrong for too long."""
        self._end.wait(self.tick_s)
        p, seen = self._p, self._cluster.look(self._p)
        if self._end.is_set():
            raise CutOffError
        p.since_ms = p.since_ms or seen.now_ms
        wrong = list(complaints(p, seen, self._bounds))
        self._doubts = {one.key: self._doubts.get(one.key, seen.now_ms) for one in wrong}
        least_ms = self._bounds.ready_ms if p.stage is RestartStage.WAITING else 0
        for one in wrong:
            if seen.now_ms - self._doubts[one.key] >= max(one.patience_ms, least_ms):
                self._stop(one.why, one.next_step)
        if seen.now_ms - self._said_ms >= _SAY_MS:
            note("; ".join([p.message(seen.now_ms), *(one.why for one in wrong)]))
            self._said_ms = seen.now_ms
        return seen

    def _look_while_moving(self) -> Observation:
        """Look; when clients feel the moves, hold them back until that is over.

        They go on at half the pace. A topic that is moved alone loads no faster.
        """
        p, seen, most_ms = self._p, self._look(), self._bounds.publish_latency_ms
        publish_ms, load_ms = seen.publish_ms or 0.0, seen.load_ms or 0.0
        is_moving = bool(seen.plans or seen.drains.get(p.broker))
        if not is_moving or max(publish_ms, load_ms if p.at_once > 1 else 0.0) <= most_ms:
            return seen
        p.at_once = max(1, p.at_once // 2)
        waits = f"{publish_ms:.0f} ms to publish, topics take {load_ms:.0f} ms to load"
        words = f": clients wait {waits}: nothing is moved until that is over"
        self._enter(p.stage, seen, words)
        calm_ms = 0
        while not calm_ms or seen.now_ms - calm_ms < _CALM_MS or p.broker in seen.drains:
            for plan in sorted(seen.plans):
                self._cluster.drop(plan)
            if p.broker in seen.drains:
                self._cluster.reopen(p)
            seen = self._look()
            calm_ms = 0 if (seen.publish_ms or 0.0) > most_ms else calm_ms or seen.now_ms
            if waited := self._late(seen, _EASE_MS):
                why = f"clients wait more than {most_ms:.0f} ms though nothing is moved for"
                fix = "see what hurts them, or allow more with --publish-latency-ms"
                self._stop(f"{why} {waited}", fix)
        self._enter(p.stage, seen, f": clients feel nothing now; on, {p.at_once} at once")
        return seen

    def _enter(self, stage: RestartStage, seen: Observation, words: str = "") -> None:
        """Begin to wait for something else, with time limits and ids of its own."""
        p = self._p
        if words:
            note(f"{p.broker}{words}")
        p.stage, p.since_ms, self._said_ms = stage, seen.now_ms, seen.now_ms
        p.turn += 1
        keep_progress(self._path, p)

    def _late(self, seen: Observation, limit_ms: int) -> str:
        """Return how long a step has taken if that is too long, else ""."""
        waited_ms = seen.now_ms - self._p.since_ms
        return duration(waited_ms) if waited_ms >= limit_ms else ""

    def _stop(self, why: str, next_step: str) -> NoReturn:
        p = self._p
        what = f"the rolling restart has stopped at {p.broker} ({p.at} of {len(p.order)} done)"
        raise StoppedError(what, why=why, next_step=f"{next_step}, {GO_ON}")

    def _wait_until_well(self) -> None:
        p = self._p
        while True:
            seen = self._look()
            if not seen.incarnation:
                if self._late(seen, self._bounds.ready_ms):
                    self._stop(f"{p.broker} does not answer", "see its log")
            elif not self._doubts and (not seen.moving or self._late(seen, _STILL_MS)):
                break
        homes = {one for one, at in seen.owners.items() if at == p.broker}
        p.homes, p.incarnation = sorted({*p.homes, *homes}), seen.incarnation
        words = f": {len(homes)} bundles are moved away, {p.at_once} at once"
        self._enter(RestartStage.DRAINING, seen, words)

    def _drain(self) -> None:
        """Drain it, until Pulsar itself shows nothing on it."""
        p, drained_turn = self._p, -1
        while True:
            seen = self._look_while_moving()
            left = seen.drains.get(p.broker)
            if left == 0 and seen.held is not None and not seen.held and seen.incarnation:
                break
            if left is not None:
                drained_turn = p.turn
            elif drained_turn == p.turn:
                self._stop(f"somebody else has cancelled the drain of {p.broker}", "ask who it was")
            elif refused := self._cluster.drain(p):
                self._stop(refused, "see `ballast status`")
            if waited := self._late(seen, self._bounds.drain_ms):
                some = ", ".join(sorted(seen.held or ())[:_SHOWN]) or "what it owns is not told"
                how = f"{left} bundles are still there" if left else "Pulsar shows it not empty"
                how = "its drain has not begun" if left is None else how
                fix = "`ballast explain broker` says what holds them"
                self._stop(f"{how} after {waited}: {some}", fix)
        p.incarnation, p.pid = seen.incarnation, 0
        self._enter(RestartStage.RESTARTING, seen, " is empty, in Pulsar's own words")

    def _restart(self) -> None:
        p, limit_ms = self._p, self._bounds.command_ms
        if not p.command:
            note(f"restart {p.broker} now; this goes on when it is back")
        seen = self._look()
        while p.command:
            ended, waited = self._cluster.command_end(p), self._late(seen, limit_ms)
            if ended is not None:
                code, words = ended
                p.pid = p.pid if code is None else 0
                if code == 0:
                    break
                if code is not None or waited:
                    how = "still runs" if code is None else f"ended with {code}"
                    after = duration(seen.now_ms - p.since_ms)
                    said = f": {words}" if words else " and said nothing"
                    fix = f"mend it (--command), see that {p.broker} runs"
                    self._stop(f"the command {how} after {after}{said}", fix)
            elif seen.incarnation == p.incarnation:
                p.pid = self._cluster.restart(p)
                keep_progress(self._path, p)
            elif seen.incarnation or p.broker not in seen.listed:
                break  # another process, or none: it has run, and a cut hid its end
            elif waited:
                self._stop(f"{p.broker} does not answer", "see its log")
            seen = self._look()
        p.pid = 0
        self._enter(RestartStage.RETURNING, seen)

    def _wait_until_back(self) -> None:
        p, bounds, returned, returned_ms = self._p, self._bounds, "", 0
        while True:
            seen = self._look()
            if not seen.incarnation or p.broker not in seen.listed:
                limit_ms = bounds.return_ms if p.command else bounds.drain_ms
                if waited := self._late(seen, limit_ms):
                    why = f"{p.broker} has not come back within {waited}"
                    self._stop(why, "read its log and start it")
            elif not self._is_other(seen):
                if self._late(seen, _RESTART_MS if p.command else bounds.drain_ms):
                    p.stage = RestartStage.RESTARTING
                    why = "the command ended well" if p.command else "nobody has restarted it"
                    why += f", and {p.broker} is the same process as before"
                    self._stop(why, "restart it, or have the command (--command) do it")
            elif seen.incarnation != returned:
                returned, returned_ms = seen.incarnation, seen.now_ms
            elif seen.now_ms - returned_ms >= _SETTLE_MS:
                break
        self._enter(RestartStage.FILLING, seen, " is back as another process")

    def _fill(self) -> None:
        p, seen = self._p, self._look()
        while p.broker in seen.drains:
            refused = self._cluster.reopen(p)
            if self._late(seen, _OPEN_MS):
                self._stop(refused or "its drain can't be cancelled", "see `ballast status`")
            seen = self._look()
        missing = missing_of(p, seen)
        self._enter(p.stage, seen, f": {len(missing)} bundles are moved back")
        refused, tries, tried_ms, left = "", 0, 0, len(missing)
        while seen.plans or missing:
            if len(missing) < left:
                tries, left = 0, len(missing)
            if seen.plans:
                for plan in sorted(name for name, waits in seen.plans.items() if waits):
                    self._cluster.approve(p, plan)
            elif waited := self._late(seen, self._bounds.fill_ms):
                why = refused or f"{len(missing)} bundles are not back after {waited}"
                self._stop(why, "`ballast explain bundle` says what holds one")
            elif not seen.moving.intersection(missing) and (
                not tries or seen.now_ms - tried_ms >= _AGAIN_MS
            ):
                if tries >= _FILLS and not refused:
                    words = f": {len(missing)} bundles stay elsewhere, such as {missing[0]}: they"
                    note(f"{p.broker}{words} are pinned, kept from it by a policy, or moved on")
                    break
                p.turn, tries, tried_ms = p.turn + 1, tries + 1, seen.now_ms
                keep_progress(self._path, p)
                refused = self._cluster.fill(p, missing[: p.at_once])
            seen = self._look_while_moving()
            missing = missing_of(p, seen)
        note(f"{p.broker} is done, {p.at + 1} of {len(p.order)}")
        p.at, p.turn, p.homes, p.incarnation = p.at + 1, 0, [], ""
        is_last = p.at == len(p.order)
        self._enter(RestartStage.DONE if is_last else RestartStage.WAITING, seen)
