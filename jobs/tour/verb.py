"""A scripted tour: starts everything, lets things go wrong, and shows what each tool says of it.

A hot spot, a crash, a split, a stuck transition; for each: explain, status, top, SQL, metrics and
alerts. What the tour states (✓) it has looked up; a statement that does not hold ends it with code
1. It takes some minutes, in a folder of its own. Alerts take a Prometheus: one that is named, one
on the PATH, or Debian's package, fetched without root; where there is none, that is said.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.adapters.processes.prometheus import running_prometheus
from jobs.adapters.processes.prometheus_tools import have_tool
from jobs.adapters.processes.settings import load_settings
from jobs.console import CommandError, Exit, MisuseError, say
from jobs.local.commands import namespaces_of
from jobs.local.layout import CLUSTER, Layout, Size
from jobs.local.stack import ROOT
from jobs.operating.stack_words import Whereabouts
from jobs.tour import stops
from jobs.tour.guide import Guide

_DEFAULT_STATE = Path("var") / "tour"
_PATIENCE_S = 600.0
_SIZE = Size(brokers=6, namespaces=2, bundles=60)
_OVERLAY = "demo"
_MARK = "tour.log"
_END_S = 60
_RULES = ROOT / "dashboards" / "alerts.yml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where, and how patiently."""
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=_DEFAULT_STATE,
        metavar="DIR",
        help=f"folder of the tour's run, emptied first (default {_DEFAULT_STATE})",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=_PATIENCE_S,
        metavar="S",
        help=f"seconds that it waits for anything to happen (default {_PATIENCE_S:.0f})",
    )
    parser.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="the program that evaluates alert rules"
    )


def run(args: argparse.Namespace) -> int:
    """All stops; done when every statement was true."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    layout = Layout(root=args.state_dir.absolute())
    _make_room(layout)
    where = Whereabouts(
        layout=layout,
        tables=layout.tables,
        cluster=CLUSTER,
        config=load_settings((_OVERLAY,)),
        bootstrap="",
    )
    program = _program(args.prometheus)
    began_s = time.monotonic()
    with _running(layout) as process:
        guide = Guide(layout, lambda: process.poll() is None, args.patience)
        stops.start(guide, _SIZE)
        with _watched(guide, program):
            stops.hot_spot(guide, namespaces_of(_SIZE)[0].name)
            stops.crash(guide)
            stops.split(guide)
            stops.stuck(guide, where)
            stops.end(guide)
    say(f"The tour is over after {time.monotonic() - began_s:.0f} s: every statement was true.")
    return Exit.DONE


def _program(named: Path | None) -> Path | None:
    """Prometheus; None, and a word, where it can't be had. Raises MisuseError for a wrong name."""
    if named is not None and not os.access(named, os.X_OK):
        raise MisuseError(
            f"{named} is no program",
            why="there is no such file, or it can't be executed",
            next_step="name the file `prometheus` itself, or leave --prometheus out",
        )
    try:
        return named.absolute() if named else have_tool("prometheus")
    except CommandError as error:
        say(f"What alerts say is left out: {error.what}: {error.why}", f"  next: {error.next_step}")
        return None


@contextmanager
def _watched(guide: Guide, program: Path | None) -> Iterator[None]:
    """Have Prometheus watch the run, with the rules as they are."""
    if program is None:
        yield
        return
    layout = guide.layout
    ports = {"job": int(layout.metrics_port.read_text()), "lookup": layout.lookup_port_now()}
    with running_prometheus(
        program, layout.root / "prometheus", _RULES.read_text(), ports
    ) as prometheus:
        guide.prometheus = prometheus
        guide.hold_alert("Prometheus sees the job: nothing is down", "BallastJobDown", "")
        yield


def _end(number: int, _: object) -> None:
    """End as Ctrl-C does: what the tour has started is ended first."""
    raise SystemExit(128 + number)


def _make_room(layout: Layout) -> None:
    """An empty folder; raises MisuseError for one that is not of a tour."""
    if layout.root.exists():
        if any(layout.root.iterdir()) and not (layout.root / _MARK).exists():
            raise MisuseError(
                f"{layout.root} is not the folder of a tour",
                why=f"it has files, and no {_MARK}; the tour would delete them",
                next_step="name another folder with --state-dir",
            )
        with layout.alone():  # raises when another tour runs there
            pass
        shutil.rmtree(layout.root)
    layout.root.mkdir(parents=True)
    (layout.root / _MARK).touch()


@contextmanager
def _running(layout: Layout) -> Iterator["subprocess.Popen[bytes]"]:
    """A local run beside the tour, ended in order."""
    words = ["run-local", "--headless", "--state-dir", str(layout.root), "--load", "even"]
    words += [
        "--conf",
        _OVERLAY,
        "--brokers",
        str(_SIZE.brokers),
        "--namespaces",
        str(_SIZE.namespaces),
    ]
    words += ["--bundles", str(_SIZE.bundles), "--lookups-per-s", "5"]
    with (layout.root / "run.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 (our own verb)
            [sys.executable, "-m", "jobs.cli", *words], cwd=ROOT, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.returncode not in (0, 1):
        raise CommandError(
            f"the run ended with {process.returncode}",
            why=f"its output is in {layout.root / 'run.log'}",
            next_step="read it, then start the tour again",
        )
