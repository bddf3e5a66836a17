"""Asks `lbcore.machines.foresee` what the next cycles would do, and words the answer.

Decides what a strategy's name stands for and how many moves a person is shown. Nothing is sent.
Used by the verb and by the service. Source: ours.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.adapters.table_reader import TableReader, wall_ms
from jobs.console import CommandError, MisuseError
from jobs.operating.commanding import read_rehearsal_rows
from jobs.operating.durations import format_duration
from jobs.operating.simulations import STRATEGIES
from jobs.operating.text_table import text_table
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.explain.explanation import number
from lbcore.machines.foresee import Balance, Foresight, Impossible, WhatIf, foresee

_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would happen, and how old the tables are that say so (-1: the job never wrote)."""

    found: Foresight
    tables_age_ms: int

    def to_json(self) -> dict[str, Any]:
        """JSON-able values."""
        return {"dry_run": True, "tables_age_ms": self.tables_age_ms, **self.found.to_json()}

    def lines(self) -> Iterator[str]:
        """For people."""
        found, age = self.found, ""
        if self.tables_age_ms >= 0:
            age = f"; the tables are {format_duration(self.tables_age_ms)} old"
        yield f"dry run, nothing was sent{age}"
        yield (
            f"under {found.strategy} with {found.placement}: {found.cycles} cycles, at least "
            f"{format_duration(found.cycle_ms)} apart, with load as it is now; hits begin at 0 "
            "here, so what needs some may come sooner"
        )
        if found.idle:
            yield f"no load is known of {', '.join(found.idle)}: taken for idle"
        yield from _decision_lines(found)
        yield from _skip_lines(found)
        yield from _waiting_lines(found)
        yield from _balance_lines(found)


def look_ahead(reader: TableReader, config: Config, strategy: str, what_if: WhatIf) -> Outlook:
    """What would happen. config: the cluster's, as its files say. strategy: "" = as it is set.

    Raises MisuseError for a question that can't be asked, CommandError for one without an answer.
    """
    asked = WhatIf(
        settings=(*settings_of(strategy), *what_if.settings),
        add_brokers=what_if.add_brokers,
        remove_brokers=what_if.remove_brokers,
    )
    writer, now_ms = reader.writer(), wall_ms()
    try:
        found = foresee(config, reader.cluster, read_rehearsal_rows(reader), now_ms, asked)
    except ConfigError as error:
        raise MisuseError(
            "these settings can't be used",
            why="; ".join(map(str, error.problems)),
            next_step="correct them; `ballast config show` lists every setting with its range",
        ) from None
    if isinstance(found, Impossible):
        raise CommandError(
            "this can't be foreseen",
            why=found.reason,
            next_step="`ballast status` lists the brokers as they are",
        )
    age_ms = -1 if writer is None else max(0, now_ms - writer.now_ms)
    return Outlook(found=found, tables_age_ms=age_ms)


def settings_of(strategy: str) -> tuple[str, ...]:
    """What a strategy's name stands for: the rule that sheds, and a placement that suits it."""
    if not strategy:
        return ()
    if strategy not in STRATEGIES:
        raise MisuseError(
            f"there is no strategy {strategy!r} to plan with",
            why=f"there are {', '.join(STRATEGIES)}",
            next_step="take one of them, or set settings with --set",
        )
    return STRATEGIES[strategy]


def _decision_lines(found: Foresight) -> Iterator[str]:
    cycle = 0
    for one in found.decisions[:_LISTED]:
        if one["cycle"] != cycle:
            cycle = one["cycle"]
            yield _heading(one)
        yield f"  {_decision(one)}"
    if len(found.decisions) > _LISTED:
        yield f"  and {len(found.decisions) - _LISTED} decisions more; --json has them all"
    if not found.decisions:
        yield "nothing would be decided"


def _heading(one: Mapping[str, Any]) -> str:
    if one["cycle"] == 1:
        return "at once:"
    hits = "hit" if one["more_hits"] == 1 else "hits"
    between = f"in {format_duration(one['after_ms'])} to {format_duration(one['latest_ms'])}"
    return f"after {one['more_hits']} more {hits}, cycle {one['cycle']}, {between}:"


def _decision(one: Mapping[str, Any]) -> str:
    inputs = one["inputs"]
    what = one["bundle"] or f"{inputs.get('bundles', '')} bundles".strip()
    way = " → ".join(name for name in (one["source"], one["destination"]) if name)
    text = f"{one['kind']} {what} {way}".rstrip() + f": {one['reason']} ({one['strategy']})"
    changes = [
        f"{side} {_percent(inputs.get(f'{side}_usage'))} → {_percent(expected)}"
        for side in ("source", "destination")
        if (expected := inputs.get(f"{side}_usage_expected")) is not None
    ]
    return "; ".join([text, *changes])


def _skip_lines(found: Foresight) -> Iterator[str]:
    runs: list[tuple[str, int, int]] = []
    for one in found.skips:
        reason, cycle = one["reason"], one["cycle"]
        if runs and runs[-1][0] == reason and runs[-1][2] == cycle - 1:
            runs[-1] = (reason, runs[-1][1], cycle)
        else:
            runs.append((reason, cycle, cycle))
    for reason, first, last in runs:
        cycles = f"cycle {first}" if first == last else f"cycles {first} to {last}"
        yield f"{cycles} would decide nothing: {reason}"


def _waiting_lines(found: Foresight) -> Iterator[str]:
    for one in found.waiting[:_LISTED]:
        level = one["levels"][0]
        more = one["more_hits"]
        hits = "hit" if more == 1 else "hits"
        need = "below every threshold" if more is None else f"needs {more} {hits} more"
        against = f" against {one['compared_with']}" if one["compared_with"] else ""
        threshold = f"threshold {_number(level['threshold'])}"
        measured = f"{one['measure']} {_number(one['number'])}, {threshold}"
        yield f"near: {one['subject']}{against}: {measured.strip()}; {need} ({one['verdict']})"


def _balance_lines(found: Foresight) -> Iterator[str]:
    before = {one.broker: one for one in found.before.brokers}
    after = {one.broker: one for one in found.after.brokers}
    rows = [("broker", "msg/s", "usage", "bundles")]
    for name in sorted({*before, *after}):
        was, will = before.get(name), after.get(name)
        drained = " (drained)" if will is not None and will.is_draining else ""
        pairs = ((was and was.msg_rate), (will and will.msg_rate))
        rows.append(
            (
                f"{name}{drained}",
                " → ".join(map(_number, pairs)),
                f"{_percent(was and was.usage)} → {_percent(will and will.usage)}",
                f"{_number(was and was.bundles)} → {_number(will and will.bundles)}",
            )
        )
    yield from text_table(rows)
    yield f"imbalance {_imbalance(found.before)} → {_imbalance(found.after)}"


def _imbalance(balance: Balance) -> str:
    if balance.imbalance is None or balance.floor_adjusted is None:
        return "none, without load"
    return f"{balance.imbalance:.2f} (floor-adjusted {balance.floor_adjusted:.2f})"


def _percent(usage: float | None) -> str:
    return "-" if usage is None else f"{100.0 * usage:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)
