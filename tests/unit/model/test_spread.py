"""The planner, the guardian and the assessment call the same topics crowded."""

import numpy as np
import pytest

from lbcore.assess.risks import crowded_partitions
from lbcore.bridge.guardian import Memory, ProbeRound, Trouble, anomalies
from lbcore.model.spread import are_on_too_few
from lbcore.plan.shed.ballast_search import crowded_topics
from lbcore.plan.snapshot import Partitions

TOPIC = "persistent://acme/ns/t"


def by_planner(hosts: list[int], brokers: int) -> bool:
    rows = np.arange(len(hosts))
    ones = np.ones(len(hosts), dtype=np.int64)
    found = Partitions(rows=rows, topic=0 * rows, count=ones, keys=np.zeros(1, dtype=np.int64))
    return crowded_topics(found, np.array(hosts), brokers) == (0,)


def by_guardian(hosts: list[int], brokers: int) -> bool:
    bundles = {f"acme/ns/{at}": str(host) for at, host in enumerate(hosts)}
    seen = ProbeRound(
        listed=frozenset(map(str, range(brokers))),
        owned={
            str(broker): frozenset(name for name, host in bundles.items() if host == str(broker))
            for broker in range(brokers)
        },
        partitions={name: {TOPIC: 1} for name in bundles},
    )
    return any(one.trouble is Trouble.NARROW for one in anomalies(Memory(), seen, 8, 0))


def by_assessment(hosts: list[int], brokers: int) -> bool:
    owners = {f"{TOPIC}-partition-{at}": str(host) for at, host in enumerate(hosts)}
    return bool(crowded_partitions(owners, dict.fromkeys(map(str, range(brokers)), brokers)))


@pytest.mark.parametrize("brokers", range(1, 8))
def test_all_three_mean_the_same_by_partitions_on_too_few_brokers(brokers: int) -> None:
    for partitions in range(1, 10):
        for used in range(1, min(partitions, brokers) + 1):
            hosts = [at % used for at in range(partitions)]
            expected = used < min(partitions, brokers) / 2
            assert are_on_too_few(used, partitions, brokers) == expected
            assert by_planner(hosts, brokers) == expected
            assert by_guardian(hosts, brokers) == expected
            assert by_assessment(hosts, brokers) == expected, (used, partitions, brokers)
