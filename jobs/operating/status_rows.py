"""Reads what a cluster's status is made of: for the verb, the service, the overview, the doctor.

Decides how far back is looked; what is said of it is `lbcore.explain.status`'. Source: ours.
"""

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.http.certificates import ends_in_file
from lbcore.config.lookup import LookupConfig
from lbcore.explain.noticed import RECENT_MS
from lbcore.explain.status import HISTORY_MS, StatusRows
from lbcore.signals.shown_load import SHOWN_MS

_LOAD = ("broker", "minute_ms", "reported_ms", "usage", "score", "percent", "traffic")

_SHADOW = ("strategy", "reason", "moves", "elsewhere", "imbalance", "shadow_imbalance", "at_ms")


def read_status_rows(
    reader: TableReader, now_ms: int, own: LookupConfig | None = None
) -> StatusRows:
    """What a status is made of, as the tables have it now. own: how the service is set, if known.

    A certificate that this process may not read, as on another machine, is not looked at.
    """
    writer = reader.writer()
    written_ms = writer.now_ms if writer else now_ms
    recent = f"at_ms >= {written_ms - RECENT_MS}"
    history = f"at_ms >= {written_ms - HISTORY_MS}"
    record = ("bundle", "state", "source", "destination", "cause", "version_id", "at_ms")
    told = f"kind = 'observe_ownership' AND {recent}"
    return StatusRows(
        mirror_commands=reader.rows("commands", ("status", "result", "at_ms"), told),
        writer_ms=writer.now_ms if writer else None,
        bundles=reader.rows("bundle_ownership", record),
        brokers=reader.rows("brokers", ("broker", "state", "version")),
        decisions=reader.rows("decisions", ("cycle", "kind", "reason", "source", "at_ms"), history),
        held=reader.rows(
            "decisions",
            ("kind", "reason", "source", "at_ms", "inputs"),
            f"kind = 'held' AND {recent}",
        ),
        policies=reader.rows("policies"),
        pins=reader.rows("pins"),
        load=reader.rows("load_history", _LOAD, f"minute_ms >= {now_ms - SHOWN_MS}"),
        shadows=reader.rows("shadow_decisions", _SHADOW, recent),
        certificates=_certificates(own),
        rejected=reader.rows("rejected_reports", ("reason",), f"at_ms >= {now_ms - RECENT_MS}"),
    )


def _certificates(own: LookupConfig | None) -> dict[str, int]:
    path = own.certificate_file if own is not None else ""
    ends_ms = ends_in_file(path)
    return {f"the service ({path})": ends_ms} if ends_ms else {}
