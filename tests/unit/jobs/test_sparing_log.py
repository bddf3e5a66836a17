"""What a log leaves out when warnings come in floods, and that it says so."""

import io
import json
import logging
from collections.abc import Callable

import pytest

from jobs.adapters.processes.json_log import (
    KIND_BURST,
    LOGGER_BURST,
    JsonFormatter,
    RateLimitedHandler,
)

Lines = Callable[[], list[dict[str, object]]]


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def handler(stream: io.StringIO) -> RateLimitedHandler:
    made = RateLimitedHandler(stream)
    made.setFormatter(JsonFormatter())
    return made


def say(
    handler: RateLimitedHandler,
    message: str,
    *,
    at_s: float = 0.0,
    level: int = logging.WARNING,
    **fields: object,
) -> None:
    record = logging.LogRecord("jobs.x", level, "", 0, message, None, None)
    record.created, record.fields = at_s, fields
    handler.handle(record)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_flood_of_a_warning_leaves_a_burst_and_the_number_of_the_others(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for number in range(10_000):
        say(handler, "bad", at_s=number / 10_000, number=number)
    assert len(lines(stream)) == KIND_BURST
    say(handler, "bad", at_s=60.0)
    assert lines(stream)[-1]["left_out"] == 10_000 - KIND_BURST


def test_what_was_left_out_is_told_by_the_next_line_of_any_kind(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for _ in range(100):
        say(handler, "bad")
    say(handler, "batch", at_s=5.0, level=logging.INFO)
    assert lines(stream)[-1]["event"] == "batch"
    say(handler, "batch", at_s=11.0, level=logging.INFO)
    told = lines(stream)[-1]
    assert (told["left_out_event"], told["left_out"]) == ("bad", 100 - KIND_BURST)
    say(handler, "batch", at_s=30.0, level=logging.INFO)
    assert [line for line in lines(stream) if "left_out" in line] == [told]


def test_end_of_the_process_tells_what_was_left_out(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for _ in range(100):
        say(handler, "bad")
    handler.close()
    assert lines(stream)[-1]["left_out"] == 100 - KIND_BURST


def test_warnings_that_are_never_the_same_have_a_bound_together(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for number in range(5_000):
        say(handler, f"bad {number}")
    assert len(lines(stream)) == LOGGER_BURST
    say(handler, "bad again", at_s=1.0)
    assert len(lines(stream)) == LOGGER_BURST + 1


def test_rare_warnings_and_lines_below_them_are_all_written(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for number in range(200):
        say(handler, "bad", at_s=number * 11.0)
        say(handler, "batch", at_s=number * 11.0, level=logging.INFO)
    assert len(lines(stream)) == 400


def test_long_text_of_a_peer_is_shortened(handler: RateLimitedHandler, stream: io.StringIO) -> None:
    say(handler, "x" * 100_000, text="y" * 100_000)
    assert len(stream.getvalue()) < 10_000
