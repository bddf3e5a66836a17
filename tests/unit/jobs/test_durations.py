"""Times on a command line: read as people write them, written as people read them."""

import argparse

import pytest

from jobs.operating.text_format import (
    format_instant,
    parse_duration_ms,
    parse_instant_ms,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5m", 90_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("45", 45_000),
        (" 0 ", 0),
    ],
)
def test_duration_is_read(text: str, wanted: int) -> None:
    assert parse_duration_ms(text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 parsecs", "1h30m"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["9" * 400 + "s", "9" * 400, "36501d", "1" + "0" * 20 + "ms"])
def test_duration_longer_than_a_century_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="too long for a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5m", NOW_MS - 300_000),
        ("0s", NOW_MS),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_instant_is_read(text: str, wanted: int) -> None:
    assert parse_instant_ms(text, NOW_MS) == wanted


def test_instant_that_is_none_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no time"):
        parse_instant_ms("yesterday", NOW_MS)


def test_instant_is_written_as_it_can_be_read() -> None:
    assert format_instant(NOW_MS) == "2023-11-14T22:13:20Z"
    assert parse_instant_ms(format_instant(NOW_MS), 0) == NOW_MS
