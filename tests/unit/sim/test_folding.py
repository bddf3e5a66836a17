"""Entities folded into bundles: by name alone, nothing lost, and what weighs nothing is said so."""

import numpy as np
import pytest

from lbcore.model.hashing import murmur3_32
from lbcore.sim.load.folding import Folded, FoldingError, TraceColumn, dealt, fold
from lbcore.sim.load.series import Grid

NAMES = [f"vm-{number}" for number in range(40)]


def folded(kinds: dict[str, float], bundles: int = 4, names: list[str] = NAMES) -> Folded:
    """One interval in which every entity has so much of each resource, KIND:UNIT."""
    values = np.array([[list(kinds.values())] * len(names)])
    grid = Grid(start_ms=0, step_ms=60_000, values=values, partly=0)
    resources = [TraceColumn(column=word, kind=word.partition(":")[0], unit=word.partition(":")[2])
                 for word in kinds]  # fmt: skip
    return fold(grid, names, resources, ("t/n", bundles))


def totals(kinds: dict[str, float]) -> list[float]:
    return folded(kinds).rates.sum(axis=(0, 1)).tolist()


def test_entity_lies_where_the_hash_of_its_name_says() -> None:
    counts = [0, 0, 0, 0]
    for name in NAMES:
        counts[murmur3_32(name) >> 30] += 1
    assert folded({"msg:msg/s": 2.0}).topics.tolist() == counts
    assert folded({"msg:msg/s": 2.0}).rates[0, :, 0].tolist() == counts


def test_order_of_the_file_does_not_matter() -> None:
    one = folded({"cpu:percent": 3.0})
    two = folded({"cpu:percent": 3.0}, names=NAMES[::-1])
    assert one.rates.tolist() == two.rates.tolist()


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({"cpu:percent": 1.0}, [8_000, 8_000, 8_192_000, 8_192_000]),
        ({"cpu:cores": 0.01}, [8_000, 8_000, 8_192_000, 8_192_000]),
        ({"cpu:mhz": 25.0}, [8_000, 8_000, 8_192_000, 8_192_000]),
        ({"msg_in:msg/s": 1.0, "bytes_in:kb/s": 2.0}, [40, 0, 80_000, 0]),
        ({"bytes:mib/s": 2.0}, [40_960, 40_960, 41_943_040, 41_943_040]),
    ],
)
def test_units_become_messages_and_bytes(kinds: dict[str, float], expected: list[float]) -> None:
    assert totals(kinds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({"cpu:percent": 1.0, "memory:kb": 5.0}, "memory weighs nothing: no broker"),
        ({"cpu:percent": 1.0, "bytes_in:kb/s": 0.0}, "bytes_in weighs nothing: it is 0"),
        ({"cpu:percent": 1.0, "msg:msg/s": 5.0}, "cpu weighs nothing: messages are told"),
    ],
)
def test_resource_that_weighs_nothing_is_said_so(kinds: dict[str, float], words: str) -> None:
    assert any(said.startswith(words) for said in folded(kinds).said)


def test_trace_in_which_nothing_weighs_is_refused() -> None:
    with pytest.raises(FoldingError, match="memory weighs nothing"):
        folded({"memory:kb": 5.0})


def test_bundles_are_dealt_in_turn_and_brokers_tell_their_part_of_the_mean() -> None:
    rows = list(dealt(folded({"msg:msg/s": 1.0}), 2, 45.0))
    assert [row["broker"] for row in rows] == ["b1", "b2"]
    assert [len(row["bundles"]) for row in rows] == [2, 2]
    assert sum(row["percent"][0] for row in rows) == pytest.approx(90.0, abs=0.01)
