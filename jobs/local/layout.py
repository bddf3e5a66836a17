"""State folder of a local run, and the state kept from one run to the next.

Namespaces and bundles stay as the first run with this state made them.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs.adapters.processes.paths import locked
from jobs.adapters.processes.preflight import check_folder, check_port, free_ports
from jobs.console import CommandError, MisuseError, note

LOOKUP_PORT = 8080
CLUSTER = "local"
SIZE_FILE, ATTACHMENT_FILE = "size.json", "attachment.json"
"""A folder has one of them: of simulated brokers, or of an attached cluster."""
_OTHER_PORT = "choose another port: --port N, make run ARGS='--port N'"
_LOOKUP_PORT_FILE, _SETTINGS_FILE = "lookup-port.json", "settings.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of the cluster. bundles: of all namespaces together, at creation."""

    brokers: int = 6
    namespaces: int = 2
    bundles: int = 60


class Layout:
    """The folder of one local run, and its files.

    kafka: the embedded Kafka. tables: the Delta tables. job: the streaming job's checkpoints and
    lock; metrics_port: file with the port of its metrics. logs: one per process; batches: a line
    per batch of the job. fleet: the simulated brokers' files; fleet_events: a line per event of a
    broker; crashes: one per deliberate crash, with what the broker served; fleet_port: port of the
    fleet's control server, while it runs.
    """

    def __init__(self, *, root: Path) -> None:
        """Raise MisuseError for a folder that can't be used."""
        check_folder(root)
        self.root = root
        self.kafka, self.tables, self.job = root / "kafka", root / "tables", root / "job"
        self.logs, self.fleet = root / "logs", root / "fleet"
        self.batches = self.logs / "batches.jsonl"
        self.metrics_port = self.job / "metrics-port"
        self.fleet_events = self.fleet / "fleet-events.jsonl"
        self.crashes = self.fleet / "crashes.jsonl"
        self.fleet_port = self.fleet / "control-port"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the folder's lock; raises CommandError when another run has it."""
        self.root.mkdir(parents=True, exist_ok=True)
        refusal = CommandError(
            f"another run is using {self.root}",
            why="it holds the folder's lock",
            next_step="end that run (Ctrl-C in its terminal), or give --state-dir another",
        )
        with locked(self.root / "run.lock", refusal):
            yield

    def is_held(self) -> bool:
        """True if a run holds the folder now; False also for an unreadable lock."""
        try:
            with (self.root / "run.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def lookup_port(self, wanted: int | None) -> int:
        """Return the lookup service's port: wanted, else the last run's, else a new one.

        Raises CommandError when the wanted one is taken.
        """
        path = self.root / _LOOKUP_PORT_FILE
        port = wanted
        if port is not None:
            check_port(port, "the lookup service", _OTHER_PORT)
        else:
            usual = port = self.lookup_port_now() if path.exists() else LOOKUP_PORT
            try:
                check_port(port, "the lookup service")
            except CommandError:
                (port,) = free_ports(1)
                note(
                    f"port {usual} is taken: the lookup service has port {port}; --port N chooses"
                    " one"
                )
        path.write_text(json.dumps(port))
        return port

    def lookup_port_now(self) -> int:
        """Return the lookup service's port that a run has chosen."""
        return int(json.loads((self.root / _LOOKUP_PORT_FILE).read_text()))

    def save_settings(self, overlays: Sequence[str], assignments: Sequence[str]) -> None:
        """Store the run's configuration for verbs that need it."""
        named = [str(Path(one).absolute()) if one.endswith(".toml") else one for one in overlays]
        (self.root / _SETTINGS_FILE).write_text(json.dumps([named, list(assignments)]))

    def settings(self) -> tuple[list[str], list[str]] | None:
        """Return overlays and assignments of the last run; None without one."""
        path = self.root / _SETTINGS_FILE
        if not path.exists():
            return None
        overlays, assignments = json.loads(path.read_text())
        return overlays, assignments

    def settle_size(self, wanted: Mapping[str, int | None]) -> Size:
        """Return the size: namespaces and bundles as the first run made them.

        wanted: field of Size → number, None = any. Raises MisuseError for a number that the
        folder's state contradicts; brokers may change at each start.
        """
        if (self.root / ATTACHMENT_FILE).exists():
            raise MisuseError(
                f"{self.root} is attached to a real cluster",
                why="a run goes on with the tables of the one before",
                next_step="give --state-dir another folder for simulated brokers",
            )
        path = self.root / SIZE_FILE
        asked = {name: number for name, number in wanted.items() if number is not None}
        known = json.loads(path.read_text()) if path.exists() else {}
        for name in ("namespaces", "bundles"):
            if name in known and asked.get(name, known[name]) != known[name]:
                raise MisuseError(
                    f"{self.root} holds a run with {known[name]} {name}, not {asked[name]}",
                    why="a run goes on with the tables of the one before",
                    next_step="leave the option out, give --state-dir another folder, or start "
                    "afresh with `make clean`",
                )
        size = Size(**{**known, **asked})
        check_size(size)
        self.root.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(size)))
        return size


def check_size(size: Size) -> None:
    """Raise MisuseError for an impossible cluster."""
    rules = (
        (size.brokers >= 1, f"brokers must be at least 1, got {size.brokers}"),
        (size.namespaces >= 2, f"namespaces must be at least 2, got {size.namespaces}"),  # noqa: PLR2004 (one for each hash function)
        (
            size.bundles >= size.namespaces,
            f"bundles must be at least one a namespace, got {size.bundles}",
        ),
    )
    for is_met, wrong in rules:
        if not is_met:
            raise MisuseError(
                "such a cluster can't be made",
                why=wrong,
                next_step="correct the option and try again",
            )
