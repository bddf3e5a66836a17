"""Series that somebody else measured: every flaw has its line, and nothing measured is lost."""

import numpy as np
import pytest

from lbcore.sim.load.series import Gaps, Series, flaws_of, on_grid, step_of

NAN = float("nan")


def series(samples: list[tuple[str, int, float]], *, covers: list[int] | None = None) -> Series:
    """Samples (entity, second, value), one a line from line 2; covers: seconds."""
    names = list(dict.fromkeys(name for name, _, _ in samples))
    count = len(samples)
    return Series(
        entities=tuple(names),
        of=np.array([names.index(name) for name, _, _ in samples], dtype=np.int64),
        at_ms=np.array([at * 1_000 for _, at, _ in samples], dtype=np.int64),
        values=np.array([[value] for _, _, value in samples]),
        covers_ms=np.array(covers or [0] * count, dtype=np.int64) * 1_000,
        lines=np.arange(2, count + 2, dtype=np.int64),
        columns=np.zeros(count, dtype=np.int64),
    )


def told(found: Series, gaps: Gaps = Gaps.REFUSE) -> list[str]:
    return [str(flaw) for flaw in flaws_of(found, 300_000, gaps)]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([("a", 0, 1), ("a", 300, 1), ("b", 0, 1), ("b", 300, 1)], []),
        ([("a", 0, 1), ("b", 0, 1), ("a", 300, 1), ("b", 300, 1)], []),
        ([("a", 0, -1)], ["line 2: negative value of a"]),
        ([("a", 0, NAN)], ["line 2: missing value of a"]),
        ([("a", 0, float("inf"))], ["line 2: infinite value of a"]),
        (
            [("a", 0, 1), ("b", 0, 1), ("a", 0, 1)],
            ["line 4: duplicate: a has the same time in line 2"],
        ),
        (
            [("a", 300, 1), ("a", 0, 1)],
            ["line 3: unordered: a has a later time in line 2"],
        ),
        ([("a", 0, 1), ("a", 900, 1)], ["line 3: gap: a has nothing for 600 s before"]),
        ([("a", 0, 1), ("a", 301, 1), ("a", 599, 1)], []),
    ],
)
def test_flaw_is_told_with_its_line(
    samples: list[tuple[str, int, float]], words: list[str]
) -> None:
    assert told(series(samples)) == words


def test_all_flaws_are_told_at_once_in_the_order_of_lines() -> None:
    found = told(series([("a", 0, -1), ("b", 0, NAN), ("a", 300, 1), ("a", 300, 2)]))
    assert [words.partition(":")[0] for words in found] == ["line 2", "line 3", "line 5"]


def test_missing_value_is_a_gap_where_gaps_are_filled() -> None:
    samples = [("a", 0, 6.0), ("a", 300, NAN), ("a", 600, 2.0)]
    assert told(series(samples), Gaps.HOLD) == []
    assert on_grid(series(samples), 300_000, Gaps.HOLD).values[:, 0, 0].tolist() == [6, 6, 2]
    assert on_grid(series(samples), 300_000, Gaps.ZERO).values[:, 0, 0].tolist() == [6, 0, 2]


def test_sample_that_covers_the_time_before_it_leaves_no_gap() -> None:
    samples = [("a", 300, 6.0), ("a", 900, 2.0)]
    assert told(series(samples, covers=[300, 600])) == []
    grid = on_grid(series(samples, covers=[300, 600]), 300_000, Gaps.REFUSE)
    assert grid.values[:, 0, 0].tolist() == [6, 2, 2]
    assert told(series([*samples, ("a", 1800, 1.0)], covers=[300, 600, 300])) == [
        "line 4: gap: a has nothing for 600 s before"
    ]


def test_clock_of_another_phase_shifts_load_and_loses_none() -> None:
    samples = [("a", at, 10.0) for at in range(0, 1500, 300)]
    samples += [("b", at + 100, 10.0) for at in range(0, 1500, 300)]
    grid = on_grid(series(samples), 300_000, Gaps.REFUSE)
    assert grid.values[:, 0, 0].tolist() == [10] * 5
    assert grid.values[0, 1, 0] == pytest.approx(10 * 2 / 3)
    assert grid.values[1:, 1, 0] == pytest.approx(10)


def test_entity_that_comes_later_carries_nothing_before_and_is_counted() -> None:
    samples = [("a", at, 1.0) for at in range(0, 1200, 300)] + [("b", 900, 4.0)]
    grid = on_grid(series(samples), 300_000, Gaps.REFUSE)
    assert grid.values[:, 1, 0].tolist() == [0, 0, 0, 4]
    assert grid.partly == 1


def test_step_is_the_commonest_time_between_two_samples() -> None:
    samples = [("a", at, 1.0) for at in (0, 300, 600, 1200, 1500)]
    assert step_of(series(samples)) == 300_000
    assert step_of(series([("a", 0, 1.0), ("b", 300, 1.0)])) == 0
