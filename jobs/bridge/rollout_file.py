"""The file in which a rolling restart remembers how far it is, and that one works on it at a time.

It is written, down to the disk, before anything is done.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.atomic_file import atomic_write
from jobs.console import CommandError
from lbcore.bridge.rollout import RestartStage, Rollout

STATE_FILE = "rolling-restart.json"


def read_rollout(path: Path) -> Rollout | None:
    """The one that is not done yet; None without. Raises CommandError for what can't be read."""
    try:
        found = Rollout.from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{path} can't be read as the state of a rolling restart",
            why=str(error) or type(error).__name__,
            next_step="move it away; `ballast status` says which broker is still drained",
        ) from None
    return None if found.stage is RestartStage.DONE else found


def keep_rollout(path: Path, rollout: Rollout) -> None:
    """Write it whole; when it is done nothing is left of it."""
    if rollout.stage is RestartStage.DONE:
        path.unlink(missing_ok=True)
        return
    atomic_write(path, json.dumps(rollout.to_json()) + "\n")


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


def rollout_message(path: Path, now_ms: int) -> str:
    """Describe the progress for a status; "" if there is none, or no readable file."""
    try:
        found = read_rollout(path)
    except CommandError:
        return ""
    return found.progress_message(now_ms) if found is not None else ""
