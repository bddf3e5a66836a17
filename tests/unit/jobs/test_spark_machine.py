"""What a worker keeps of a state between two batches."""

import pytest

from jobs.adapters.spark import spark_machine
from jobs.adapters.spark.spark_machine import _digest, _Held


def test_digest_of_the_same_bytes_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes that no batch touched are not read for it."""
    chunk = bytes(1_000)
    held = _Held(digests={"a": _digest(chunk)}, state=None, chunks={"a": chunk})
    taken: list[bytes] = []
    monkeypatch.setattr(spark_machine, "_digest", lambda blob: taken.append(blob) or "new")
    assert held.digest_of("a", chunk) == held.digests["a"]
    assert taken == []


def test_digest_of_other_or_new_bytes_is_their_own() -> None:
    """Also where the name is known, or the bytes under another name."""
    one, other = b"one", b"other"
    held = _Held(digests={"a": _digest(one)}, state=None, chunks={"a": one})
    assert held.digest_of("a", other) == _digest(other)
    assert held.digest_of("b", one) == _digest(one)
