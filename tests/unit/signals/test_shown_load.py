"""A broker's usage, as every screen and the job's rows have it."""

import random

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import RESOURCES
from lbcore.signals.shown_load import usage_of, usages_of


def test_usage_of_many_brokers_is_that_of_each() -> None:
    chance = random.Random(3)
    rows = [[chance.uniform(0, 300) for _ in RESOURCES] for _ in range(50)]
    rows += [[], [70.0], [float("inf")] + [0.0] * (len(RESOURCES) - 1)]  # of older versions too
    for signals in (SignalsConfig(), SignalsConfig(cpu_weight=0.3, memory_weight=0.5)):
        assert usages_of(rows, signals) == [usage_of(row, signals) for row in rows]


def test_usage_of_no_broker_is_none_of_any() -> None:
    assert usages_of([], SignalsConfig()) == []
