"""Balance a real Pulsar cluster: observe it, take it over, give it back.

`bridge pulsar` runs until it is stopped. It observes only, unless --act is given: then decisions
are carried out through Pulsar's admin interface, as long as Pulsar's own shedding is off. `bridge
give-back` switches that on again and makes Ballast observe only; `bridge rolling-restart` restarts
brokers one after the other. `bridge verify` checks Pulsar's own bundle channel, `bridge
specification` prints its protocol. docs/pulsar.md and docs/bundle-channel.md have the steps.
"""

import argparse
import json
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

from jobs.adapters.kafka.clients import Sender
from jobs.adapters.kafka.command_client import CommandClient, local_principal, new_command
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.json_log import log_json_lines
from jobs.adapters.processes.paths import locked
from jobs.adapters.processes.signals import STOPPING, on_signals
from jobs.bridge import rolling_restart
from jobs.bridge.actuator import RequestLimits
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.attachment import (
    add_access_options,
    add_network_option,
    admin_at,
    known_attachment,
)
from jobs.bridge.bridge import (
    OBSERVE_ONLY,
    Bridge,
    BridgeOptions,
    active_brokers,
    brokers_settings,
    only_cluster,
    require_brokers_apart,
    switch_shedding,
)
from jobs.bridge.collector import PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.restarted_cluster import PulsarCluster, complaints
from jobs.bridge.rolling_progress import STATE_FILE, Progress, read_progress
from jobs.console import CommandError, Exit, MisuseError, answer, note, require_consent
from jobs.operating.connection_options import STACK_OPTIONS, ConnectionOptions, connection_options
from jobs.parser import (
    action,
    actions,
    argument,
    arguments,
    carry_out,
    either,
    group,
    option_with_default,
    whole_number,
)
from jobs.telemetry import exposition
from lbcore.bridge.acting import SHEDDING, reason_not_to_act
from lbcore.bridge.bundle_channel import (
    TOPIC,
    ChannelChecker,
    ChannelViolation,
    UnreadableEntryError,
    parse_entry,
)
from lbcore.config.cluster import EXTERNAL
from lbcore.model.times import duration
from lbcore.ownership.specification import mermaid_text, tla_text
from lbcore.ownership.states import BALLAST, RULES
from lbcore.wire.format import format_message
from lbcore.wire.kinds.balancing_commands import SetConfig

_BUNDLES_PER_MOVE, _IN_FLIGHT_MAX = 20, 16
"""With one bundle in twenty in transit, 99 of 100 messages wait less than half a second."""
_FLUSH_MS = 15_000
_CHANNEL_POLL_S = 1.0
_PROGRESS_S = 30.0
_VERIFY = """\
Follow Pulsar's bundle channel and name the first record against its protocol.

Reads each entry of the topic loadbalancer-service-unit-state through the admin interface, from the
oldest kept. Needs Pulsar 4.0 or newer with the extensible load manager, and a super user's
rights. Reads only. Ends with 1 at a violation, else at Ctrl-C, or at the topic's end with --once.
"""
_FORMATS = {"tla": tla_text, "mermaid": lambda _: mermaid_text()}


def _run(args: argparse.Namespace) -> int:
    log_json_lines()
    where = connection_options(args)
    config = where.config.for_cluster(where.cluster)
    log_json_lines(is_otel=config.telemetry.otel_logs)
    if config.cluster.authority != EXTERNAL:
        raise CommandError(
            f"the settings have Ballast as the authority of the cluster {where.cluster}",
            why="a Pulsar cluster behind a bridge owns its bundles itself",
            next_step="start the bridge and the job with the same overlay: --conf pulsar",
        )
    admin = admin_at(args.admin_url, args)
    cluster = args.pulsar_cluster or only_cluster(admin)
    with suppress(PulsarAdminError):  # a cluster that is away may come back
        require_brokers_apart(admin, cluster, admin.brokers(cluster))
    if args.switch_shedding_off:
        switch_shedding(admin, is_on=False)
    elif args.act:
        settings, _ = brokers_settings(admin, cluster, active_brokers(admin, cluster))
        if reason := reason_not_to_act(settings):
            raise CommandError(
                "the bridge does not act",
                why=f"{reason}; two balancers would move bundles back and forth",
                next_step="add --switch-shedding-off, or start with --observe-only",
            )
    options = BridgeOptions(
        cluster=where.cluster,
        pulsar_cluster=cluster,
        acts=args.act,
        polling=PollOptions(
            look_ms=args.look_ms,
            load_ms=args.load_ms,
            namespaces_ms=args.namespaces_ms,
            network_bytes_per_s=args.network_mbytes * 1e6,
            quiet_ms=args.quiet_ms,
        ),
        limits=RequestLimits(in_flight=args.max_in_flight, per_minute=args.max_per_minute),
    )
    bridge = Bridge(admin, where.address(), config, options)
    on_signals(bridge.stop)
    shown = exposition.MetricsPort(config.telemetry.host, args)
    shown.show(bridge.metrics.registry)
    logging.getLogger(__name__).info("started", extra={"fields": {"acts": args.act}})
    bridge.run()
    shown.stop()
    return Exit.DONE


def _specify(args: argparse.Namespace) -> int:
    text = _FORMATS[args.format](RULES[args.rules])
    answer(args, {"format": args.format, "text": text}, text.splitlines())
    return Exit.DONE


def _give_back(args: argparse.Namespace) -> int:
    where = connection_options(args)
    switch_shedding(admin_at(args.admin_url, args), is_on=True)
    # never expires
    command = new_command(where.cluster, SetConfig(values={OBSERVE_ONLY: True}), timeout_ms=0)
    topic, key, value = format_message(command)
    sender = Sender(where.address(), "bridge-give-back")
    sender.send(topic, key.decode(), value)
    is_sent = sender.flush(_FLUSH_MS) and sender.not_delivered == 0
    sender.close()
    if not is_sent:
        raise CommandError(
            "Pulsar balances itself again, but Ballast was not told",
            why="Kafka did not take the command",
            next_step="a bridge that runs sees it by itself within 15 s and moves nothing more",
        )
    text = f"{SHEDDING}=true: Pulsar balances itself again; Ballast is told to observe only"
    answer(args, {"shedding": True, "observe_only": True}, text)
    return Exit.DONE


def _restart_brokers(args: argparse.Namespace) -> int:
    """Resume a rolling restart, or begin one; one process at a time."""
    where = connection_options(args)
    path = (args.state or where.layout.root / STATE_FILE).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal = CommandError(
        "a rolling restart is under way already",
        why=f"another process works on {path}",
        next_step="wait for it, or end it with Ctrl-C; `ballast status` says how far it is",
    )
    with locked(path.with_suffix(".lock"), refusal):
        known = read_progress(path)
        if args.abort and known is None:
            raise CommandError(
                "there is nothing to abort",
                why=f"no rolling restart that is not done is kept in {path}",
                next_step="name its file with --state, or its folder with --state-dir",
            )
        admin, name = _restarted_pulsar(args, where, known)
        with CommandClient(where.address(), where.tables, where.cluster) as client:
            cluster = PulsarCluster(where, admin, name, client, path.with_suffix(".log"))
            p = known or _new_restart(args, where.cluster, cluster, name)
            restart = rolling_restart.RollingRestart(cluster, path, args, p, threading.Event())
            if args.abort:
                restart.halt(for_good=True)
                path.unlink(missing_ok=True)
                note(f"ended: {p.at} of {len(p.order)} brokers had been restarted")
                return Exit.DONE
            if known is not None:
                _resume(args, p)
            if args.dry_run:
                return Exit.DONE
            if not args.yes:
                require_consent("--dry-run shows it again")
            stop_listening = on_signals(restart.end.set, (*STOPPING, signal.SIGHUP))
            try:
                restart.run()
            except rolling_restart.CutOffError:
                return Exit.CUT
            finally:
                stop_listening()
    took_ms = wall_ms() - p.began_ms
    text = f"done: {len(p.order)} brokers restarted in {duration(took_ms)}"
    answer(args, {"brokers": p.order, "took_ms": took_ms}, text)
    return Exit.DONE


def _restarted_pulsar(
    args: argparse.Namespace, where: ConnectionOptions, known: Progress | None
) -> tuple[PulsarAdmin, str]:
    """Return Pulsar's interface, and the cluster's name there."""
    attached = known_attachment(where.layout) if not args.admin_url else None
    args.admin_url = args.admin_url or (attached.url if attached else "")
    if not args.admin_url:
        raise MisuseError(
            "it is not known where Pulsar is",
            why=f"{where.layout.root} is attached to no cluster, and no --admin-url is given",
            next_step="give --admin-url with the web service of any broker",
        )
    admin = admin_at(args.admin_url, args)
    if known is not None and args.admin_url.startswith("http://"):  # it may be restarting
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


def _resume(args: argparse.Namespace, p: Progress) -> None:
    """Take over the options that may differ from those of the start."""
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


def _new_restart(
    args: argparse.Namespace, ours: str, cluster: PulsarCluster, name: str
) -> Progress:
    """Return the progress of a new restart, after printing its plan."""
    p = Progress(
        run=uuid4().hex[:8],
        cluster=ours,
        pulsar_cluster=name,
        by=local_principal(),
        command=args.command or "",
        began_ms=wall_ms(),
        order=list(args.brokers) or [""],
    )
    seen, what = cluster.observe(p), "the rolling restart has not begun"
    if unknown := sorted(set(args.brokers) - seen.listed):
        why = f"Pulsar lists no broker {unknown[0]}; there are {', '.join(sorted(seen.listed))}"
        raise MisuseError(what, why=why, next_step="name brokers as Pulsar does, host:port")
    if seen.status is None:
        first = seen.complaints[0]
        raise CommandError(what, why=first.why, next_step=first.next_step)
    if not seen.listed:
        raise CommandError(what, why="Pulsar lists no broker", next_step="check --pulsar-cluster")
    if seen.status.mirror is None:
        raise CommandError(
            what,
            why="the job is not set up for a Pulsar cluster behind a bridge",
            next_step="start job and bridge as docs/pulsar.md says, or `ballast attach --act`",
        )
    asked = args.admin_url.rpartition("//")[2].rstrip("/")
    rates = {row.broker: row.msg_rate or 0.0 for row in seen.status.broker_rows}
    p.order = sorted(  # a bad command hurts least at the least loaded
        set(args.brokers) or seen.listed, key=lambda one: (one == asked, rates.get(one, 0.0), one)
    )
    p.brokers = sorted(seen.listed)
    share = min(max(1, len(seen.owners) // _BUNDLES_PER_MOVE), _IN_FLIGHT_MAX)
    p.at_once = args.max_in_flight or share
    seen = cluster.observe(p)  # now of the first broker, which was not known before
    counts = Counter(seen.owners.values())
    usage = "not known: a broker tells no usage"
    if seen.others_usage is not None:
        usage = f"{seen.others_usage:.0%}"
    note(
        f"rolling restart of {name}, in this order, {p.at_once} bundles at once at most:",
        *(f"  {one}: {counts[one]} bundles, {rates.get(one, 0.0):,.0f} msg/s" for one in p.order),
        f"  once a broker is empty: {p.command or 'you restart it'}; then it gets its bundles back",
        f"  usage of the others while the first is away: {usage}",
        "  Ctrl-C stops it, the same command goes on",
        *(f"  not well now: {one.why}" for one in complaints(p, seen, args)),
    )
    return p


_ADMIN = group(
    "Pulsar",
    argument("--admin-url", required=True, metavar="URL", help="web service of any broker"),
    add_access_options,
)


def verify_channel(args: argparse.Namespace) -> int:
    """Follow the topic until a violation, its end, or a signal."""
    admin = admin_at(args.admin_url, args)
    checker, end = ChannelChecker(), threading.Event()
    stop_listening = on_signals(end.set)
    try:
        violation = _follow_channel(admin, checker, end, is_once=args.once)
    except PulsarAdminError as error:
        raise CommandError(
            "the bundle channel can't be read",
            why=str(error),
            next_step="the extensible load manager of Pulsar 4.0 and newer writes it; give a super"
            " user's token with --auth-token-file",
        ) from None
    except UnreadableEntryError as error:
        raise CommandError(
            "the bundle channel has an entry that is no record",
            why=str(error),
            next_step="look at it with `pulsar-admin topics get-message-by-id`",
        ) from None
    finally:
        stop_listening()
    counts = (
        f"{checker.records} records, {checker.bundles} bundles, {checker.outdated} with an old"
        " version, which brokers skip"
    )
    found = violation.text() if violation else ""
    value = {
        "records": checker.records,
        "bundles": checker.bundles,
        "outdated": checker.outdated,
        "violation": found,
    }
    answer(args, value, [counts, f"not allowed: {found}" if found else "all are allowed"])
    return Exit.FAILED if violation else Exit.DONE


def _follow_channel(
    admin: PulsarAdmin, checker: ChannelChecker, end: threading.Event, *, is_once: bool
) -> ChannelViolation | None:
    last, noted_s = (-1, -1), time.monotonic()
    while not end.is_set():
        for position in _channel_entries(admin.topic_internals(TOPIC), last):
            answered = admin.topic_entry(TOPIC, *position)
            last = position
            name = f"{position[0]}:{position[1]}"
            for record in parse_entry(name, *answered) if answered else ():
                violation = checker.take(record)
                if violation is not None:
                    return violation
            if time.monotonic() - noted_s >= _PROGRESS_S:
                noted_s = time.monotonic()
                note(f"{checker.records} records, at {name}; Ctrl-C ends it")
            if end.is_set():
                return None
        if is_once:
            return None
        end.wait(_CHANNEL_POLL_S)
    return None


def _channel_entries(raw: bytes, after: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the positions (ledger, entry) of entries after one, in order."""
    try:
        internals = json.loads(raw)
        newest, count = (int(part) for part in internals["lastConfirmedEntry"].split(":"))
        ledgers = [(int(one["ledgerId"]), int(one["entries"])) for one in internals["ledgers"]]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PulsarAdminError(f"the topic's internal statistics can't be read: {error}") from None
    for ledger, entries in sorted(ledgers):
        last = count + 1 if ledger == newest else entries
        for entry in range(after[1] + 1 if ledger == after[0] else 0, last):
            if (ledger, entry) > after:
                yield ledger, entry


_RESTART_OPTIONS = arguments(
    group(
        "Pulsar",
        argument(
            "--admin-url", metavar="URL", help="web service of any broker (default: as attached)"
        ),
        add_access_options,
    ),
    argument("--brokers", nargs="+", default=[], metavar="BROKER", help="host:port (default: all)"),
    argument(
        "--command",
        type=lambda word: "" if word == "-" else word,
        metavar="COMMAND",
        help="for the shell, run once for each broker: {broker} and {host} are replaced, quoted,"
        " and BALLAST_BROKER is set; - or without: you restart the broker that is named",
    ),
    either(
        argument("--dry-run", action="store_true", help="say what would be done"),
        argument("--abort", action="store_true", help="end the one that has stopped, for good"),
    ),
    argument("--yes", action="store_true", help="do not ask"),
    argument("--state", type=Path, metavar="FILE", help=f"{STATE_FILE} of --state-dir"),
    rolling_restart.BOUNDS,
    STACK_OPTIONS,
    example="ballast bridge rolling-restart --command 'ssh {host} systemctl restart pulsar'",
)
add_arguments = actions(
    action(
        "pulsar",
        "observe a Pulsar cluster, or act on it with --act",
        _run,
        _ADMIN,
        either(
            argument(
                "--observe-only",
                action="store_true",
                help="decide and explain, move nothing (default)",
            ),
            argument("--act", action="store_true", help="carry decisions out"),
        ),
        argument("--switch-shedding-off", action="store_true", help=f"set {SHEDDING}=false first"),
        option_with_default("look-ms", "5000", "time between two looks at who owns what"),
        option_with_default(
            "quiet-ms",
            "10000",
            "time without a look after a broker came or went, modular manager",
            partial(whole_number, least=0),
        ),
        option_with_default("load-ms", "10000", "time between two looks at a broker's load"),
        option_with_default(
            "namespaces-ms", "30000", "time between two looks at all namespaces and policies"
        ),
        add_network_option,
        option_with_default("max-in-flight", "4", "unloads and splits at once"),
        option_with_default("max-per-minute", "60", "unloads and splits in a minute"),
        exposition.add_arguments,
        STACK_OPTIONS,
    ),
    action("give-back", "let Pulsar balance itself again", _give_back, _ADMIN, STACK_OPTIONS),
    action(
        "rolling-restart",
        (rolling_restart.__doc__ or "").partition("\n")[0],
        _restart_brokers,
        _RESTART_OPTIONS,
        about=rolling_restart.__doc__ or "",
    ),
    action(
        "verify",
        _VERIFY.partition("\n")[0],
        verify_channel,
        argument("--admin-url", required=True, metavar="URL", help="of any broker"),
        argument("--once", action="store_true", help="end at the end of the topic"),
        group("Pulsar", add_access_options),
        about=_VERIFY,
    ),
    action(
        "specification",
        "the bundle channel as TLA+ or Mermaid",
        _specify,
        argument("--format", choices=sorted(_FORMATS), default="tla"),
        argument(
            "--rules", choices=sorted(RULES), default=BALLAST.name, help="of the resolver, in TLA+"
        ),
    ),
    metavar="WHAT",
)
run = carry_out
