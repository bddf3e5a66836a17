"""Fitted costs: what made the CPU is found again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.signals.cost import (
    Costs,
    Evidence,
    fit_costs,
    with_reports,
)

SEEDS = st.integers(0, 2**32 - 1)


def reports(seed: int, count: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Capacity, messages and bytes a second of so many reports."""
    drawn = np.random.default_rng(seed)
    messages = drawn.uniform(100.0, 40_000.0, count)
    return drawn.choice([1.0, 2.0], count), messages, messages * drawn.uniform(20.0, 4_000.0, count)


def fitted(cpu: np.ndarray, *columns: np.ndarray) -> Costs | None:
    """The costs that so many reports give, seen at once."""
    return fit_costs(with_reports(Evidence(), np.stack([cpu, *columns], axis=1)))


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from([(3.0, 0.002, 1e-7), (0.0, 0.001, 0.0), (5.0, 0.0, 2e-7)]))
def test_costs_that_made_the_cpu_are_found_again(
    seed: int, truth: tuple[float, float, float]
) -> None:
    capacity, messages, volume = reports(seed)
    idle, per_message, per_byte = truth
    cpu = idle + (per_message * messages + per_byte * volume) / capacity
    found = fitted(cpu, capacity, messages, volume)
    assert found is not None
    assert (found.idle, found.per_message, found.per_byte) == pytest.approx(
        truth, rel=1e-4, abs=1e-6
    )
    assert found.explained == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_cost_is_negative_whatever_is_reported(seed: int) -> None:
    capacity, messages, volume = reports(seed)
    cpu = np.random.default_rng(seed + 1).uniform(0.0, 100.0, len(capacity))
    found = fitted(cpu, capacity, messages, volume)
    assert found is not None
    assert min(found.idle, found.per_message, found.per_byte) >= 0.0
    assert 0.0 <= found.explained <= 1.0


def test_two_reports_say_nothing() -> None:
    two = np.ones(2)
    assert fitted(two, two, two, two) is None


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_evidence_of_before_fades_and_a_changed_cost_is_followed(seed: int) -> None:
    evidence = Evidence()
    for per_message in (0.001,) * 5 + (0.003,) * 300:
        capacity, messages, volume = reports(seed)
        cpu = 3.0 + per_message * messages / capacity
        rows = np.stack([cpu, capacity, messages, volume], axis=1)
        evidence = with_reports(evidence, rows, keep=0.95)
    found = fit_costs(Evidence.from_plain(evidence.to_plain()))
    assert found is not None
    assert found.per_message == pytest.approx(0.003, rel=1e-3)


def test_resource_that_no_broker_reports_costs_nothing() -> None:
    capacity, messages, _ = reports(1)
    found = fitted(3.0 + 0.001 * messages / capacity, capacity, messages, np.zeros(20))
    assert found is not None
    assert found.per_byte == 0.0
    assert found.per_message == pytest.approx(0.001)
