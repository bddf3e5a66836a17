"""Which bundle Pulsar's LARGEST and HOT mean."""

import pytest

from lbcore.ownership.records import State
from lbcore.pulsar.errors import PulsarError
from lbcore.pulsar.split import hottest_bundle, largest_bundle
from lbcore.pulsar.stats import throughput
from lbcore.route.bundles import BundleRoute

NAMES = ("t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", "t/n/0x80000000_0xffffffff")
LIVE = [
    BundleRoute(
        bundle=name, namespace="t/n", lower=at, upper=at + 1, state=State.OWNED, version_id=1
    )
    for at, name in enumerate(NAMES)
]
TOPICS = {NAMES[0]: 90, NAMES[1]: 5, NAMES[2]: 7}
LOADS = [
    {
        "bundles": list(NAMES),
        "msg_rate_in": [900.0, 10.0, 50.0],
        "msg_rate_out": [900.0, 10.0, 50.0],
        "msg_throughput_in": [100.0, 4_000.0, 300.0],
        "msg_throughput_out": [100.0, 10.0, 300.0],
    }
]
"""The first has the most topics and messages, the second the highest throughput."""


def test_hot_is_the_highest_throughput_and_neither_rate_nor_topics() -> None:
    assert hottest_bundle(LIVE, dict(throughput(LOADS)), TOPICS).bundle == NAMES[1]


def test_hot_counts_what_comes_in_and_what_goes_out() -> None:
    load = {**LOADS[0], "msg_throughput_out": [100.0, 10.0, 9_000.0]}
    assert hottest_bundle(LIVE, dict(throughput([load])), TOPICS).bundle == NAMES[2]


def test_hot_without_any_throughput_is_the_largest() -> None:
    assert hottest_bundle(LIVE, {}, TOPICS) == largest_bundle(LIVE, TOPICS)
    assert largest_bundle(LIVE, TOPICS).bundle == NAMES[0]


def test_nothing_at_all_is_not_found() -> None:
    with pytest.raises(PulsarError, match="HOT not found"):
        hottest_bundle(LIVE, {}, {})
