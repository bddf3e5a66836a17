"""Restart a Pulsar cluster's brokers one by one without clients noticing.

Runs beside a job and a bridge that acts (or `ballast attach --act`). Each broker, the least loaded
first: its bundles are moved off at the bridge's pace, Pulsar itself shows it empty, --command
restarts it (without: you do), it is back as another process, and gets its former bundles again.
Stops by itself when something is wrong; the same command resumes it, also after Ctrl-C or a crash.
--abort ends it for good.
"""

import argparse
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from jobs.adapters.kafka.command_client import CommandClient, local_principal
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.paths import locked
from jobs.adapters.processes.signals import STOPPING, on_signals
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.attachment import add_access_options, admin_at, known_attachment
from jobs.bridge.bridge import only_cluster
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.restarted_cluster import Complaint, Observation, PulsarCluster
from jobs.bridge.rolling_progress import (
    STATE_FILE,
    Progress,
    RestartStage,
    read_progress,
    save_progress,
)
from jobs.console import CommandError, Exit, MisuseError, answer, note, require_consent
from jobs.operating.connection_options import (
    STACK_OPTIONS,
    ConnectionOptions,
    connection_options,
)
from jobs.operating.text_format import parse_duration_ms
from jobs.parser import argument, arguments, either, group, positive_number, whole_number
from lbcore.model.times import duration
from lbcore.wire.kinds.balancing_commands import (
    ApprovePlan,
    CancelDrain,
    DrainBroker,
    ProposePlan,
    RejectPlan,
)

_PERSON = "-"
_MOVE_MS, _RESTART_MS = 4_000, 90_000
"""Time of a move, and of a restart with all its waits, in the lab: for an estimate."""
_BUNDLES_PER_MOVE, _IN_FLIGHT_MAX = 20, 16
"""With one bundle in twenty in transit, 99 of 100 messages wait less than half a second."""
_NOTE_MS, _SHOWN = 20_000, 3
_SAME_MS, _SETTLE_MS = 120_000, 10_000
"""Time in which the old process may answer after the command, and the new one must answer."""
_CONFIRM_MS = 5_000
"""Longest time that a broker may be gone, or drained by somebody else."""
_STILL_MS, _OPEN_MS = 60_000, 180_000
"""Longest waits for other moves before a drain, and for the end of a drain."""
_CALM_MS, _EASE_MS = 15_000, 600_000
"""After a high latency: how long it must be low again, and the longest wait for that."""
_PLAN_PAUSE_MS = 5_000
"""Shortest time between two plans."""
_TRIES = 4
"""Plans that may fail to move a bundle before it is left where it is."""
_ALLOW_MORE = "see what hurts them, or allow more with --publish-latency-ms"
BOUNDS = group(
    "pace and bounds",
    argument(
        "--max-in-flight",
        type=whole_number,
        default=0,
        metavar="N",
        help="bundles on their way at once (default: a twentieth of all, 16 at most)",
    ),
    argument(
        "--publish-latency-ms",
        type=positive_number,
        default=500.0,
        metavar="N",
        help="mean ms that clients may wait before moves are held back (default 500)",
    ),
    argument(
        "--room",
        type=positive_number,
        default=0.9,
        metavar="N",
        help="most usage of the others while one is gone, 1 = 100 %% (default 0.9)",
    ),
    *(
        argument(
            f"--{step}-within",
            type=parse_duration_ms,
            default=default,
            metavar="TIME",
            help=f"time until {what} (default {default})",
        )
        for step, default, what in (
            ("ready", "2m", "all is well before a broker is touched"),
            ("drain", "30m", "a broker is empty; without --command also: is back"),
            ("command", "10m", "the command ends"),
            ("return", "5m", "a broker is back after it"),
            ("fill", "30m", "a broker has its bundles again"),
        )
    ),
)
"""The pace and the limits of time."""
add_options = arguments(
    group(
        "Pulsar",
        argument(
            "--admin-url",
            default="",
            metavar="URL",
            help="web service of any broker (default: as attached)",
        ),
        add_access_options,
    ),
    argument("--brokers", nargs="+", default=[], metavar="BROKER", help="host:port (default: all)"),
    argument(
        "--command",
        metavar="COMMAND",
        help="for the shell, run once for each broker: {broker} and {host} are replaced, quoted,"
        " and BALLAST_BROKER is set; - or without: you restart the broker that is named",
    ),
    either(
        argument("--dry-run", action="store_true", help="say what would be done, how long"),
        argument("--abort", action="store_true", help="end the one that has stopped, for good"),
    ),
    argument("--yes", action="store_true", help="do not ask"),
    argument("--state", type=Path, metavar="FILE", help=f"{STATE_FILE} of --state-dir"),
    BOUNDS,
    STACK_OPTIONS,
    example="ballast bridge rolling-restart --command 'ssh {host} systemctl restart pulsar'",
)


class CutOffError(Exception):
    """A signal interrupted the process."""


class StoppedError(CommandError):
    """The restart has stopped because of a problem."""


def complaints(p: Progress, seen: Observation, bounds: argparse.Namespace) -> Iterator[Complaint]:
    """Yield all present problems, in a fixed order."""
    is_away = p.stage in (RestartStage.RESTARTING, RestartStage.RETURNING)
    for broker in p.brokers:
        if broker not in seen.listed and not (is_away and broker == p.broker):
            why = f"{broker} is gone from Pulsar's list of active brokers"
            why += "" if broker != p.broker else ", and it was not being restarted"
            yield Complaint(f"gone {broker}", why, "see why it ended and start it", _CONFIRM_MS)
    for broker in sorted(seen.drains.keys() - {p.broker}):
        why = f"{broker} is being drained, too, or was and is still closed"
        fix = f"`ballast broker cancel-drain {broker}` opens it"
        yield Complaint(f"drain {broker}", why, fix, _CONFIRM_MS)
    if p.stage is RestartStage.WAITING:
        publish_ms, usage = seen.publish_ms or 0.0, seen.others_usage or 0.0
        if not seen.incarnation:
            yield Complaint("silent", f"{p.broker} does not answer", "see its log")
        if publish_ms > bounds.publish_latency_ms:
            why = f"clients wait {publish_ms:.0f} ms though nothing is moved yet"
            yield Complaint("latency", why, _ALLOW_MORE)
        if usage > bounds.room:
            why = f"without {p.broker} the others would be at {usage:.0%}, more than"
            fix = "wait for a quieter hour, add a broker, or allow more with --room"
            yield Complaint("room", f"{why} {bounds.room:.0%}", fix)
    for one in seen.complaints:
        if not (is_away and one.key.endswith(f" {p.broker}")):
            yield one


def missing_of(p: Progress, seen: Observation) -> list[str]:
    """Return bundles that the broker had and another has now, or that are in transit."""
    known = seen.owners.keys() | seen.moving
    return [one for one in p.former_bundles if one in known and seen.owners.get(one) != p.broker]


class RollingRestart:
    """One rolling restart, from where its progress is to the end.

    Each wait polls until its condition holds. A command to Ballast is repeated until a poll shows
    its effect. A wait beyond its limit stops the restart.
    """

    tick_s = 2.0

    def __init__(
        self,
        cluster: PulsarCluster,
        path: Path,
        bounds: argparse.Namespace,
        progress: Progress,
        end: threading.Event,
    ) -> None:
        """bounds: of `BOUNDS`. end: set to interrupt it."""
        self._cluster, self._path, self._bounds, self._p = cluster, path, bounds, progress
        self._end = end
        self._wrong_since_ms: dict[str, int] = {}
        self._noted_ms = 0
        self._drained_broker = ""
        """The broker of which a drain was last seen."""

    def run(self) -> None:
        """Run until all is done. Raises StoppedError, or CutOffError when interrupted."""
        p = self._p
        p.turn, p.since_ms, p.stopped = p.turn + 1, 0, ""
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
        except CommandError as stop:
            p.stopped = stop.why
            self.halt()
            raise
        except CutOffError:
            if p.is_running:
                note(f"the command of {p.broker} goes on by itself")
            self.halt()
            left = f"{p.at} of {len(p.order)} brokers are done"
            note(f"cut off: {left}; the same command goes on, --abort ends it")
            raise

    def halt(self, *, for_good: bool = False) -> None:
        """Cancel the broker's drain unless it may be restarting; save the progress.

        for_good: it will not be resumed.
        """
        p, seen = self._p, self._cluster.observe(self._p)
        save_progress(self._path, p)
        is_new = bool(seen.incarnation) and seen.incarnation != p.incarnation
        is_up = bool(seen.incarnation) and p.broker in seen.listed and not p.is_running
        may_open = is_up and (for_good or not p.command or is_new)
        if p.stage in (RestartStage.WAITING, RestartStage.DRAINING):
            may_open = p.stage is RestartStage.DRAINING
        was_closed = p.broker in (self._drained_broker, *seen.drains)
        was_drained = p.stage is RestartStage.DRAINING or p.broker in seen.drains
        answer = self._withdraw(seen, may_open=may_open)
        if may_open:
            is_filling = is_new and p.stage is not RestartStage.DRAINING
            p.stage = RestartStage.FILLING if is_filling else RestartStage.WAITING
            p.since_ms = seen.now_ms
        after = self._cluster.observe(p) if may_open else seen
        if was_drained:
            opens = f"`ballast broker cancel-drain {p.broker}` opens it"
            how = (
                "open again: its drain was cancelled" if was_closed else "open: it never was closed"
            )
            if answer is None:
                why = self._with_cause("the cancellation of its drain is not answered", answer)
                how = f"{'open again' if was_closed else 'open'}, but {why}. If it closes, {opens}"
            if after.status is None:
                how = f"perhaps closed, the tables can't be read: {opens}"
            elif not may_open or p.broker in after.drains:
                how = f"still closed: {opens}"
            note(f"{p.broker} is {how}")
        if for_good and missing_of(p, seen):
            undo = f"`ballast plan undo --drain {p.broker}`"
            note(f"what has left {p.broker} stays where it is: {undo} moves it back")
        save_progress(self._path, p)

    def _withdraw(self, seen: Observation, *, may_open: bool = True) -> str | None:
        """Reject our open plans and cancel our drain; return as `PulsarCluster.send`."""
        for plan in sorted(seen.plans):
            why = "the rolling restart does not go on with it"
            self._cluster.send(f"{plan}-drop", RejectPlan(plan=plan, reason=why))
        # the balancer may yet read an unanswered drain; the cancellation follows it in the log
        is_asked = self._p.stage is RestartStage.DRAINING or seen.status is None
        if not may_open or not (is_asked or self._p.broker in seen.drains):
            return ""
        return self._cluster.send(f"{self._p.plan}-open", CancelDrain(broker=self._p.broker))

    def _observe(self) -> Observation:
        """Observe the cluster, tick by tick, until the tables are readable.

        Raises StoppedError for a problem that lasts too long.
        """
        while (seen := self._observe_once()).status is None:
            pass
        return seen

    def _observe_once(self) -> Observation:
        self._end.wait(self.tick_s)
        p, seen = self._p, self._cluster.observe(self._p)
        p.since_ms = p.since_ms or seen.now_ms
        self._drained_broker = p.broker if p.broker in seen.drains else self._drained_broker
        if self._end.is_set():
            raise CutOffError
        wrong = list(complaints(p, seen, self._bounds))
        self._wrong_since_ms = {
            one.key: self._wrong_since_ms.get(one.key, seen.now_ms) for one in wrong
        }
        least_ms = self._bounds.ready_within if p.stage is RestartStage.WAITING else 0
        for one in wrong:
            if seen.now_ms - self._wrong_since_ms[one.key] >= max(one.patience_ms, least_ms):
                self._stop(one.why, one.next_step)
        if seen.now_ms - self._noted_ms >= _NOTE_MS:
            note("; ".join([p.message(seen.now_ms), *(one.why for one in wrong)]))
            self._noted_ms = seen.now_ms
        return seen

    def _wait_until(
        self,
        condition: Callable[[Observation], object],
        limit_ms: int,
        otherwise: tuple[str, str],
        *,
        lasts_ms: int = 0,
        act: Callable[[Observation], str | None] = lambda _: "",
    ) -> Observation:
        """Look until a condition has given the same true value for lasts_ms.

        otherwise: why it stops, and what to do. act: called after each observation that does not
        end the wait, returns as `PulsarCluster.send`.
        """
        last, since_ms = None, 0
        while True:
            seen = self._observe()
            value = condition(seen)
            last, since_ms = value, since_ms if value == last else seen.now_ms
            if value and seen.now_ms - since_ms >= lasts_ms:
                return seen
            answer = act(seen)
            if self._is_late(seen, limit_ms):
                self._stop(self._with_cause(otherwise[0], answer), otherwise[1])

    def _observe_while_moving(self) -> Observation:
        """Observe; if moves raise clients' latency, hold them back until it is low again.

        They then go on at half the pace. The time to load a topic counts only while several bundles
        move at once: one alone can't load faster.
        """
        p, seen, max_ms = self._p, self._observe(), self._bounds.publish_latency_ms
        publish_ms, load_ms = seen.publish_ms or 0.0, seen.load_ms or 0.0
        is_moving = bool(seen.plans or seen.drains.get(p.broker))
        if not is_moving or max(publish_ms, load_ms if p.at_once > 1 else 0.0) <= max_ms:
            return seen
        p.at_once = max(1, p.at_once // 2)
        waits = f"{publish_ms:.0f} ms to publish, topics take {load_ms:.0f} ms to load"
        text = f": clients wait {waits}: nothing is moved until that is over"
        self._enter(p.stage, seen, text)
        why = f"clients wait more than {max_ms:.0f} ms though nothing is moved for"
        seen = self._wait_until(
            lambda now: (now.publish_ms or 0.0) <= max_ms and p.broker not in now.drains,
            _EASE_MS,
            (f"{why} {duration(_EASE_MS)}", _ALLOW_MORE),
            lasts_ms=_CALM_MS,
            act=self._withdraw,
        )
        self._enter(p.stage, seen, f": clients feel nothing now; on, {p.at_once} at once")
        return seen

    def _enter(self, stage: RestartStage, seen: Observation, text: str = "") -> None:
        """Enter a stage, or begin it again, with its own time limits and command ids."""
        p = self._p
        if text:
            note(f"{p.broker}{text}")
        p.stage, p.since_ms, self._noted_ms = stage, seen.now_ms, seen.now_ms
        p.turn += 1
        save_progress(self._path, p)

    def _is_late(self, seen: Observation, limit_ms: int) -> bool:
        return seen.now_ms - self._p.since_ms >= limit_ms

    def _with_cause(self, why: str, answer: str | None) -> str:
        """Return why a command has had no effect.

        answer: of its last `PulsarCluster.send`.
        """
        if answer is None:
            return f"{why}: {self._cluster.kafka_error or 'the balancer has not answered'}"
        return answer or why

    def _stop(self, why: str, next_step: str) -> NoReturn:
        p = self._p
        what = f"the rolling restart has stopped at {p.broker} ({p.at} of {len(p.order)} done)"
        on = "then give the same command again: it goes on where it was"
        raise StoppedError(what, why=why, next_step=f"{next_step}, {on}")

    def _wait_until_well(self) -> None:
        p, seen = self._p, self._observe()
        while self._wrong_since_ms or (seen.moving and not self._is_late(seen, _STILL_MS)):
            seen = self._observe()
        homes = {one for one, at in seen.owners.items() if at == p.broker}
        p.former_bundles, p.incarnation = sorted({*p.former_bundles, *homes}), seen.incarnation
        text = f": {len(homes)} bundles are moved away, {p.at_once} at once"
        self._enter(RestartStage.DRAINING, seen, text)

    def _drain(self) -> None:
        """Drain the broker until Pulsar itself shows nothing on it."""
        p, drained_turn, limit_ms = self._p, -1, self._bounds.drain_within
        answer: str | None = ""
        while True:
            seen = self._observe_while_moving()
            left = seen.drains.get(p.broker)
            if left == 0 and seen.still_owned == frozenset() and seen.incarnation:
                break
            if left is not None:
                drained_turn = p.turn
            elif drained_turn == p.turn:
                self._stop(f"somebody else has cancelled the drain of {p.broker}", "ask who it was")
            else:
                drain = DrainBroker(broker=p.broker, max_in_flight=p.at_once)
                if answer := self._cluster.send(f"{p.plan}-drain", drain):
                    self._stop(answer, "see `ballast status`")
            if self._is_late(seen, limit_ms):
                some = (
                    ", ".join(sorted(seen.still_owned or ())[:_SHOWN]) or "what it owns is not told"
                )
                how = f"{left} bundles are still there" if left else "Pulsar shows it not empty"
                fix = "`ballast explain broker` says what holds them"
                if left is None:
                    why = f"its drain has not begun after {duration(limit_ms)}"
                    self._stop(self._with_cause(why, answer), "see `ballast status`")
                self._stop(f"{how} after {duration(limit_ms)}: {some}", fix)
        p.incarnation = seen.incarnation
        self._enter(RestartStage.RESTARTING, seen, " is empty, in Pulsar's own words")

    def _restart(self) -> None:
        """Run the command once and wait for its end, unless it was begun before."""
        p, limit_ms = self._p, self._bounds.command_within
        seen = self._wait_until(  # a single observation without an answer proves nothing
            lambda now: (
                p.is_running or not p.command or now.incarnation or p.broker not in now.listed
            ),
            limit_ms,
            (f"{p.broker} does not answer", "see its log"),
        )
        if not p.command:
            note(f"restart {p.broker} now; this goes on when it is back")
        elif not p.is_running and seen.incarnation == p.incarnation:
            p.is_running, p.since_ms = True, seen.now_ms
            save_progress(self._path, p)
            self._cluster.restart(p)
            fix = f"mend it (--command), see that {p.broker} runs"
            why = f"the command still runs after {duration(limit_ms)}"
            seen = self._wait_until(lambda _: self._cluster.command_end(), limit_ms, (why, fix))
            code, last_output = self._cluster.command_end() or (0, "")
            p.is_running = False
            if code:
                output = f": {last_output}" if last_output else " and said nothing"
                self._stop(f"the command ended with {code}{output}", fix)
        self._enter(RestartStage.RETURNING, seen)

    def _wait_until_back(self) -> None:
        p, bounds = self._p, self._bounds
        limit_ms = bounds.return_within if p.command else bounds.drain_within
        same_ms = min(_SAME_MS, limit_ms) if p.command else limit_ms
        if p.is_running:
            limit_ms, same_ms = limit_ms + bounds.command_within, same_ms + bounds.command_within

        def process(seen: Observation) -> str:
            """Return which other process answers, "" = none."""
            is_listed = p.broker in seen.listed
            if is_listed and seen.incarnation == p.incarnation and self._is_late(seen, same_ms):
                p.stage, p.is_running = RestartStage.RESTARTING, False
                why = "the command has ended" if p.command else "nobody has restarted it"
                why += f", and {p.broker} is the same process as before"
                self._stop(why, "restart it, or have the command (--command) do it")
            return seen.incarnation if is_listed and seen.incarnation != p.incarnation else ""

        why = f"{p.broker} has not come back within {duration(limit_ms)}"
        otherwise = (why, "read its log and start it")
        # a broker that is back in time may settle after the limit
        seen = self._wait_until(process, limit_ms + _SETTLE_MS, otherwise, lasts_ms=_SETTLE_MS)
        p.is_running = False
        self._enter(RestartStage.FILLING, seen, " is back as another process")

    def _fill(self) -> None:
        """Cancel the drain, and move the former bundles back, some at a time."""
        p = self._p
        seen = self._wait_until(
            lambda now: p.broker not in now.drains,
            _OPEN_MS,
            ("its drain can't be cancelled", "see `ballast status`"),
            act=self._withdraw,
        )
        missing, tried, due_ms = missing_of(p, seen), Counter[str](), 0
        part: list[str] = []
        answer: str | None = ""
        self._enter(p.stage, seen, f": {len(missing)} bundles are moved back")
        while seen.plans or missing:
            for plan in [name for name, waits in sorted(seen.plans.items()) if waits]:
                self._cluster.send(f"{plan}-approve-{p.turn}", ApprovePlan(plan=plan))
            if not seen.plans and self._is_late(seen, self._bounds.fill_within):
                waited = duration(self._bounds.fill_within)
                why = f"{len(missing)} bundles are not back after {waited}"
                why = self._with_cause(why, answer)
                self._stop(why, "`ballast explain bundle` says what holds one")
            is_still = not seen.plans and not seen.moving.intersection(missing)
            if is_still and seen.now_ms >= due_ms:
                if answer is not None:  # else the same plan is sent again, under its id
                    part = sorted(missing, key=tried.__getitem__)[: p.at_once]
                    p.turn += 1
                if tried[part[0]] >= _TRIES:
                    text = f": {len(missing)} bundles stay elsewhere, such as {part[0]}: they"
                    note(f"{p.broker}{text} are pinned, kept from it by a policy, or moved on")
                    break
                due_ms = seen.now_ms + _PLAN_PAUSE_MS
                save_progress(self._path, p)
                answer = self._propose(part)
                tried.update(part if answer == "" else ())
            seen = self._observe_while_moving()
            missing = missing_of(p, seen)
        note(f"{p.broker} is done, {p.at + 1} of {len(p.order)}")
        p.at, p.turn, p.former_bundles, p.incarnation = p.at + 1, 0, [], ""
        is_last = p.at == len(p.order)
        self._enter(RestartStage.DONE if is_last else RestartStage.WAITING, seen)

    def _propose(self, bundles: Iterable[str]) -> str | None:
        """Propose that bundles move back, and approve it; return as `PulsarCluster.send`."""
        p = self._p
        moves, why = dict.fromkeys(bundles, p.broker), f"rolling restart: back to {p.broker}"
        plan = ProposePlan(moves=moves, why=why, plan=p.plan)
        answer = self._cluster.send(f"{p.plan}-fill", plan)
        if answer != "":
            return answer
        return self._cluster.send(f"{p.plan}-approve-{p.turn}", ApprovePlan(plan=p.plan))


def run(args: argparse.Namespace) -> int:
    """Resume a rolling restart, or begin one."""
    where = connection_options(args)
    args.command = "" if args.command == _PERSON else args.command
    path = (args.state or where.layout.root / STATE_FILE).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal = CommandError(
        "a rolling restart is under way already",
        why=f"another process works on {path}",
        next_step="wait for it, or end it with Ctrl-C; `ballast status` says how far it is",
    )
    with locked(path.with_suffix(".lock"), refusal):
        return _run(args, where, path)


def _run(args: argparse.Namespace, where: ConnectionOptions, path: Path) -> int:
    known = read_progress(path)
    if args.abort and known is None:
        raise CommandError(
            "there is nothing to abort",
            why=f"no rolling restart that is not done is kept in {path}",
            next_step="name its file with --state, or its folder with --state-dir",
        )
    admin, name = _pulsar(args, where, known)
    with CommandClient(where.address(), where.tables, where.cluster) as client:
        cluster = PulsarCluster(where, admin, name, client, path.with_suffix(".log"))
        p = known or _new(args, where, cluster, name)
        end = threading.Event()
        restart = RollingRestart(cluster, path, args, p, end)
        if args.abort:
            restart.halt(for_good=True)
            path.unlink(missing_ok=True)
            note(f"ended: {p.at} of {len(p.order)} brokers had been restarted")
            return Exit.DONE
        if known is not None:
            if args.brokers and set(args.brokers) != set(p.order):
                raise MisuseError(
                    "another rolling restart is not done yet",
                    why=f"it is at {p.broker}, of {', '.join(p.order)}",
                    next_step="leave --brokers out to go on with it, or end it with --abort",
                )
            if args.command not in (None, p.command):
                p.command, p.is_running = args.command, False
            p.at_once, p.stopped = args.max_in_flight or p.at_once, ""
            note(f"goes on: {p.message(wall_ms())}")
        if args.dry_run:
            return Exit.DONE
        if not args.yes:
            require_consent("--dry-run shows it again")
        stop_listening = on_signals(end.set, (*STOPPING, signal.SIGHUP))
        try:
            restart.run()
        except CutOffError:
            return Exit.CUT
        finally:
            stop_listening()
    took_ms = wall_ms() - p.began_ms
    text = f"done: {len(p.order)} brokers restarted in {duration(took_ms)}"
    answer(args, {"brokers": p.order, "took_ms": took_ms}, text)
    return Exit.DONE


def _pulsar(
    args: argparse.Namespace, where: ConnectionOptions, known: Progress | None
) -> tuple[PulsarAdmin, str]:
    attached = known_attachment(where.layout) if not args.admin_url else None
    url = args.admin_url or (attached.url if attached else "")
    if not url:
        raise MisuseError(
            "it is not known where Pulsar is",
            why=f"{where.layout.root} is attached to no cluster, and no --admin-url is given",
            next_step="give --admin-url with the web service of any broker",
        )
    args.admin_url = url
    admin = admin_at(url, args)
    if known is not None and url.startswith("http://"):  # that broker may be restarting
        for one in (admin, *(admin_at(f"http://{broker}", args) for broker in known.brokers)):
            with suppress(PulsarAdminError):
                one.clusters()
                admin = one
                break
    name = args.pulsar_cluster or (attached.pulsar_cluster if attached else only_cluster(admin))
    if known is not None and (known.pulsar_cluster, known.cluster) != (name, where.cluster):
        raise CommandError(
            f"the rolling restart that is not done is of {known.pulsar_cluster}, not of {name}",
            why="the cluster was renamed, or another one is asked",
            next_step="ask its own brokers, or end it with --abort",
        )
    return admin, name


def _new(
    args: argparse.Namespace, where: ConnectionOptions, cluster: PulsarCluster, name: str
) -> Progress:
    """Return the progress of a new restart, after printing its plan."""
    now_ms = wall_ms()
    p = Progress(
        run=uuid4().hex[:8],
        cluster=where.cluster,
        pulsar_cluster=name,
        by=local_principal(),
        command=args.command or "",
        began_ms=now_ms,
        since_ms=now_ms,
        order=list(args.brokers) or [""],
        brokers=[],
        at_once=args.max_in_flight,
    )
    seen = cluster.observe(p)
    status, unknown = seen.status, sorted(set(args.brokers) - seen.listed)
    what = "the rolling restart has not begun"
    if unknown:
        why = f"Pulsar lists no broker {unknown[0]}; there are {', '.join(sorted(seen.listed))}"
        raise MisuseError(what, why=why, next_step="name brokers as Pulsar does, host:port")
    if status is None:
        one = seen.complaints[0]
        raise CommandError(what, why=one.why, next_step=one.next_step)
    if not seen.listed:
        raise CommandError(what, why="Pulsar lists no broker", next_step="check --pulsar-cluster")
    if status.mirror is None:
        raise CommandError(
            what,
            why="the job is not set up for a Pulsar cluster behind a bridge",
            next_step="start job and bridge as docs/pulsar.md says, or `ballast attach --act`",
        )
    asked = args.admin_url.rpartition("//")[2].rstrip("/")
    rates = {row.broker: row.msg_rate or 0.0 for row in status.broker_rows}
    p.order = sorted(  # a bad command hurts least at the least loaded
        set(args.brokers) or seen.listed, key=lambda one: (one == asked, rates.get(one, 0.0), one)
    )
    p.brokers = sorted(seen.listed)
    share = min(max(1, len(seen.owners) // _BUNDLES_PER_MOVE), _IN_FLIGHT_MAX)
    p.at_once = args.max_in_flight or share
    seen = cluster.observe(p)  # now of the first broker, which was not known before
    note(*_plan_lines(p, seen, rates))
    note(*(f"  not well now: {one.why}" for one in complaints(p, seen, args)))
    return p


def _plan_lines(p: Progress, seen: Observation, rates: Mapping[str, float]) -> Iterator[str]:
    owners = list(seen.owners.values())
    counts = {one: owners.count(one) for one in p.order}
    yield f"rolling restart of {p.pulsar_cluster}, in this order:"
    for one, count in counts.items():
        yield f"  {one}: {count} bundles, {rates.get(one, 0.0):,.0f} msg/s"
    moves = 2 * sum(counts.values())
    rough_ms = moves * _MOVE_MS // max(1, min(2, p.at_once)) + _RESTART_MS * len(counts)
    how = f"then: {p.command}" if p.command else "then you restart it"
    yield f"  each: its bundles are moved off, {p.at_once} at once at most, {how}"
    yield "  and it is filled with what it had; balancing goes on meanwhile"
    again = "Ctrl-C stops it, the same command goes on"
    yield f"  {moves} moves, roughly {duration(rough_ms)}; {again}"
    usage = seen.others_usage
    room = f"at {usage:.0%} usage" if usage is not None else "not known: a broker tells no usage"
    yield f"  the others while the first is away: {room}"
