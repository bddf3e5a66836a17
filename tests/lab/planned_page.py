"""The section of docs/lab.md on planned work, and the bars that `make lab-pulsar` prints of it.

Its records are docs/plots/planned.json. Decides wording and order, no figure.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.lab.cells import cell
from tests.lab.planned_records import (
    P99_MS,
    WAYS,
    PlannedRecord,
    by_way,
    from_json,
    planned_bars,
    to_json,
)

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
