"""Where a split that somebody asks for cuts, and the sentence when it can't."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange
from lbcore.plan.split.algorithms import SplitAlgorithm, TopicLoads
from lbcore.plan.split.split_request import SplitRequest, requested_boundaries

RANGE, COUNT = SplitAlgorithm.RANGE, SplitAlgorithm.TOPIC_COUNT
AT, FLOW = SplitAlgorithm.SPECIFIED_POSITIONS, SplitAlgorithm.FLOW_OR_QPS
CONFIG = Splitting(max_msg_rate_per_s=1_000)
HASHES = (100, 200, 300, 900)


def request_of(
    algorithm: SplitAlgorithm, *hashes: int, rate: float = 600.0, **changes: object
) -> SplitRequest:
    topics = TopicLoads(
        hashes=np.array(hashes, dtype=np.int64),
        msg_rate=np.full(len(hashes), rate),
        throughput=np.zeros(len(hashes)),
    )
    asked = SplitRequest(
        target=BundleRange(0, 1_000), algorithm=algorithm, topics=topics, topic_count=len(hashes)
    )
    return replace(asked, **changes)


@pytest.mark.parametrize(
    ("asked", "boundaries"),
    [
        (request_of(RANGE), (500,)),
        (request_of(RANGE, parts=4), (250, 500, 750)),
        (request_of(COUNT, *HASHES), (250,)),
        (request_of(COUNT, *HASHES, parts=4), (150, 250, 600)),
        (request_of(FLOW, *HASHES), (151, 251, 601)),
        (request_of(AT, *HASHES, positions=(700, 0, 2_000, 400, 700)), (400, 700)),
        (request_of(AT, 100, positions=(700,), is_forced=True), (700,)),
        (replace(request_of(AT, positions=(700,)), topics=None, topic_count=2), (700,)),
    ],
)
def test_request_is_cut_by_its_algorithm(asked: SplitRequest, boundaries: tuple[int, ...]) -> None:
    assert requested_boundaries(asked, CONFIG) == boundaries


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request_of(RANGE, parts=1_001), "too narrow"),
        (replace(request_of(RANGE), target=BundleRange(7, 8)), "too narrow"),
        (request_of(RANGE, positions=(5,)), "specified_positions_divide"),
        (request_of(COUNT, 100), "1 of its topics"),
        (replace(request_of(COUNT), topics=None, topic_count=9), "0 of its topics"),
        (request_of(COUNT, 0, 0), "two hash values"),
        (request_of(FLOW, *HASHES, rate=100.0), "within their limits"),
        (request_of(FLOW, *HASHES, parts=2), "leave parts out"),
        (request_of(AT, *HASHES), "needs positions"),
        (request_of(AT, *HASHES, positions=(0, 1_000)), "inside of 0x00000000_0x000003e8"),
        (request_of(AT, 100, positions=(700,)), "force it"),
    ],
)
def test_request_that_is_not_possible_is_told_why(asked: SplitRequest, why: str) -> None:
    found = requested_boundaries(asked, CONFIG)
    assert isinstance(found, str)
    assert why in found
