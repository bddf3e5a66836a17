"""Reader of a cluster's overview, for the status page and `ballast top`.

Decides how far back is looked; what is said is `lbcore.explain.status`'s.
"""

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.status_rows import read_status_rows
from jobs.sql.engine import SqlEngine
from lbcore.config.tree import Config
from lbcore.explain.explanation import ExplainRows
from lbcore.explain.job_state import JobSurroundings
from lbcore.explain.status import Moment, Overview, last_decisions, make_status, moments
from lbcore.model.tables import LOAD_HISTORY

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
