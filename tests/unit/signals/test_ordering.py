"""Both orderings of bundles, and the top list."""

import numpy as np
import pytest

from lbcore.signals.ordering import stats_order, top_bundles
from tests.conformance.reference.load_models import average_order, compare_rows


def stats(**columns: float) -> list[float]:
    """A row of bundle stats."""
    names = ("rate_in", "rate_out", "in_", "out", "topics", "consumers", "producers", "cache")
    return [columns.get(name, 0.0) for name in names]


@pytest.mark.parametrize(
    ("left", "right", "of_stats", "of_averages"),
    [
        ({"rate_in": 149}, {"rate_in": 151}, -1, 0),
        ({"rate_in": 199}, {"rate_in": 201}, 0, -1),
        ({"in_": 100_001}, {"in_": 199_999}, -1, 0),
        ({"in_": 99_999}, {"in_": 100_001}, 0, -1),
        ({"in_": 300_000}, {"out": 900_000}, 1, 1),
        ({"topics": 200, "consumers": 50}, {"producers": 249}, 1, 0),
        ({"cache": 50_000}, {"cache": 49_999}, 1, 0),
        ({}, {}, 0, 0),
    ],
)
def test_orderings_round_and_truncate(
    left: dict[str, float], right: dict[str, float], of_stats: int, of_averages: int
) -> None:
    rows = np.array([stats(**left), stats(**right)])
    assert compare_rows(*stats_order(rows)) == of_stats
    assert compare_rows(*stats_order(rows[::-1])) == -of_stats
    assert compare_rows(*average_order(rows)) == of_averages


@pytest.mark.parametrize("limit", [0, 1, 3, 10, 99])
def test_top_list_is_the_heaviest_lightest_first(limit: int) -> None:
    rows = np.array([stats(in_=float(value) * 1e6) for value in (3, 1, 4, 15, 9, 2, 6)])
    top = rows[top_bundles(rows, limit)][:, 2]
    expected = sorted(rows[:, 2].tolist(), reverse=True)[:limit][::-1]
    assert top.tolist() == expected
