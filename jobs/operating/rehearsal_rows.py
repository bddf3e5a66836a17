"""Reads what a rehearsal and a foresight go by: for verbs and for the service.

Decides how far back is looked. Source: ours.
"""

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from lbcore.explain.noticed import RECENT_MS
from lbcore.foresight.planning_memory import REMEMBERED_MS
from lbcore.foresight.rehearse import RehearsalRows
from lbcore.model.tables import DECISIONS, LOAD_HISTORY


def read_rehearsal_rows(reader: TableReader) -> RehearsalRows:
    """Everything that a rehearsal goes by; of what is only history the newest."""
    writer = reader.writer()
    written_ms = writer.now_ms if writer else wall_ms()
    since_ms = {
        LOAD_HISTORY.name: written_ms - RECENT_MS,
        DECISIONS.name: written_ms - REMEMBERED_MS,
    }
    return RehearsalRows.read(
        lambda name: reader.rows(
            name, condition=f"at_ms >= {since_ms[name]}" if name in since_ms else ""
        )
    )
