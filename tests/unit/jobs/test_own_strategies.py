"""Strategies of the user's own as the commands find them: by entry point, or by module and name."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.kafka.connection import KafkaPlace
from jobs.adapters.processes.settings import load_settings, require_loaded, with_custom_strategies
from jobs.adapters.spark.checkpoint import Resumption, read_manifest, write_manifest
from jobs.adapters.spark.recovery import present_manifest
from jobs.cli import main
from jobs.console import MisuseError
from lbcore.config.load import digest, parse_assignments
from lbcore.config.tree import Config
from tests.support import Capsys, Patch

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "even_pairs.py"
LEAST = "placement.strategy=least_long_term_message_rate"
SCENARIO = f"""
brokers 2
namespace t/n bundles=16 topics=1
own t/n 0-11 b1
own t/n 12-15 b2
load t/n even 1pt each
set shedding.strategy=uniform {LEAST}
run 3m
expect moves >= 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Iterator[Path]:
    """A working directory of a user's; what is imported from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("mine"):
            del sys.modules[name]


def installed(folder: Path, name: str, value: str) -> None:
    """A distribution with an entry point, as an installer leaves it."""
    about = folder / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[ballast.strategies]\n{name} = {value}\n")
    sys.path.append(str(folder))


def of(name: str) -> Config:
    return parse_assignments(Config(), [f"shedding.strategy={name}", LEAST])


def test_strategy_of_the_working_directory_is_found_by_module_and_name(folder: Path) -> None:
    (folder / "mine_a.py").write_text(EXAMPLE.read_text())
    config = with_custom_strategies(of("mine_a:decide"))
    own = config.own["mine_a:decide"]
    assert own.problem == ""
    assert own.decide is not None
    assert own.code.startswith("mine_a:decide@")
    assert os.environ["PYTHONPATH"] == str(folder)  # Spark's workers look there, too
    assert load_settings([], [f"shedding.strategy={own.name}", LEAST]).own == config.own


def test_installed_strategy_is_found_by_its_name(folder: Path) -> None:
    (folder / "mine_b.py").write_text(EXAMPLE.read_text())
    installed(folder, "pairs", "mine_b:decide")
    assert with_custom_strategies(Config()).own["pairs"].origin == "mine_b:decide"
    assert load_settings([], ["shedding.strategy=pairs", LEAST]).own["pairs"].decide is not None


def test_version_of_the_configuration_follows_the_code(folder: Path) -> None:
    (folder / "mine_c.py").write_text(EXAMPLE.read_text())
    before = digest(with_custom_strategies(of("mine_c:decide")))
    (folder / "mine_c.py").write_text(EXAMPLE.read_text() + "\n# changed\n")
    assert digest(with_custom_strategies(of("mine_c:decide"))) != before


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("decide = 5\n", "mine_d:decide", "mine_d:decide is a int: name a function"),
        ("1 / 0\n", "mine_e:decide", "can't be loaded (ZeroDivisionError: division by zero)"),
        ("x = 1\n", "mine_f:decide", "can't be loaded (AttributeError"),
        ("x = 1\n", "mine_nowhere:decide", "can't be loaded (ModuleNotFoundError"),
    ],
)
def test_strategy_that_cannot_be_loaded_is_handed_on_with_the_reason(
    folder: Path, text: str, name: str, words: str
) -> None:
    if "nowhere" not in name:
        (folder / f"{name.partition(':')[0]}.py").write_text(text)
    config = with_custom_strategies(of(name))
    assert words in config.own[name].problem
    with pytest.raises(MisuseError) as caught:
        require_loaded(config)
    assert words in str(caught.value)


def test_name_that_was_never_there_is_refused_and_one_that_was_is_missing() -> None:
    with pytest.raises(MisuseError, match="'evener' is none: take avg"):
        load_settings([], ["shedding.strategy=evener", LEAST])
    config = load_settings([], ["shedding.strategy=evener", LEAST], known=["evener"])
    assert "no entry point of ballast.strategies any more" in config.own["evener"].problem


def test_example_is_simulated_as_a_user_would(tmp_path: Path) -> None:
    (tmp_path / "even_pairs.py").write_text(EXAMPLE.read_text())
    (tmp_path / "few.scenario").write_text(SCENARIO)
    command = [sys.executable, "-m", "jobs.cli", "simulate", "few.scenario", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--strategy", "even_pairs:decide"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (row,) = json.loads(done.stdout)
    assert row["strategy"] == "even_pairs:decide"
    assert row["moves_by_cause"]["shed"] > 0


def test_manifest_has_the_code_so_that_a_later_start_knows_the_name(folder: Path) -> None:
    (folder / "mine_h.py").write_text(EXAMPLE.read_text())
    config = with_custom_strategies(of("mine_h:decide"))
    present = present_manifest(config, KafkaPlace(cluster_id="k", topics={}, bounds={}), 1)
    write_manifest(folder, present, Resumption(checkpoint=folder / "one", reason=""))
    found = read_manifest(folder)
    assert found is not None
    assert found.own == {"mine_h:decide": config.own["mine_h:decide"].code}


def test_simulate_says_what_a_strategy_does_wrong(folder: Path, capsys: Capsys) -> None:
    (folder / "mine_i.py").write_text("def decide(*_):\n    raise RuntimeError\n")
    (folder / "few.scenario").write_text(SCENARIO)
    assert main(["simulate", "few.scenario", "--strategy", "mine_g:decide"]) == 2
    assert "the strategy mine_g:decide can't be used" in capsys.readouterr().err
    assert main(["simulate", "few.scenario", "--strategy", "mine_i:decide"]) == 1
    said = capsys.readouterr().err
    assert "cycles (StrategyFailed): mine_i:decide@" in said
    assert "raised RuntimeError in decide, line 2" in said
