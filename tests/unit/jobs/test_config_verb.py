"""`ballast config` checks, shows and imports, with the exit codes of every verb."""

import json
import sys
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


def test_check_of_good_settings_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0
    assert "all settings suit each other" in capsys.readouterr().out


def test_check_of_settings_that_do_not_suit_fails(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["config", "check", "--set", "shedding.strategy=uniform", "--json"]
    assert main(words) == 1
    said = json.loads(capsys.readouterr().out)
    assert [(item["kind"], item["key"]) for item in said["findings"]] == [
        ("error", "shedding.strategy")
    ]


AVG = ("--set", "shedding.strategy=avg", "--set", "placement.strategy=avg")


def test_check_with_differences_seen_warns_and_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["config", "check", "--seen-rate", "100", *AVG]) == 0
    assert "warning: shedding.min_unload_rate_msg_per_s" in capsys.readouterr().out


def test_check_of_an_unknown_key_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--set", "shedding.stratgy=avg"]) == 2
    assert "did you mean shedding.strategy?" in capsys.readouterr().err


def test_show_writes_toml_of_the_settings_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--conf", "demo"]) == 0
    said = tomllib.loads(capsys.readouterr().out)
    assert said["pipeline"]["decision_interval_ms"] == 5_000
    assert said["lookup"]["port"] == load_settings([]).lookup.port


def test_show_of_changes_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--set", "lookup.port=9", "--changed"]) == 0
    assert capsys.readouterr().out == "lookup.port = 9 (base: 8090, from --set)\n"


def test_show_as_json_has_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert len(said["config_version"]) == 64
    assert said["changed"] == []


def imported(tmp_path: Path, text: str) -> tuple[int, Path]:
    """The exit code of importing a file with this text, and where the overlay is."""
    source, target = tmp_path / "broker.conf", tmp_path / "imported.toml"
    source.write_text(text)
    return main(["config", "import", str(source), "--output", str(target)]), target


def test_import_writes_an_overlay_that_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, target = imported(
        tmp_path,
        "zookeeperServers=\n"
        f"loadBalancerLoadSheddingStrategy={java_class('ThresholdShedder')}\n"
        "loadBalancerBrokerThresholdShedderPercentage=7\n"
        "statsUpdateFrequencyInSecs=60\n",
    )
    assert code == 0
    captured = capsys.readouterr()
    assert "without effect: statsUpdateFrequencyInSecs" in captured.err
    assert "zookeeperServers" not in captured.err
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


@pytest.mark.parametrize("line", ["loadBalancerMagic=1", "statsUpdateFrequencyInSecs=5"])
def test_import_of_what_is_not_obeyed_writes_the_rest_and_fails(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, target = imported(tmp_path, f"minUnloadMessage=7\n{line}\n")
    assert code == 1
    assert f"not obeyed: {line.partition('=')[0]}" in capsys.readouterr().err
    assert load_settings([str(target)]).shedding.min_unload_rate_msg_per_s == 7.0


@pytest.mark.parametrize("key", ["loadBalancerLoadSheddingStrategy", "loadManagerClassName"])
def test_import_of_half_an_avg_shedder_or_of_a_class_that_is_not_here_is_refused(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, target = imported(tmp_path, f"{key}={java_class('AvgShedder')}\n")
    assert code == 1
    assert "can't be imported" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no file to import"),
        (["/nowhere/broker.conf"], "can't be read"),
    ],
)
def test_import_without_a_readable_file_is_misuse(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "import", *words]) == 2
    assert said in capsys.readouterr().err


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


@pytest.mark.parametrize("text", ["", "# nothing\n", "a=1\nb=2\n", "shedding.strategy=avg\n"])
def test_file_without_any_of_pulsars_keys_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert imported(tmp_path, text)[0] == 1
    assert "none of Pulsar's keys" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("loadBalancerLoadSheddingStrategy=com.acme.AvgShedder", "no class of Pulsar's"),
        ("loadBalancerLoadSheddingStrategy=AvgShedder", "full names"),
        ("loadManagerClassName=a.B,c.ModularLoadManagerImpl", "one class name"),
        ("minUnloadMessage=5_000", "Java refuses it (int)"),
        ("minUnloadMessage=\\u12", "Java refuses"),
    ],
)
def test_what_java_and_pulsar_refuse_is_refused_with_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert imported(tmp_path, f"{line}\n")[0] in (1, 2)
    assert said in capsys.readouterr().err


def test_flag_that_java_reads_as_false_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, target = imported(tmp_path, "loadBalancerSheddingEnabled=yes\n")
    assert code == 0
    assert "is_shedding = false" in target.read_text()
    assert "counts as false" in capsys.readouterr().err
