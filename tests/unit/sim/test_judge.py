"""The judge of lookups, on a bundle that goes from broker a to broker b."""

from dataclasses import replace

import pytest

from lbcore.model.bundles import HashFunction
from lbcore.ownership.records import State
from lbcore.sim.judge.judge import (
    LONG_AGO,
    JudgedEvent,
    LookupVerdict,
    OwnershipHistory,
    ProbedAnswer,
    Visibility,
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
