"""The numbers of a run, each on an example that can be worked by hand."""

import pytest

from lbcore.signals.shown_load import floor_adjusted_imbalance, imbalance
from lbcore.sim.summary import (
    HOUR_MS,
    BundleOpened,
    Crash,
    LoadSample,
    ObservedMove,
    balance,
    first_all_open_ms,
    recovery,
    thrash,
    trend_discounted_variation,
)

NS = "t/n"
LOW, HIGH = f"{NS}/0x00000000_0x80000000", f"{NS}/0x80000000_0xffffffff"


@pytest.mark.parametrize("loads", [[], [0.0, 0.0]])
def test_imbalance_without_load_is_none(loads: list[float]) -> None:
    assert imbalance(loads) is None
    assert floor_adjusted_imbalance(loads, 0.0) is None


def sample(at_ms: int, *loads: float, bundles_open: int = 0) -> LoadSample:
    named = {f"b{index}": load for index, load in enumerate(loads)}
    return LoadSample(at_ms=at_ms, broker_loads=named, bundles_open=bundles_open)


def test_balance_is_the_mean_over_the_samples_inside() -> None:
    samples = [sample(0, 40, 0), sample(10, 30, 10), sample(20, 20, 20), sample(30, 40, 0)]
    found = balance(samples, 10, 30)
    assert (found.samples, found.imbalance, found.floor_adjusted) == (2, 1.25, 1.25)
    assert balance([], 0, 10).imbalance is None


def test_first_all_open_is_the_first_sample_with_every_bundle() -> None:
    samples = [sample(at, 1.0, bundles_open=n) for at, n in ((0, 3), (1, 8), (2, 7), (3, 8))]
    assert first_all_open_ms(samples, 8) == 1
    assert first_all_open_ms(samples, 9) is None


def move(at_ms: int, source: str, destination: str) -> ObservedMove:
    return ObservedMove(bundle="x", source=source, destination=destination, at_ms=at_ms)


def test_thrash_counts_returns_within_the_hour() -> None:
    made = [move(0, "a", "b"), move(60_000, "b", "a"), move(90_000, "a", "c")]
    assert thrash(made) == pytest.approx(1 / 3)
    assert thrash([move(0, "a", "b"), move(HOUR_MS, "b", "a")]) == 0.0
    assert thrash([move(0, "a", "b"), move(HOUR_MS - 1, "b", "a")]) == 0.5
    assert thrash([]) == 0.0


def crash(*bundles: str) -> Crash:
    return Crash(broker="b0", killed_at_ms=1000, last_report_ms=900, bundles=bundles)


def opened(bundle: str, at_ms: int) -> BundleOpened:
    return BundleOpened(bundle=bundle, broker="b1", at_ms=at_ms)


def test_recovery_with_a_bundle_never_opened_again_names_it() -> None:
    found = recovery(crash(LOW, HIGH), [opened(LOW, 1500), opened(HIGH, 900)])
    assert (found.first_served_ms, found.all_served_ms, found.unserved) == (600, None, (HIGH,))


def test_recovery_by_children_counts_when_they_cover_the_parent() -> None:
    children = [
        opened(f"{NS}/0x80000000_0xa0000000", 1200),
        opened(f"{NS}/0xc0000000_0xffffffff", 1300),
        opened("other/n/0xa0000000_0xc0000000", 1350),
        opened(f"{NS}/0xa0000000_0xc0000000", 1400),
    ]
    assert recovery(crash(HIGH), children).all_served_ms == 500
    assert recovery(crash(HIGH), children[:3]).unserved == (HIGH,)


@pytest.mark.parametrize(
    ("values", "variation"),
    [
        ([], 0.0),
        ([5.0], 0.0),
        ([1.0, 2.0, 4.0], 0.0),  # one direction
        ([4.0, 4.0, 1.0], 0.0),
        ([0.0, 3.0, 0.0], 6.0),  # no trend: the total variation
        ([0.0, 3.0, 2.0, 3.0], 2.32),  # 4 up, 1 down
        ([3.0, 2.0, 3.0, 0.0], 2.32),  # the same downwards
    ],
)
def test_variation_along_the_trend_is_discounted(values: list[float], variation: float) -> None:
    assert trend_discounted_variation(values) == pytest.approx(variation, abs=0.005)
    scaled = trend_discounted_variation([10.0 * one for one in values])
    assert scaled == pytest.approx(10.0 * trend_discounted_variation(values))
