"""Ballast where there is no checkout: what a wheel leaves, in an empty folder."""

import os
import subprocess
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Ballast as a wheel leaves it. python: which has it; folder: empty; more: its environment."""

    python: Path
    folder: Path
    more: Mapping[str, str]

    def run(self, *words: str, timeout_s: float = 300) -> "subprocess.CompletedProcess[str]":
        """How a process ends there."""
        kept = {name: value for name, value in os.environ.items() if name != "BALLAST_JARS"}
        return subprocess.run(
            [str(self.python), *words],
            cwd=self.folder,
            env={**kept, **self.more},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def ballast(self, *words: str, timeout_s: float = 300) -> str:
        """What a verb answers and notes; fails with that when it fails."""
        done = self.run("-m", "jobs.cli", *words, timeout_s=timeout_s)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def installed(wheel: Path, folder: Path) -> Elsewhere:
    """The wheel and its extras in an environment of its own, and an empty folder."""
    (folder / "empty").mkdir()
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    there = Elsewhere(python=python, folder=folder / "empty", more={})
    done = there.run("-m", "pip", "install", "--quiet", f"{wheel}[job,service]", timeout_s=900)
    assert done.returncode == 0, done.stderr
    return there
