"""What the simulated fleet truly does: load, open bundles, crashes.

Decides nothing; it asks the fleet's control server once a second and reads its event log. A fleet
that does not answer is left out of that second. Source: ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.adapters.fleet_control import FleetClient, sample_of
from jobs.console import CommandError
from jobs.local.line_tail import LineTail
from lbcore.sim.summary import Crash, LoadSample, Opened

_ANSWER_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBroker:
    """A broker as the fleet has it. load: messages in + out a second."""

    name: str
    life: str
    load: float
    bundles: int


@dataclass(slots=True)
class FleetWatch:
    """Everything that the fleet said since the run began."""

    port_file: Path
    events: LineTail
    samples: list[LoadSample] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    brokers: tuple[FleetBroker, ...] = ()

    def is_ready(self) -> bool:
        """Whether the control server answers."""
        try:
            return bool(self._client().health())
        except CommandError:
            return False

    def look(self) -> LoadSample | None:
        """Take a sample; None when the fleet does not answer."""
        self.opened += [opened_of(line) for line in self.events.read() if is_opened(line)]
        try:
            body = self._client().brokers()
        except CommandError:
            return None
        self.brokers = tuple(broker_of(row) for row in body["brokers"])
        sample = sample_of(body)
        self.samples.append(sample)
        return sample

    def kill(self, broker: str) -> Crash:
        """Crash a broker; raises CommandError when there is no such broker or no fleet."""
        crash = self._client().kill(broker)
        self.crashes.append(crash)
        return crash

    def _client(self) -> FleetClient:
        return fleet_client(self.port_file)


def fleet_client(port_file: Path) -> FleetClient:
    """A client of the fleet that wrote this file; CommandError when none did."""
    try:
        return FleetClient(int(port_file.read_text()), timeout_ms=_ANSWER_TIMEOUT_MS)
    except (OSError, ValueError):
        raise CommandError(
            "no simulated fleet is running",
            why=f"{port_file} is not there",
            next_step="start one with `make run`, or name its folder with --state-dir",
        ) from None


def broker_of(row: Mapping[str, Any]) -> FleetBroker:
    """A row of the control server's answer."""
    return FleetBroker(
        name=row["broker"], life=row["life"], load=row["load"], bundles=row["bundle_count"]
    )


def is_opened(line: Mapping[str, Any]) -> bool:
    """Whether a line of the fleet's event log says that a bundle was opened."""
    return line.get("event") == "opened"


def opened_of(line: Mapping[str, Any]) -> Opened:
    """The opening that such a line tells of."""
    return Opened(bundle=line["bundle"], broker=line["broker"], at_ms=line["at_ms"])
