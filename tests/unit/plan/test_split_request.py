"""Where a split that somebody asks for cuts, and the sentence when it can't."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange
from lbcore.plan.split.algorithms import SplitAlgorithm, TopicLoads
from lbcore.plan.split.split_request import SplitWish, wished_boundaries

RANGE, COUNT = SplitAlgorithm.RANGE, SplitAlgorithm.TOPIC_COUNT
AT, FLOW = SplitAlgorithm.SPECIFIED_POSITIONS, SplitAlgorithm.FLOW_OR_QPS
CONFIG = Splitting(max_msg_rate_per_s=1_000)
HASHES = (100, 200, 300, 900)


def wish(
    algorithm: SplitAlgorithm, *hashes: int, rate: float = 600.0, **changes: object
) -> SplitWish:
    topics = TopicLoads(
        hashes=np.array(hashes, dtype=np.int64),
        msg_rate=np.full(len(hashes), rate),
        throughput=np.zeros(len(hashes)),
    )
    asked = SplitWish(
        target=BundleRange(0, 1_000), algorithm=algorithm, topics=topics, topic_count=len(hashes)
    )
    return replace(asked, **changes)


@pytest.mark.parametrize(
    ("asked", "boundaries"),
    [
        (wish(RANGE), (500,)),
        (wish(RANGE, parts=4), (250, 500, 750)),
        (wish(COUNT, *HASHES), (250,)),
        (wish(COUNT, *HASHES, parts=4), (150, 250, 600)),
        (wish(FLOW, *HASHES), (151, 251, 601)),
        (wish(AT, *HASHES, positions=(700, 0, 2_000, 400, 700)), (400, 700)),
        (wish(AT, 100, positions=(700,), is_forced=True), (700,)),
        (replace(wish(AT, positions=(700,)), topics=None, topic_count=2), (700,)),
    ],
)
def test_wish_is_cut_by_its_algorithm(asked: SplitWish, boundaries: tuple[int, ...]) -> None:
    assert wished_boundaries(asked, CONFIG) == boundaries


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (wish(RANGE, parts=1_001), "too narrow"),
        (replace(wish(RANGE), target=BundleRange(7, 8)), "too narrow"),
        (wish(RANGE, positions=(5,)), "specified_positions_divide"),
        (wish(COUNT, 100), "1 of its topics"),
        (replace(wish(COUNT), topics=None, topic_count=9), "0 of its topics"),
        (wish(COUNT, 0, 0), "two hash values"),
        (wish(FLOW, *HASHES, rate=100.0), "within their limits"),
        (wish(FLOW, *HASHES, parts=2), "leave parts out"),
        (wish(AT, *HASHES), "needs positions"),
        (wish(AT, *HASHES, positions=(0, 1_000)), "inside of 0x00000000_0x000003e8"),
        (wish(AT, 100, positions=(700,)), "force it"),
    ],
)
def test_wish_that_is_not_possible_is_told_why(asked: SplitWish, why: str) -> None:
    found = wished_boundaries(asked, CONFIG)
    assert isinstance(found, str)
    assert why in found
