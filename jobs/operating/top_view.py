"""`ballast top` as values: what a key does to the view, and what the view looks like.

Decides the keys, the orders, and what fits into the terminal; every number is of `/v1/overview`.
Source: ours, drawn with rich as `make run`'s view is.
"""

from collections.abc import Callable, Mapping, Sequence
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
_KEYS = "↑ ↓ select   s sort   / filter   e explain   b bundles   D drain   ? keys   q quit"
EXPLAIN, BUNDLES, ASK_DRAIN, DRAIN, HELP = "explain", "bundles", "drain?", "drain", "keys"
"""What may stand below the brokers instead of what moves; of HELP and ASK_DRAIN nobody is asked."""
_OPENED_BY = {"e": EXPLAIN, "enter": EXPLAIN, "b": BUNDLES, "D": ASK_DRAIN}
_HELP = (
    "↑ ↓ j k   select a broker",
    "s         sort by the next of " + ", ".join(ORDERS),
    "/         show the brokers whose name contains what you type; Enter keeps it, Esc shows all",
    "e, Enter  explain the selected broker",
    "b         its bundles with their load, the busiest first",
    "D         drain it: asks first; undo with `ballast broker cancel-drain`",
    "Esc       back",
    "q         quit",
)
_ERASE = ("\x7f", "\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopState:
    """What the keys have done.

    selected: a broker, "" = the first. panel: what stands below, "" = moves and decisions; about:
    the broker that it is of. wanted: a part of the names that are shown; is_typing: it is typed.
    """

    order: str = ORDERS[0]
    selected: str = ""
    panel: str = ""
    about: str = ""
    wanted: str = ""
    is_typing: bool = False
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What there is to draw. trouble: why the newest look failed, "" = it did not.

    lines: the answer to what the panel asks, () = none yet.
    """

    overview: Mapping[str, Any] | None = None
    lines: Sequence[str] = ()
    trouble: str = ""


def after_key(state: TopState, key: str, brokers: Sequence[str]) -> TopState:
    """The state after one key; brokers: names in the order in which they are shown."""
    if state.is_typing:
        return _typed(state, key)
    if state.panel == ASK_DRAIN:
        return replace(state, panel=DRAIN if key == "y" else "")
    if key in _ANYWHERE:
        return _ANYWHERE[key](state)
    at = brokers.index(state.selected) if state.selected in brokers else 0
    if brokers and key in _STEPS:
        to = min(max(at + _STEPS[key], 0), len(brokers) - 1)
        return replace(state, selected=brokers[to])
    if brokers and key in _OPENED_BY:
        return replace(state, selected=brokers[at], about=brokers[at], panel=_OPENED_BY[key])
    return state


def _next_order(state: TopState) -> TopState:
    return replace(state, order=ORDERS[(ORDERS.index(state.order) + 1) % len(ORDERS)])


_ANYWHERE: Mapping[str, Callable[[TopState], TopState]] = {
    "q": lambda state: replace(state, is_over=True),
    "escape": lambda state: replace(state, panel="", wanted=state.wanted if state.panel else ""),
    "s": _next_order,
    "/": lambda state: replace(state, is_typing=True),
    "?": lambda state: replace(state, panel="" if state.panel == HELP else HELP),
}


def _typed(state: TopState, key: str) -> TopState:
    """The state after a key that is part of a filter, or ends it."""
    if key in ("enter", "escape"):
        return replace(state, is_typing=False, wanted=state.wanted if key == "enter" else "")
    if key in _ERASE:
        return replace(state, wanted=state.wanted[:-1])
    is_text = len(key) == 1 and key.isprintable()
    return replace(state, wanted=state.wanted + key) if is_text else state


def ordered(
    overview: Mapping[str, Any] | None, order: str, wanted: str = ""
) -> list[Mapping[str, Any]]:
    """The brokers with this in their name, in the order that was chosen, ties by name."""
    known = overview["status"]["broker_rows"] if overview else []
    rows = [row for row in known if wanted in row["broker"]]
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
    rows = ordered(shown.overview, state.order, state.wanted)
    told = [Text(f"ALARM {alarm}", style="red", no_wrap=True) for alarm in status["alarms"]]
    told += [
        Text(f"warning {one}", style="yellow", no_wrap=True) for one in status.get("warnings", ())
    ]
    content = height - _FIXED_LINES - len(told)
    room = max(1, min(len(rows), content // 2))
    lower = max(2, content - room)
    parts: list[RenderableType] = [_headline(shown.overview), _why(status, shown.trouble)]
    parts += told
    parts.append(_brokers(state, rows, room) if rows else _nobody(state))
    parts += _lower(state, shown, lower)
    parts.append(Text(_last_line(state), style="dim", no_wrap=True))
    return Group(*parts)


def _last_line(state: TopState) -> str:
    if state.is_typing:
        return f"/{state.wanted}▏   Enter keeps it, Esc shows all brokers"
    if state.wanted:
        return f"only {state.wanted!r}   Esc show all   ? keys   q quit   (by {state.order})"
    return f"{_KEYS}   (by {state.order})"


def _nobody(state: TopState) -> Text:
    words = f"no broker has {state.wanted!r} in its name" if state.wanted else "no broker is known"
    return Text(words, style="dim")


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
    if state.panel:
        title = state.panel if state.panel == HELP else f"{state.panel} {state.about}"
        return [
            Panel(
                Text("\n".join(_panel_lines(state, shown))),
                title=title,
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


def _panel_lines(state: TopState, shown: Shown) -> Sequence[str]:
    if state.panel == HELP:
        return _HELP
    if state.panel == ASK_DRAIN:
        return (
            f"All bundles of {state.about} go to other brokers, and it gets none until you let it.",
            "y: drain it. Any other key: leave it as it is.",
        )
    return list(shown.lines) or [f"asking about {state.about} ..."]


def _move(row: Mapping[str, Any], now_ms: int) -> str:
    way = " → ".join(filter(None, (row["source"], row["destination"])))
    age = duration(max(0, now_ms - row["at_ms"]))
    return f"{row['bundle']}  {row['state']} {way}  {row['cause']}, for {age}"


def _decision(row: Mapping[str, Any]) -> str:
    way = " → ".join(filter(None, (row["source"], row["destination"])))
    words = " ".join(filter(None, (row["kind"], row["bundle"], way)))
    outcome = f" {row['outcome'].replace('_', ' ')}" if row["outcome"] else ""
    more = f", and {row['more']:,} more like it" if row["more"] else ""
    return f"{format_instant(row['at_ms'])[11:19]}  {words}{more} ({row['reason']}){outcome}"
