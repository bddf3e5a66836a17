"""Busy and open ranges: bundles that overlap one that is busy or open."""

import pytest

from lbcore.ownership.busy_ranges import BusyRanges, OpenRanges

WHOLE = "t/n/0x00000000_0xffffffff"
LEFT = "t/n/0x00000000_0x80000000"
RIGHT = "t/n/0x80000000_0xffffffff"
LAST = "t/n/0xffffffff_0xffffffff"
MIDDLE = "t/n/0x70000000_0x90000000"
FIRST = "t/n/0x00000000_0x00000001"
ELSEWHERE = "t/other/0x00000000_0xffffffff"


@pytest.mark.parametrize(
    ("busy", "bundle", "is_free"),
    [
        ([], WHOLE, True),
        ([WHOLE], WHOLE, False),
        ([WHOLE], LEFT, False),
        ([LEFT], RIGHT, True),
        ([RIGHT], LEFT, True),
        ([LEFT, RIGHT], MIDDLE, False),
        ([LEFT], WHOLE, False),
        ([LAST], RIGHT, False),
        ([LAST], LEFT, True),
        ([RIGHT], LAST, False),
        ([FIRST], LEFT, False),
        ([WHOLE], "t/other/0x00000000_0xffffffff", True),
    ],
)
def test_range_is_taken_only_when_it_overlaps_no_busy_one(
    busy: list[str], bundle: str, *, is_free: bool
) -> None:
    ranges = BusyRanges({})
    assert all(ranges.take(name) for name in busy)
    assert ranges.take(bundle) is is_free


def test_released_range_may_be_taken_again() -> None:
    ranges = BusyRanges({})
    ranges.take(LEFT)
    ranges.release(LEFT)
    assert ranges.take(WHOLE)


def test_release_of_a_range_that_is_not_busy_is_a_bug() -> None:
    with pytest.raises(ValueError, match="not in list"):
        BusyRanges({}).release(LEFT)


def test_frozen_ranges_are_a_value_of_their_own() -> None:
    ranges = BusyRanges({})
    ranges.take(RIGHT)
    frozen = ranges.freeze()
    later = BusyRanges(frozen)
    later.take(LEFT)
    assert frozen == {"t/n": ((0x80000000, 0xFFFFFFFF),)}
    assert later.freeze() == {"t/n": ((0, 0x7FFFFFFF), (0x80000000, 0xFFFFFFFF))}


def test_frozen_ranges_without_change_are_the_same_object_and_empty_ones_go() -> None:
    before = {"t/n": ((0, 0x7FFFFFFF),)}
    assert BusyRanges(before).freeze() is before
    ranges = BusyRanges(before)
    ranges.release(LEFT)
    assert ranges.freeze() == {}


@pytest.mark.parametrize(
    ("bundle", "is_overlapping"),
    [(WHOLE, True), (LEFT, False), (RIGHT, True), (LAST, True), (MIDDLE, True), (ELSEWHERE, False)],
)
def test_bundle_overlaps_what_is_open(bundle: str, is_overlapping: object) -> None:
    assert OpenRanges([RIGHT]).overlaps(bundle) == is_overlapping


def test_bundle_overlaps_nothing_once_that_is_closed() -> None:
    ranges = OpenRanges([LEFT, RIGHT])
    ranges.discard(RIGHT)
    ranges.discard(MIDDLE)
    assert not ranges.overlaps(RIGHT)
    assert ranges.overlaps(LEFT)


def test_bundle_open_over_another_leaves_that_in_place() -> None:
    ranges = OpenRanges([LEFT])
    ranges.add(WHOLE)
    ranges.add(LEFT)
    ranges.discard(WHOLE)
    assert ranges.overlaps(LEFT)
    assert not ranges.overlaps(RIGHT)
