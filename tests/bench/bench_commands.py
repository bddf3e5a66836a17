"""`python -m tests.bench commands`: what commands cost a batch at 100 brokers × 100,000 bundles.

CPU seconds of one batch, packing of state and effects included, in-process without Spark and
without a disk: one tenant may send commands by the thousand, and everybody waits for the batch.
Each line is a batch of its own on the same cluster; then each kind of command, where all bundles
are of one namespace, with the batches that follow. Usage: ... [--brokers 100] [--bundles 100000]
[--only WORD] [--output X]
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lbcore.balancer.state.book import NamespaceEntry
from lbcore.balancer.state.rules import ClusterRules
from lbcore.wire.messages import Command
from tests.bench.bench_balancer import PER_NAMESPACE, opened
from tests.bench.command_lines import LINES
from tests.bench.command_setting import Line, Message, Setting
from tests.bench.command_whole import WHOLE
from tests.bench.machine import machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One line of the table: CPU seconds, and what became of the commands, status → number."""

    name: str
    cpu_s: float
    target_s: float
    outcomes: Mapping[str, int] = field(default_factory=dict)


def prepared(brokers: int, bundles: int, per_namespace: int = PER_NAMESPACE) -> Setting:
    """The cluster that each line begins with: everything owned, every broker's load known."""
    bench = opened(brokers, bundles, per_namespace)
    spaces = {name.rpartition("/")[0] for name in bench.cluster.names}
    namespaces = {name: NamespaceEntry(hash="crc32") for name in sorted(spaces)}
    state = replace(bench.state, namespaces=namespaces, rules=ClusterRules())
    setting = Setting(bench, bench.balancer, state)
    setting.step([])
    setting.balancer.pack(setting.state)
    return setting


def measure(setting: Setting, line: Line) -> Measured:
    """The line on a cluster of its own; `setting` stays as it is."""
    own = Setting(setting.bench, setting.balancer, setting.state, setting.number)
    line.prepare(own)
    own.step([])
    cpu_s, outcomes = own.step([_distinct(m, i) for i, m in enumerate(line.messages(own))])
    for _ in range(line.following):
        more_s, more = own.step(own.answers())
        cpu_s, outcomes = max(cpu_s, more_s), {**outcomes, **more}
    return Measured(
        name=line.name, cpu_s=round(cpu_s, 3), target_s=line.target_s, outcomes=outcomes
    )


def _distinct(message: Message, number: int) -> Message:
    if isinstance(message, Command):
        return replace(message, command_id=f"{message.command_id}/{number}")
    return message


def main() -> int:
    """Measure, show the table, write the JSON; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--bundles", type=int, default=100_000)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    on = machine()
    write = sys.stdout.write
    write(f"{args.brokers} brokers × {args.bundles} bundles on {on}\n")
    write(f"{'CPU s':36}{'batch':>9}{'target':>9}  outcomes\n")
    measured = []
    for per_namespace, lines in ((PER_NAMESPACE, LINES), (args.bundles, WHOLE)):
        wanted = [line for line in lines if args.only in line.name]
        setting = prepared(args.brokers, args.bundles, per_namespace) if wanted else None
        for line in wanted:
            assert setting is not None
            each = measure(setting, line)
            measured.append(each)
            write(f"{each.name:36}{each.cpu_s:>9}{each.target_s:>9}  {dict(each.outcomes)}\n")
            sys.stdout.flush()
    figures = json.dumps({"machine": on, "measured": [asdict(each) for each in measured]})
    write(figures + "\n")
    if args.output:
        args.output.write_text(figures)
    return int(any(each.cpu_s > each.target_s for each in measured))


if __name__ == "__main__":
    sys.exit(main())
