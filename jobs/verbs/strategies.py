"""List the strategies: rule, use, and settings with defaults of each."""

import argparse
import textwrap
from typing import Any

from jobs.console import Exit, MisuseError, answer
from jobs.operating.text_format import did_you_mean
from jobs.parser import argument, arguments
from lbcore.config.setting import Entry
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
    found = [
        (kind, one)
        for kind, strategies in STRATEGIES.items()
        for one in strategies
        if args.kind in (None, kind) and _is_named(one, args)
    ]
    has_splits = args.name is None and args.kind in (None, SPLIT)
    rules = _split_rules() if has_splits else []
    if not (found or rules):
        known = sorted({*SHEDDING_STRATEGIES, *PLACEMENT_STRATEGIES})
        raise MisuseError(
            f"there is no strategy {args.name!r}",
            why="it is neither a short name nor the name of a Pulsar class",
            next_step=f"{did_you_mean(args.name, known)}take one of {', '.join(known)}",
        )
    value = [*(_to_row(*one) for one in found), *rules]
    text = "\n\n".join([*(_to_text(*one) for one in found), *(_rule_text(one) for one in rules)])
    answer(args, value, text.split("\n"))
    return Exit.DONE


def _is_named(one: Strategy, args: argparse.Namespace) -> bool:
    name = (args.name or "").rpartition(".")[2]
    return not name or name in (one.name, one.pulsar_class)


def _split_rules() -> list[dict[str, Any]]:
    rules = [
        {
            "kind": SPLIT,
            "name": rule.name,
            "pulsar_class": rule.pulsar_class,
            "rule": rule.summary,
        }
        for rule in RULES
    ]
    algorithms = [
        {
            "kind": "split algorithm",
            "name": algorithm.value,
            "pulsar_class": algorithm.value,
            "rule": summary,
        }
        for algorithm, summary in ALGORITHM_SUMMARIES.items()
    ]
    return [*rules, *algorithms]


def _to_row(kind: str, one: Strategy) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": one.name,
        "pulsar_class": one.pulsar_class,
        "rule": one.rule,
        "use_when": one.use_when,
        "settings": [
            {"key": entry.key, "default": entry.default, "pulsar": list(entry.about.pulsar)}
            for entry in one.entries()
        ],
    }


def _to_text(kind: str, one: Strategy) -> str:
    lines = [f"{kind}  {one.name}  ({one.pulsar_class})"]
    lines += _wrapped(one.rule)
    lines += _wrapped(f"When: {one.use_when}")
    lines += [f"    {_setting(entry)}" for entry in one.entries()]
    return "\n".join(lines)


def _setting(entry: Entry) -> str:
    pulsar = f"  ({entry.about.pulsar[0]})" if entry.about.pulsar else ""
    return f"{entry.key} = {entry.default}{pulsar}"


def _rule_text(rule: dict[str, Any]) -> str:
    names = f"{rule['name']}  ({rule['pulsar_class']})" if rule["pulsar_class"] else rule["name"]
    return "\n".join([f"{rule['kind']}  {names}", *_wrapped(rule["rule"])])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
