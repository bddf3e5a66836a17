"""Podman as root on Debian, with storage and settings of its own, and images made here.

Decides how an engine is had where there is no service manager and no registry: storage is overlay
in a folder of the test's, health checks are asked for by the test, and where no image can be pulled
the base is made by debootstrap from the system's own package sources, with the certificates that
this machine trusts.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.integration.stack import ROOT

SERVICES: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    (ROOT / "docker-compose.yml").read_text()
)["services"]
IMAGE = "localhost/ballast:1.0.2"
KAFKA_IMAGE = "docker.io/apache/kafka:4.3.0"
PROMETHEUS_IMAGE = "docker.io/prom/prometheus:v3.5.0"
BASE = "localhost/ballast-base:1.0.2"
_DOCKERFILE = "conf/container/Dockerfile"
_PROGRAMS = ("podman", "runc", "debootstrap")
_PACKAGES = (*_PROGRAMS, "netavark", "aardvark-dns", "iptables", "catatonit")
_SETTINGS = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
lock_type = "file"
tmp_dir = "{folder}/tmp"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
_OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_PULL_S, _BUILD_S = 60, 1_800


def missing() -> str:
    """Why there is no engine here, and what to do; "" when there is one."""
    if os.name != "posix" or os.geteuid() != 0:
        return "the container tests need root on Linux"
    lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
    if lacking:
        asked = f"apt-get install --no-install-recommends {' '.join(_PACKAGES)}"
        return f"no container engine, {' and '.join(lacking)} are missing: {asked}"
    return ""


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine, and everything that it keeps, in a folder."""

    folder: Path

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "containers.conf").write_text(_SETTINGS.format(folder=self.folder))
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.folder / "images"}"\n'
            f'runroot = "{self.folder / "run"}"\n'
        )

    @property
    def environment(self) -> dict[str, str]:
        """By which podman, and what runs podman, finds them."""
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }

    def run(self, *words: str, timeout_s: float = 120) -> str:
        """What podman prints; fails with what it says when it fails."""
        ended = self.ask(*words, timeout_s=timeout_s)
        assert ended.returncode == 0, f"podman {' '.join(words)}: {ended.stderr[-4_000:]}"
        return ended.stdout

    def ask(self, *words: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [_program("podman"), *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=self.environment,
        )

    def build(self) -> None:
        """Build the image of conf/container/Dockerfile, and what stands in for those of others."""
        self._build(_DOCKERFILE, IMAGE, f"--build-arg=BASE={self._base()}")
        self._build("tests/containers/kafka/Dockerfile", KAFKA_IMAGE)
        self._build("tests/containers/prometheus/Dockerfile", PROMETHEUS_IMAGE)

    def size_bytes(self) -> int:
        return int(json.loads(self.run("image", "inspect", IMAGE))[0]["Size"])

    def end(self) -> None:
        """Remove all containers, volumes, networks and images; a user's own engine has others."""
        for words in (
            ("rm", "--force", "--all", "--time", "0"),
            ("volume", "rm", "--force", "--all"),
            ("network", "prune", "--force"),
            ("image", "rm", "--force", "--all"),
        ):
            self.ask(*words, timeout_s=300)

    def _build(self, dockerfile: str, name: str, *words: str) -> None:
        file = ("--file", str(ROOT / dockerfile), "--tag", name)
        words = ("--isolation", "chroot", "--network", "host", *words, *file, str(ROOT))
        self.run("build", *words, timeout_s=_BUILD_S)

    def _base(self) -> str:
        """The base image that the Dockerfile names, or one made here."""
        named = _named_base()
        try:
            if self.ask("pull", "--quiet", named, timeout_s=_PULL_S).returncode == 0:
                return named
        except subprocess.TimeoutExpired:
            pass
        root = self.folder / "base"
        words = [
            _program("debootstrap"),
            "--variant=minbase",
            "bookworm",
            str(root),
            _package_source(),
        ]
        subprocess.run(words, check=True, capture_output=True, timeout=_BUILD_S)
        if _OWN_CERTIFICATES.is_dir():
            inside = root / _OWN_CERTIFICATES.relative_to("/")
            shutil.copytree(_OWN_CERTIFICATES, inside, dirs_exist_ok=True)
        # pip trusts its own list of certificates, unless it is told of the system's
        told = ("--change", "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt")
        archive = self.folder / "base.tar"
        subprocess.run([_program("tar"), "-C", str(root), "-cf", str(archive), "."], check=True)
        self.run("import", *told, str(archive), BASE, timeout_s=_BUILD_S)
        shutil.rmtree(root)
        archive.unlink()
        return BASE


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not on the PATH"
    return found


def _named_base() -> str:
    lines = (ROOT / _DOCKERFILE).read_text().splitlines()
    return next(line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG BASE="))


def _package_source() -> str:
    """Where this system gets Debian's packages from."""
    said = subprocess.run(
        [_program("apt-cache"), "policy", "base-files"], check=True, capture_output=True, text=True
    ).stdout
    found: Sequence[str] = [word for word in said.split() if "://" in word]
    assert found, "apt knows no source of packages"
    return found[0]
