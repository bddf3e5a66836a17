"""Steps of a rolling restart: drain, command, wait, fill, one broker at a time.

Each step looks until what it waits for has come, and repeats its command until a look shows it.
What lasts too long stops the restart: the broker in hand is opened again unless it may be in the
middle of its restart.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

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
_STILL_MS, _CALM_MS, _EASE_MS, _AGAIN_MS, _OPEN_MS, _FILLS = (
    60_000,
    15_000,
    600_000,
    5_000,
    180_000,
    4,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBounds:
    """Time limits of a rolling restart in ms, and limits of concurrency.

    at_once: bundles in transit, 0 = a twentieth of all. publish_latency_ms: that clients may feel.
    room: usage of the others while one is gone, 1.0 = 100 %.
    """

    ready_ms: int = 120_000
    drain_ms: int = 1_800_000
    command_ms: int = 600_000
    return_ms: int = 300_000
    fill_ms: int = 1_800_000
    at_once: int = 0
    publish_latency_ms: float = 500.0
    room: float = 0.9


class CutOffError(Exception):
    """The person ends the process."""


class StoppedError(Exception):
    """The restart goes no further."""

    def __init__(self, why: str, next_step: str) -> None:
        super().__init__(why)
        self.why, self.next_step = why, next_step


def complaints(p: Progress, seen: Observation, bounds: RestartBounds) -> Iterator[Complaint]:
    """All that is wrong now, in a fixed order."""
    is_away = p.stage in (RestartStage.RESTARTING, RestartStage.RETURNING)
    for broker in p.brokers:
        if broker not in seen.listed and not (is_away and broker == p.broker):
            why = f"{broker} is gone from Pulsar's list of active brokers"
            why += "" if broker != p.broker else ", and it was not being restarted"
            fix = f"see why it ended and start it, {GO_ON}"
            yield Complaint(key=f"gone {broker}", why=why, next_step=fix, patience_ms=_CONFIRM_MS)
    if seen.oldest_move_ms >= _STUCK_MS:
        why = f"a bundle has been on its way for {duration(seen.oldest_move_ms)}"
        fix = f"`ballast status` names it: see the log of its broker, {GO_ON}"
        yield Complaint(key="stuck", why=why, next_step=fix)
    for broker in sorted(seen.drains.keys() - {p.broker}):
        why = f"{broker} is being drained, too, or was and is still closed"
        fix = f"`ballast broker cancel-drain {broker}` opens it, {GO_ON}"
        yield Complaint(key=f"drain {broker}", why=why, next_step=fix, patience_ms=_CONFIRM_MS)
    if len(p.brokers) == 1:
        why = f"{p.broker} is the only broker: nobody could take its bundles"
        yield Complaint(key="alone", why=why, next_step="start another broker first")
    if p.stage is RestartStage.WAITING and (seen.publish_ms or 0.0) > bounds.publish_latency_ms:
        why = f"clients wait {seen.publish_ms:.0f} ms though nothing is moved yet"
        fix = f"see what hurts them, or allow more with --publish-latency-ms, {GO_ON}"
        yield Complaint(key="latency", why=why, next_step=fix)
    if p.stage is RestartStage.WAITING and (seen.others_usage or 0.0) > bounds.room:
        why = f"without {p.broker} the others would be at {seen.others_usage:.0%}, which is more"
        fix = "wait for a quieter hour, add a broker, or allow more with --room"
        yield Complaint(key="room", why=f"{why} than {bounds.room:.0%}", next_step=fix)
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

        Raises CommandError where it stops, CutOffError where it is cut.
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
                self._save(steps[p.stage]())
        except StoppedError as stop:
            what = f"the rolling restart has stopped at {p.broker}"
            what += f" ({p.at} of {len(p.order)} done)"
            p.stopped = stop.why
            self.halt()
            raise CommandError(what, why=stop.why, next_step=stop.next_step) from None
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
            p.stage, p.since_ms = (
                RestartStage.FILLING if is_new else RestartStage.WAITING,
                seen.now_ms,
            )
        elif p.broker in seen.drains:
            opens = f"`ballast broker cancel-drain {p.broker}`"
            note(f"{p.broker} is still closed: {opens} opens it")
        if for_good and missing_of(p, seen):
            undo = f"`ballast plan undo --drain {p.broker}`"
            note(f"what has left {p.broker} stays where it is: {undo} moves it back")
        keep_progress(self._path, p)

    def _may_open(self, seen: Observation, *, for_good: bool) -> bool:
        p = self._p
        if p.stage is RestartStage.DRAINING:
            return True
        if not seen.incarnation or p.broker not in seen.listed:
            return False
        if p.stage is RestartStage.RESTARTING:
            return for_good and not p.pid
        if p.stage is RestartStage.RETURNING:
            return for_good or not p.command or self._is_other(seen)
        return p.stage is RestartStage.FILLING and p.broker in seen.drains

    def _is_other(self, seen: Observation) -> bool:
        """True if the process that answers is not the one that was to be restarted."""
        return bool(seen.incarnation) and seen.incarnation != self._p.incarnation

    def _save(self, stage: RestartStage) -> None:
        self._p.stage = stage
        keep_progress(self._path, self._p)

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
                raise StoppedError(one.why, one.next_step)
        if seen.now_ms - self._said_ms >= _SAY_MS:
            note("; ".join([p.message(seen.now_ms), *(one.why for one in wrong)]))
            self._said_ms = seen.now_ms
        return seen

    def _enter(self, seen: Observation, words: str = "") -> None:
        """Begin to wait for something else, with time limits and ids of its own."""
        self._p.since_ms = self._said_ms = seen.now_ms
        self._p.turn += 1
        if words:
            note(f"{self._p.broker}{words}")

    def _is_late(self, seen: Observation, limit_ms: int) -> bool:
        return seen.now_ms - self._p.since_ms >= limit_ms

    def _waited(self, seen: Observation) -> str:
        return duration(seen.now_ms - self._p.since_ms)

    def _stop(self, why: str, next_step: str) -> NoReturn:
        raise StoppedError(why, f"{next_step}, {GO_ON}")

    def _wait_until_well(self) -> RestartStage:
        p, bounds = self._p, self._bounds
        while True:
            seen = self._look()
            is_quiet = not seen.moving or self._is_late(seen, _STILL_MS)
            if seen.incarnation and is_quiet and not self._doubts:
                break
            if not seen.incarnation and self._is_late(seen, bounds.ready_ms):
                self._stop(f"{p.broker} does not answer", "see its log")
        homes = {one for one, at in seen.owners.items() if at == p.broker}
        p.homes, p.incarnation = sorted({*p.homes, *homes}), seen.incarnation
        self._enter(seen, f": {len(homes)} bundles are moved away, {p.at_once} at once")
        return RestartStage.DRAINING

    def _drain(self) -> RestartStage:
        """Drain it, until Pulsar itself shows nothing on it."""
        p, is_drained = self._p, False
        while True:
            seen = self._look()
            left = seen.drains.get(p.broker)
            if left is None and is_drained:
                self._stop(f"somebody else has cancelled the drain of {p.broker}", "ask who it was")
            if left == 0 and seen.held is not None and not seen.held and seen.incarnation:
                break
            if left is None:
                refused = self._cluster.drain(p)
                if refused:
                    self._stop(refused, "see `ballast status`")
            elif left and self._is_latency_high(seen):
                self._ease(seen)
                left = None
            if self._is_late(seen, self._bounds.drain_ms):
                some = ", ".join(sorted(seen.held or ())[:_SHOWN]) or "what it owns is not told"
                how = f"{left} bundles are still there" if left else "Pulsar shows it not empty"
                how = "its drain has not begun" if left is None else how
                why = f"{how} after {self._waited(seen)}: {some}"
                self._stop(why, "`ballast explain broker` says what holds them")
            is_drained = left is not None
        p.incarnation, p.pid = seen.incarnation, 0
        self._enter(seen, " is empty, in Pulsar's own words")
        return RestartStage.RESTARTING

    def _restart(self) -> RestartStage:
        p = self._p
        while p.command:
            seen = self._look()
            ended = self._cluster.command_end(p)
            if ended is not None:
                code, words = ended
                if code is None and not self._is_late(seen, self._bounds.command_ms):
                    continue
                p.pid = p.pid if code is None else 0
                if code == 0:
                    break
                how = "still runs" if code is None else f"ended with {code}"
                why = f"the command {how} after {self._waited(seen)}"
                why += f": {words}" if words else " and said nothing"
                self._stop(why, f"mend it (--command), see that {p.broker} runs")
            if seen.incarnation == p.incarnation:
                p.pid = self._cluster.restart(p)
                self._save(p.stage)
            elif seen.incarnation or p.broker not in seen.listed:
                break  # another process, or none: it has run, and a cut hid its end
            elif self._is_late(seen, self._bounds.command_ms):
                self._stop(f"{p.broker} does not answer", "see its log")
        else:
            note(f"restart {p.broker} now; this goes on when it is back")
            seen = self._look()
        self._enter(seen)
        return RestartStage.RETURNING

    def _wait_until_back(self) -> RestartStage:
        p, returned, returned_ms = self._p, "", 0
        bounds = self._bounds
        same_ms = _RESTART_MS if p.command else bounds.drain_ms
        while True:
            seen = self._look()
            is_there = p.broker in seen.listed and bool(seen.incarnation)
            if is_there and self._is_other(seen):
                if seen.incarnation != returned:
                    returned, returned_ms = seen.incarnation, seen.now_ms
                elif seen.now_ms - returned_ms >= _SETTLE_MS:
                    break
            elif is_there and self._is_late(seen, same_ms):
                why = "the command ended well" if p.command else "nobody has restarted it"
                p.stage = RestartStage.RESTARTING
                why += f", and {p.broker} is the same process as before"
                self._stop(why, "restart it, or have the command (--command) do it")
            elif self._is_late(seen, bounds.return_ms if p.command else bounds.drain_ms):
                why = f"{p.broker} has not come back within {self._waited(seen)}"
                self._stop(why, "read its log and start it")
        self._enter(seen, " is back as another process")
        return RestartStage.FILLING

    def _fill(self) -> RestartStage:
        p, seen = self._p, self._look()
        while p.broker in seen.drains:
            refused = self._cluster.reopen(p)
            if self._is_late(seen, _OPEN_MS):
                self._stop(refused or "its drain can't be cancelled", "see `ballast status`")
            seen = self._look()
        missing = missing_of(p, seen)
        self._enter(seen, f": {len(missing)} bundles are moved back")
        self._save(p.stage)
        refused, tries, left, tried_ms = "", 0, len(missing) + 1, 0
        while seen.plans or missing:
            has_helped = len(missing) < left
            if seen.plans and self._is_latency_high(seen):
                self._ease(seen)
                tries, left = 0, len(missing) + 1
            elif seen.plans:
                for plan in sorted(name for name, waits in seen.plans.items() if waits):
                    self._cluster.approve(p, plan)
            elif self._is_late(seen, self._bounds.fill_ms):
                why = refused or f"{len(missing)} bundles are not back after {self._waited(seen)}"
                self._stop(why, "`ballast explain bundle` says what holds one")
            elif not seen.moving.intersection(missing) and (
                has_helped or seen.now_ms - tried_ms >= _AGAIN_MS
            ):
                tries = 1 if has_helped else tries + 1
                if tries > _FILLS and not refused:
                    words = f": {len(missing)} bundles stay elsewhere, such as {missing[0]}: they"
                    note(f"{p.broker}{words} are pinned, kept from it by a policy, or moved on")
                    break
                p.turn, left, tried_ms = p.turn + 1, len(missing), seen.now_ms
                self._save(p.stage)
                refused = self._cluster.fill(p, missing[: p.at_once])
            seen = self._look()
            missing = missing_of(p, seen)
        note(f"{p.broker} is done, {p.at + 1} of {len(p.order)}")
        p.at, p.turn, p.homes, p.incarnation = p.at + 1, 0, [], ""
        self._enter(seen)
        return RestartStage.WAITING if p.at < len(p.order) else RestartStage.DONE

    def _is_latency_high(self, seen: Observation) -> bool:
        """True if clients feel the moves. A topic that is moved alone loads no faster."""
        load_ms = (seen.load_ms or 0.0) if self._p.at_once > 1 else 0.0
        return max(seen.publish_ms or 0.0, load_ms) > self._bounds.publish_latency_ms

    def _ease(self, seen: Observation) -> None:
        """Move nothing until clients feel nothing, then go on at half the pace."""
        p, most_ms, calm_ms = self._p, self._bounds.publish_latency_ms, 0
        p.at_once = max(1, p.at_once // 2)
        waits = f"{seen.publish_ms or 0.0:.0f} ms to publish, topics take {seen.load_ms or 0.0:.0f}"
        self._enter(seen, f": clients wait {waits} ms to load: nothing is moved until that is over")
        self._save(p.stage)
        while not calm_ms or seen.now_ms - calm_ms < _CALM_MS or p.broker in seen.drains:
            for plan in sorted(seen.plans):
                self._cluster.drop(plan)
            if p.broker in seen.drains:
                self._cluster.reopen(p)
            seen = self._look()
            calm_ms = 0 if (seen.publish_ms or 0.0) > most_ms else calm_ms or seen.now_ms
            if self._is_late(seen, _EASE_MS):
                why = f"clients wait more than {most_ms:.0f} ms though nothing is moved for"
                fix = "see what hurts them, or allow more with --publish-latency-ms"
                self._stop(f"{why} {self._waited(seen)}", fix)
        self._enter(seen, f": clients feel nothing now; on, {p.at_once} at once")
