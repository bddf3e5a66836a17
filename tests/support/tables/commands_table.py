"""The table `commands` as the job writes it, for tests of those who wait for outcomes."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from jobs.adapters.delta.tables import arrow_schema, ensure_table, open_table, table_path
from lbcore.balancer.state.effects import to_json
from lbcore.model.tables import COMMANDS, OWNERSHIP_EVENTS

CLUSTER = "local"


class CommandsTable:
    """Tables under a folder: `commands`, and the heartbeats of the job in `ownership_events`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for table in (COMMANDS, OWNERSHIP_EVENTS):
            ensure_table(root, table)

    def add(
        self, command_id: str, status: str, at_ms: int = 1, cluster: str = CLUSTER, **row: Any
    ) -> None:
        """One row, merged in a commit of its own. row: reason, result, or raw_result, its text."""
        result: Mapping[str, Any] = row.pop("result", {})
        full = {
            "cluster": cluster,
            "command_id": command_id,
            "kind": "unload_bundle",
            "arguments": "{}",
            "principal": "",
            "address": "",
            "status": status,
            "reason": "",
            "result": row.pop("raw_result", to_json(result)),
            "at_ms": at_ms,
            "batch_id": 0,
            **row,
        }
        rows = pa.Table.from_pylist([full], schema=arrow_schema(COMMANDS))
        table = open_table(self.root, COMMANDS.name)
        same = "t.cluster = s.cluster AND t.command_id = s.command_id"
        merge = table.merge(rows, same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def beat(self, silent_ms: int = 0) -> None:
        """A heartbeat of the job, so long ago."""
        about = {
            "query_id": "q",
            "batch_id": 0,
            "now_ms": time.time_ns() // 1_000_000 - silent_ms,
            "writer_epoch": 0,
        }
        write_deltalake(
            str(table_path(self.root, OWNERSHIP_EVENTS.name)),
            arrow_schema(OWNERSHIP_EVENTS).empty_table(),
            mode="append",
            commit_properties=CommitProperties(
                custom_metadata={"ballast": to_json(about)},
                app_transactions=[Transaction(f"{OWNERSHIP_EVENTS.name}:q", 0)],
            ),
        )
