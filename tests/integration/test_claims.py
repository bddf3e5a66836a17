"""Jobs that claim the tables at once: one has them then, the others say so and end.

Real races on real tables. Who wins is the machine's to say; that it is exactly one is not.
"""

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.adapters.delta.table_writer import FencedError, TableWriter
from jobs.adapters.spark.checkpoint import (
    LAYOUT,
    CheckpointMismatchError,
    ClaimedTables,
    Manifest,
    Resumption,
    choose_checkpoint,
    write_manifest,
)
from tests.support.tables.claiming import LOST, WON, assert_says_so, ends, race, started
from tests.support.tables.small_batches import batch, record, rows, sink_on
from tests.support.tables.spark_checkpoint import write_checkpoint


def test_of_jobs_that_claim_at_once_one_has_the_tables(tmp_path: Path) -> None:
    TableWriter(tmp_path)
    for number, spread_s in enumerate((0.0, 0.01, 0.1), start=1):
        writers = race(started(tmp_path), started(tmp_path, spread_s))
        assert ends(writers, number) == {WON: 1, LOST: 1}
        assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [number]


def test_of_jobs_that_make_the_tables_at_once_one_has_them(tmp_path: Path) -> None:
    writers = race(*[started(tmp_path)] * 3)
    assert ends(writers, 1) == {WON: 1, LOST: 2}


@pytest.mark.long
@pytest.mark.parametrize("jobs", [2, 3, 4])
def test_of_jobs_that_claim_again_and_again_one_always_has_the_tables(
    jobs: int, tmp_path: Path
) -> None:
    TableWriter(tmp_path)
    dice = random.Random(jobs)
    for number in range(1, 61):
        starts = [started(tmp_path, dice.choice((0.0, 0.3)) * dice.random()) for _ in range(jobs)]
        assert ends(race(*starts), number) == {WON: 1, LOST: jobs - 1}


def test_claim_while_an_older_job_writes_takes_the_tables(tmp_path: Path) -> None:
    older = sink_on(tmp_path)
    fenced: list[FencedError] = []
    is_writing = threading.Event()

    def write_on() -> None:
        for number in range(1_000):
            try:
                older(batch(record("t/n/a", number + 1)), number)
            except FencedError as error:
                fenced.append(error)
                return
            is_writing.set()

    thread = threading.Thread(target=write_on)
    thread.start()
    is_writing.wait()
    newer = sink_on(tmp_path)
    thread.join()
    assert_says_so(fenced[0])
    (known,) = rows(tmp_path, "bundle_ownership")
    newer.use_query("newer")
    newer(batch(record("t/n/a", known["version_id"] + 9)), 0)


def test_checkpoint_whose_job_lost_the_race_is_refused_later(tmp_path: Path) -> None:
    """It was marked with the epoch that the winner has: only the claim's id tells them apart."""
    tables, state_dir = tmp_path / "tables", tmp_path / "state"
    manifest = Manifest(
        layout=LAYOUT, code_version="c", config_version="f", scorer_groups=1, epoch=0, claim="mine"
    )
    checkpoint = state_dir / "checkpoints" / "epoch-0"
    write_checkpoint(checkpoint, begun=1, ended=1)
    write_manifest(state_dir, manifest, Resumption(checkpoint=checkpoint, reason=""))
    TableWriter(tables).claim("theirs")
    writer = TableWriter(tables)
    tables_seen = ClaimedTables(epoch=writer.epoch, claimed_by=lambda: "mine")
    with pytest.raises(CheckpointMismatchError, match="and won"):
        choose_checkpoint(state_dir, manifest, replace(tables_seen, claimed_by=writer.claimed_by))
    chosen = choose_checkpoint(state_dir, manifest, tables_seen)
    assert not chosen.is_rebuilt
