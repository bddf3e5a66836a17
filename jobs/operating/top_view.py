"""`ballast top` as values: what a key does to the view, and what the view looks like.

Decides the keys, the orders, and what fits into the terminal; every number is of `/v1/overview`.
Source: ours, drawn with rich as `make run`'s view is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from jobs.local.terminal import how_even, load_bar, sparkline, state_text
from jobs.operating.durations import format_instant
from lbcore.model.times import duration

ORDERS = ("usage", "msg/s", "bundles", "score", "name")
_SPARK_CELLS = 30
_BORDER_LINES = 4
_FIXED_LINES = 4 + _BORDER_LINES
_PHASES = {
    "ready": "green",
    "in progress": "cyan",
    "off": "yellow",
    "late": "yellow",
    "stalled": "bold red",
}
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1}
_KEYS = "↑ ↓ select   s sort   e explain   Esc back   q quit"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopState:
    """What the keys have done. selected: a broker, "" = the first; explained: "" = nobody."""

    order: str = ORDERS[0]
    selected: str = ""
    explained: str = ""
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What there is to draw. trouble: why the newest look failed, "" = it did not."""

    overview: Mapping[str, Any] | None = None
    explanation: Sequence[str] = ()
    trouble: str = ""


def after_key(state: TopState, key: str, brokers: Sequence[str]) -> TopState:
    """The state after one key; brokers: names in the order in which they are shown."""
    if key == "q":
        return replace(state, is_over=True)
    if key == "escape":
        return replace(state, explained="")
    if key == "s":
        return replace(state, order=ORDERS[(ORDERS.index(state.order) + 1) % len(ORDERS)])
    at = brokers.index(state.selected) if state.selected in brokers else 0
    if brokers and key in _STEPS:
        to = min(max(at + _STEPS[key], 0), len(brokers) - 1)
        return replace(state, selected=brokers[to])
    if brokers and key in ("e", "enter"):
        return replace(state, selected=brokers[at], explained=brokers[at])
    return state


def ordered(overview: Mapping[str, Any] | None, order: str) -> list[Mapping[str, Any]]:
    """The brokers in the order that was chosen, ties by name."""
    rows = list(overview["status"]["broker_rows"]) if overview else []
    column = {"msg/s": "msg_rate"}.get(order, order if order != "name" else None)
    rows.sort(key=lambda row: str(row["broker"]))
    if column is not None:
        rows.sort(key=lambda row: -(row[column] or 0))
    return rows


def render(state: TopState, shown: Shown, height: int) -> RenderableType:
    """The whole view; height: of the terminal, in lines."""
    if shown.overview is None:
        return Text(shown.trouble or "asking ...", style="red" if shown.trouble else "dim")
    status = shown.overview["status"]
    rows = ordered(shown.overview, state.order)
    content = height - _FIXED_LINES - len(status["alarms"])
    room = max(1, min(len(rows), content // 2))
    lower = max(2, content - room)
    parts: list[RenderableType] = [_headline(shown.overview), _why(status, shown.trouble)]
    parts += [Text(f"ALARM {alarm}", style="red", no_wrap=True) for alarm in status["alarms"]]
    parts.append(_brokers(state, rows, room))
    parts += _lower(state, shown, lower)
    parts.append(Text(f"{_KEYS}   (by {state.order})", style="dim", no_wrap=True))
    return Group(*parts)


def _headline(overview: Mapping[str, Any]) -> Text:
    status = overview["status"]
    text = Text(f"ballast {status['cluster']}  ", style="bold", no_wrap=True)
    text.append(status["phase"], style=_PHASES.get(status["phase"], "default"))
    text.append(f"   cycle {status['cycle']}", style="default")
    counts = ", ".join(f"{count} {name}" for name, count in status["bundles"].items())
    text.append(f"   bundles {counts or 'none'}", style="default")
    known = [one["imbalance"] for one in overview["balance"] if one["imbalance"] is not None]
    uneven = status["imbalance"]
    if uneven is not None:
        text.append(f"   imbalance {uneven:.2f} ", style=how_even(uneven))
        text.append(sparkline(known, _SPARK_CELLS), style="cyan")
    return text


def _why(status: Mapping[str, Any], trouble: str) -> Text:
    if trouble:
        return Text(f"old: {trouble}", style="red", no_wrap=True)
    at = format_instant(status["now_ms"])
    return Text(f"{status['why']}; job {status['job_words']}; {at}", style="dim", no_wrap=True)


def _brokers(state: TopState, rows: Sequence[Mapping[str, Any]], room: int) -> Table:
    table = Table(expand=True, box=None, pad_edge=False)
    table.add_column("  broker", no_wrap=True)
    table.add_column("state")
    table.add_column("usage", justify="right")
    table.add_column("", ratio=1, no_wrap=True)
    table.add_column("score", justify="right")
    table.add_column("msg/s", justify="right")
    table.add_column("bundles", justify="right")
    names = [row["broker"] for row in rows]
    at = names.index(state.selected) if state.selected in names else 0
    first = max(0, min(at - room // 2, len(rows) - room))
    top = max([1.0, *(row["usage"] or 0.0 for row in rows)])
    for number, row in enumerate(rows[first : first + room], first):
        is_selected = number == at
        table.add_row(
            f"{'▶' if is_selected else ' '} {row['broker']}",
            state_text(row["state"]),
            "–" if row["usage"] is None else f"{row['usage']:.0%}",
            load_bar(row["usage"] or 0.0, top),
            "–" if row["score"] is None else f"{row['score']:.0%}",
            "–" if row["msg_rate"] is None else f"{row['msg_rate']:,.0f}",
            f"{row['bundles']:,}",
            style="bold" if is_selected else "",
        )
    return table


def _lower(state: TopState, shown: Shown, room: int) -> list[RenderableType]:
    """What is below the brokers: an explanation, or what moves and what was decided."""
    if state.explained:
        lines = list(shown.explanation) or [f"asking about {state.explained} ..."]
        body = Text("\n".join(lines))
        return [
            Panel(
                body,
                title=f"explain {state.explained}",
                title_align="left",
                height=room + _BORDER_LINES,
            )
        ]
    assert shown.overview is not None  # noqa: S101 (asked by the only caller)
    status = shown.overview["status"]
    moves = [_move(row, status["now_ms"]) for row in status["in_flight"][: max(1, room // 3)]]
    told = shown.overview["decisions"][: max(1, room - max(1, len(moves)))]
    return [
        Panel(
            Text("\n".join(moves) or "nothing", no_wrap=True),
            title=f"in flight: {status['in_flight_count']}",
            title_align="left",
        ),
        Panel(
            Text("\n".join(map(_decision, told)) or "none in the last hour", no_wrap=True),
            title="last decisions",
            title_align="left",
        ),
    ]


def _move(row: Mapping[str, Any], now_ms: int) -> str:
    way = " → ".join(filter(None, (row["source"], row["destination"])))
    age = duration(max(0, now_ms - row["at_ms"]))
    return f"{row['bundle']}  {row['state']} {way}  {row['cause']}, for {age}"


def _decision(row: Mapping[str, Any]) -> str:
    way = " → ".join(filter(None, (row["source"], row["destination"])))
    words = " ".join(filter(None, (row["kind"], row["bundle"], way)))
    outcome = f" {row['outcome'].replace('_', ' ')}" if row["outcome"] else ""
    return f"{format_instant(row['at_ms'])[11:19]}  {words} ({row['reason']}){outcome}"
