"""Run Kafka, the job, the bridge and the service here for a real Pulsar cluster.

Observes only: it says what it would do and where to look. --act takes the balancing over, after
asking; `ballast detach` gives it back. A second start with the same folder goes on where the first
was. With kafka.bootstrap_servers set, that Kafka is used: docs/deploy.md.
"""

import argparse
import signal
import threading
import time

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.signals import STOPPING, on_signals
from jobs.bridge.attachment import (
    FirstLook,
    add_access_options,
    add_network_option,
    admin_at,
    give_back,
    known_attachment,
    look_at,
    settle,
    take_over,
)
from jobs.bridge.bridge import only_cluster
from jobs.console import CommandError, Exit, answer, note, require_consent, say
from jobs.extras import require
from jobs.local.layout import CLUSTER, Layout
from jobs.local.stack import RunProcesses, run_attached
from jobs.operating.connection_options import STATE_DIR_OPTION
from jobs.operating.plans import look_ahead
from jobs.operating.status import read_status_rows, status_lines
from jobs.parser import (
    argument,
    arguments,
    by_verb,
    carry_out,
    group,
    parse_duration_ms,
    port_number,
)
from lbcore.bridge.acting import SHEDDING
from lbcore.explain.status import make_status
from lbcore.foresight.forecast import WhatIf
from lbcore.model.times import duration

OVERLAY = "pulsar"
_SHOW_S = 30.0
_POLL_S = 2.0


def _attach(args: argparse.Namespace) -> int:
    require("attach", "pyspark", "uvicorn")
    admin = admin_at(args.url, args)
    seen = look_at(admin, only_cluster(admin, args.pulsar_cluster))
    layout = Layout(root=args.state_dir.absolute())
    with layout.exclusive():
        attachment = settle(layout, args.url, seen)
        for oddity in seen.oddities():
            note(oddity)
        processes = RunProcesses(layout, (OVERLAY, *args.conf), args.set, args.port)
        if args.act:
            _ask(args, seen)
        elif attachment.acts:
            note(*_nobody_balances(args, seen.name))
        stop = threading.Event()
        on_signals(stop.set, (*STOPPING, signal.SIGHUP))
        if args.for_ms is not None:
            timer = threading.Timer(args.for_ms / 1_000, stop.set)
            timer.daemon = True
            timer.start()

        def bridge() -> list[str]:
            if args.act:
                take_over(admin, layout, attachment, seen)
            return _bridge_arguments(args, seen)

        def show() -> None:
            if args.act and not _acts(layout):
                note(f"{seen.name} was given back: this ends; attach again to observe it")
                stop.set()
            else:
                view.show()

        view = _View(args, processes, seen)
        try:
            run_attached(processes, bridge, stop, show)
        finally:
            if args.act and _acts(layout):
                note(*_nobody_balances(args, seen.name))
    return Exit.DONE


def _detach(args: argparse.Namespace) -> int:
    """Give it back, and say what was changed."""
    layout = Layout(root=args.state_dir.absolute())
    known = known_attachment(layout)
    if known is None:
        raise CommandError(
            f"{layout.root} is attached to no cluster",
            why="nothing was ever attached with this folder",
            next_step="give the folder of the attached run with --state-dir",
        )
    if not known.acts:
        text = f"Ballast does not act on {known.pulsar_cluster}: nothing was changed"
        answer(args, {"cluster": known.pulsar_cluster, "changed": False}, text)
        return Exit.DONE
    give_back(admin_at(args.url or known.url, args), layout, known)
    shed = str(known.shed_before).lower()
    text = f"{SHEDDING}={shed} in {known.pulsar_cluster} again, as it was; Ballast acts no more"
    answer(args, {"cluster": known.pulsar_cluster, "changed": True, "shedding": shed}, text)
    return Exit.DONE


def _acts(layout: Layout) -> bool:
    known = known_attachment(layout)
    return known is not None and known.acts


def _nobody_balances(args: argparse.Namespace, name: str) -> tuple[str, ...]:
    return (
        f"nobody balances {name} now: its {SHEDDING} stays as Ballast set it",
        f"  go on: ballast attach {args.url} --act",
        f"  give it back: ballast detach --state-dir {args.state_dir}",
    )


def _ask(args: argparse.Namespace, seen: FirstLook) -> None:
    """Say what changes in the cluster, and go on only if that is wanted."""
    note(
        f"Ballast takes over the balancing of {seen.name} ({len(seen.brokers)} brokers):",
        f"  Pulsar's dynamic setting {SHEDDING} becomes false (it is {str(seen.sheds).lower()}),",
        "  bundles are unloaded through its admin interface, 4 at once and 60 a minute at most;",
        f"  `ballast detach --state-dir {args.state_dir}` gives it back as it was",
    )
    if not args.yes:
        require_consent("leave --act out to observe only")


def _bridge_arguments(args: argparse.Namespace, seen: FirstLook) -> list[str]:
    words = [
        *("--admin-url", args.url, "--pulsar-cluster", seen.name),
        *("--timeout-s", str(args.timeout_s), "--network-mbytes", str(args.network_mbytes)),
    ]
    for option in ("auth_token_file", "tls_ca", "tls_cert", "tls_key"):
        file = getattr(args, option)
        words += [f"--{option.replace('_', '-')}", str(file.absolute())] if file else []
    for broker, url in args.broker_url:
        words += ["--broker-url", f"{broker}={url}"]
    return [*words, "--act"] if args.act else words


class _View:
    """Says how the cluster is: as soon as it is known, and every half minute."""

    def __init__(self, args: argparse.Namespace, processes: RunProcesses, seen: FirstLook) -> None:
        self._args, self._processes, self._seen = args, processes, seen
        self._config = processes.config.for_cluster(CLUSTER)
        self._began_s = time.monotonic()
        self._due_s = 0.0
        self._is_known = False

    def show(self) -> None:
        """Look, and say what there is to say."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + (_SHOW_S if self._is_known else _POLL_S)
        now_ms = wall_ms()
        try:
            reader = TableReader(self._processes.layout.tables, CLUSTER)
            rows = read_status_rows(reader, now_ms)
        except CommandError:
            return  # the job has not made its tables yet
        status = make_status(CLUSTER, rows, self._config, now_ms)
        if not (status.broker_rows and status.bundles.get("Owned")):
            return
        try:
            outlook = list(look_ahead(reader, self._config, "", WhatIf()).lines())
        except CommandError as error:
            outlook = [f"what it would do is not known yet: {error.why}"]
        state = f"--state-dir {self._args.state_dir}"
        doing = "acts" if self._args.act else "observes only"
        say(
            *(*status_lines(status), "", *outlook, ""),
            f"  Ballast {doing}. What it would do next:  ballast plan --dry-run {state}",
            f"  why:  ballast explain cluster {state}    live:  ballast status --watch {state}",
            f"  page: {self._processes.lookup_url}/    end it: Ctrl-C"
            + (f", then ballast detach {state}" if self._args.act else ""),
        )
        if not self._is_known:
            self._is_known = True
            self._due_s = time.monotonic() + _SHOW_S
            took = duration(round((time.monotonic() - self._began_s) * 1_000))
            note(f"first picture of {self._seen.name} after {took}")


add_arguments = by_verb(
    attach=arguments(
        argument("url", metavar="URL", help="web service of any broker"),
        argument("--act", action="store_true", help="carry decisions out, after asking"),
        argument("--yes", action="store_true", help="with --act: do not ask"),
        add_network_option,
        group("Pulsar", add_access_options),
        group(
            "the run",
            STATE_DIR_OPTION,
            argument(
                "--port",
                type=port_number,
                help="port of the page and of lookups (the last run's, or 8080; another if taken)",
            ),
            argument("--conf", action="append", default=[], help="overlay or file, on top"),
            argument("--set", action="append", default=[], help="section.name=value (repeat)"),
            argument(
                "--for",
                type=parse_duration_ms,
                dest="for_ms",
                metavar="TIME",
                help="end after so long",
            ),
        ),
        run=_attach,
        example="ballast attach http://broker-1:8080",
    ),
    detach=arguments(
        STATE_DIR_OPTION,
        argument("--url", default="", help="instead of the address it was attached at"),
        group("Pulsar", add_access_options),
        run=_detach,
        about="""Give a Pulsar cluster back that `ballast attach --act` has taken over.

Sets Pulsar's own shedding to what it was before; an attached run that still acts sees it and ends.
Works after a crash, too: the run's folder keeps the former value.
""",
        example="ballast detach",
    ),
)
run = carry_out
