"""Restart a Pulsar cluster's brokers one by one without clients noticing.

Runs beside a job and a bridge that acts (or `ballast attach --act`). Each broker, the least loaded
first: its bundles are moved off at the bridge's pace, Pulsar itself shows it empty, --command
restarts it (without: you do), it is seen to be back as another process, and is filled with what it
had. Stops by itself when something is wrong; the same command goes on where it was, also after a
cut. --abort lets it be.
"""

import argparse
import fcntl
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobs.adapters.kafka.command_client import CommandClient, local_principal
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.signals import STOPPING, on_signals
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.attachment import add_access_options, admin_at, known_attachment
from jobs.bridge.bridge import only_cluster
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.restarted_cluster import PulsarCluster, rates_of
from jobs.bridge.rolling_progress import STATE_FILE, Observation, Progress, read_progress
from jobs.bridge.rolling_steps import CutOffError, RestartBounds, RollingRestart, complaints
from jobs.console import CommandError, Exit, MisuseError, agree, answer, note
from jobs.operating.connection_options import (
    STACK_OPTIONS,
    ConnectionOptions,
    connection_options,
)
from jobs.operating.text_format import parse_duration_ms
from lbcore.model.times import duration

_MOVE_MS, _RESTART_MS = 4_000, 90_000
"""Time of a move, and of a restart with all its waits, in the lab: for an estimate."""
_BUNDLES_FOR_ONE, _AT_ONCE_MOST = 20, 16
"""With one bundle in twenty in transit, 99 of 100 messages don't wait for half a second."""
_PERSON = "-"


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
    pace = parser.add_argument_group("pace and bounds")
    for one in fields(RestartBounds):
        default: Any = one.default
        is_time = one.name.endswith("_ms") and isinstance(default, int)
        option = one.name.replace("_ms", "_within") if is_time else one.name
        shown = duration(default) if is_time else f"{default:g}"
        pace.add_argument(
            f"--{option.replace('_', '-')}",
            dest=one.name,
            type=parse_duration_ms if is_time else type(default),
            default=default,
            metavar="TIME" if is_time else "N",
            help=f"{one.metadata['help']} (default {shown})",
        )
    STACK_OPTIONS(parser)
    parser.epilog = (
        "example: ballast bridge rolling-restart --command 'ssh {host} systemctl restart pulsar'"
    )


def run(args: argparse.Namespace) -> int:
    """Go on, or begin; done when every broker is."""
    where = connection_options(args)
    path = (args.state or where.layout.root / STATE_FILE).absolute()
    with alone_with(path):
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
            bounds = RestartBounds(
                **{one.name: vars(args)[one.name] for one in fields(RestartBounds)}
            )
            progress = known or _new(args, where, cluster, name, bounds)
            end = threading.Event()
            restart = RollingRestart(cluster, path, bounds, progress, end)
            if args.abort:
                restart.halt(for_good=True)
                path.unlink(missing_ok=True)
                note(f"let be: {progress.at} of {len(progress.order)} brokers had been restarted")
                return Exit.DONE
            if known is not None:
                if args.brokers and set(args.brokers) != set(known.order):
                    raise MisuseError(
                        "another rolling restart is not done yet",
                        why=f"it is at {known.broker}, of {', '.join(known.order)}",
                        next_step="leave --brokers out to go on with it, or let it be with --abort",
                    )
                restart.resume("" if args.command == _PERSON else args.command)
                known.at_once = bounds.max_in_flight or known.at_once
                note(f"goes on: {known.message(wall_ms())}")
            if args.dry_run:
                return Exit.DONE
            if not args.yes:
                agree("--dry-run shows it again")
            forget = on_signals(end.set, (*STOPPING, signal.SIGHUP))
            try:
                restart.run()
            except CutOffError:
                return Exit.CUT
            finally:
                forget()
    took_ms = wall_ms() - progress.began_ms
    text = f"done: {len(progress.order)} brokers restarted in {duration(took_ms)}"
    answer(args, {"brokers": progress.order, "took_ms": took_ms}, text)
    return Exit.DONE


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Hold the file; CommandError while another process does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(
                "a rolling restart is under way already",
                why=f"another process works on {path}",
                next_step="wait for it, or end it with Ctrl-C; `ballast status` says how far it is",
            ) from None
        yield


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
    if known is not None and url.startswith("http://"):  # the named broker may be restarting
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
            next_step="ask its own brokers, or let it be with --abort",
        )
    return admin, name


def _new(
    args: argparse.Namespace,
    where: ConnectionOptions,
    cluster: PulsarCluster,
    name: str,
    bounds: RestartBounds,
) -> Progress:
    """A restart that has not begun, with its plan told."""
    progress = Progress(
        run=uuid4().hex[:8],
        cluster=where.cluster,
        pulsar_cluster=name,
        by=local_principal(),
        command="" if args.command == _PERSON else args.command or "",
        began_ms=wall_ms(),
        since_ms=wall_ms(),
        order=list(args.brokers) or [""],
        brokers=[],
        at_once=bounds.max_in_flight,
    )
    seen = cluster.look(progress)
    _check_begin(seen, sorted(set(args.brokers) - seen.listed), cluster)
    asked = args.admin_url.rpartition("//")[2].rstrip("/")
    rates = rates_of(cluster.status)
    progress.order = sorted(  # a bad command hurts least at the least loaded
        set(args.brokers) or seen.listed, key=lambda one: (one == asked, rates.get(one, 0.0), one)
    )
    progress.brokers = sorted(seen.listed)
    share = min(max(1, len(seen.owners) // _BUNDLES_FOR_ONE), _AT_ONCE_MOST)
    progress.at_once = bounds.max_in_flight or share
    seen = cluster.look(progress)  # of the first broker, which is known only now
    note(*_plan_lines(progress, seen, rates))
    for one in complaints(progress, seen, bounds):
        note(f"  not well now: {one.why}")
    return progress


def _check_begin(seen: Observation, unknown: list[str], cluster: PulsarCluster) -> None:
    what, status = "the rolling restart has not begun", cluster.status
    if unknown:
        why = f"Pulsar lists no broker {unknown[0]}; there are {', '.join(sorted(seen.listed))}"
        raise MisuseError(what, why=why, next_step="name brokers as Pulsar does, host:port")
    if seen.complaints and status is None:
        one = seen.complaints[0]
        raise CommandError(what, why=one.why, next_step=one.next_step)
    if not seen.listed:
        raise CommandError(what, why="Pulsar lists no broker", next_step="check --pulsar-cluster")
    if status is None or status.mirror is None:
        raise CommandError(
            what,
            why="the job is not set up for a Pulsar cluster behind a bridge",
            next_step="start job and bridge as docs/pulsar.md says, or `ballast attach --act`",
        )


def _plan_lines(progress: Progress, seen: Observation, rates: Mapping[str, float]) -> Iterator[str]:
    owners = list(seen.owners.values())
    counts = {one: owners.count(one) for one in progress.order}
    yield f"rolling restart of {progress.pulsar_cluster}, in this order:"
    for one, count in counts.items():
        yield f"  {one}: {count} bundles, {rates.get(one, 0.0):,.0f} msg/s"
    moves = 2 * sum(counts.values())
    rough_ms = moves * _MOVE_MS // max(1, min(2, progress.at_once)) + _RESTART_MS * len(counts)
    how = f"then: {progress.command}" if progress.command else "then you restart it"
    yield f"  each: its bundles are moved off, {progress.at_once} at once at most, {how}"
    yield "  and it is filled with what it had; balancing goes on meanwhile"
    yield f"  {moves} moves, roughly {duration(rough_ms)}; Ctrl-C ends it with nothing left by half"
    usage = seen.others_usage
    room = f"{usage:.0%} of usage" if usage is not None else "not known: a broker tells no usage"
    yield f"  the others without the first: {room}"
