"""Look at everything around a cluster: versions, disk, rights, tables, clocks, topics, the job.

Each line is ok, warn or fail, with what to do next. Exit code 1 when something fails. Nothing is
changed.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence

from jobs.adapters.processes.clocks import wall_ms
from jobs.console import Exit, answer
from jobs.operating.doctor import Examined, examine
from jobs.operating.findings import DoctorFinding, FindingVerdict, worst
from jobs.operating.stack_words import add_stack_arguments, whereabouts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: place of the stack to examine."""
    parser.add_argument("--no-kafka", action="store_true", help="leave Kafka out")
    parser.epilog = "example: ballast doctor --conf production --tables /srv/ballast/tables"
    add_stack_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write what is found."""
    examined = Examined(where=whereabouts(args), now_ms=wall_ms(), with_kafka=not args.no_kafka)
    found = examine(examined)
    verdict = worst(found)
    value = {"verdict": verdict.value, "findings": [one.to_json() for one in found]}
    answer(args, value, _lines(found))
    return Exit.FAILED if verdict is FindingVerdict.FAIL else Exit.DONE


def _lines(found: Sequence[DoctorFinding]) -> Iterable[str]:
    width = max(len(one.subject) for one in found)
    for one in found:
        yield f"{one.verdict.value:<4}  {one.subject:<{width}}  {one.what}"
        if one.next_step:
            yield f"      {'':<{width}}  next: {one.next_step}"
    counts = Counter(one.verdict.value for one in found)
    yield ", ".join(f"{counts[verdict.value]} {verdict.value}" for verdict in FindingVerdict)
