"""A rebuild reads of `commands` what it needs, however many there ever were."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.table_scan import scan
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.delta.tables import arrow_schema
from jobs.adapters.spark import recovery
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.commands.commands import REMEMBERED_COMMANDS
from lbcore.config.tree import Config
from lbcore.model.tables import COMMANDS

CLUSTERS = ("local", "other", "it's")
EACH = 2 * REMEMBERED_COMMANDS


def command(cluster: str, number: int) -> dict[str, Any]:
    """Every 500th has not ended."""
    is_open = number % 500 == 0
    return {
        "cluster": cluster,
        "command_id": f"c{number}",
        "kind": "unload_bundle",
        "arguments": "{}",
        "principal": "",
        "address": "",
        "status": "accepted" if is_open else "done",
        "reason": "",
        "result": '{"deadline_ms": 0, "queued": false}',
        "at_ms": 1_000 + number // 3,
        "batch_id": 0,
    }


def test_rebuild_reads_open_commands_and_as_many_as_are_remembered(
    tmp_path: Path,
) -> None:
    rows = [command(cluster, number) for cluster in CLUSTERS for number in range(EACH)]
    writer = TableWriter(tmp_path)
    writer.claim()
    writer.use_query("q")
    table = pa.Table.from_pylist(rows, arrow_schema(COMMANDS))
    writer.write(COMMANDS.name, table, 0, {"query_id": "q", "batch_id": 0, "writer_epoch": 0})
    config = Config()
    (cluster,) = config.pipeline.clusters
    commands = writer.table(COMMANDS.name)
    read = scan(commands, ("command_id",), recovery.needed_commands(commands))
    assert len(read) <= len(CLUSTERS) * (REMEMBERED_COMMANDS + EACH // 500 + 2)
    chunks = {name: blob for _, name, blob in recovery.rebuilt_states(config, writer)}
    state = ClusterBalancer(cluster=cluster, config=config).unpack(chunks)
    mine = sorted((row for row in rows if row["cluster"] == cluster), key=_age)
    assert set(state.commands) == {row["command_id"] for row in mine[-REMEMBERED_COMMANDS:]}
    assert set(state.waiting) == {row["command_id"] for row in mine if row["status"] == "accepted"}


def _age(row: dict[str, Any]) -> tuple[int, str]:
    return row["at_ms"], row["command_id"]
