"""Upkeep of a table whose older data is damaged: given up, and the job goes on."""

from pathlib import Path

from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import TableWriter
from lbcore.model.tables import OWNERSHIP_EVENTS
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    NAMESPACE,
    TablesWriter,
    arrow_rows,
    move,
    owned,
)

EVENTS = OWNERSHIP_EVENTS.name


def write(writer: TableWriter, batch_id: int) -> None:
    stamps = {"writer_epoch": writer.epoch, "at_ms": 2_000_000 + batch_id, "seq_in_batch": 0}
    about = {"query_id": "q2", "batch_id": batch_id, "now_ms": stamps["at_ms"]}
    row = move(BUNDLES[0], batch_id + 2, BROKER_NAMES[batch_id % len(BROKER_NAMES)])
    rows = arrow_rows(
        OWNERSHIP_EVENTS, [row.columns(OWNERSHIP_EVENTS, batch_id=batch_id, **stamps)]
    )
    writer.write(EVENTS, rows, batch_id, {**about, "writer_epoch": writer.epoch})


def test_damage_of_an_older_data_file_ends_no_job_that_only_adds_rows(tmp_path: Path) -> None:
    TablesWriter(tmp_path).batch(owned(NAMESPACE, 4, BROKER_NAMES))
    writer = TableWriter(tmp_path)
    writer.claim()
    writer.use_query("q2")
    for batch_id in range(3):
        write(writer, batch_id)
    oldest = min((tmp_path / EVENTS).glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    oldest.write_bytes(bytes(oldest.stat().st_size))
    done = TableUpkeep(writer, interval_ms=1, files_max=2).look_after(EVENTS, 3_000_000)
    assert oldest.name in done["given_up"]
    write(writer, 3)
    assert writer.has_batch(EVENTS, 3)
