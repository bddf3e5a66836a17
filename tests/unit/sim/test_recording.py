"""Recorded load: it stays on its hash positions, whoever owns them, however they are cut."""

from typing import Any

import numpy as np
import pytest

from lbcore.sim.load.recording import (
    COLUMNS,
    KEPT_INTERVALS,
    RecordingError,
    make_recording,
    positions_of,
    spread_over,
)

MINUTE_MS = 60_000
WHOLE, LOWER, UPPER = (
    "t/n/0x00000000_0xffffffff",
    "t/n/0x00000000_0x80000000",
    "t/n/0x80000000_0xffffffff",
)


def row(minute: int, broker: str = "b1", **rates: float) -> dict[str, Any]:
    bundles = {"whole": WHOLE, "lower": LOWER, "upper": UPPER}
    values = list(rates.values())
    return {
        "minute_ms": minute * MINUTE_MS,
        "broker": broker,
        "bundles": [bundles[name] for name in rates],
        "topics": [4.0] * len(values),
        **dict.fromkeys(COLUMNS, values),
    }


def totals(*rows: dict[str, Any]) -> list[list[float]]:
    """Rate in of each cell, interval after interval."""
    space = make_recording(rows).namespaces["t/n"]
    return np.round(space.rates[:, :, 0], 6).tolist()


def test_bundle_that_moved_carries_its_load_to_the_new_owner() -> None:
    found = totals(
        row(1, lower=10, upper=1), row(2, "b1", upper=1), row(2, "b2", lower=10)
    )  # fmt: skip
    assert found == [[10, 1], [10, 1]]


def test_load_from_before_a_split_is_divided_by_width() -> None:
    assert totals(row(1, whole=12), row(2, lower=9, upper=3)) == [[6, 6], [9, 3]]


def test_bundle_without_a_row_keeps_its_load_for_a_while_only() -> None:
    gap = [row(minute, upper=1) for minute in range(2, 10)]
    found = totals(row(1, lower=10, upper=1), *gap)
    kept = [minute for minute, (low, _) in enumerate(found) if low == 10]
    assert kept == list(range(KEPT_INTERVALS + 1))
    assert found[-1] == [0, 1]


def test_bundle_that_is_seen_later_has_carried_as_much_shortly_before() -> None:
    assert totals(row(1, upper=1), row(2, lower=7, upper=1)) == [[7, 1], [7, 1]]


def test_recording_begins_again_when_it_is_over() -> None:
    recording = make_recording([row(minute, whole=1) for minute in (10, 11, 12)])
    assert recording.length_ms == 3 * MINUTE_MS
    assert [recording.interval_at(at * MINUTE_MS) for at in range(5)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("positions", [[5], [1 << 30, 3 << 30], list(range(0, 1 << 32, 1 << 28))])
def test_no_load_is_lost_on_its_way_to_topics(positions: list[int]) -> None:
    space = make_recording([row(1, lower=30, upper=12)]).namespaces["t/n"]
    spread = spread_over(space, np.array(positions))
    over = spread.over(space.rates[0], len(positions))
    assert over.sum(axis=0) == pytest.approx([42.0] * 4)


def test_topics_lie_evenly_in_their_cells() -> None:
    space = make_recording([row(1, lower=1, upper=1)]).namespaces["t/n"]
    assert positions_of(space).tolist() == [(2 * at + 1) << 28 for at in range(8)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"bundles": ["nonsense"]}, "no bundle"),
        ({"bundles": []}, "differ in length"),
        ({"bundles": [], "topics": [], **{name: [] for name in COLUMNS}}, "no row names"),
    ],
)
def test_rows_that_say_nothing_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RecordingError, match=told):
        make_recording([{**row(1, whole=1), **changes}])
    with pytest.raises(RecordingError, match="not one row"):
        make_recording([])
