"""A scenario's traffic: how much, where, when."""

import numpy as np
import pytest

from lbcore.sim.engine.traffic import MSG_PER_S_PER_POINT, Traffic
from lbcore.sim.scenario.parse import parse_scenario

MINUTE_MS = 60_000


def traffic_of(*loads: str, bundles: int = 10, extra: str = "") -> Traffic:
    lines = "\n".join(f"load t/n {load}" for load in loads)
    return Traffic(
        parse_scenario(
            f"brokers 2\nnamespace t/n bundles={bundles} topics=4 {extra}\n{lines}\nrun 2h\n"
        )
    )


def points(traffic: Traffic, at_ms: int = 0) -> float:
    return float(traffic.rates_at(at_ms).sum()) / MSG_PER_S_PER_POINT


@pytest.mark.parametrize("spread", ["even", "zipf", "pareto", "topic", "hotspot"])
def test_every_spread_carries_what_is_asked(spread: str) -> None:
    assert points(traffic_of(f"{spread} 40%")) == pytest.approx(80.0, abs=0.01)
    assert points(traffic_of(f"{spread} 3pt each")) == pytest.approx(30.0, abs=0.01)
    assert points(traffic_of(f"{spread} 4000msg/s")) == pytest.approx(10.0, abs=0.01)


def test_even_load_is_alike_in_every_bundle() -> None:
    rates = traffic_of("even 1pt each").rates_at(0).reshape(10, 4).sum(axis=1)
    assert np.all(rates == MSG_PER_S_PER_POINT)


def test_load_of_some_bundles_leaves_the_others_alone() -> None:
    rates = traffic_of("even 1pt each bundles=2-3").rates_at(0).reshape(10, 4).sum(axis=1)
    assert np.flatnonzero(rates).tolist() == [2, 3]


def test_pareto_of_smaller_alpha_has_the_heavier_head() -> None:
    shares = []
    for alpha in ("1", "4/3", "2", "4"):
        rates = traffic_of(f"pareto 40% alpha={alpha}", bundles=500).rates_at(0)
        shares.append(rates.max() / rates.sum())
    assert shares == sorted(shares, reverse=True)


def test_burst_comes_and_goes_and_comes_again() -> None:
    traffic = traffic_of("even 10pt", "even 50pt from 5m for 1m every 10m")
    seen = [round(points(traffic, at * MINUTE_MS)) for at in (0, 5, 6, 15, 16)]
    assert seen == [10, 60, 10, 60, 10]


def test_growing_load_reaches_its_amount() -> None:
    traffic = traffic_of("even 40pt from 10m grow=20m to 1h")
    assert [round(points(traffic, at * MINUTE_MS)) for at in (9, 10, 20, 30, 50, 60)] == [
        0, 0, 20, 40, 40, 0,
    ]  # fmt: skip


def test_wave_swings_by_its_depth() -> None:
    traffic = traffic_of("even 40pt wave=4h depth=50%")
    assert points(traffic, 60 * MINUTE_MS) == pytest.approx(60.0, abs=0.1)
    assert points(traffic, 180 * MINUTE_MS) == pytest.approx(20.0, abs=0.1)


def test_hotspot_jumps_and_keeps_its_amount() -> None:
    traffic = traffic_of("hotspot 40pt width=10% jump=10m", bundles=100)
    before, after = traffic.rates_at(0), traffic.rates_at(10 * MINUTE_MS)
    assert np.count_nonzero(before) == pytest.approx(40, abs=1)
    assert not np.array_equal(before, after)
    assert after.sum() == pytest.approx(before.sum(), abs=1.0)


def test_children_carry_what_their_parent_did() -> None:
    field = traffic_of("pareto 40%", extra="hashed").at(0)
    ends = np.array([0, 1 << 30, 1 << 31, 0xFFFFFFFF])
    parts = field.bundles("t/n", ends[:-1], ends[1:])
    whole = field.bundles("t/n", ends[:1], ends[-1:])
    assert np.array_equal(parts.sum(axis=0), whole[0])
