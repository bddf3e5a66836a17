"""Plans that wait for a person: the list, one in full, and the way back.

Decides what an undo moves: each bundle that is where the plan, the time or the drain has put it
goes back to whom it was taken from.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import TableReader
from jobs.console import CommandError
from jobs.operating.connection_options import check_known, names_in
from jobs.operating.text_format import text_table
from lbcore.balancer.state.rules import PROPOSAL, PlanProposal, PlanStatus, ProposedStep
from lbcore.explain.explanation import percent
from lbcore.model.times import duration, instant
from lbcore.ownership.records import State
from lbcore.packing import from_plain
from lbcore.plan.decision import Kind
from lbcore.wire.arguments import MAX_MOVES

_MOVES = frozenset({"transfer", "unload"})
_UNDONE = _MOVES | {"split"}
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
    cells = [head, *(_cells(name, one, now_ms) for name, one in found.items())]
    return list(text_table(cells, right=(3,)))


def show_lines(name: str, one: PlanProposal, now_ms: int) -> list[str]:
    """A plan with its reasons, its steps, and load before and after."""
    lines = [
        f"plan {name}: {one.why or 'no reason was given'}",
        f"  {_progress_message(one, now_ms)}",
    ]
    by = f"by {one.by}" if one.by else "by a cycle"
    lines += [f"  proposed {by} at {instant(one.since_ms)}", "", "usage, before and after:"]
    brokers = [broker for broker in one.before if broker not in ("max", "mean")]
    cells = [
        (f"  {broker}", percent(one.before[broker]), "->", percent(one.after[broker]))
        for broker in (*brokers, "mean", "max")
        if broker in one.before
    ]
    lines += [*text_table(cells, right=(1, 3)), "", "steps:"]
    steps = [(f"  {at}", *_step(step)) for at, step in enumerate(one.steps, start=1)]
    lines += text_table(steps)
    if one.station is PlanStatus.WAITS:
        lines += ["", f"ballast plan approve {name}    or: ballast plan reject {name}"]
    return lines


def undo_moves(
    reader: TableReader, *, plan: str = "", since_ms: int = 0, drain: str = ""
) -> tuple[dict[str, str], list[str]]:
    """Return bundle → broker that undoes a plan, recent balancing, or a drain.

    Of a broker: its last drain. With it goes what stays. Raises CommandError when nothing can be
    moved back.
    """
    done = _drained(reader, drain) if drain else _balanced(reader, plan, since_ms)
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    for row in done:
        if row["kind"] != "split":
            first.setdefault(row["bundle"], row["source"])
            last[row["bundle"]] = row["destination"]
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

    plan: the one of which nothing was moved or split; "" = it was another.
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
    kinds = ", ".join(f"'{kind}'" for kind in sorted(_UNDONE))
    rows = reader.rows("decisions", _READ, f"at_ms >= {since_ms} AND kind IN ({kinds})")
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
    """True if balancing made the decision, for this plan if one is named."""
    inputs = json.loads(row["inputs"])
    return (
        bool(row["bundle"]) and "refused" not in inputs and (not plan or inputs.get("plan") == plan)
    )


def _cells(name: str, one: PlanProposal, now_ms: int) -> Sequence[str]:
    hottest = f"{percent(one.before['max'])} -> {percent(one.after['max'])}"
    ago = f"{duration(max(0, now_ms - one.since_ms))} ago"
    return (name, _progress_message(one, now_ms), ago, str(len(one.steps)), hottest, one.why)


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
