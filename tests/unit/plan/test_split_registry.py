"""The names under which split rules and algorithms are found."""

import pytest

from lbcore.config.splitting import ALGORITHMS
from lbcore.plan.split.algorithms import SplitAlgorithm
from lbcore.plan.split.decide import decide_splits
from lbcore.plan.split.extensible import decide_extensible_splits
from lbcore.plan.split.modular import find_modular_splits
from lbcore.plan.split.registry import ALGORITHM_SUMMARIES, split_rule


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ballast", decide_splits),
        ("BundleSplitterTask", find_modular_splits),
        ("a.b.DefaultNamespaceBundleSplitStrategyImpl", decide_extensible_splits),
    ],
)
def test_split_rule_is_found_by_either_name(name: str, function: object) -> None:
    assert split_rule(name).decide is function


@pytest.mark.parametrize("name", ["", "package.", "NoSuchTask"])
def test_split_rule_of_another_name_is_an_error(name: str) -> None:
    with pytest.raises(KeyError):
        split_rule(name)


def test_every_algorithm_has_its_summary() -> None:
    assert set(ALGORITHM_SUMMARIES) == set(SplitAlgorithm)
    assert {SplitAlgorithm(name) for name in ALGORITHMS} < set(ALGORITHM_SUMMARIES)
