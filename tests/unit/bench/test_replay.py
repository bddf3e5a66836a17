"""A recorded run is replayed from its beginning or not at all: its files say which it is."""

import json
from pathlib import Path

import pytest

from lbcore.config.tree import Config
from tests.replay import NoBeginningError, replay

NOWHERE = "127.0.0.1:1"
"""No Kafka is asked before the checkpoint is known to be whole."""


def checkpoint(folder: Path, batches: list[int], *, first_offset: int = 0) -> Path:
    """What Spark leaves of a run with these ended batches."""
    for name in ("commits", "offsets", "sources/0"):
        (folder / name).mkdir(parents=True)
    for number in batches:
        (folder / "commits" / str(number)).write_text("v1\n{}")
    began = json.dumps({"broker-load": {"0": first_offset, "1": 0}})
    (folder / "sources" / "0" / "0").write_bytes(b"\0v1\n" + began.encode())
    return folder


def refused(folder: Path) -> NoBeginningError:
    with pytest.raises(NoBeginningError) as caught:
        list(replay(NOWHERE, folder, Config()))
    return caught.value


@pytest.mark.parametrize(
    ("batches", "first", "lost"), [([91, 92, 93], 91, 0), ([0, 1, 3], 0, 2), ([10, 9], 9, 0)]
)
def test_run_without_all_its_batches_is_refused_with_how_to_keep_them(
    tmp_path: Path, batches: list[int], first: int, lost: int
) -> None:
    error = refused(checkpoint(tmp_path, batches))
    assert f"begins with batch {first}, and batch {lost} is gone" in error.why
    assert "minBatchesToRetain" in error.next_step


def test_run_that_began_with_a_state_of_the_tables_is_refused(tmp_path: Path) -> None:
    error = refused(checkpoint(tmp_path, [0, 1], first_offset=7))
    assert "a state that was rebuilt from them" in error.why


def test_run_without_an_ended_batch_is_refused(tmp_path: Path) -> None:
    assert "has ended no batch" in refused(checkpoint(tmp_path, [])).why
