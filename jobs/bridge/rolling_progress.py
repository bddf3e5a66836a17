"""Progress of a rolling restart in its file.

The file is on disk before each step begins: an interruption at any moment loses nothing.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from jobs.atomic_file import atomic_write
from jobs.console import CommandError
from lbcore.model.times import duration

STATE_FILE = "rolling-restart.json"


class RestartStage(str, Enum):
    """Stage of the current broker: its name is in the file, its text in a status."""

    WAITING = "waiting until all is well"
    DRAINING = "being drained"
    RESTARTING = "being restarted"
    RETURNING = "expected back"
    FILLING = "being filled again"
    DONE = "done"


@dataclass(kw_only=True)
class Progress:
    """Progress of a rolling restart, as its file has it. Times in ms since 1970.

    run: part of the ids of its commands. command: "" = a person restarts. order: the brokers to
    restart; at: the current one; brokers: all that there were. turn: number of the drain or plan,
    so that each has its own ids. incarnation: of the process to be restarted. former_bundles:
    bundles of the broker before its drain. is_running: the command was started, its end is unknown.
    """

    run: str
    cluster: str
    pulsar_cluster: str
    by: str
    command: str
    began_ms: int
    order: list[str]
    brokers: list[str] = field(default_factory=list)
    at_once: int = 0
    at: int = 0
    stage: RestartStage = RestartStage.WAITING
    since_ms: int = 0
    turn: int = 0
    incarnation: str = ""
    former_bundles: list[str] = field(default_factory=list)
    is_running: bool = False
    stopped: str = ""

    @property
    def broker(self) -> str:
        """The current broker; the last when all are done."""
        return self.order[min(self.at, len(self.order) - 1)]

    @property
    def plan(self) -> str:
        """Name of this turn's plan, and prefix of its commands' ids."""
        return f"rolling-{self.run}-{self.at}-{self.turn}"

    def message(self, now_ms: int) -> str:
        """Return the progress in one line, for a status."""
        since, ago = (duration(max(0, now_ms - at)) for at in (self.since_ms, self.began_ms))
        how = f"stopped: {self.stopped}" if self.stopped else f"{self.stage.value} for {since}"
        place = f"broker {self.at + 1} of {len(self.order)}, {self.broker}"
        return f"{place}: {how} (by {self.by}, begun {ago} ago)"


def read_progress(path: Path) -> Progress | None:
    """Return the unfinished restart, None = none; CommandError if unreadable."""
    try:
        found = json.loads(path.read_text())
        return Progress(**{**found, "stage": RestartStage[found["stage"].upper()]})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(
            f"{path} can't be read as the state of a rolling restart",
            why=str(error) or type(error).__name__,
            next_step="move it away; `ballast status` says which broker is still drained",
        ) from None


def save_progress(path: Path, progress: Progress) -> None:
    """Write the progress durably; remove the file when the restart is done."""
    values = {**asdict(progress), "stage": progress.stage.name.lower()}
    if progress.stage is RestartStage.DONE:
        path.unlink(missing_ok=True)
    else:
        atomic_write(path, json.dumps(values) + "\n")


def rollout_message(path: Path, now_ms: int) -> str:
    """Describe the progress for a status; "" if there is none, or no readable file."""
    with suppress(CommandError):
        found = read_progress(path)
        return found.message(now_ms) if found is not None else ""
    return ""
