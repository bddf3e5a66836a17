"""Open ranges: whether a bundle overlaps one that is open."""

import pytest

from lbcore.ownership.open_ranges import OpenRanges

WHOLE = "t/n/0x00000000_0xffffffff"
LEFT = "t/n/0x00000000_0x80000000"
RIGHT = "t/n/0x80000000_0xffffffff"
LAST = "t/n/0xffffffff_0xffffffff"
MIDDLE = "t/n/0x70000000_0x90000000"
ELSEWHERE = "t/other/0x00000000_0xffffffff"


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
