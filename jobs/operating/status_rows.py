"""Rows of the tables for a status, an overview and a rehearsal."""

import pyarrow.compute as pc

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import Row, TableReader
from jobs.adapters.http.tls import ends_in_file
from jobs.adapters.processes.clocks import wall_ms
from jobs.sql.engine import SqlEngine
from lbcore.balancer.decisions.candidate_rows import BLOCKED
from lbcore.balancer.decisions.cycle import FULL
from lbcore.balancer.decisions.placement import ALARM as NO_CANDIDATE
from lbcore.config.lookup import LookupConfig
from lbcore.config.tree import Config
from lbcore.explain.explanation import ExplainRows
from lbcore.explain.job_state import JobSurroundings
from lbcore.explain.recent_findings import RECENT_MS
from lbcore.explain.status import (
    HISTORY_MS,
    Moment,
    Overview,
    StatusRows,
    last_decisions,
    make_status,
    moments,
)
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
        rejected=reader.rejected(now_ms - RECENT_MS),
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


HOUR_MS = 3_600_000


def read_overview(
    reader: TableReader, config: Config, now_ms: int, around: JobSurroundings | None = None
) -> Overview:
    """The cluster at one glance, as the tables have it now; config: the cluster's.

    around: what is known of the job beside the tables.
    """
    rows = read_status_rows(reader, now_ms, config.lookup, around)
    status = make_status(reader.cluster, rows, config, now_ms)
    recent = f"at_ms >= {now_ms - HOUR_MS}"
    explained = ExplainRows(
        cluster=reader.cluster,
        at_ms=now_ms,
        window_ms=HOUR_MS,
        config=config,
        decisions=reader.rows("decisions", condition=recent),
        effects=reader.rows("decision_effects", condition=recent),
    )
    return Overview(
        status=status, balance=_balance(reader, now_ms), decisions=last_decisions(explained)
    )


def _balance(reader: TableReader, now_ms: int) -> tuple[Moment, ...]:
    """Return the balance of load, a moment an interval of load_history.

    The engine aggregates it.
    """
    engine = SqlEngine(reader.root, (LOAD_HISTORY.name,))
    found = engine.query(
        "SELECT minute_ms, COALESCE(broker_group, '') AS broker_group, COUNT(*) AS brokers,"  # noqa: S608 (a number and a quoted name)
        " AVG(msg_rate) AS mean, MAX(msg_rate) AS most"
        f" FROM broker_loads WHERE cluster = {literal(reader.cluster)}"
        f" AND minute_ms >= {now_ms - HOUR_MS} GROUP BY minute_ms, broker_group"
    )
    return moments(zip(*(column.to_pylist() for column in found.columns), strict=True))
