"""What is kept of a slow read is of now, by the clock that counts suspension."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.admin.v1 import reading
from jobs.admin.v1.reading import Kept
from tests.admin_world import make_context, write_tables


def given(kept: Kept, root: Path, values: Sequence[int]) -> list[int]:
    """What is answered when each reading gives the next of `values`."""
    context, left = make_context(root), list(values)

    async def ask() -> int:
        found = await kept.get(context, lambda _: {"value": left[0]})
        left.pop(0)
        return int(found["value"])

    return [asyncio.run(ask()) for _ in values]


def test_kept_value_is_given_for_its_time_and_not_after_a_suspension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path)
    now_ms = [1_000_000]
    monkeypatch.setattr(reading, "boot_ms", lambda: now_ms[0])
    kept = Kept(1.0)
    assert given(kept, tmp_path, (1, 2)) == [1, 1]
    now_ms[0] += 7_200_000
    assert given(kept, tmp_path, (3, 4)) == [3, 3]
