"""The command line: verbs, exit codes, errors in three parts."""

import argparse
import json
import sys
import types
from collections.abc import Callable

import pytest

from jobs import cli
from jobs.console import CommandError, MisuseError, answer
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


def test_cli_without_verb_is_misuse_and_names_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "next: `ballast --help` says more" in capsys.readouterr().err


def test_cli_unknown_verb_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["no-such-verb"]) == 2
    assert "no-such-verb" in capsys.readouterr().err


def test_cli_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in VERBS)


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


def test_cli_bad_argument_of_verb_is_misuse(
    verb: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    verb(_answer_size)
    assert cli.main(["probe", "--size", "many"]) == 2
    assert "ballast probe" in capsys.readouterr().err


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
