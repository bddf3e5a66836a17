"""Output of commands and logs: escaped text, limited repetition."""

import argparse
import io
import json
import logging
import sys

import pytest
from rich.console import Console

from jobs.adapters.processes.json_log import (
    KIND_BURST,
    LOGGER_BURST,
    JsonFormatter,
    OtelFormatter,
    RateLimitedHandler,
)
from jobs.assess.page import escape
from jobs.console import (
    CAUSE_BREAK,
    CommandError,
    answer,
    complain,
    json_line,
    note,
    printable,
    say,
    text_table,
)
from jobs.local.terminal import escaped_text
from tests.support import Capsys, Patch

HOSTILE = {
    "\x1b[2J\x1b[1;1H": r"\x1b[2J\x1b[1;1H",
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "a\nerror: b\r\tc": r"a\nerror: b\r\tc",
    "\x9b31m\x85\x7f\x00": r"\x9b31m\x85\x7f\x00",
    "\u202egnp.exe": r"\u202egnp.exe",
    "\u2066a\u2069\u200b\ufeff\u00ad": r"\u2066a\u2069\u200b\ufeff\xad",
    "a\u2028b\u2029c": r"a\u2028b\u2029c",
    "\udc80\U000e0041": r"\udc80\U000e0041",
}
HARMLESS = ("", "plain", "é ß 中 🙂 → – ×", r"C:\new\x1b", "[bold]a[/]", "{x} %s")


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_hostile_text_is_written_as_escapes(text: str, shown: str, capsys: Capsys) -> None:
    assert printable(text) == printable(printable(text)) == shown
    say(text, "next")
    note(text)
    assert capsys.readouterr() == (f"{shown}\nnext\n", f"{shown}\n")
    (_, row) = text_table([("name", "end"), (text, "x")])
    assert row == f"{shown}  x"
    assert escape(f"<{text}>") == f"&lt;{shown}&gt;"
    record = logging.LogRecord("x", logging.ERROR, "", 0, "event %s", (text,), None)
    record.fields = {"why": text}
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["why"] == text
    drawn = io.StringIO()
    console = Console(file=drawn, width=200, color_system=None, markup=False)
    console.print(escaped_text([f"[/nothing]{text}", "end"]))
    assert all(line.isprintable() for line in drawn.getvalue().split("\n"))
    assert "[/nothing]" in drawn.getvalue()


@pytest.mark.parametrize("text", [*HOSTILE, *HARMLESS])
def test_json_stays_valid_and_is_one_line_that_no_terminal_obeys(text: str, capsys: Capsys) -> None:
    value = {"reason": text, text: [float("nan"), float("inf"), 1.5]}
    answer(argparse.Namespace(json=True), value, "")
    (line,) = capsys.readouterr().out.split("\n")[:-1]
    assert line.isprintable()
    assert printable(text) == HOSTILE.get(text, text)
    assert json.loads(line) == {"reason": text, text: [None, None, 1.5]}
    assert json.loads(json_line({"reason": text})) == {"reason": text}


@pytest.mark.parametrize("text", HOSTILE)
def test_error_is_three_lines_whatever_its_parts_say(text: str, capsys: Capsys) -> None:
    error = CommandError(f"a {text}", why=f"b {text}", next_step=f"c {text}")
    complain(error, as_json=False)
    lines = capsys.readouterr().err.split("\n")[:-1]
    assert [line[:9] for line in lines] == ["error: a ", "  why: b ", " next: c "]
    assert all(line.isprintable() for line in lines)
    complain(error, as_json=True)
    several = CommandError("a", why=CAUSE_BREAK.join(("b", "c\nd")), next_step="e")
    assert str(several).split("\n") == ["error: a", "  why: b", r"      c\nd", " next: e"]
    found = json.loads(capsys.readouterr().err)
    assert found == {"error": f"a {text}", "why": f"b {text}", "next": f"c {text}"}


def test_terminal_that_knows_fewer_characters_gets_escapes(monkeypatch: Patch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    say("a → é")
    assert written.getvalue() == rb"a \u2192 \xe9" + b"\n"


def test_log_line_has_its_letters_and_the_names_of_opentelemetry() -> None:
    letters = logging.LogRecord("x", logging.ERROR, "", 0, "é 🙂", None, None)
    assert "é 🙂" in JsonFormatter().format(letters)
    record = logging.LogRecord("jobs.x", logging.WARNING, "", 0, "batch", None, None)
    record.created, record.fields = 1.5, {"command_id": "c-1"}
    assert json.loads(OtelFormatter().format(record)) == {
        "Timestamp": 1_500_000_000,
        "SeverityText": "WARNING",
        "SeverityNumber": 13,
        "Body": "batch",
        "Attributes": {"command_id": "c-1"},
        "InstrumentationScope": {"Name": "jobs.x"},
    }


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def handler(stream: io.StringIO) -> RateLimitedHandler:
    made = RateLimitedHandler(stream)
    made.setFormatter(JsonFormatter())
    return made


def say_sparing_log(
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
        say_sparing_log(handler, "bad", at_s=number / 10_000, number=number)
    assert len(lines(stream)) == KIND_BURST
    say_sparing_log(handler, "bad", at_s=60.0)
    assert lines(stream)[-1]["left_out"] == 10_000 - KIND_BURST


def test_what_was_left_out_is_told_by_the_next_line_of_any_kind(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for _ in range(100):
        say_sparing_log(handler, "bad")
    say_sparing_log(handler, "batch", at_s=5.0, level=logging.INFO)
    assert lines(stream)[-1]["event"] == "batch"
    say_sparing_log(handler, "batch", at_s=11.0, level=logging.INFO)
    told = lines(stream)[-1]
    assert (told["left_out_event"], told["left_out"]) == ("bad", 100 - KIND_BURST)
    say_sparing_log(handler, "batch", at_s=30.0, level=logging.INFO)
    assert [line for line in lines(stream) if "left_out" in line] == [told]
    for _ in range(100):
        say_sparing_log(handler, "bad", at_s=600.0)
    handler.close()
    assert lines(stream)[-1]["left_out"] == 100 - KIND_BURST


def test_warnings_that_are_never_the_same_have_a_bound_together(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for number in range(5_000):
        say_sparing_log(handler, f"bad {number}")
    assert len(lines(stream)) == LOGGER_BURST
    say_sparing_log(handler, "bad again", at_s=1.0)
    assert len(lines(stream)) == LOGGER_BURST + 1


def test_rare_warnings_and_lines_below_them_are_all_written(
    handler: RateLimitedHandler, stream: io.StringIO
) -> None:
    for number in range(200):
        say_sparing_log(handler, "bad", at_s=number * 11.0)
        say_sparing_log(handler, "batch", at_s=number * 11.0, level=logging.INFO)
    assert len(lines(stream)) == 400


def test_long_text_of_a_peer_is_shortened(handler: RateLimitedHandler, stream: io.StringIO) -> None:
    say_sparing_log(handler, "x" * 100_000, text="y" * 100_000)
    assert len(stream.getvalue()) < 10_000
