"""Restart a Pulsar cluster's brokers one after the other, so that no client notices.

Runs beside a job and a bridge that acts (or `ballast attach --act`). Each broker, the least loaded
first: its bundles are moved off at the bridge's pace, Pulsar itself shows it empty, --command
restarts it (without: you do), it is seen to be back as another process, filled with what it had,
and brokers are even again. Stops by itself when something is wrong; the same command goes on where
it was, also after a cut. --abort lets it be.
"""

import argparse
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from jobs.adapters.kafka.command_client import CommandClient, local_principal
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.signals import STOPPING, on_signals
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.attachment import add_access_options, admin_at, known_attachment
from jobs.bridge.bridge import only_cluster
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.rollout_actions import RolloutActions, RolloutProbe
from jobs.bridge.rollout_file import STATE_FILE, alone_with, keep_rollout, read_rollout
from jobs.console import CommandError, Exit, MisuseError, add_json_option, agree, answer, note
from jobs.operating.connection_options import (
    ConnectionOptions,
    add_stack_arguments,
    connection_options,
)
from jobs.operating.text_format import parse_duration_ms
from lbcore.bridge.rolling import Advance, advance, halted, resumed
from lbcore.bridge.rollout import (
    RestartBounds,
    RestartStage,
    Rollout,
    RolloutObservation,
    complaints,
    in_order,
    pace_of,
)
from lbcore.explain.rollout_observation import rates_of
from lbcore.explain.status import ClusterStatus
from lbcore.model.times import duration

_TICK_S, _SAY_S = 2.0, 20.0
_MOVE_MS, _RESTART_MS = 4_000, 90_000
"""Time of a move, and of a restart with all its waits, in the lab: for an estimate."""
_PERSON = "-"
_TIMES: Mapping[str, tuple[str, str]] = {
    "--ready-within": ("ready_ms", "until all is well before a broker is touched"),
    "--drain-within": ("drain_ms", "until a broker is empty; without --command: is restarted"),
    "--command-within": ("command_ms", "until the command ends"),
    "--return-within": ("return_ms", "until a broker is back after it"),
    "--fill-within": ("fill_ms", "until a broker has its bundles again"),
    "--even-within": ("even_ms", "until brokers are even again"),
    "--unowned-within": ("unowned_ms", "that a moved bundle may be nobody's"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options: which brokers, how to restart them, and the time limits."""
    group = parser.add_argument_group("Pulsar")
    group.add_argument(
        "--admin-url", default="", metavar="URL", help="web service of any broker (attached: known)"
    )
    add_access_options(group)
    parser.add_argument(
        "--brokers", nargs="+", default=[], metavar="BROKER", help="which (all), host:port"
    )
    parser.add_argument(
        "--command",
        default=None,
        metavar="COMMAND",
        help="the shell's, once a broker: {broker} and {host} are replaced, quoted, and"
        " BALLAST_BROKER is set; - or without: you restart the broker that is named",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, how long")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--abort", action="store_true", help="let the one that has stopped be")
    parser.add_argument("--state", type=Path, metavar="FILE", help=f"{STATE_FILE} of --state-dir")
    default = RestartBounds()
    pace = parser.add_argument_group("pace and bounds")
    for option, kind, about in (
        ("at_once", int, "bundles on their way at once, 0 = a twentieth of all"),
        (
            "publish_latency_ms",
            float,
            "ms that clients may wait on the mean before moves are held back",
        ),
        ("room", float, "usage of the others while a broker is gone, 1 = 100 %%"),
        ("even", float, "busiest over mean, at which brokers are even"),
    ):
        name = "--max-in-flight" if option == "at_once" else f"--{option.replace('_', '-')}"
        known = getattr(default, option)
        told = f"{about} (default {known:g})"
        pace.add_argument(name, dest=option, type=kind, default=known, metavar="N", help=told)
    for name, (field, about) in _TIMES.items():
        known = getattr(default, field)
        told = f"time {about} (default {duration(known)})"
        pace.add_argument(
            name, dest=field, type=parse_duration_ms, default=known, metavar="TIME", help=told
        )
    add_stack_arguments(parser)
    add_json_option(parser, default=argparse.SUPPRESS)
    parser.epilog = (
        "example: ballast bridge rolling-restart --command 'ssh {host} systemctl restart pulsar'"
    )


def run(args: argparse.Namespace) -> int:
    """Go on, or begin; done when every broker is."""
    where = connection_options(args)
    path = (args.state or where.layout.root / STATE_FILE).absolute()
    with alone_with(path):
        known = read_rollout(path)
        if args.abort and known is None:
            raise CommandError(
                "there is nothing to abort",
                why=f"no rolling restart that is not done is kept in {path}",
                next_step="name its file with --state, or its folder with --state-dir",
            )
        admin, name = _pulsar(args, where, known)
        watch = RolloutProbe(where, where.started(), admin, name)
        with CommandClient(where.address(), where.tables, where.cluster) as client:
            actions = RolloutActions(client, where.cluster, path.with_suffix(".log"))
            restart = _RollingRestart(watch, actions, path, _bounds(args))
            if args.abort and known is not None:
                return restart.abort(known)
            rollout = _begun(args, where, restart, known, name)
            if args.dry_run:
                return Exit.DONE
            return _carry_out(args, restart, rollout)


def _carry_out(args: argparse.Namespace, restart: "_RollingRestart", rollout: Rollout) -> int:
    end = threading.Event()
    forget = on_signals(end.set, (*STOPPING, signal.SIGHUP))
    try:
        done = restart.run(rollout, end)
    finally:
        forget()
    if done is None:
        return Exit.CUT
    took = duration(wall_ms() - done.began_ms)
    value = {"brokers": list(done.order), "took_ms": wall_ms() - done.began_ms}
    answer(args, value, f"done: {len(done.order)} brokers restarted in {took}")
    return Exit.DONE


class _RollingRestart:
    """Looks, lets the state machine decide, keeps what it says, and carries it out."""

    def __init__(
        self, watch: RolloutProbe, actions: RolloutActions, path: Path, bounds: RestartBounds
    ) -> None:
        self.watch, self._actions, self._path = watch, actions, path
        self.bounds = bounds
        self._said_s = 0.0
        self._is_felt_known = True

    def look(self, rollout: Rollout) -> RolloutObservation:
        """Return what can be seen of the restart now."""
        return replace(
            self.watch.look(rollout),
            command=self._actions.command(rollout)
            if rollout.stage is RestartStage.RESTARTING
            else None,
            refused=self._actions.refused(rollout),
        )

    def run(self, rollout: Rollout, end: threading.Event) -> Rollout | None:
        """Until all is done; None when it was cut off. Raises CommandError when it stops."""
        while rollout.stage is not RestartStage.DONE:
            observed = self.look(rollout)
            if end.is_set():
                self._halt(rollout, observed)
                return None
            taken = advance(rollout, observed, self.bounds)
            if taken.rollout.stage is not rollout.stage:
                self._said_s = time.monotonic()
                self._note_latency()
            rollout = self._take(taken)
            self._say(rollout, observed)
            if taken.stop is not None:
                stop = taken.stop
                raise CommandError(stop.what, why=stop.why, next_step=stop.next_step)
            end.wait(0.0 if rollout.stage is RestartStage.DONE else _TICK_S)
        return rollout

    def _note_latency(self) -> None:
        """Once, when it is not known."""
        if self._is_felt_known and not self.watch.reports_latency():
            note("no broker tells what clients feel: moves go at the bridge's pace")
            self._is_felt_known = False

    def abort(self, rollout: Rollout) -> int:
        """Undo what can be, and forget it."""
        self._take(halted(rollout, self.look(rollout), for_good=True))
        self._path.unlink(missing_ok=True)
        note(f"let be: {rollout.at} of {len(rollout.order)} brokers had been restarted")
        return Exit.DONE

    def _halt(self, rollout: Rollout, observed: RolloutObservation) -> None:
        if rollout.stage is RestartStage.RESTARTING and rollout.pid:
            note(f"the command of {rollout.broker} goes on by itself")
        kept = self._take(halted(rollout, observed))
        left = f"{kept.at} of {len(kept.order)} brokers are done"
        note(f"cut off: {left}; the same command goes on, --abort lets it be")

    def _take(self, taken: Advance) -> Rollout:
        """Keep it, then do it: what is done twice after a cut has the same id, or is seen."""
        rollout = taken.rollout
        keep_rollout(self._path, rollout)
        if rollout.stage is not RestartStage.RESTARTING:
            self._actions.forget_command()
        for rollout_action in taken.actions:
            pid = self._actions.do(rollout, rollout_action, note)
            if pid:
                rollout = replace(rollout, pid=pid)
                keep_rollout(self._path, rollout)
        return rollout

    def _say(self, rollout: Rollout, observed: RolloutObservation) -> None:
        """Now and then, what is waited for."""
        if time.monotonic() - self._said_s < _SAY_S or rollout.stage is RestartStage.DONE:
            return
        self._said_s = time.monotonic()
        words = [rollout.progress_message(observed.now_ms)]
        words += [one.why for one in complaints(rollout, observed, self.bounds)]
        note("; ".join(words))


def _pulsar(
    args: argparse.Namespace, where: ConnectionOptions, known: Rollout | None
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
    admin = _answering(args, known)
    name = args.pulsar_cluster or (attached.pulsar_cluster if attached else only_cluster(admin))
    if known is not None and (known.pulsar_cluster, known.cluster) != (name, where.cluster):
        raise CommandError(
            f"the rolling restart that is not done is of {known.pulsar_cluster}, not of {name}",
            why="the cluster was renamed, or another one is asked",
            next_step="ask its own brokers, or let it be with --abort",
        )
    return admin, name


def _answering(args: argparse.Namespace, known: Rollout | None) -> PulsarAdmin:
    """The interface; at another broker that it knows, when the one named is just restarting."""
    admin = admin_at(args.admin_url, args)
    if known is None or not args.admin_url.startswith("http://"):
        return admin
    for one in (admin, *(admin_at(f"http://{broker}", args) for broker in known.brokers)):
        with suppress(PulsarAdminError):
            one.clusters()
            return one
    return admin


def _bounds(args: argparse.Namespace) -> RestartBounds:
    names = (
        "at_once",
        "publish_latency_ms",
        "room",
        "even",
        *(field for field, _ in _TIMES.values()),
    )
    return RestartBounds(**{name: getattr(args, name) for name in names})


def _begun(
    args: argparse.Namespace,
    where: ConnectionOptions,
    restart: _RollingRestart,
    known: Rollout | None,
    name: str,
) -> Rollout:
    """The one that goes on, or a new one; said, and agreed to."""
    command = "" if args.command == _PERSON else args.command
    if known is not None:
        if args.brokers and set(args.brokers) != set(known.order):
            raise MisuseError(
                "another rolling restart is not done yet",
                why=f"it is at {known.broker}, of {', '.join(known.order)}",
                next_step="leave --brokers out to go on with it, or let it be with --abort",
            )
        rollout = resumed(known, restart.look(known), command)
        rollout = replace(rollout, at_once=args.at_once or rollout.at_once)
    else:
        rollout = _new(args, where, restart, name, command or "")
    observed = restart.look(rollout)
    for line in _plan_lines(rollout, observed, restart, is_new=known is None):
        note(line)
    if not (args.yes or args.dry_run):
        agree("--dry-run shows it again")
    return rollout


def _new(
    args: argparse.Namespace,
    where: ConnectionOptions,
    restart: _RollingRestart,
    name: str,
    command: str,
) -> Rollout:
    now_ms = wall_ms()
    draft = Rollout(
        run=uuid4().hex[:8],
        cluster=where.cluster,
        pulsar_cluster=name,
        by=local_principal(),
        command=command,
        began_ms=now_ms,
        since_ms=now_ms,
        order=tuple(args.brokers) or ("",),
        brokers=(),
        at_once=args.at_once,
    )
    observed = restart.watch.look(draft)
    status = restart.watch.status
    unknown = sorted(set(args.brokers) - observed.listed)
    if unknown or not observed.listed or status is None or status.mirror is None:
        raise _not_begun(observed, unknown, status)
    asked = args.admin_url.rpartition("//")[2].rstrip("/")
    chosen = args.brokers or observed.listed
    return replace(
        draft,
        order=in_order(chosen, rates_of(status), asked),
        brokers=tuple(sorted(observed.listed)),
        settings=observed.settings,
        at_once=args.at_once or pace_of(len(observed.owners)),
    )


def _not_begun(
    observed: RolloutObservation, unknown: list[str], status: ClusterStatus | None
) -> CommandError:
    what = "the rolling restart has not begun"
    if unknown:
        why = f"Pulsar lists no broker {unknown[0]}; there are {', '.join(sorted(observed.listed))}"
        return MisuseError(what, why=why, next_step="name brokers as Pulsar does, host:port")
    if observed.complaints and status is None:
        one = observed.complaints[0]
        return CommandError(what, why=one.why, next_step=one.next_step)
    if not observed.listed:
        return CommandError(what, why="Pulsar lists no broker", next_step="check --pulsar-cluster")
    return CommandError(
        what,
        why="the job is not set up for a Pulsar cluster behind a bridge",
        next_step="start job and bridge as docs/pulsar.md says, or `ballast attach --act`",
    )


def _plan_lines(
    rollout: Rollout, observed: RolloutObservation, restart: _RollingRestart, *, is_new: bool
) -> list[str]:
    if not is_new:
        return [f"goes on: {rollout.progress_message(observed.now_ms)}"]
    status = restart.watch.status
    rates = rates_of(status) if status else {}
    counts = {one: list(observed.owners.values()).count(one) for one in rollout.order}
    lines = [f"rolling restart of {rollout.pulsar_cluster}, in this order:"]
    lines += [
        f"  {one}: {counts[one]} bundles, {rates.get(one, 0.0):,.0f} msg/s" for one in rollout.order
    ]
    moves = 2 * sum(counts.values())
    rough_ms = moves * _MOVE_MS // max(1, min(2, rollout.at_once)) + _RESTART_MS * len(
        rollout.order
    )
    how = f"then: {rollout.command}" if rollout.command else "then you restart it"
    lines += [
        f"  each: its bundles are moved off, {rollout.at_once} at once at most, {how}",
        "  and it is filled with what it had; balancing goes on meanwhile",
        f"  {moves} moves, roughly {duration(rough_ms)}; Ctrl-C ends it with nothing left by half",
    ]
    wrong = complaints(rollout, observed, restart.bounds)
    lines += [f"  not well now: {one.why}" for one in wrong]
    usage = observed.others_usage
    room = f"{usage:.0%} of usage" if usage is not None else "not known: a broker tells no usage"
    lines.append(f"  the others without the first: {room}")
    return lines
