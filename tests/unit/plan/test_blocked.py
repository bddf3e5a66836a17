"""A blocked broker's bundles add up by verdict, and the reason is what most of them have."""

import re
from collections import Counter
from dataclasses import asdict
from random import Random

import numpy as np
import pytest

from lbcore.balancer.decisions.blocked_messages import count_messages
from lbcore.balancer.state.effects import to_json
from lbcore.config.ideal_load import IdealLoadConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.plan.blocked import BlockedBroker, blocked_brokers, stuck
from lbcore.plan.decision import PlanState
from lbcore.signals.usage import weighted_usage
from tests.support.values.clusters import Sections, cluster_of
from tests.support.worlds.blocked_cycles import Cycle, random_cycle


def blocked_in(cycle: Cycle) -> tuple[BlockedBroker, ...]:
    result = cycle.plan()
    usage = weighted_usage(cycle.snapshot.brokers.percent, cycle.config.signals)
    mean = np.full(len(usage), usage.mean())
    return blocked_brokers(result.trace, stuck(result), usage, mean)


def test_counts_add_up_to_the_bundles_and_the_words_have_each() -> None:
    reasons: Counter[str] = Counter()
    for seed in range(200):
        cycle = random_cycle(Random(seed))
        names, owner = cycle.snapshot.brokers.names, cycle.snapshot.bundles.owner
        for one in blocked_in(cycle):
            owned = int((owner == names.index(one.broker)).sum())
            assert sum(one.counts.values()) == one.bundles == owned, seed
            assert one.reason == one.verdict or one.counts[one.reason], seed
            words = count_messages({"inputs": to_json(asdict(one))})
            counted = [int(part) for part in re.findall(r"(?:^|, )(\d+)", words)]
            assert sum(counted) == owned, (seed, words)
            reasons[one.reason] += 1
    assert {"recently_unloaded", "excluded_namespace", "in_flight"} <= set(reasons), reasons


@pytest.mark.parametrize(
    ("verdict", "counts", "reason"),
    [
        ("no_fitting_bundle", {"recently_unloaded": 10, "ok": 1}, "recently_unloaded"),
        ("no_fitting_bundle", {"recently_unloaded": 1, "ok": 10}, "no_fitting_bundle"),
        ("taken", {"hour_limit": 1, "not_needed": 10}, "hour_limit"),
        ("no_bundles", {}, "no_bundles"),
    ],
)
def test_reason_is_the_commonest_verdict_or_the_strategys(
    verdict: str, counts: dict[str, int], reason: str
) -> None:
    found = BlockedBroker(
        broker="b",
        verdict=verdict,
        usage=0.9,
        mean=0.5,
        bundles=sum(counts.values()),
        counts=counts,
    )
    assert found.reason == reason


@pytest.mark.parametrize(
    ("usage", "blocked"), [((40, 36, 36, 36), []), ((80, 4, 4, 4), ["b0"])], ids=["even", "hot"]
)
def test_broker_that_no_move_improves_is_blocked_from_the_highest_threshold_on(
    usage: tuple[int, ...], blocked: list[str]
) -> None:
    """One bundle a broker: no move helps either cluster; 40 % beside 36 % is balanced."""
    cycle = Cycle(
        snapshot=cluster_of({f"b{at}": [1_000.0 * one] for at, one in enumerate(usage)}),
        state=PlanState(strategy="ballast"),
        config=Sections(
            shedding=SheddingConfig(strategy="ballast"),
            ideal_load=IdealLoadConfig(low_hits=1, high_hits=1),
        ),
    )
    assert stuck(cycle.plan())["b0"] == "no_gain"
    assert [one.broker for one in blocked_in(cycle)] == blocked
