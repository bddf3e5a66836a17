"""The records of the strategies, and what follows from them."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from jobs.operating.simulations import STRATEGIES as SIMULATED
from jobs.operating.simulations import config_of
from lbcore.config.strategies import PLACEMENT, SHEDDING, java_class
from lbcore.config.tree import SETTINGS
from lbcore.explain.reasons import SKIPS
from lbcore.plan import shed
from lbcore.plan.registry import (
    PLACE,
    PLACEMENT_STRATEGIES,
    SHED,
    SHEDDING_STRATEGIES,
    STRATEGIES,
    placement_name,
    placement_strategy,
    shedding_name,
    shedding_strategy,
)
from lbcore.plan.strategy import Strategy
from lbcore.sim.scenario.model import Scenario
from tests.support.values.clusters import Sections

CLASSES = {SHED: SHEDDING, PLACE: PLACEMENT}
NAMES = {SHED: shedding_name, PLACE: placement_name}
ALL = [(kind, one) for kind, found in STRATEGIES.items() for one in found]


def _name(value: object) -> str:
    return value.name if isinstance(value, Strategy) else str(value)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_registry_has_each_name_once_and_every_class_of_pulsar(kind: str) -> None:
    classes = {one.name: one.pulsar_class for one in STRATEGIES[kind]}
    assert len(classes) == len(STRATEGIES[kind])
    assert {name: cls for name, cls in classes.items() if cls} == CLASSES[kind]


@pytest.mark.parametrize(("kind", "one"), ALL, ids=_name)
def test_registry_finds_a_strategy_by_either_name(kind: str, one: Strategy) -> None:
    known: Mapping[str, Strategy] = {SHED: SHEDDING_STRATEGIES, PLACE: PLACEMENT_STRATEGIES}[kind]  # type: ignore[assignment]
    assert known[NAMES[kind](one.name)] is one
    if one.pulsar_class:
        assert known[NAMES[kind](java_class(one.pulsar_class))] is one
    assert all(entry.about.doc for entry in one.entries())


def test_registry_unknown_strategy_raises() -> None:
    wrong = Sections()
    object.__setattr__(wrong.shedding, "strategy", "NoSuchShedder")
    object.__setattr__(wrong.placement, "strategy", "NoSuchPlacement")
    with pytest.raises(ValueError, match=r"must be one of avg, .* got 'NoSuchShedder'"):
        shedding_strategy(wrong)
    with pytest.raises(ValueError, match=r"must be one of avg, .* got 'NoSuchPlacement'"):
        placement_strategy(wrong.placement)


@pytest.mark.parametrize("name", SHEDDING_STRATEGIES)
def test_shedding_strategy_can_be_simulated_beside_a_placement_that_suits(name: str) -> None:
    config = config_of(Scenario(), name, ())
    assert config.shedding.strategy == name
    usual = SHEDDING_STRATEGIES[name].usual_placement
    assert usual in PLACEMENT_STRATEGIES
    assert PLACEMENT_STRATEGIES[usual].is_whole == SHEDDING_STRATEGIES[name].is_whole
    assert name in SIMULATED


def test_setting_that_names_strategies_is_read_by_them_alone() -> None:
    """The words before the colon of a setting's text: "avg: ...", "threshold, overload: ..."."""
    told = {
        key: set(found[1].split(", "))
        for key, entry in SETTINGS.items()
        if (found := re.match(r"([a-z_, ]+): ", entry.about.doc))
    }
    by_strategies = {
        key: names
        for key, names in told.items()
        if names <= {*SHEDDING_STRATEGIES} and not names & {*SETTINGS[key].about.choices}
    }
    readers = {
        key: {one.name for one in SHEDDING_STRATEGIES.values() if key in one.settings}
        for key in by_strategies
    }
    assert by_strategies
    assert readers == by_strategies


def _reasons(tree: ast.AST) -> Iterator[str]:
    """What is passed as `reason`, or given back by a function that is named so."""
    for node in ast.walk(tree):
        where: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg == "reason":
            where = [node.value]
        elif isinstance(node, ast.FunctionDef) and node.name.strip("_") == "reason":
            where = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
        for one in (found for part in where for found in ast.walk(part)):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def test_reason_that_a_shedding_rule_gives_has_words() -> None:
    files = Path(str(shed.__file__)).parent.glob("*.py")
    given = {found for path in files for found in _reasons(ast.parse(path.read_text("utf-8")))}
    of_moves = {"Overloaded", "Underloaded", "Crowded"}  # the first two as in Pulsar's metrics
    assert {"HitCount", "NoBundles", "Overloaded"} <= given
    assert given - {"", *SKIPS, *of_moves} == set(), (
        "take a reason that is there, or give it a sentence in SKIPS (lbcore/explain/reasons.py);"
        f" a move's is one of {sorted(of_moves)}"
    )
