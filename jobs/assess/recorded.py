"""Report of what Prometheus has recorded of a cluster.

Where the cluster's admin interface is named, too, bundles have their own boundaries, and the
settings of the brokers are judged.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial

from jobs.adapters.delta.recordings import read_history
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.bridge import brokers_settings
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import note
from jobs.operating.backtesting import (
    Past,
    Recorded,
    make_past,
    recorded_row,
    trying,
)
from jobs.operating.prometheus import TraceOfPrometheus, trace_lines, write_trace
from lbcore.assess.loads import hottest_bundles, loads_of
from lbcore.assess.report import Moved, Report
from lbcore.assess.risks import unrelievable
from lbcore.assess.settings import harms_of
from lbcore.bridge.answers import Settings
from lbcore.config.tree import Config

UNKNOWN = "not known"
SETTINGS = "settings that hurt: name a broker's web service beside --prometheus"
FORESIGHT = "what Ballast would do next: that needs the cluster itself, without --prometheus"


def recorded_report(args: argparse.Namespace, admin: PulsarAdmin | None, cluster: str) -> Report:
    """Read the recorded load, try the strategies on it, and report.

    admin: of the cluster, None = not named. Raises CommandError and MisuseError.
    """
    unread: dict[str, str] = {}
    edges_of = partial(_edges, admin, unread) if admin else None
    found = write_trace(args, edges_of=edges_of)
    for line in trace_lines(found):
        note(line)
    recorded = Recorded(place=found.path, rows=read_history(found.path))
    past = make_past(recorded, 0, 1)
    runs = trying(past, past.settings(args.set), Config(), args.workers)
    rows = [recorded_row(past), *runs.results(args.strategy.split(","))]
    settings = _settings_of(admin, cluster, unread) if admin else {}
    loads, bundles = loads_of(recorded.rows), hottest_bundles(recorded.rows)
    return Report(
        cluster=cluster or args.prometheus,
        url=args.prometheus,
        from_ms=loads.times_ms[0],
        to_ms=loads.times_ms[-1],
        loads=loads,
        bundles=bundles,
        topics=(),
        moves=_moves(past),
        harms=tuple(harms_of(settings)),
        risks=tuple(unrelievable(loads, bundles, ())),
        decisions=0,
        foresight=None,
        versions={},
        bundle_count=sum(loads.bundles.values()),
        strategies=tuple(rows),
        notes=(*_notes(found, unread), *(() if admin else (SETTINGS,))),
        unread=unread,
    )


def _edges(admin: PulsarAdmin, unread: dict[str, str], namespace: str) -> Sequence[int]:
    try:
        return admin.boundaries(namespace)
    except PulsarAdminError as error:
        unread[f"bundles of {namespace}"] = str(error)
        return ()


def _settings_of(
    admin: PulsarAdmin, cluster: str, unread: dict[str, str]
) -> Mapping[str, Settings | None]:
    try:
        found, failed = brokers_settings(admin, cluster, admin.brokers(cluster))
    except PulsarAdminError as error:
        unread["settings of the brokers"] = str(error)
        return {}
    unread.update({what: str(error) for what, error in failed.items()})
    return found


def _moves(past: Past) -> tuple[Moved, ...]:
    """Changes of owner between two steps, at the recorded times."""
    moves = past.history.moves()
    first_ms = past.history.intervals[0].at_ms
    return tuple(
        Moved(
            at_ms=first_ms + round((move.at_ms - first_ms) * past.pace),
            bundle=move.bundle,
            source=move.source,
            destination=move.destination,
            who=UNKNOWN,
        )
        for move in moves
    )


def _notes(found: TraceOfPrometheus, unread: Mapping[str, str]) -> list[str]:
    own = f"Pulsar's load manager unloaded {found.unloads:.0f} bundles meanwhile"
    return [
        f"which moves are whose doing: {own}, and Prometheus does not say which",
        FORESIGHT,
        *(f"{what}: {why}" for what, why in sorted(unread.items())),
    ]
