"""The files that set-up reads: complete, pinned, free of host names."""

import re
import sys

import pytest

from jobs.adapters.processes.jars import LOCK_PATH, parse_lock
from tests.tidy.source_files import ROOT, imported_modules, python_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_LOCKS = {
    "requirements.lock": [
        *_PROJECT["project"]["dependencies"],
        *_PROJECT["project"]["optional-dependencies"]["job"],
        *_PROJECT["project"]["optional-dependencies"]["service"],
    ],
    "requirements-dev.lock": [
        *_PROJECT["project"]["dependencies"],
        *_PROJECT["dependency-groups"]["dev"],
    ],
    "requirements-build.lock": ["setuptools"],
}
_PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)", re.MULTILINE)


def _canonical(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", sorted(_LOCKS))
def test_lock_of_packages_pins_each_requirement(name: str) -> None:
    pinned = {found["name"] for found in _PIN.finditer((ROOT / name).read_text())}
    assert {_canonical(requirement) for requirement in _LOCKS[name]} - pinned == set()


@pytest.mark.parametrize("name", sorted(_LOCKS))
def test_lock_of_packages_has_hashes_and_no_hosts(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "--index" not in text
    unhashed = [line for line in text.splitlines() if _PIN.match(line) and not line.endswith("\\")]
    assert unhashed == []


def test_locks_of_run_and_dev_agree_on_versions() -> None:
    texts = [(ROOT / f"requirements{part}.lock").read_text() for part in ("", "-dev")]
    run, dev = ({found.groups() for found in _PIN.finditer(text)} for text in texts)
    assert run - dev == set()


def test_jar_of_delta_is_that_of_its_package() -> None:
    pins = dict(_PIN.findall((ROOT / "requirements-dev.lock").read_text()))
    lock = ROOT / "tests" / "support" / "tables" / "delta-jars.lock"
    (jar,) = (jar for jar in parse_lock(lock.read_text()) if "delta-spark" in jar.artifact)
    assert jar.revision == pins["delta-spark"]


def test_lock_of_jars_pins_each_file_once() -> None:
    text = LOCK_PATH.read_text()
    jars = parse_lock(text)
    assert "://" not in text
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars)


def test_makefile_target_has_its_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert phony is not None
    explained = set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE))
    assert set(phony.group(1).split()) - explained == {"python"}
    targets = set(re.findall(r"^([a-z-]+):(?!=)", text, re.MULTILINE))
    assert targets == set(phony.group(1).split())


def test_ci_script_calls_make_test() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert "set -eu" in text
    assert re.search(r"^make test \|\| once_more$", text, re.MULTILINE)


_DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "kafka": "kafka-python",
    "pulsar": "pulsar-client",
    "google": "protobuf",
    "re2": "google-re2",
    "grafana_foundation_sdk": "grafana-foundation-sdk",
    "jwt": "pyjwt",
}


def _third_party(*folders: str) -> set[str]:
    ours = {"lbcore", "jobs", "ballast", "tests", "dashboards"}
    own = {*sys.stdlib_module_names, *ours, "tomllib"}
    tops = {
        name.split(".")[0] for path in python_files(*folders) for _, name in imported_modules(path)
    }
    return {_DISTRIBUTIONS.get(top, _canonical(top)) for top in tops - own}


def test_import_of_the_product_is_declared_as_a_dependency() -> None:
    extras = _PROJECT["project"]["optional-dependencies"]
    required = [*_LOCKS["requirements.lock"], *(one for extra in extras.values() for one in extra)]
    declared = {_canonical(requirement) for requirement in required}
    assert _third_party("lbcore", "jobs") - declared == set()


def test_package_of_an_extra_is_there_for_development() -> None:
    extras = _PROJECT["project"]["optional-dependencies"]
    dev = _PROJECT["dependency-groups"]["dev"]
    assert {one for extra in extras.values() for one in extra} - set(dev) == set()


def test_import_of_the_tests_is_declared_for_development() -> None:
    declared = {_canonical(requirement) for requirement in _LOCKS["requirements-dev.lock"]}
    assert _third_party("tests", "dashboards") - declared == set()
