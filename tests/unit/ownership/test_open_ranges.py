"""Open ranges: which open bundles overlap another."""

import pytest

from lbcore.ownership.holding import Goal, Holding
from lbcore.ownership.open_ranges import OpenRanges

WHOLE = "t/n/0x00000000_0xffffffff"
LEFT = "t/n/0x00000000_0x80000000"
RIGHT = "t/n/0x80000000_0xffffffff"
LAST = "t/n/0xffffffff_0xffffffff"
MIDDLE = "t/n/0x70000000_0x90000000"
FIRST = "t/n/0x00000000_0x00000001"
ELSEWHERE = "t/other/0x00000000_0xffffffff"


def opened(bundle: str, **fields: object) -> Holding:
    values: dict[str, object] = {"version_id": 3, "goal": Goal.SERVE, "token": 3, **fields}
    return Holding(bundle=bundle, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bundle", "found"),
    [
        (WHOLE, [LEFT, WHOLE, RIGHT]),
        (LEFT, [LEFT, WHOLE]),
        (RIGHT, [WHOLE, RIGHT]),
        (LAST, [WHOLE, RIGHT]),
        (MIDDLE, [LEFT, WHOLE, RIGHT]),
        (FIRST, [LEFT, WHOLE]),
        (ELSEWHERE, []),
    ],
)
def test_open_bundles_that_share_a_hash_are_found(bundle: str, found: list[str]) -> None:
    ranges = OpenRanges([opened(RIGHT), opened(WHOLE), opened(LEFT)])
    assert ranges.overlapping(bundle) == found


def test_bundles_closed_or_served_as_children_are_not_open() -> None:
    held = [opened(LEFT, token=0), opened(WHOLE, split_into=(LEFT, RIGHT)), opened(RIGHT)]
    assert OpenRanges(held).overlapping(WHOLE) == [RIGHT]
