"""Text for people: durations, and tables of words."""

import argparse
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timezone

from jobs.console import printable
from lbcore.model.names import nearest

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS = 36_500 * _UNITS_MS["d"]
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


def parse_duration_ms(text: str) -> int:
    """Milliseconds of 500ms, 30s, 5m, 2h, 1d, or seconds without a unit.

    Raises argparse.ArgumentTypeError, which argparse shows.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        message = f"{text!r} is no duration; write it as 30s, 5m, 2h or 1d"
        raise argparse.ArgumentTypeError(message)
    number, unit = found.groups()
    length_ms = float(number) * _UNITS_MS[unit or "s"]
    if length_ms > _LONGEST_MS:
        message = f"{text[:20]!r} is too long for a duration; write at most 36500d"
        raise argparse.ArgumentTypeError(message)
    return round(length_ms)


def parse_instant_ms(text: str, now_ms: int) -> int:
    """Parse an ISO time, or a span ago (5m), as ms since 1970.

    Without a zone it is UTC. As messages show it, too: `2026-11-21 03:00:00 UTC`. Raises
    argparse.ArgumentTypeError.
    """
    if _DURATION.fullmatch(text.strip()) and not text.strip().isdigit():
        return now_ms - parse_duration_ms(text)
    try:
        instant = datetime.fromisoformat(text.strip().replace(" UTC", "Z").replace("Z", "+00:00"))
    except ValueError:
        message = f"{text!r} is no time; write 2026-11-21T03:00:00Z, or 5m for five minutes ago"
        raise argparse.ArgumentTypeError(message) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=timezone.utc)
    return round(instant.timestamp() * 1_000)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known word and a blank, or ""."""
    near = nearest(word, tuple(known))
    return f"did you mean {near}? " if near else ""


def format_instant(at_ms: int) -> str:
    """An instant in UTC, to the second: 2026-11-21T03:00:00Z."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1_000, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):  # before year 1 or after 9999
        return f"{at_ms} ms since 1970"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def text_table(cells: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield a line a row; cells[0] is the head.

    right: indexes of the columns that end together.
    """
    if not cells:
        return
    rows = [[printable(cell) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        parts = (
            text.rjust(width) if at in right else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(parts).rstrip()
