"""Runs a long command: its output into a log file, its progress as single lines to the user.

Used by set-up, so it needs the standard library only.
"""

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from jobs.console import note

_SILENCE_S = 15.0


def run_with_progress(
    command: Sequence[str],
    *,
    log_path: Path,
    progress_of: Callable[[str], str | None],
    environment: dict[str, str] | None = None,
) -> int:
    """Run `command` to its end and return its exit code.

    progress_of: what to show for a line of output, None for nothing. After 15 s of silence the
    user is told how long it has been going on. The command ends with us, also when we are
    interrupted.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with (
        log_path.open("w", encoding="utf-8") as log,
        subprocess.Popen(  # noqa: S603 (set-up's own commands)
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=environment,
            close_fds=False,  # it inherits set-up's lock, so it can't race with a later set-up
        ) as process,
    ):
        try:
            _follow(process, log, progress_of)
        except BaseException:
            process.kill()
            raise
        return process.wait()


def last_lines(path: Path, count: int = 3) -> str:
    """The last lines of a log that say something, as `last_words`; '' when there is no log."""
    return last_words(path.read_text(errors="replace"), count) if path.exists() else ""


def last_words(text: str, count: int = 3) -> str:
    """The last `count` lines that are not blank and no frame of a Java stack, joined by ' | '."""
    lines = [line.strip() for line in text.splitlines()]
    return " | ".join([line for line in lines if line and not line.startswith("at ")][-count:])


def _follow(
    process: "subprocess.Popen[str]", log: TextIO, progress_of: Callable[[str], str | None]
) -> None:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    started_s = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=_SILENCE_S)
        except queue.Empty:
            note(f"    ... {time.monotonic() - started_s:.0f} s")
            continue
        if line is None:
            return
        log.write(line)
        shown = progress_of(line.rstrip())
        if shown:
            note(f"    {shown}")


def _read(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str | None]") -> None:
    for line in process.stdout or ():
        lines.put(line)
    lines.put(None)
