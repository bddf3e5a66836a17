"""Rows of the tables for a status and a rehearsal, and how far back they reach."""

import pyarrow.compute as pc

from jobs.adapters.delta.table_reader import Row, TableReader
from jobs.adapters.http.tls import ends_in_file
from jobs.adapters.processes.clocks import wall_ms
from lbcore.balancer.decisions.blocked_messages import BLOCKED
from lbcore.balancer.decisions.cycle import FULL
from lbcore.balancer.decisions.placement import ALARM as NO_CANDIDATE
from lbcore.config.lookup import LookupConfig
from lbcore.explain.job_state import JobSurroundings
from lbcore.explain.recent_findings import RECENT_MS
from lbcore.explain.status import HISTORY_MS, StatusRows
from lbcore.foresight.planning_memory import REMEMBERED_MS
from lbcore.foresight.rehearse import RehearsalRows
from lbcore.model.tables import DECISIONS, LOAD_HISTORY
from lbcore.ownership.records import State
from lbcore.signals.shown_load import SHOWN_MS

_LOAD = (
    *("broker", "minute_ms", "reported_ms", "usage", "score", "percent", "traffic"),
    "broker_group",
)

RECORD = ("bundle", "state", "source", "destination", "cause", "version_id", "at_ms")
"""What is read of a bundle's record."""


def read_status_rows(
    reader: TableReader,
    now_ms: int,
    own: LookupConfig | None = None,
    around: JobSurroundings | None = None,
) -> StatusRows:
    """Read the rows of a status, as the tables have them now.

    own: the service's settings, if known. around: the job's state from outside the tables.

    A certificate that this process may not read, as on another machine, is left out.
    """
    writer = reader.writer()
    written_ms = writer.now_ms if writer else now_ms
    recent = f"at_ms >= {written_ms - RECENT_MS}"
    history = f"at_ms >= {written_ms - HISTORY_MS}"
    told = f"kind = 'observe_ownership' AND {recent}"
    at_rest, bundles = _bundles(reader)
    return StatusRows(
        mirror_commands=reader.rows("commands", ("status", "result", "at_ms"), told),
        writer_ms=writer.now_ms if writer else None,
        bundles=bundles,
        at_rest=at_rest,
        brokers=reader.rows("brokers", ("broker", "state", "version")),
        decisions=reader.rows("decisions", ("cycle", "kind", "reason", "source", "at_ms"), history),
        blocked=reader.rows(
            "decisions",
            ("kind", "reason", "source", "at_ms", "inputs"),
            f"kind IN ('{FULL}', '{BLOCKED}', '{NO_CANDIDATE}') AND {recent}",
        ),
        silence=reader.rows(
            "decisions",
            ("decision_id", "kind", "reason", "source", "at_ms", "inputs"),
            f"kind IN ('failover', 'silence') AND {recent}",
        ),
        around=around or JobSurroundings(),
        policies=reader.rows("policies"),
        pins=reader.rows("pins"),
        load=reader.rows("load_history", _LOAD, f"minute_ms >= {now_ms - SHOWN_MS}"),
        certificates=_certificates(own),
        rejected=reader.rows("rejected_reports", ("reason",), f"at_ms >= {now_ms - RECENT_MS}"),
    )


def _bundles(reader: TableReader) -> tuple[dict[str, int], list[Row]]:
    """Return broker → number of owned bundles, and records of bundles not at rest.

    Counted by Arrow: nearly all of a hundred thousand are at rest. O(bundles).
    """
    records = reader.table("bundle_ownership", RECORD)
    is_at_rest = pc.equal(records["state"], State.OWNED.value)
    owned = records.filter(is_at_rest).group_by("destination").aggregate([([], "count_all")])
    at_rest = dict(
        zip(owned["destination"].to_pylist(), owned["count_all"].to_pylist(), strict=True)
    )
    return at_rest, records.filter(pc.invert(is_at_rest)).to_pylist()


def _certificates(own: LookupConfig | None) -> dict[str, int]:
    path = own.certificate_file if own is not None else ""
    ends_ms = ends_in_file(path)
    return {f"the service ({path})": ends_ms} if ends_ms else {}


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
