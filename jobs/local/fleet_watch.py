"""True state of the simulated fleet: load, open bundles, crashes.

Asks the fleet's control server once a second and reads its event log. A second without an answer
has no sample.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from jobs.console import CommandError
from jobs.fleet.control import FleetClient, crash_of, sample_of
from jobs.local.job_log import LineTail
from jobs.local.layout import Layout
from lbcore.model.times import instant
from lbcore.sim.summary import BundleOpened, Crash, LoadSample

_ANSWER_TIMEOUT_MS = 2_000
_KILLED = "killed"
_NAMED = 10


class FleetWatch:
    """Samples and events of the fleet since the run began.

    samples: one a second; opened, crashes: in order of time; brokers: rows of the control server at
    the last sample.
    """

    def __init__(self, layout: Layout) -> None:
        """Begin now: events of earlier runs in the folder are skipped."""
        self.layout = layout
        self.samples: list[LoadSample] = []
        self.opened: list[BundleOpened] = []
        self.crashes: list[Crash] = []
        self.brokers: Sequence[Mapping[str, Any]] = ()
        self._events = LineTail(layout.fleet_events, from_end=True)
        self._crashes = LineTail(layout.crashes, from_end=True)

    def is_ready(self) -> bool:
        """Return True if the control server answers."""
        try:
            return bool(fleet_client(self.layout).health())
        except CommandError:
            return False

    def sample(self) -> LoadSample | None:
        """Take a sample; None when the fleet does not answer.

        The log is read after it, so it contains the opening of all that the sample counts as open.
        """
        try:
            body = fleet_client(self.layout).brokers()
        except CommandError:
            return None
        finally:
            self.opened += [
                BundleOpened(bundle=line["bundle"], broker=line["broker"], at_ms=line["at_ms"])
                for line in self._events.read()
                if line.get("event") == "opened"
            ]
            self.crashes += [crash_of(line) for line in self._crashes.read()]
        self.brokers = body["brokers"]
        self.samples.append(sample_of(body))
        return self.samples[-1]


def crash_broker(layout: Layout, broker: str) -> Crash:
    """Crash a broker and note it in the run's folder for the summary.

    Raises CommandError if there is no such broker, if it does not run, or without a fleet.
    """
    client = fleet_client(layout)
    lives = {row["broker"]: str(row["life"]) for row in client.brokers()["brokers"]}
    if broker not in lives:
        names = sorted(lives, key=lambda name: (len(name), name))
        near = difflib.get_close_matches(broker, names, n=1)
        raise CommandError(
            f"there is no broker {broker}",
            why=f"the fleet has {', '.join(names[:_NAMED])}"
            + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""),
            next_step=f"did you mean {near[0]}?" if near else "name one of these",
        )
    if lives[broker] == _KILLED:
        noted = LineTail(layout.crashes).read()
        crashes = [crash for crash in map(crash_of, noted) if crash.broker == broker]
        since = f" since {instant(crashes[-1].killed_at_ms)}" if crashes else ""
        raise CommandError(
            f"{broker} was not killed",
            why=f"it has been dead{since}",
            next_step=f"`ballast kill-broker {broker} --start` starts it again",
        )
    crash = client.kill(broker)
    with layout.crashes.open("a") as file:
        file.write(json.dumps(asdict(crash)) + "\n")
    return crash


def fleet_client(layout: Layout) -> FleetClient:
    """Return a client of the fleet in this folder; raises CommandError without one."""
    try:
        return FleetClient(int(layout.fleet_port.read_text()), timeout_ms=_ANSWER_TIMEOUT_MS)
    except (OSError, ValueError):
        raise CommandError(
            "no simulated fleet is running",
            why=f"{layout.fleet_port} is not there",
            next_step="start one with `ballast run-local`, or name its folder with --state-dir",
        ) from None
