"""Writes docs/lab.md and its picture from records: who keeps brokers even, and at what price.

python -m tests.lab.page FOLDER      # of the records, as `make lab-pulsar` leaves them

The records of the committed page are docs/plots/lab.json; a test holds page and picture equal to
what is drawn of them. Decides wording and order, no figure.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jobs.console import say
from tests.lab.bars import CONTENDERS, Bar, bars, by_contender
from tests.lab.picture import picture
from tests.lab.planned_page import kept_planned, section
from tests.lab.records import ADDED, SKEW, Record, cell, from_json, to_json

DOCS = Path(__file__).resolve().parents[2] / "docs"
KEPT = DOCS / "plots" / "lab.json"
PAGE, PICTURE = DOCS / "lab.md", DOCS / "plots" / "lab.svg"

_HEAD = """\
# The lab: Pulsar's brokers on hosts of their own

`make lab-pulsar` (root on Linux with cgroups v1) gives each Pulsar {pulsar} broker a host of its
own: a network namespace with 20 Mbit/s, and half a core. So usages are each broker's own, and
shedders that judge by them act, unlike in [the comparison on one host](benchmarks.md). All else
runs in a hub beside them.

Each run has the same phases. 24 topics of 4 kB messages, 150 a second in all, each less than the
one before, lie evenly on three brokers (**even**). The topics of broker 2 carry four times as much
(**skew**: 2.0 times the mean). Broker 4 is ready (**added**). Broker 3 is killed with SIGKILL
(**killed**), comes back, and the heat goes from broker 2's topics to broker 1's (**changed**).

All contenders decide once a minute, keep a moved bundle for a minute, may move half of a
difference, and split nothing. Thresholds are Pulsar's defaults; Ballast has its overlay `pulsar`.

Max/mean is the load *offered* to the busiest live broker over the mean, each second. A move is a
bundle with traffic seen at another broker, without a killed broker's. Around moves: from 2 s before
until 5 s after. Latencies are of messages before a broker was killed."""

_TAIL = """\
`make lab-pulsar ARGS="--runs 3 --contenders avg ballast"` runs some; a second start goes on with
what is missing in `var/lab`. `python -m tests.lab.page var/lab` writes this page from there, and
prints the bars. With `--pulsar 4.2.4` brokers are of that version, and the records in
`var/lab-4.2.4`. The records of this page are [plots/lab.json](plots/lab.json)."""

_COLUMNS: Mapping[str, Callable[[Record], float]] = {
    "min above 1.25": lambda one: one.above_s() / 60.0,
    "mean max/mean": lambda one: one.mean_ratio(),
    "at the end of skew": lambda one: one.last_ratio(SKEW),
    "and of added": lambda one: one.last_ratio(ADDED),
    "first move (s)": lambda one: one.first_move_s,
    "broker 4 used (s)": lambda one: one.new_broker_s,
    "moves": lambda one: float(len(one.own_moves)),
    "repeated": lambda one: float(one.repeated),
}
_PRICES: Mapping[str, Callable[[Record], float]] = {
    "publish p99 around moves (ms)": lambda one: one.latencies.publish_moves,
    "else": lambda one: one.latencies.publish_else,
    "s with a bundle unowned": lambda one: one.unowned_s,
    "lost": lambda one: float(one.lost),
    "errors": lambda one: float(one.errors),
    "load average": lambda one: one.load[1],
}


def main(words: Sequence[str]) -> int:
    """Write the page, its picture and its records."""
    folder = Path(words[0]) if words else DOCS.parent / "var" / "lab"
    records = read_folder(folder)
    write(records)
    for bar in bars(records):
        say(str(bar))
    return 0


def read_folder(folder: Path) -> list[Record]:
    """What the runs of a folder came to."""
    return [from_json(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def kept_records() -> list[Record]:
    """Those of the committed page."""
    return [from_json(one) for one in json.loads(KEPT.read_text())]


def write(records: Sequence[Record]) -> None:
    """The page, its picture, and the records that both are drawn from."""
    lines = ",\n".join(json.dumps(to_json(one)) for one in records)
    KEPT.write_text(f"[\n{lines}\n]\n")
    PAGE.write_text(page(records))
    PICTURE.write_text(picture(by_contender(records)))


def page(records: Sequence[Record]) -> str:
    """docs/lab.md."""
    runs = by_contender(records)
    parts = [
        _HEAD.format(pulsar=" or ".join(sorted({one.pulsar for one in records}))),
        _measured(records),
        *_absent(runs),
        "## Who keeps brokers even",
        "![max/mean over time](plots/lab.svg)",
        _table(runs, _COLUMNS),
        "## Ballast's bars",
        _bars(bars(records)),
        "## What clients noticed",
        _table(runs, _PRICES),
        *section(kept_planned()),
        "## Run it",
        _TAIL,
    ]
    return "\n\n".join(parts) + "\n"


def _measured(records: Sequence[Record]) -> str:
    counts = sorted({len(found) for found in by_contender(records).values()})
    began = sorted(one.began for one in records)
    cores = sorted({one.cores for one in records})
    loads = sorted(one.load[1] for one in records)
    told = " to ".join(str(one) for one in dict.fromkeys((counts[0], counts[-1])))
    seconds = sorted(one.watched_s for one in records)
    return (
        f"Measured from {began[0]} to {began[-1]} UTC on {' or '.join(map(str, cores))} cores, with"
        f" other work beside (load average {loads[0]:g} to {loads[-1]:g}),"
        f" {seconds[0] / 60:.1f} minutes a run, **{told} run{'' if counts[-1] == 1 else 's'} of"
        " each**. Of several runs the median stands first, and the least and the most in brackets,"
        ' where they differ. "-": not seen.'
    )


def _absent(runs: Mapping[str, Sequence[Record]]) -> list[str]:
    lacking = [one.title for name, one in CONTENDERS.items() if name not in runs]
    if not lacking:
        return []
    return [f"**Not run to the end, so without figures here and unjudged: {'; '.join(lacking)}.**"]


def _table(
    runs: Mapping[str, Sequence[Record]], columns: Mapping[str, Callable[[Record], float]]
) -> str:
    lines = [f"| contender | {' | '.join(name.strip() for name in columns)} |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for name, found in runs.items():
        cells = [cell([figure(one) for one in found]) for figure in columns.values()]
        lines.append(f"| {CONTENDERS[name].title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _bars(found: Sequence[Bar]) -> str:
    if not found:
        return "None is judged: no strategy of Ballast was run to the end."
    lines = ["| strategy | bar | | figures |", "|---|---|---|---|"]
    lines += [
        f"| {CONTENDERS[bar.contender].title} | {bar.claim} | **{bar.verdict}** | {bar.figures} |"
        for bar in found
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
