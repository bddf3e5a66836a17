"""Times on a command line: read as people write them, written as people read them."""

import argparse

import pytest

from jobs.operating.text_format import (
    format_instant,
    parse_duration_ms,
    parse_instant_ms,
)

NOW_MS = 1_700_000_000_000
SPANS = {"500ms": 500, "30s": 30_000, "1.5m": 90_000, "2h": 7_200_000, "45": 45_000}
INSTANTS = {
    "5m": NOW_MS - 300_000,
    "0s": NOW_MS,
    "2023-11-14T22:13:20Z": NOW_MS,
    "2023-11-14T22:13:20": NOW_MS,
    "2023-11-14T23:13:20+01:00": NOW_MS,
    "2023-11-14": 1_699_920_000_000,
}


def test_times_are_read_as_people_write_them() -> None:
    assert {text: parse_duration_ms(text) for text in SPANS} == SPANS
    assert {text: parse_instant_ms(text, NOW_MS) for text in INSTANTS} == INSTANTS
    assert parse_duration_ms(" 0 ") == 0
    assert format_instant(NOW_MS) == "2023-11-14T22:13:20Z"


LONG = ("9" * 400 + "s", "9" * 400, "36501d", "1" + "0" * 20 + "ms")
REFUSED = {
    **dict.fromkeys(("", "soon", "-5s", "5 parsecs", "1h30m"), "no duration"),
    **dict.fromkeys(LONG, "too long for a duration"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=REFUSED[text]):
        parse_duration_ms(text)
    with pytest.raises(argparse.ArgumentTypeError, match="no time"):
        parse_instant_ms("yesterday", NOW_MS)
