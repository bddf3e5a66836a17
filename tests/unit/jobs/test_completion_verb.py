"""The script that completes words, tried in a real bash, and the man page, in a real groff."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from jobs.cli import main
from jobs.verbs import VERBS
from jobs.verbs.completion import NAMES, SHELLS
from tests.support import Capsys, Patch
from tests.support.worlds.checked_world import running
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.world import CLUSTER

COMPLETED = """\
source "$1"; COMP_WORDS=(ballast {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_ballast ballast "${{COMP_WORDS[COMP_CWORD]}}"; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: Capsys) -> Path:
    """The script of bash."""
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "ballast.bash"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "found"),
    [("ow", {"ownership"}), ("ownership --as", {"--as-of"}), ("completion b", {"bash"})],
)
def test_bash_completes_verbs_options_and_choices(
    script: Path, words: str, found: set[str]
) -> None:
    ended = subprocess.run(
        ["/bin/bash", "-c", COMPLETED.format(words=words), "bash", str(script)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert set(ended.stdout.split()) == found


def test_names_are_those_of_the_tables_that_the_environment_names(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    write_tables(running(3, 12), tmp_path, time.time_ns() // 1_000_000)
    monkeypatch.setenv("BALLAST_TABLES", str(tmp_path))
    monkeypatch.setenv("BALLAST_CLUSTER", CLUSTER)
    counts = {}
    for what in NAMES:
        assert main(["completion", "--names", what]) == 0
        counts[what] = len(capsys.readouterr().out.split())
    assert (counts["brokers"], counts["bundles"]) == (3, 12)
    assert counts["strategies"] > 5
    assert counts["settings"] > 100
    monkeypatch.setenv("BALLAST_TABLES", str(tmp_path / "nowhere"))
    assert main(["completion", "--names", "brokers"]) == 0
    assert capsys.readouterr().out.strip() == ""


def test_bash_asks_for_the_names_of_what_an_argument_takes(tmp_path: Path, script: Path) -> None:
    stub = tmp_path / "ballast"
    stub.write_text('#!/bin/sh\necho "$3-a $3-b"\n')
    stub.chmod(0o755)
    for words, what in (
        ("ownership --broker ", "brokers"),
        ("simulate x --strategy ", "strategies"),
        ("config set ", "settings"),
        ("bundle unload ", "bundles"),
    ):
        ended = subprocess.run(
            ["/bin/bash", "-c", COMPLETED.format(words=f"{words}''"), "bash", str(script)],
            check=True, capture_output=True, text=True,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert set(ended.stdout.split()) >= {f"{what}-a", f"{what}-b"}, words


@pytest.mark.parametrize("shell", SHELLS)
def test_script_of_each_shell_knows_every_option(shell: str, capsys: Capsys) -> None:
    assert main(["completion", shell]) == 0
    assert "as-of" in capsys.readouterr().out


def test_man_page_says_of_every_verb_what_its_help_says(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["completion", "man"]) == 0
    page = tmp_path / "ballast.1"
    page.write_text(capsys.readouterr().out, encoding="utf-8")
    groff = shutil.which("groff")
    if groff is None:  # the page as it is written: hyphens have a backslash
        shown = page.read_text(encoding="utf-8").replace("\\-", "-")
    else:
        command = [groff, "-k", "-man", "-T", "utf8", "-wmac", "-Wbreak", "-P-cbou", str(page)]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
        assert ended.stderr == ""
        shown = ended.stdout
    words = " ".join(shown.replace("\u2010\n", "-").split())
    assert "ballast - balance the load of a cluster of brokers" in words
    for name, verb in VERBS.items():
        assert f"ballast {name}" in words
        assert " ".join(verb.summary.split()) in words
    assert "--as-of" in words
