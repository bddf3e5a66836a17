"""Windows of the week against the plain reading of a calendar."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.weekly import WeeklyWindow, quiet_until_ms

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTE_MS = 60_000
WEEK_MIN = 7 * 24 * 60
minutes = st.integers(0, 24 * 60 - 1)


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


@st.composite
def written(draw: st.DrawFn) -> tuple[str, set[int], int, int]:
    """A window's text, and what it means: days, from and until which minute."""
    start = draw(minutes)
    until = draw(minutes.filter(lambda one: one != start))
    first, last = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    form = draw(st.sampled_from(("every day", "a day", "days")))
    days, words = set(range(7)), ""
    if form == "a day":
        days, words = {first}, f"{DAYS[first]} "
    elif form == "days":
        days, day = {first}, first
        while day != last:
            day = (day + 1) % 7
            days.add(day)
        words = f"{DAYS[first]}-{DAYS[last]} "
    return f"{words}{clock(start)}-{clock(until)}", days, start, until


def lies_in(local: datetime, days: set[int], start: int, until: int) -> bool:
    """By the calendar: it began today, or yesterday and goes on."""
    minute, today = local.hour * 60 + local.minute, local.weekday()
    if start < until:
        return today in days and start <= minute < until
    return (today in days and minute >= start) or ((today - 1) % 7 in days and minute < until)


@given(
    st.lists(written(), min_size=1, max_size=3),
    st.integers(-14 * 60, 14 * 60),
    st.integers(0, 60 * 365 * 24 * 60),
    st.integers(0, MINUTE_MS - 1),
)
def test_quiet_lasts_to_the_first_minute_that_lies_in_no_window(
    windows: list[tuple[str, set[int], int, int]], offset_min: int, at_min: int, rest_ms: int
) -> None:
    zone = timezone(timedelta(minutes=offset_min))

    def is_quiet(utc_min: int) -> bool:
        local = datetime.fromtimestamp(utc_min * 60, zone)
        return any(lies_in(local, *meaning) for _, *meaning in windows)

    parsed = [WeeklyWindow.parse(text) for text, *_ in windows]
    until_ms = quiet_until_ms(parsed, offset_min, at_min * MINUTE_MS + rest_ms)
    if not is_quiet(at_min):
        assert until_ms == 0
        return
    until_min, rest = divmod(until_ms, MINUTE_MS)
    assert rest == 0
    assert at_min < until_min <= at_min + WEEK_MIN
    assert all(is_quiet(one) for one in range(at_min, until_min, 7))
    assert is_quiet(until_min - 1)
    assert until_min == at_min + WEEK_MIN or not is_quiet(until_min)


@pytest.mark.parametrize(
    "text", ["", "always", "mon", "8:00-9:00", "24:00-01:00", "08:00-08:00", "moo 08:00-09:00",
             "mon-fre 08:00-09:00", "08:60-09:00", "25:00-26:00", "mon  08:00-09:00"]
)  # fmt: skip
def test_what_is_no_window_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        WeeklyWindow.parse(text)


def test_whole_day_and_whole_week() -> None:
    day = WeeklyWindow.parse("sun 00:00-24:00")
    sunday_ms = 3 * 86_400_000  # 1970-01-04
    assert quiet_until_ms([day], 0, sunday_ms) == sunday_ms + 86_400_000
    assert quiet_until_ms([day], 0, sunday_ms - 1) == 0
    week = WeeklyWindow.parse("00:00-24:00")
    assert quiet_until_ms([week], 0, sunday_ms) == sunday_ms + 7 * 86_400_000
