"""Plans: forecasts of cycles and commands, waiting plans, and their undoing.

Decides what a strategy's name stands for, and how much of a forecast is shown. Nothing is sent.
Used by the verbs and by the service.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from jobs.adapters.delta.rows import is_one_of, literal
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import require_loaded
from jobs.console import CommandError, MisuseError, text_table
from jobs.operating.connection_options import check_known, names_in
from jobs.operating.simulations import STRATEGIES, settings_with
from jobs.operating.status import read_rehearsal_rows
from lbcore.balancer.rules import PROPOSAL, PlanProposal, PlanStatus, ProposedStep
from lbcore.config.tree import Config, changed
from lbcore.config.values import ConfigError
from lbcore.explain.explanation import number, percent
from lbcore.explain.reasons import reason_message
from lbcore.foresight.forecast import (
    ForeseenBroker,
    Foresight,
    Impossible,
    LoadMoment,
    WhatIf,
    foresee,
)
from lbcore.foresight.rehearse import Rehearsal, rehearse
from lbcore.model.names import did_you_mean
from lbcore.model.times import duration, instant
from lbcore.ownership.records import State
from lbcore.packing import from_plain
from lbcore.plan.decision import Kind
from lbcore.plan.shed.custom import FAULTS, custom_shedding
from lbcore.wire.arguments import MAX_MOVES
from lbcore.wire.messages import Command

_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Forecast, and the age of the tables it is from (-1: the job never wrote)."""

    found: Foresight
    tables_age_ms: int

    @property
    def has_faults(self) -> bool:
        """True if a custom strategy misbehaved in a cycle."""
        return any(one["reason"] in FAULTS for one in self.found.skips)

    def to_json(self) -> dict[str, Any]:
        """JSON-able values; `why` of a decision is its reason as a sentence."""
        found = self.found.to_json()
        decisions = [
            {**one, "why": reason_message(one["reason"], one["kind"])} for one in found["decisions"]
        ]
        return {
            "dry_run": True,
            "tables_age_ms": self.tables_age_ms,
            **found,
            "decisions": decisions,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        found = self.found
        yield dry_run_line(self.tables_age_ms)
        yield (
            f"under {found.strategy} with {found.placement}: {found.cycles} cycles, at least "
            f"{duration(found.cycle_ms)} apart, with load as it is now"
        )
        if found.idle:
            yield f"no load is known of {', '.join(found.idle)}: taken for idle"
        if found.unreported_moves:
            yield f"{found.unreported_moves} late moves that load does not show yet count as done"
        yield from _decision_lines(found)
        yield from _skip_lines(found)
        yield from map(_waiting, found.waiting[:_LISTED])
        yield from (f"blocked: {one}" for one in found.blocked)
        yield from _balance_lines(found)
        yield from (f"pin broken while its broker is drained: {one}" for one in found.broken_pins)
        yield from (f"gets hot: {one}" for one in found.hot)
        yield from (f"not known here: {one}" for one in found.unknown)


def dry_run_line(age_ms: int) -> str:
    """First line of a dry run. age_ms: of the tables, -1: the job never wrote."""
    age = "" if age_ms < 0 else f"; the tables are {duration(age_ms)} old"
    return f"dry run, nothing was sent{age}"


def look_ahead(reader: TableReader, config: Config, strategy: str, what_if: WhatIf) -> Outlook:
    """Forecast the next cycles. config: the one the job was started with.

    strategy: "" = as it is set. Raises MisuseError for a question that can't be asked, CommandError
    for one without an answer.
    """
    asked = replace(what_if, settings=(*settings_of(strategy, config), *what_if.settings))
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


def settings_of(strategy: str, config: Config) -> tuple[str, ...]:
    """Return the settings of a strategy: its shedding rule and a suitable placement."""
    if not strategy:
        return ()
    if strategy in config.own:
        own = require_loaded(changed(config, {"shedding.strategy": strategy})).own[strategy]
        return settings_with(custom_shedding(own))
    if strategy not in STRATEGIES:
        raise MisuseError(
            f"there is no strategy {strategy!r} to plan with",
            why=f"there are {', '.join([*STRATEGIES, *sorted(config.own)])}",
            next_step=did_you_mean(strategy, [*STRATEGIES, *config.own])
            + "take one of them, or set settings with --set",
        )
    return STRATEGIES[strategy]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedCommand:
    """Predicted outcome of a command; foresight: of a drain that can be begun.

    tables_age_ms: -1 when the job has never written.
    """

    found: Rehearsal
    tables_age_ms: int
    foresight: Foresight | None = None


def rehearse_command(reader: TableReader, config: Config, command: Command) -> RehearsedCommand:
    """Carry a command out on the state of the tables. config: the job's own."""
    writer, now_ms, rows = reader.writer(), wall_ms(), read_rehearsal_rows(reader)
    found = rehearse(config, rows, command, now_ms)
    foresight = None
    if found.is_possible and command.kind == "drain_broker":
        what_if = WhatIf(remove_brokers=(str(command.arguments["broker"]),))
        ahead = foresee(config, command.cluster, rows, now_ms, what_if)
        foresight = None if isinstance(ahead, Impossible) else ahead
    age_ms = -1 if writer is None else max(0, now_ms - writer.now_ms)
    return RehearsedCommand(found=found, tables_age_ms=age_ms, foresight=foresight)


def _decision_lines(found: Foresight) -> Iterator[str]:
    for cycle, decisions in groupby(found.decisions[:_LISTED], itemgetter("cycle")):
        first, *_ = listed = list(decisions)
        hits = "hit" if first["more_hits"] == 1 else "hits"
        between = f"in {duration(first['after_ms'])} to {duration(first['latest_ms'])}"
        later = f"after {first['more_hits']} more {hits}, cycle {cycle}, {between}:"
        yield "at once:" if cycle == 1 else later
        yield from (f"  {_decision(one)}" for one in listed)
    if len(found.decisions) > _LISTED:
        yield f"  and {len(found.decisions) - _LISTED} decisions more; --json has them all"
    if not found.decisions:
        yield "nothing would be decided"


def _decision(one: Mapping[str, Any]) -> str:
    inputs = one["inputs"]
    what = one["bundle"] or f"{inputs.get('bundles', '')} bundles".strip()
    way = " → ".join(name for name in (one["source"], one["destination"]) if name)
    why = reason_message(one["reason"], one["kind"])
    by = f" ({one['strategy']})" if one["strategy"] else ""
    changes = [
        f"{side} {_percent(inputs.get(f'{side}_usage'))} → {_percent(expected)}"
        for side in ("source", "destination")
        if (expected := inputs.get(f"{side}_usage_expected")) is not None
    ]
    head = f"{one['kind']} {what} {way}".rstrip()
    return "; ".join([f"{head}: {why}{by}", *changes])


def _skip_lines(found: Foresight) -> Iterator[str]:
    runs: list[list[Any]] = []
    for one in found.skips:
        reason, cycle = reason_message(one["reason"]), one["cycle"]
        if one["reason"] in FAULTS:  # what a custom strategy did, with its label
            reason = f"{one['reason']}: {one['inputs'].get('skipped', {}).get('strategy', '')}"
        if runs and runs[-1][0] == reason and runs[-1][2] == cycle - 1:
            runs[-1][2] = cycle
        else:
            runs.append([reason, cycle, cycle])
    for reason, first, last in runs:
        cycles = f"cycle {first}" if first == last else f"cycles {first} to {last}"
        yield f"{cycles} would decide nothing: {reason}"


def _waiting(one: Mapping[str, Any]) -> str:
    threshold, more = one["levels"][0]["threshold"], one["more_hits"]
    need = f"needs {more} {'hit' if more == 1 else 'hits'} more"
    need = "below every threshold" if more is None else need
    against = f" against {one['compared_with']}" if one["compared_with"] else ""
    measured, threshold = ("-" if x is None else number(x) for x in (one["number"], threshold))
    shown = f"{one['measure']} {measured}, threshold {threshold}".strip()
    return f"near: {one['subject']}{against}: {shown}; {need} ({one['verdict']})"


def _balance_lines(found: Foresight) -> Iterator[str]:
    before, after = (
        {one.broker: one for one in moment.brokers} for moment in (found.before, found.after)
    )
    rows: list[Sequence[str]] = [("broker", "msg/s", "usage", "bundles")]
    for name in sorted({*before, *after}):
        was, will = before.get(name), after.get(name)
        drained = " (drained)" if will is not None and will.is_draining else ""
        pairs = zip(_shown(was), _shown(will), strict=True)
        rows.append((f"{name}{drained}", *map(" → ".join, pairs)))
    yield from text_table(rows)
    groups = {one.group for one in found.after.brokers if one.group}
    of = " of the worst isolation group" if len(groups) > 1 else ""
    yield f"imbalance{of} {_imbalance(found.before)} → {_imbalance(found.after)}"


def _shown(broker: ForeseenBroker | None) -> tuple[str, str, str]:
    """Rate, usage and bundles; dashes for a broker that is not there."""
    if broker is None:
        return "-", "-", "-"
    return number(broker.msg_rate), _percent(broker.usage), number(broker.bundles)


def _percent(usage: float | None) -> str:
    return "-" if usage is None else f"{100.0 * usage:.1f} %"


def _imbalance(balance: LoadMoment) -> str:
    if balance.imbalance is None or balance.floor_adjusted is None:
        return "none, without load"
    return f"{balance.imbalance:.2f} (floor-adjusted {balance.floor_adjusted:.2f})"


_UNDONE = ("split", "transfer", "unload")
_OPERATORS = ("Admin", "Pinned")
"""Reasons of moves and splits that operators have asked for."""
_READ = ("at_ms", "kind", "reason", "bundle", "source", "destination", "inputs")


def proposals_of(reader: TableReader) -> dict[str, PlanProposal]:
    """Name → plan, of those that wait, go on, or ended within a day; the oldest first."""
    return proposals_in(reader.rows("policies", condition=f"is_set AND kind = '{PROPOSAL}'"))


def proposals_in(rows: Iterable[Mapping[str, Any]]) -> dict[str, PlanProposal]:
    """Return the same, from the rows of policies that are set."""
    found = {
        row["name"]: from_plain(PlanProposal, json.loads(row["value"]))
        for row in rows
        if row["kind"] == PROPOSAL
    }
    return dict(sorted(found.items(), key=lambda item: (item[1].since_ms, item[0])))


def list_lines(found: Mapping[str, PlanProposal], now_ms: int) -> list[str]:
    """A line a plan."""
    head = ("plan", "is", "made", "steps", "hottest broker", "why")
    cells = [
        (
            name,
            _progress_message(one, now_ms),
            f"{duration(max(0, now_ms - one.since_ms))} ago",
            str(len(one.steps)),
            f"{percent(one.before['max'])} -> {percent(one.after['max'])}",
            one.why,
        )
        for name, one in found.items()
    ]
    return list(text_table([head, *cells], right=(3,)))


def show_lines(name: str, one: PlanProposal, now_ms: int) -> list[str]:
    """A plan with its reasons, its steps, and load before and after."""
    brokers = [broker for broker in one.before if broker not in ("max", "mean")]
    cells = [
        (f"  {broker}", percent(one.before[broker]), "->", percent(one.after[broker]))
        for broker in (*brokers, "mean", "max")
        if broker in one.before
    ]
    lines = [
        f"plan {name}: {one.why or 'no reason was given'}",
        f"  {_progress_message(one, now_ms)}",
        f"  proposed by {one.by or 'a cycle'} at {instant(one.since_ms)}",
        "",
        "usage, before and after:",
        *text_table(cells, right=(1, 3)),
        "",
        "steps:",
        *text_table([(f"  {at}", *_step(step)) for at, step in enumerate(one.steps, start=1)]),
    ]
    if one.station is PlanStatus.WAITS:
        lines += ["", f"ballast plan approve {name}    or: ballast plan reject {name}"]
    return lines


def undo_moves(
    reader: TableReader, *, plan: str = "", since_ms: int = 0, drain: str = ""
) -> tuple[dict[str, str], list[str]]:
    """Return bundle → broker that undoes a plan, recent balancing, or a drain.

    drain: a broker; its last drain is undone. Also sentences on what stays. Raises CommandError
    when nothing can be moved back.
    """
    done = _drained(reader, drain) if drain else _balanced(reader, plan, since_ms)
    moved = [row for row in done if row["kind"] != "split"]
    first = {row["bundle"]: row["source"] for row in reversed(moved)}
    last = {row["bundle"]: row["destination"] for row in moved}
    owners = {
        row["bundle"]: row["destination"]
        for row in reader.rows("bundle_ownership", condition=f"state = '{State.OWNED.value}'")
    }
    moves, left = {}, []
    for bundle, origin in sorted(first.items()):
        owner = owners.get(bundle, "")
        if owner and owner != origin and last[bundle] in ("", owner):
            moves[bundle] = origin
        elif owner != origin:
            left.append(f"{bundle} has been moved on, to {owner or 'nobody yet'}")
    left += [f"the split of {row['bundle']} stays" for row in done if row["kind"] == "split"]
    if len(moves) > MAX_MOVES:
        left.append(f"{len(moves) - MAX_MOVES} bundles are for another plan: undo once more then")
    if not moves:
        raise CommandError(
            "there is nothing to undo",
            why="; ".join(left) or _why_nothing(reader, plan if not done else ""),
            next_step="`ballast plan list` has the plans of the last day, `ballast sql` all moves",
        )
    return dict(list(moves.items())[:MAX_MOVES]), left


def _why_nothing(reader: TableReader, plan: str) -> str:
    """Return the reason why nothing can be undone.

    plan: the named one if it has moved and split nothing; "" otherwise.
    """
    if not plan:
        return "no bundle that was moved is elsewhere than it was"
    rows = reader.rows("decisions", ["inputs"], "kind = 'plan'")
    if any(json.loads(row["inputs"])["plan"] == plan for row in rows):
        return f"nothing of plan {plan} was carried out"
    return f"there is no plan {plan}, and there was none of this name"


def _balanced(reader: TableReader, plan: str, since_ms: int) -> list[dict[str, Any]]:
    """Return the decisions of cycles since then, the oldest first.

    If a plan is named: those of that plan only.
    """
    condition = f"at_ms >= {since_ms} AND {is_one_of('kind', _UNDONE)}"
    rows = reader.rows("decisions", _READ, condition)
    return [row for row in sorted(rows, key=lambda row: row["at_ms"]) if _is_of(row, plan)]


def _drained(reader: TableReader, broker: str) -> list[dict[str, Any]]:
    """Return the moves of the broker's last drain, the oldest first."""
    check_known(reader.cluster, "broker", broker, names_in(reader, "broker"))
    condition = f"kind = '{Kind.DRAIN.value}' AND source = {literal(broker)}"
    rows = sorted(reader.rows("decisions", _READ, condition), key=lambda row: row["at_ms"])
    begun_ms = max((row["at_ms"] for row in rows if row["reason"] == "Begun"), default=None)
    if begun_ms is None:
        raise CommandError(
            "there is nothing to undo",
            why=f"no command has drained {broker}, as far as the table decisions reaches back",
            next_step="`ballast plan undo --since 2h` takes back what balancing has moved",
        )
    return [row for row in rows if row["at_ms"] >= begun_ms and _is_of(row, "")]


def known(found: Mapping[str, PlanProposal], name: str) -> PlanProposal:
    """The plan of that name; raises CommandError."""
    if name in found:
        return found[name]
    raise CommandError(
        f"there is no plan {name}",
        why=f"there are {', '.join(found)}" if found else "no plan waits, or has of late",
        next_step="`ballast plan list` shows them; older ones are rows of the table decisions",
    )


def _is_of(row: Mapping[str, Any], plan: str) -> bool:
    """True if balancing, or the named plan, has moved or split a bundle."""
    inputs = json.loads(row["inputs"])
    is_meant = inputs.get("plan") == plan if plan else row["reason"] not in _OPERATORS
    return bool(row["bundle"]) and "refused" not in inputs and is_meant


def _progress_message(one: PlanProposal, now_ms: int) -> str:
    if one.station is PlanStatus.WAITS:
        left_ms = one.until_ms - now_ms
        return f"waits, lapses in {duration(left_ms)}" if left_ms > 0 else "waits, its time is over"
    by = f" by {one.answered_by}" if one.answered_by else ""
    skipped = f", {one.skipped} skipped" if one.skipped else ""
    return f"{one.station.value}{by}, {one.done} of {len(one.steps)} done{skipped}"


def _step(step: ProposedStep) -> Iterable[str]:
    where = f"{step.source} -> {step.destination}" if step.destination else step.source
    became = f"skipped: {step.became}" if step.is_skipped else step.became or step.reason
    return (step.kind, step.bundle, where, became)
