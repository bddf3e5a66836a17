"""What one restart of every broker came to, as values; and which bars it meets.

Decides what is counted: everything that was sent from the first restart until brokers were even
again, and beside it what was sent around moves. No clock, no I/O.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.lab.records import middle

WAYS: Mapping[str, str] = {
    "pulsar": "Pulsar's own shutdown, its own shedder",
    "ballast": "`ballast bridge rolling-restart`",
}
P99_MS = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRecord:
    """One run. Times of clients in ms, -1 = nothing was sent then.

    way: a key of WAYS. slow: messages that took more than P99_MS to be acknowledged. unowned_s:
    with a bundle with traffic that nobody owned; unowned_bundle_s: summed over such bundles.
    before, after: the busiest broker over the mean. load: the machine's load average at the least,
    in the middle, at the most.
    """

    way: str
    run: int
    began: str
    cores: int
    load: tuple[float, float, float]
    seconds: float
    publish_p99: float
    publish_most: float
    publish_p99_moves: float
    end_to_end_p99: float
    end_to_end_most: float
    sent: int
    slow: int
    lost: int
    errors: int
    unowned_s: float
    unowned_bundle_s: float
    moves: int
    before: float
    after: float
    notes: tuple[str, ...] = ()


def to_json(record: PlannedRecord) -> dict[str, Any]:
    """As JSON has it."""
    return asdict(record)


def from_json(found: Mapping[str, Any]) -> PlannedRecord:
    """What `to_json` made."""
    lists = {"load": tuple(found["load"]), "notes": tuple(found["notes"])}
    return PlannedRecord(**{**found, **lists})


def by_way(records: Sequence[PlannedRecord]) -> dict[str, list[PlannedRecord]]:
    """Way → its runs in order, ways in theirs."""
    found = {
        way: sorted((one for one in records if one.way == way), key=lambda one: one.run)
        for way in WAYS
    }
    return {way: runs for way, runs in found.items() if runs}


def planned_bars(records: Sequence[PlannedRecord]) -> list[tuple[str, bool, str]]:
    """(claim, whether it is met, figures) of our way; of several runs the worst counts for loss."""
    runs = by_way(records)
    ours, theirs = runs.get("ballast", []), runs.get("pulsar", [])
    if not ours:
        return []

    def beside(figures: Sequence[float]) -> str:
        return f", Pulsar's own {middle(figures):,.0f}" if theirs else ""

    p99 = middle([one.publish_p99 for one in ours])
    near = middle([one.publish_p99_moves for one in ours])
    errors, lost = max(one.errors for one in ours), max(one.lost for one in ours)
    return [
        (
            "publish p99 is at most 500 ms",
            0.0 <= p99 <= P99_MS,
            f"{p99:,.0f} ms{beside([one.publish_p99 for one in theirs])} ms",
        ),
        (
            "publish p99 around moves is at most 500 ms",
            near <= P99_MS,
            f"{near:,.0f} ms{beside([one.publish_p99_moves for one in theirs])} ms",
        ),
        (
            "no client sees an error",
            errors == 0,
            f"{errors}{beside([float(one.errors) for one in theirs])}",
        ),
        (
            "no message is lost",
            lost == 0,
            f"{lost}{beside([float(one.lost) for one in theirs])}",
        ),
    ]
