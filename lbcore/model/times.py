"""Text of times in sentences, windows of the week, and ends of certificates.

Instants are in UTC, durations have two units at most. The bridge, the status, the doctor and the
alert rules share the two thresholds of a certificate's end.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

_UNITS = 2
SECOND_MS, MINUTE_MS = 1_000, 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
_LAST_S = 253_402_300_799  # of the year 9999, the last that datetime has


def instant(at_ms: int) -> str:
    """Format an instant to the second, UTC.

    One after the year 9999 is shown as its last second.
    """
    moment = datetime.fromtimestamp(min(at_ms // 1_000, _LAST_S), tz=timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(span_ms: int) -> str:
    """Format in two units at most: 850 ms, 12 s, 4 min 5 s, 2 h 10 min, 3 d 4 h."""
    if span_ms < SECOND_MS:
        return f"{span_ms} ms"
    units = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))
    largest = next(at for at, (size, _) in enumerate(units) if span_ms >= size)
    words: list[str] = []
    for size, name in units[largest : largest + _UNITS]:
        count, span_ms = divmod(span_ms, size)
        words += [f"{count} {name}"] if count else []
    return " ".join(words)


def time_ago(age_ms: int) -> str:
    """Return an age in words, such as 12 s ago; -1 = never."""
    return "never" if age_ms < 0 else f"{duration(age_ms)} ago"


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MIN = 24 * 60
_WEEK_MIN = 7 * _DAY_MIN
_EPOCH_DAY = 3  # 1970-01-01 was a Thursday
_WINDOW = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))? )?"
    r"(?P<from>\d\d:\d\d)-(?P<until>\d\d:\d\d)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyWindow:
    """Window of the week, such as `mon-fri 08:00-18:00`, at a fixed offset from UTC.

    days: those on which it begins, 0 = Monday. It ends after midnight where the end is earlier.
    start, length: minutes, length >= 1.
    """

    days: frozenset[int]
    start: int
    length: int

    @staticmethod
    def parse(text: str) -> "WeeklyWindow":
        """Parse a window's text; ValueError says how one is written."""
        found = _WINDOW.fullmatch(text.strip().lower())
        if found is None:
            raise ValueError("a window is written as 22:00-06:00, or mon-fri 08:00-18:00")
        start, until = _minute(found["from"]), _minute(found["until"])
        if start in (_DAY_MIN, until):
            raise ValueError("it must begin within the day and last; a whole day is 00:00-24:00")
        return WeeklyWindow(
            days=_days(found["first"], found["last"]),
            start=start,
            length=(until - start) % _DAY_MIN or _DAY_MIN,
        )

    def ends_in(self, minute: int) -> int:
        """Return the minutes from a minute of the week until it ends; 0 = outside."""
        lasted = [(minute - day * _DAY_MIN - self.start) % _WEEK_MIN for day in self.days]
        return max(self.length - min(lasted), 0)


def quiet_until_ms(windows: Sequence[WeeklyWindow], now_ms: int) -> int:
    """Return the end of the adjoining windows that contain now; 0 = in none.

    At most a week from now, if windows cover the whole week. O(windows²).
    """
    now_min = now_ms // MINUTE_MS
    covered_min = 0
    while covered_min < _WEEK_MIN:
        minute = (now_min + covered_min + _EPOCH_DAY * _DAY_MIN) % _WEEK_MIN
        longest = max((one.ends_in(minute) for one in windows), default=0)
        if not longest:
            break
        covered_min += longest
    return (now_min + min(covered_min, _WEEK_MIN)) * MINUTE_MS if covered_min else 0


def _minute(text: str) -> int:
    hours, minutes = divmod(int(text[:2]) * 60 + int(text[3:]), 60)
    if f"{hours:02}:{minutes:02}" != text or hours * 60 + minutes > _DAY_MIN:
        raise ValueError(f"{text} is no time of a day")
    return hours * 60 + minutes


def _days(first: str | None, last: str | None) -> frozenset[int]:
    for name in (first, last):
        if name is not None and name not in _DAYS:
            raise ValueError(f"{name} is no day; days are {', '.join(_DAYS)}")
    if first is None:
        return frozenset(range(7))
    at = _DAYS.index(first)
    count = (_DAYS.index(last) - at) % 7 + 1 if last else 1
    return frozenset((at + more) % 7 for more in range(count))


WARNED_MS = 30 * DAY_MS
"""Time before a certificate's end from which a warning asks for its successor."""
ALERTED_MS = 7 * DAY_MS
"""Time before a certificate's end from which its successor is overdue."""


class CertificateEnd(Enum):
    """Closeness of a certificate's expiry, up to expired."""

    FAR = "far"
    EXPIRING = "expiring"
    EXPIRING_SOON = "expiring_soon"


def judge_end(ends_ms: int, now_ms: int) -> CertificateEnd:
    """Judge how close a certificate's end at ends_ms, ms since 1970, is."""
    if ends_ms - now_ms < ALERTED_MS:
        return CertificateEnd.EXPIRING_SOON
    return CertificateEnd.EXPIRING if ends_ms - now_ms < WARNED_MS else CertificateEnd.FAR


def expiry_message(ends_ms: int) -> str:
    """Return the expiry time as part of a sentence.

    It stays the same as long as the certificate does.
    """
    return f"has a certificate until {instant(ends_ms)}"
