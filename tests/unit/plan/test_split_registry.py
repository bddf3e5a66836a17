"""Split rules and algorithms are all told."""

from lbcore.config.splitting import ALGORITHMS
from lbcore.plan.split.algorithms import ALGORITHM_SUMMARIES, SplitAlgorithm


def test_every_algorithm_has_its_summary() -> None:
    assert set(ALGORITHM_SUMMARIES) == set(SplitAlgorithm)
    assert {SplitAlgorithm(name) for name in ALGORITHMS} < set(ALGORITHM_SUMMARIES)
