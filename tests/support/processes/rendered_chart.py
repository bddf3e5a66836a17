"""The chart of conf/helm/ballast as Helm renders it, and what its objects say of their pods."""

import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes.helm_tool import helm

CHART = Path(__file__).resolve().parents[3] / "conf" / "helm" / "ballast"
RELEASE, SPACE = "here", "there"
KUBERNETES = ("1.25.0", "1.37.0")
"""The oldest that the chart names, and the newest whose schemas are known."""

Object = Mapping[str, Any]


def ask_helm(*words: str) -> "subprocess.CompletedProcess[str]":
    """How helm ends."""
    return subprocess.run(
        [str(helm()), *words], check=False, capture_output=True, text=True, timeout=120
    )


def render(*values: str, chart: Path = CHART) -> "subprocess.CompletedProcess[str]":
    """How helm ends when it renders the chart with these values, NAME=JSON."""
    named = [word for value in values for word in ("--set-json", value)]
    words = ["template", RELEASE, str(chart), "--namespace", SPACE]
    return ask_helm(*words, "--kube-version", KUBERNETES[-1], *named)


@cache
def rendered(*values: str, chart: Path = CHART) -> Sequence[Object]:
    """The objects, with these values, NAME=JSON."""
    ended = render(*values, chart=chart)
    assert ended.returncode == 0, ended.stderr
    return [one for one in yaml.safe_load_all(ended.stdout) if one]
