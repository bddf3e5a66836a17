"""List the strategies: rule, use, and settings with defaults of each."""

import argparse
import textwrap
from collections.abc import Mapping
from functools import partial
from typing import Any

from jobs.console import Exit, MisuseError, answer
from jobs.parser import argument, arguments
from lbcore.model.names import did_you_mean
from lbcore.plan.registry import (
    PLACE,
    PLACEMENT_STRATEGIES,
    SHED,
    SHEDDING_STRATEGIES,
    STRATEGIES,
)
from lbcore.plan.split.algorithms import ALGORITHM_SUMMARIES, RULES
from lbcore.plan.strategy import Strategy

SPLIT = "split"
WIDTH = 100


add_arguments = arguments(
    argument("--kind", choices=(SHED, PLACE, SPLIT), help="only these"),
    argument("name", nargs="?", help="e.g. avg, or AvgShedder"),
)


def run(args: argparse.Namespace) -> int:
    """Write the list."""
    name = (args.name or "").rpartition(".")[2]
    rows = [
        _row(kind, one)
        for kind, strategies in STRATEGIES.items()
        for one in strategies
        if args.kind in (None, kind) and name in ("", one.name, one.pulsar_class)
    ]
    if args.name is None and args.kind in (None, SPLIT):
        rules = [(SPLIT, one.name, one.pulsar_class, one.summary) for one in RULES]
        rules += [
            ("split algorithm", one.value, one.value, summary)
            for one, summary in ALGORITHM_SUMMARIES.items()
        ]
        keys = ("kind", "name", "pulsar_class", "rule")
        rows += [dict(zip(keys, rule, strict=True)) for rule in rules]
    if not rows:
        known = sorted({*SHEDDING_STRATEGIES, *PLACEMENT_STRATEGIES})
        raise MisuseError(
            f"there is no strategy {args.name!r}",
            why="it is neither a short name nor the name of a Pulsar class",
            next_step=f"{did_you_mean(args.name, known)}take one of {', '.join(known)}",
        )
    answer(args, rows, "\n\n".join(map(_text, rows)).split("\n"))
    return Exit.DONE


def _row(kind: str, one: Strategy) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": one.name,
        "pulsar_class": one.pulsar_class,
        "rule": one.rule,
        "use_when": one.use_when,
        "settings": [
            {"key": entry.key, "default": entry.default, "pulsar": list(entry.setting.pulsar)}
            for entry in one.entries()
        ],
    }


def _text(row: Mapping[str, Any]) -> str:
    named = f"  ({row['pulsar_class']})" if row["pulsar_class"] else ""
    words = [row["rule"], *([f"When: {row['use_when']}"] if "use_when" in row else [])]
    wrap = partial(textwrap.wrap, width=WIDTH, initial_indent="  ", subsequent_indent="  ")
    settings = [
        f"    {one['key']} = {one['default']}{''.join(f'  ({key})' for key in one['pulsar'][:1])}"
        for one in row.get("settings", ())
    ]
    lines = [line for text in words for line in wrap(text)]
    return "\n".join([f"{row['kind']}  {row['name']}{named}", *lines, *settings])
