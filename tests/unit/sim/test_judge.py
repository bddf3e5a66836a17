"""The judge of lookups, and the numbers of a run, on examples that are worked by hand."""

from dataclasses import replace

import pytest

from lbcore.model.bundles import HashFunction
from lbcore.model.times import HOUR_MS
from lbcore.ownership.records import State
from lbcore.signals.shown_load import floor_adjusted_imbalance, imbalance
from lbcore.sim.judge.judge import (
    LONG_AGO,
    JudgedEvent,
    LookupVerdict,
    OwnershipHistory,
    ProbedAnswer,
    Visibility,
)
from lbcore.sim.summary import (
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
TOPIC = "persistent://t/n/topic-1"
FULL = f"{NS}/0x00000000_0xffffffff"
ALLOWANCE_MS = 10


def step(version: int, at_ms: int, state: State, source: str, destination: str) -> JudgedEvent:
    """Decided at at_ms - 100, readable from at_ms on, within 5 ms."""
    return JudgedEvent(
        bundle=FULL,
        version_id=version,
        state=state,
        source=source,
        destination=destination,
        decided_at_ms=at_ms - 100,
        table_version=version,
        committed_from_ms=at_ms,
        committed_to_ms=at_ms + 5,
    )


def moved() -> OwnershipHistory:
    history = OwnershipHistory({NS: HashFunction.CRC32})
    history.add(
        [
            step(1, 1000, State.FREE, "", ""),
            step(2, 2000, State.ASSIGNING, "", "a"),
            step(3, 3000, State.OWNED, "", "a"),
            step(4, 4000, State.RELEASING, "a", "b"),
            step(5, 5000, State.ASSIGNING, "a", "b"),
            step(6, 6000, State.OWNED, "a", "b"),
            step(7, 7000, State.RELEASING, "b", ""),
            step(8, 8000, State.FREE, "b", ""),
        ]
    )
    return history


def answered(at_ms: int, broker: str, age_ms: int = 0, bundle: str = FULL) -> ProbedAnswer:
    return ProbedAnswer(
        topic=TOPIC,
        asked_at_ms=at_ms,
        answered_at_ms=at_ms,
        broker=broker,
        bundle=bundle,
        age_ms=age_ms,
    )


@pytest.mark.parametrize(
    ("at_ms", "broker", "age_ms", "expected"),
    [
        (1500, "a", 0, LookupVerdict.WRONG),  # not assigned yet
        (2500, "a", 0, LookupVerdict.RIGHT),  # assigned counts
        (3500, "a", 0, LookupVerdict.RIGHT),
        (3500, "b", 0, LookupVerdict.WRONG),
        (4500, "b", 0, LookupVerdict.RIGHT),  # where it is going
        (4500, "a", 0, LookupVerdict.WRONG),
        (
            4500,
            "a",
            480,
            LookupVerdict.WRONG,
        ),  # 4500 - 480 - 10 is after the commit's latest moment
        (4500, "a", 485, LookupVerdict.RIGHT),  # 4005 is not
        (4013, "a", 0, LookupVerdict.RIGHT),  # the allowance
        (4016, "a", 0, LookupVerdict.WRONG),
        (3989, "b", 0, LookupVerdict.WRONG),  # before it was decided
        (3990, "b", 0, LookupVerdict.RIGHT),
        (7500, "b", 0, LookupVerdict.WRONG),  # nobody owns it
        (9500, "c", 9999, LookupVerdict.WRONG),  # never an owner
    ],
)
def test_judge_of_an_answer_goes_by_the_declared_age(
    at_ms: int, broker: str, age_ms: int, expected: LookupVerdict
) -> None:
    assert moved().judge(answered(at_ms, broker, age_ms), ALLOWANCE_MS) is expected


@pytest.mark.parametrize("bundle", ["", "t/n/0x00000000_0x00000001", "t/m/0x00000000_0xffffffff"])
def test_judge_of_a_bundle_that_does_not_hold_the_topic_is_wrong(bundle: str) -> None:
    assert moved().judge(answered(3500, "a", bundle=bundle), ALLOWANCE_MS) is LookupVerdict.WRONG


def test_judge_allows_for_the_time_the_request_took_and_fails_an_error() -> None:
    slow = ProbedAnswer(topic=TOPIC, asked_at_ms=3900, answered_at_ms=4500, broker="a", bundle=FULL)
    assert moved().judge(slow, ALLOWANCE_MS) is LookupVerdict.RIGHT
    broken = ProbedAnswer(topic=TOPIC, asked_at_ms=1, answered_at_ms=2, error="connection refused")
    assert moved().judge(broken, ALLOWANCE_MS) is LookupVerdict.FAILED


def test_visibility_counts_from_the_decision_to_the_first_answer_that_shows_it() -> None:
    chain = [
        step(2, 2000, State.ASSIGNING, "", "a"),
        step(3, 3000, State.OWNED, "", "a"),
        step(4, 4000, State.RELEASING, "a", "b"),
        step(6, 6000, State.OWNED, "a", "b"),
        step(9, 9000, State.ASSIGNING, "", "c"),
    ]
    seen = Visibility()
    for version, at_ms in ((1, 1500), (3, 3100), (2, 3200), (3, 3300), (5, 4200)):
        seen.see(version, at_ms)
    assert seen.latencies_ms(chain) == ([1200, 300], 1)


def test_visibility_does_not_measure_what_was_there_before() -> None:
    old = replace(step(2, 2000, State.OWNED, "", "a"), table_version=LONG_AGO)
    seen = Visibility()
    seen.see(3, 3100)
    assert seen.latencies_ms([old, step(3, 3000, State.SPLITTING, "a", "")]) == ([], 0)


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
