"""One moment of a local run as a value: what the live view draws and the headless line says.

Decides only which numbers are shown; how each is defined stands in `lbcore.sim.summary`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs.local.fleet_watch import FleetBroker
from jobs.local.job_log import JobLog, ShownMove
from jobs.local.prober import ProbeCounts
from lbcore.signals.imbalance import imbalance
from lbcore.sim.summary import LoadSample, percentile

_RECENT_BATCHES = 60
_ALIVE = "alive"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One broker. msg_rate: true load, messages in + out a second; score: as the job sees it."""

    name: str
    state: str
    msg_rate: float
    bundles: int
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One moment of a run; times in ms.

    job: how it is, in `lbcore.explain.job_state`'s words, "" = no batch yet. troubles: what is
    wrong now. imbalance: as `signals.imbalance` says, of the true message rates of the brokers that
    live. bundles_open: of all bundles those that are served, by brokers beside the simulated ones
    as the job sees them.
    """

    elapsed_ms: int
    phase: str
    job: str
    brokers: tuple[BrokerRow, ...]
    imbalance: float | None
    bundles_open: int
    bundles: int
    in_flight: int
    batches: int
    cycle_p50_ms: float | None
    cycle_p95_ms: float | None
    moves: int
    recent_moves: tuple[ShownMove, ...]
    lookups: ProbeCounts | None
    restarts: Mapping[str, int]
    troubles: tuple[str, ...] = ()
    events: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The headless line: everything but the list of recent moves, of which it has the last."""
        fields = asdict(self)
        shown = fields.pop("recent_moves")
        return {**fields, "last_move": shown[-1] if shown else None}


def broker_rows(fleet: Sequence[FleetBroker], job: JobLog) -> tuple[BrokerRow, ...]:
    """The fleet's brokers by number, then all others that the job knows.

    A state is the fleet's word where one of its brokers does not run; load is true load, of the
    others as they report it.
    """
    rows = [
        BrokerRow(
            name=broker.name,
            state=_state(broker, job),
            msg_rate=broker.load,
            bundles=broker.bundles,
            score=job.brokers[broker.name]["score"] if broker.name in job.brokers else None,
        )
        for broker in fleet
    ]
    others = [
        BrokerRow(
            name=name,
            state=str(one["state"]),
            msg_rate=one["msg_rate"] or 0.0,
            bundles=one["bundles"],
            score=one["score"],
        )
        for name, one in beside(fleet, job).items()
    ]
    return tuple(
        row
        for some in (rows, others)
        for row in sorted(some, key=lambda row: broker_order(row.name))
    )


def beside(fleet: Sequence[FleetBroker], job: JobLog) -> dict[str, Mapping[str, Any]]:
    """The brokers that are not of the fleet, as the job's newest batch has them."""
    own = {broker.name for broker in fleet}
    return {name: one for name, one in job.brokers.items() if name not in own}


def _state(broker: FleetBroker, job: JobLog) -> str:
    if broker.life != _ALIVE:
        return broker.life
    if job.silence.get(broker.name, {}).get("reason") == "Suspected":
        return "suspected"
    return str(job.brokers.get(broker.name, {}).get("state", "starting"))


def broker_order(name: str) -> tuple[str, int, str]:
    """Sorts broker-2 before broker-10."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (name, -1, name)


def bundles_served(sample: LoadSample | None, fleet: Sequence[FleetBroker], job: JobLog) -> int:
    """Return the number of bundles that are served.

    Those of the fleet are the true ones, those of other brokers are by the job's newest batch.
    """
    others = sum(int(one["bundles"]) for one in beside(fleet, job).values())
    return (sample.bundles_open if sample else 0) + others


def imbalance_of(sample: LoadSample | None) -> float | None:
    """Largest over mean of the live brokers' true load; None before there is any."""
    return imbalance(sample.broker_loads.values()) if sample else None


def recent_percentile(durations_ms: Sequence[int], percent: float) -> float | None:
    """The percentile over the newest 60."""
    return percentile(durations_ms[-_RECENT_BATCHES:], percent)
