"""The section of docs/lab.md on planned work, and the bars that `make lab-pulsar` prints of it.

Its records are docs/plots/planned.json. Decides wording and order, no figure.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.lab.records import cell, middle

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


KEPT = Path(__file__).resolve().parents[2] / "docs" / "plots" / "planned.json"

_HEAD = f"""\
## Planned work: every broker restarted

`make lab-pulsar ARGS=--planned`: three brokers, evenly loaded with the topics above, are restarted
one after the other. **Pulsar's own way**: SIGTERM (`brokerShutdownTimeoutMs` as it is, 60 s),
started again, a minute until the next, with its own shedder (ThresholdShedder) on. **Ours**:
[`ballast bridge rolling-restart`](pulsar.md#restart-the-brokers-without-a-client-noticing) with a
command that does just that. Counted from the first drain until brokers are even again, of Pulsar's
way from the first SIGTERM until a minute after the last. Slow: acknowledged after more than
{P99_MS:.0f} ms. A bundle that is unowned is one with traffic."""

_COLUMNS: Mapping[str, Callable[[PlannedRecord], float]] = {
    "publish p99 (ms)": lambda one: one.publish_p99,
    "most": lambda one: one.publish_most,
    "p99 around moves": lambda one: one.publish_p99_moves,
    "end to end p99 (ms)": lambda one: one.end_to_end_p99,
    "slow": lambda one: float(one.slow),
    "errors": lambda one: float(one.errors),
    "lost": lambda one: float(one.lost),
    "s with a bundle unowned": lambda one: one.unowned_s,
    "bundle-seconds unowned": lambda one: one.unowned_bundle_s,
    "moves": lambda one: float(one.moves),
    "max/mean before": lambda one: one.before,
    "after": lambda one: one.after,
    "duration (s)": lambda one: one.seconds,
}


def read_folder(folder: Path) -> list[PlannedRecord]:
    """What the runs of a folder came to."""
    return [from_json(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def kept_planned() -> list[PlannedRecord]:
    """Those of the committed page."""
    return [from_json(one) for one in json.loads(KEPT.read_text())] if KEPT.exists() else []


def write(records: Sequence[PlannedRecord]) -> None:
    """Keep the records that the section is drawn from."""
    KEPT.write_text("[\n" + ",\n".join(json.dumps(to_json(one)) for one in records) + "\n]\n")


def bar_lines(records: Sequence[PlannedRecord]) -> list[str]:
    """For people."""
    return [
        f"{'met' if is_met else 'missed'}: planned work: {claim}: {figures}"
        for claim, is_met, figures in planned_bars(records)
    ]


def section(records: Sequence[PlannedRecord]) -> list[str]:
    """Parts of the page; none without records."""
    runs = by_way(records)
    if not runs:
        return []
    began = sorted(one.began for one in records)
    cores = max(one.cores for one in records)
    many = max(len(found) for found in runs.values())
    times = f"{many} run{'' if many == 1 else 's'}"
    measured = (
        f"Measured from {began[0]} to {began[-1]} UTC on {cores} cores with other work beside,"
        f" **{times} of each**."
    )
    lines = [f"| | {' | '.join(WAYS[way] for way in runs)} |", "|---" * (len(runs) + 1) + "|"]
    for name, figure in _COLUMNS.items():
        cells = [cell([figure(one) for one in found]) for found in runs.values()]
        lines.append(f"| {name.strip()} | {' | '.join(cells)} |")
    bars = ["| bar | | figures |", "|---|---|---|"]
    bars += [
        f"| {claim} | **{'met' if is_met else 'missed'}** | {figures} |"
        for claim, is_met, figures in planned_bars(records)
    ]
    return [
        _HEAD,
        measured,
        "\n".join(lines),
        "\n".join(bars),
    ]
