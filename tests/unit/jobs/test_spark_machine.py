"""What a worker keeps of a state between two batches."""

import pytest

from jobs.adapters.spark import spark_machine
from jobs.adapters.spark.spark_machine import _Held, _is_here, _line

_LARGE = 3_000


def test_digest_of_the_same_bytes_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes that no batch touched are not read for it."""
    chunk = bytes(_LARGE)
    held = _Held(index={"a": _line(chunk)}, state=None, chunks={"a": chunk})
    taken: list[bytes] = []
    monkeypatch.setattr(spark_machine, "_line", lambda blob: taken.append(blob) or "new")
    assert held.line_of("a", chunk) == held.index["a"]
    assert taken == []


@pytest.mark.parametrize("size", [1, _LARGE])
def test_line_of_other_or_new_bytes_is_their_own(size: int) -> None:
    """Also where the name is known, or the bytes under another name."""
    one, other = b"1" * size, b"2" * size
    held = _Held(index={"a": _line(one)}, state=None, chunks={"a": one})
    assert held.line_of("a", other) == _line(other) != _line(one)
    assert held.line_of("b", one) == _line(one)


def test_small_chunk_stands_in_the_index_and_a_large_one_does_not() -> None:
    assert _is_here(_line(b"")) is True
    assert _is_here(_line(bytes(_LARGE))) is False
