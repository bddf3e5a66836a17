"""`ballast strategies`."""

import json

import pytest

from jobs.cli import main
from lbcore.plan.registry import STRATEGIES


def test_strategies_verb_lists_every_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    listed = {(row["kind"], row["name"]) for row in rows}
    assert {(kind, one.name) for kind, found in STRATEGIES.items() for one in found} <= listed
    assert ("split", "ballast") in listed


def test_strategies_verb_of_a_pulsar_class_shows_its_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["strategies", "ThresholdShedder"]) == 0
    shown = capsys.readouterr().out
    assert "loadBalancerBrokerThresholdShedderPercentage" in shown
    assert "AvgShedder" not in shown


def test_strategies_verb_unknown_name_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "nope"]) == 2
    assert "there is no strategy 'nope'" in capsys.readouterr().err


def test_strategies_verb_names_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "threshhold"]) == 2
    assert "did you mean threshold? " in capsys.readouterr().err
