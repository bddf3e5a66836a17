"""Text of times in sentences: instants in UTC, durations of two units at most.

Used by all code that words a state.
"""

from datetime import datetime, timezone

_UNITS = 2
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
_SECOND_MS, _MINUTE_MS = 1_000, 60_000


def instant(at_ms: int) -> str:
    """To the second, UTC."""
    moment = datetime.fromtimestamp(at_ms // 1_000, tz=timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(span_ms: int) -> str:
    """Two units at most: 850 ms, 12 s, 4 min 5 s, 2 h 10 min, 3 d 4 h."""
    units = ((DAY_MS, "d"), (HOUR_MS, "h"), (_MINUTE_MS, "min"), (_SECOND_MS, "s"))
    if span_ms < _SECOND_MS:
        return f"{span_ms} ms"
    words: list[str] = []
    for size, name in units:
        if span_ms >= size or words:
            count, span_ms = divmod(span_ms, size)
            if count:
                words.append(f"{count} {name}")
            if len(words) == _UNITS or (words and not count):
                break
    return " ".join(words)
