"""The registry of strategies."""

import pytest

from lbcore.config.strategies import PLACEMENT, SHEDDING
from lbcore.plan.registry import PLACE, SHED, STRATEGIES, Strategy, strategy


def test_registry_has_every_name_of_the_configuration() -> None:
    assert {one.name for one in STRATEGIES if one.kind == SHED} == set(SHEDDING)
    assert {one.name for one in STRATEGIES if one.kind == PLACE} == set(PLACEMENT)


@pytest.mark.parametrize("one", STRATEGIES, ids=lambda one: f"{one.kind}-{one.name}")
def test_registry_finds_a_strategy_by_either_name(one: Strategy) -> None:
    assert strategy(one.kind, one.name) is one
    package = "org.apache.pulsar.broker.loadbalance.impl"
    if one.pulsar_class:
        assert strategy(one.kind, f"{package}.{one.pulsar_class}") is one
    assert all(entry.about.doc for entry in one.entries())


def test_registry_unknown_strategy_raises() -> None:
    with pytest.raises(KeyError):
        strategy(SHED, "NoSuchShedder")
