"""The command line: verbs, exit codes, errors in three parts."""

import argparse
import errno
import io
import json
import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import VERSION, cli
from jobs.console import CommandError, MisuseError, answer, note
from jobs.verbs import VERBS, Verb

Run = Callable[[argparse.Namespace], int]
Install = Callable[[Run], None]


def _verb_that(run: Run) -> types.ModuleType:
    module = types.ModuleType("verb_of_a_test", doc="A verb of a test.")
    module.add_arguments = lambda parser: parser.add_argument("--size", type=int, default=1)  # type: ignore[attr-defined]
    module.run = run  # type: ignore[attr-defined]
    return module


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(run: Run) -> None:
        monkeypatch.setitem(sys.modules, "verb_of_a_test", _verb_that(run))
        monkeypatch.setitem(VERBS, "probe", Verb(module="verb_of_a_test", summary="a probe"))

    return install


def _answer_size(args: argparse.Namespace) -> int:
    answer(args, {"size": args.size}, f"size {args.size}")
    return 0


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_cli_without_verb_shows_its_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in VERBS)


@pytest.mark.parametrize("words", [["help", "explain"], ["-h", "explain"], ["explain", "-h"]])
def test_cli_help_of_a_verb_may_be_asked_in_every_way(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 0
    assert "ballast explain" in capsys.readouterr().out


def test_cli_help_of_what_is_no_verb_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "no-such-verb"]) == 2
    assert "no-such-verb" in capsys.readouterr().err
    assert cli.main(["help", "drain"]) == 2
    assert "`ballast broker drain`" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--version"], ["-V"]])
def test_cli_says_its_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    assert capsys.readouterr().out == f"ballast {VERSION}\n"
    assert cli.main([*words, "--json"]) == cli.main(["--json", *words]) == 0
    assert set(capsys.readouterr().out.splitlines()) == {f'{{"ballast": "{VERSION}"}}'}


@pytest.mark.parametrize("words", [["--json"], ["--nothing"], ["--json", "no-such-verb"]])
def test_cli_misuse_says_why_to_the_end(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert not re.search(r"there are\W*$", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [
        ["bundle", "--tables", "T", "N"],
        ["--tables", "T", "bundle", "N"],
        ["bundle", "N", "--tables", "T"],
        ["--json", "bundle", "--tables", "T", "N"],
        ["bundle", "--tables=T", "--", "N"],
    ],
)
def test_word_that_may_be_left_out_may_stand_behind_options(words: list[str]) -> None:
    args = cli.verb_parser("explain", VERBS["explain"]).parse_args(words)
    assert (args.kind, args.name, str(args.tables)) == ("bundle", "N", "T")
    args = cli.verb_parser("explain", VERBS["explain"]).parse_args(["cluster", "--tables", "T"])
    assert (args.kind, args.name) == ("cluster", "")


@pytest.mark.parametrize("name", sorted(VERBS))
def test_cli_help_of_each_verb_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_cli_verb_answers_text_or_json(verb: Install, capsys: pytest.CaptureFixture[str]) -> None:
    verb(_answer_size)
    assert cli.main(["probe", "--size", "3"]) == 0
    assert capsys.readouterr().out == "size 3\n"
    assert cli.main(["probe", "--size", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"size": 3}
    assert cli.main(["--json", "probe", "--size", "4"]) == 0
    assert capsys.readouterr().out == '{"size": 4}\n'


@pytest.mark.parametrize(("kind", "code"), [(CommandError, 1), (MisuseError, 2)])
def test_cli_error_of_verb_has_three_parts(
    verb: Install, capsys: pytest.CaptureFixture[str], kind: type[CommandError], code: int
) -> None:
    def fail(_args: argparse.Namespace) -> int:
        raise kind("the lamp is dark", why="no current", next_step="close the switch")

    verb(fail)
    assert cli.main(["probe"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "error: the lamp is dark",
        "  why: no current",
        " next: close the switch",
    ]
    assert cli.main(["probe", "--json"]) == code
    assert json.loads(capsys.readouterr().err) == {
        "error": "the lamp is dark",
        "why": "no current",
        "next": "close the switch",
    }


def test_cli_interrupted_verb_ends_with_130(verb: Install) -> None:
    def interrupt(_args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    verb(interrupt)
    assert cli.main(["probe"]) == 130


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(errno.EPIPE, 0, ""), (errno.ENOSPC, 1, "  why: No space left on device")],
)
def test_cli_is_done_when_its_reader_has_seen_enough_and_fails_when_it_can_not_write(
    verb: Install, monkeypatch: pytest.MonkeyPatch, number: int, code: int, said: str
) -> None:
    def write(_text: str) -> None:
        raise OSError(number, os.strerror(number))

    told = io.StringIO()
    monkeypatch.setattr(told, "close", told.flush)  # stays readable
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(write=write))
    verb(_answer_size)
    for words in (["probe"], ["--version"]):
        assert cli.main(words) == code
        assert said in told.getvalue().splitlines() or not said
        told.seek(told.truncate(0))


@pytest.mark.parametrize(("words", "code"), [(["probe"], 0), (["probe", "--nonsense"], 2)])
def test_cli_whose_standard_error_is_closed_ends_as_it_would(
    verb: Install, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    def write(_text: str) -> None:
        raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))

    def report_progress(_args: argparse.Namespace) -> int:
        note("half of it")
        return 0

    verb(report_progress)
    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(write=write))
    assert cli.main(words) == code


def test_cli_without_standard_output_is_done(
    verb: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb(_answer_size)
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it that was started with >&-
    assert cli.main(["probe"]) == 0


def test_cli_without_standard_output_has_no_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["status", "--watch", "--tables", str(tmp_path)]) == 2
    assert "standard output is none" in capsys.readouterr().err


def test_cli_verb_that_loses_a_connection_is_not_done(verb: Install) -> None:
    def lose(_args: argparse.Namespace) -> int:
        raise BrokenPipeError

    verb(lose)
    with pytest.raises(BrokenPipeError):
        cli.main(["probe"])
