"""`ballast config` checks, shows and imports, with the exit codes of every verb."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.processes.settings import load_settings
from jobs.cli import main
from lbcore.config.placement import java_class

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]


@pytest.fixture(autouse=True)
def _no_overlays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BALLAST_CONF", raising=False)


AVG = "--set shedding.strategy=avg --set placement.strategy=avg"


def test_check_of_settings_that_do_not_suit_fails(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["config", "check", "--set", "shedding.strategy=uniform", "--json"]
    assert main(words) == 1
    said = json.loads(capsys.readouterr().out)
    assert [(item["kind"], item["key"]) for item in said["findings"]] == [
        ("error", "shedding.strategy")
    ]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("check", 0, "all settings suit each other"),
        (f"check --seen-rate 100 {AVG}", 0, "warning: shedding.min_unload_rate_msg_per_s"),
        ("check --set shedding.stratgy=avg", 2, "did you mean shedding.strategy?"),
        ("show --set lookup.port=9 --changed", 0, "lookup.port = 9 (base: 8080, from --set)\n"),
        ("import", 2, "there is no file to import"),
        ("import /nowhere/broker.conf", 2, "can't be read"),
    ],
)
def test_verb_ends_with_its_exit_code_and_says_why(
    line: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", *line.split()]) == code
    assert said in "".join(capsys.readouterr())


def test_show_writes_toml_or_json_of_the_settings_in_force(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["config", "show", "--conf", "demo"]) == 0
    said = tomllib.loads(capsys.readouterr().out)
    assert said["pipeline"]["decision_interval_ms"] == 5_000
    assert said["lookup"]["port"] == load_settings([]).lookup.port
    assert main(["config", "show", "--json"]) == 0
    as_json: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert len(as_json["config_version"]) == 64
    assert as_json["changed"] == []


Imported = Callable[[str], tuple[int, Path, str]]


@pytest.fixture
def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    """Import a file with this text: the exit code, the overlay, and standard error."""

    def run(text: str) -> tuple[int, Path, str]:
        source, target = tmp_path / "broker.conf", tmp_path / "imported.toml"
        source.write_text(text)
        code = main(["config", "import", str(source), "--output", str(target)])
        return code, target, capsys.readouterr().err

    return run


def test_import_writes_an_overlay_that_loads(imported: Imported) -> None:
    code, target, told = imported(
        "zookeeperServers=\n"
        f"loadBalancerLoadSheddingStrategy={java_class('ThresholdShedder')}\n"
        "loadBalancerBrokerThresholdShedderPercentage=7\n"
        "statsUpdateFrequencyInSecs=60\n",
    )
    assert code == 0
    assert "without effect: statsUpdateFrequencyInSecs" in told
    assert "zookeeperServers" not in told
    config = load_settings([str(target)])
    assert config.shedding.strategy == "threshold"
    assert config.shedding.threshold_percent == 7.0


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("maxUnloadPercentage=0.2\n", [], "rules of 4.0: no key is of a later release"),
        (
            "exposeCustomTopicMetricLabelsEnabled=false\n",
            [],
            "rules of 4.2: the file has exposeCustomTopicMetricLabelsEnabled",
        ),
        ("maxUnloadPercentage=0.2\n", ["--rules", "4.2"], ""),
    ],
)
def test_import_says_whose_rules_it_took_and_by_what(
    text: str, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "broker.conf"
    source.write_text(text)
    assert main(["config", "import", str(source), *words]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "rules of" in line]
    assert [said in line for line in told] == ([True] if said else [])


KEPT = "minUnloadMessage=7\n"
NO_KEY, NO_CLASS = "none of Pulsar's keys", "can't be imported"
SHEDDER, MANAGER = "loadBalancerLoadSheddingStrategy", "loadManagerClassName"


@pytest.mark.parametrize(
    ("text", "code", "said", "kept"),
    [
        ("", {1}, NO_KEY, ""),
        ("a=1\nb=2\n", {1}, NO_KEY, ""),
        ("shedding.strategy=avg\n", {1}, NO_KEY, ""),
        (f"{SHEDDER}=com.acme.AvgShedder", {1, 2}, "no class of Pulsar's", ""),
        (f"{SHEDDER}=AvgShedder", {1, 2}, "full names", ""),
        (f"{MANAGER}=a.B,c.ModularLoadManagerImpl", {1, 2}, "one class name", ""),
        ("minUnloadMessage=5_000", {1, 2}, "Java refuses it (int)", ""),
        ("minUnloadMessage=\\u12", {1, 2}, "Java refuses", ""),
        (f"{SHEDDER}={java_class('AvgShedder')}\n", {1}, NO_CLASS, ""),
        (f"{MANAGER}={java_class('AvgShedder')}\n", {1}, NO_CLASS, ""),
        (f"{KEPT}loadBalancerMagic=1\n", {1}, "not obeyed: loadBalancerMagic", "= 7"),
        (f"{KEPT}statsUpdateFrequencyInSecs=5\n", {1}, "not obeyed: statsUpdateFreq", "= 7"),
        ("loadBalancerSheddingEnabled=yes\n", {0}, "counts as false", "is_shedding = false"),
    ],
)
def test_import_says_what_is_not_obeyed_and_writes_the_rest_or_nothing(
    text: str, code: set[int], said: str, kept: str, imported: Imported
) -> None:
    ended, target, told = imported(text)
    assert ended in code
    assert said in told
    assert target.exists() == bool(kept)
    assert not kept or kept in target.read_text()


def test_import_writes_the_file_when_it_answers_as_json_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "broker.conf", tmp_path / "overlay.toml"
    source.write_text("minUnloadMessage=5\n")
    words = ["config", "import", "--json", "--rules", "4.0", str(source), "--output", str(target)]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["output"] == str(target)
    assert target.read_text() == told["overlay"]
    assert main([*words[:-1], str(tmp_path / "none" / "x")]) == 1
    assert "can't be written" in json.loads(capsys.readouterr().err)["error"]
