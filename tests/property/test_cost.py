"""Fitted costs: what made the CPU is found again, and no report leads away from the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.signals.cost import (
    FACTOR_MAX,
    FACTOR_MIN,
    Costs,
    Evidence,
    fit_costs,
    learn,
    observed,
)

SEEDS = st.integers(0, 2**32 - 1)


def reports(seed: int, count: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Capacity, messages and bytes a second of so many reports."""
    drawn = np.random.default_rng(seed)
    messages = drawn.uniform(100.0, 40_000.0, count)
    return drawn.choice([1.0, 2.0], count), messages, messages * drawn.uniform(20.0, 4_000.0, count)


def fitted(cpu: np.ndarray, *columns: np.ndarray) -> Costs | None:
    """The costs that so many reports give, seen at once."""
    return fit_costs(observed(Evidence(), np.stack([cpu, *columns], axis=1)))


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
        evidence = observed(evidence, rows, keep=0.95)
    found = fit_costs(Evidence.from_plain(evidence.to_plain()))
    assert found is not None
    assert found.per_message == pytest.approx(0.003, rel=1e-3)


def test_resource_that_no_broker_reports_costs_nothing() -> None:
    capacity, messages, _ = reports(1)
    found = fitted(3.0 + 0.001 * messages / capacity, capacity, messages, np.zeros(20))
    assert found is not None
    assert found.per_byte == 0.0
    assert found.per_message == pytest.approx(0.001)


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.integers(1, 12))
def test_no_report_leads_away_from_the_truth(seed: int, bundles: int) -> None:
    drawn = np.random.default_rng(seed)
    truth = drawn.uniform(FACTOR_MIN, FACTOR_MAX, bundles)
    factors = np.ones(bundles)
    for _ in range(20):
        expected = drawn.uniform(0.0, 10.0, bundles) * (drawn.random(bundles) < 0.7)
        before = float(((factors - truth) ** 2).sum())
        factors = learn(factors, expected, float((truth * expected).sum()))
        assert float(((factors - truth) ** 2).sum()) <= before + 1e-9
        assert ((factors >= FACTOR_MIN) & (factors <= FACTOR_MAX)).all()


def test_bundle_of_small_messages_is_told_from_others_once_bundles_have_moved() -> None:
    drawn = np.random.default_rng(7)
    truth = np.array([6.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    factors = np.ones(6)
    for _ in range(400):
        own = np.flatnonzero(drawn.random(6) < 0.5)
        expected = drawn.uniform(1.0, 5.0, 6)[own]
        factors[own] = learn(factors[own], expected, float((truth[own] * expected).sum()))
    assert factors == pytest.approx(truth, rel=0.1)


def test_bundles_that_never_part_share_what_their_broker_costs_too_much() -> None:
    factors = np.ones(2)
    for _ in range(200):
        factors = learn(factors, np.array([4.0, 2.0]), 12.0)
    assert (factors * [4.0, 2.0]).sum() == pytest.approx(12.0)
    assert factors[0] - 1.0 == pytest.approx(2.0 * (factors[1] - 1.0))


def test_bundle_without_load_keeps_its_factor() -> None:
    assert learn(np.array([3.0, 1.0]), np.array([0.0, 2.0]), 8.0)[0] == 3.0
    assert learn(np.array([3.0]), np.zeros(1), 8.0).tolist() == [3.0]
