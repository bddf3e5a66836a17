"""The bars that a strategy is held to before it is anybody's default, scenario by scenario.

Decides what each bar is and when it is missed; the league's rows have the figures. A bar that needs
a figure which a row doesn't have (the least moves of a run that split bundles) is not judged.
Differences within the league's margins are noise. Source: ours.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from jobs.operating.league_figures import (
    DEFAULT,
    MARGINS,
    OURS,
    Row,
    as_number,
    is_worse,
    or_balanced,
    rivals_of,
    title_of,
)
from jobs.operating.league_reasons import REASONS
from lbcore.sim.judge.possible import BAR
from lbcore.sim.reports.report import format_value

BOUND_MAX = 1.15
LEAST_TIMES = 1.5
THRASH_MAX = 0.01
REPORT_INTERVAL_MS = 60_000
TITLES = ("unmet", "floor p95", "bound", "moves", "least", DEFAULT, "thrash", "balanced", "fastest",
          "worse in")  # fmt: skip
ABOUT = f"""\
A figure with ! misses its bar. *unmet*: none. *floor p95*: at most {BAR} where *bound*, the
least imbalance that was possible, has a p95 of {BOUND_MAX} at most. *moves*: at most {LEAST_TIMES}
times *least* (the greater of the league's two), and no more than `{DEFAULT}` made where that met
all demands and was as balanced. *thrash*: at most {THRASH_MAX:.0%}. *balanced*: no later than
*fastest*, the first of those that met all demands, and two reports (2 min). *worse in*: nothing
that somebody who met all demands and was as balanced (or below {BAR}) did better, beyond
noise."""


def bars_of(mine: Row, rows: Sequence[Row]) -> dict[str, str]:
    """What each bar that is missed says, by its title; none: all are met.

    rows: every contestant's.
    """
    rivals = rivals_of(mine, rows)
    found = {title: bar(mine, rivals) for title, bar in _BARS.items()}
    return {title: words for title, words in found.items() if words}


def missed_bars(rows: Sequence[Row], strategy: str) -> dict[str, dict[str, str]]:
    """Scenario → the bars that the strategy misses there; every scenario that it played."""
    return {mine["scenario"]: bars_of(mine, rows) for mine in _judged(rows, strategy)}


def bar_cells(mine: Row, rows: Sequence[Row]) -> list[str]:
    """A row's cells, in the order of TITLES; ! where a bar is missed."""
    missed = bars_of(mine, rows)
    rivals = rivals_of(mine, rows)
    least, fastest, rival = least_of(mine), _fastest(rivals), _named(DEFAULT, rivals)
    cells = {
        "unmet": str(len(mine["unmet"])),
        "floor p95": format_value("floor_adjusted.p95", mine["floor_adjusted.p95"]),
        "bound": format_value("imbalance.p95", mine["possible"]["bound_p95"]),
        "moves": format_value("moves", mine["moves"]),
        "least": "-" if least is None else str(least),
        DEFAULT: "-" if rival is None else format_value("moves", rival["moves"]),
        "thrash": format_value("thrash", mine["thrash"]),
        "balanced": format_value("balanced", mine["balanced"]),
        "fastest": format_value("balanced", fastest),
        "worse in": missed.get("worse in", "-"),
    }
    return [
        f"{cell}{'!' if title in missed and title != 'worse in' else ''}"
        for title, cell in cells.items()
    ]


def bar_table(rows: Sequence[Row], strategy: str) -> list[tuple[str, ...]]:
    """A line a scenario that the strategy played: its name and its cells.

    Rows that don't tell what was possible have none.
    """
    return [(mine["scenario"], *bar_cells(mine, rows)) for mine in _judged(rows, strategy)]


def bar_lines(rows: Sequence[Row], strategy: str) -> Iterator[str]:
    """For people: the table, what is missed and how often."""
    table = [("", *TITLES), *bar_table(rows, strategy)]
    if len(table) == 1:
        return
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]) - 1)]
    yield ""
    yield f"bars of {strategy}: ! is missed"
    for line in table:
        cells = [f"{cell:>{width}}" for cell, width in zip(line[1:-1], widths[1:], strict=True)]
        yield "  ".join([f"{line[0]:{widths[0]}}", *cells, line[-1]])
    yield bar_sum(rows, strategy)


def bar_sum(rows: Sequence[Row], strategy: str) -> str:
    """One sentence: how many scenarios miss which bar."""
    missed = missed_bars(rows, strategy)
    clean = sum(not bars for bars in missed.values())
    counts = {title: sum(title in bars for bars in missed.values()) for title in _BARS}
    said = ", ".join(f"{title} on {count}" for title, count in counts.items() if count)
    return f"{strategy} meets all bars on {clean} of {len(missed)}" + (
        f"; misses {said}" if said else ""
    )


def bars_page(rows: Sequence[Row], strategy: str) -> Iterator[str]:
    """The page's section, Markdown; nothing of rows that don't tell what was possible."""
    table = bar_table(rows, strategy)
    if not table:
        return
    yield f"\n## The bars of `{strategy}`\n\n{ABOUT}\n"
    lines = [("scenario", *TITLES), ("---",) * (len(TITLES) + 1), *table]
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines)
    yield f"\n{bar_sum(rows, strategy)}."
    if strategy != OURS:
        return
    missed = [name for name, bars in missed_bars(rows, strategy).items() if bars]
    reasons = [f"- {name}: {REASONS[name]}" for name in missed if name in REASONS]
    if reasons:
        yield "\nWhy:\n\n" + "\n".join(reasons)


def least_of(row: Row) -> int | None:
    """No fewer moves would have done: the greatest lower bound that is known; None: nothing is."""
    bounds = [row["least"], row["possible"]["least"], row["possible"].get("exact_least")]
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known and row["possible"]["least"] is not None else None


def _judged(rows: Sequence[Row], strategy: str) -> list[Row]:
    """A strategy's rows that tell what was possible."""
    return [row for row in rows if row["strategy"] == strategy and "possible" in row]


def _unmet(mine: Row, _rivals: Sequence[Row]) -> str:
    return "; ".join(mine["unmet"])


def _floor(mine: Row, _rivals: Sequence[Row]) -> str:
    bound, floor = mine["possible"]["bound_p95"], mine["floor_adjusted.p95"]
    if bound is None or floor is None or bound > BOUND_MAX:
        return ""
    return f"{floor:.2f} above {BAR}" if round(floor, 2) > BAR else ""


def _moves(mine: Row, rivals: Sequence[Row]) -> str:
    least, rival, words = least_of(mine), _named(DEFAULT, rivals), []
    noise = MARGINS["moves"][0]
    if least is not None and mine["moves"] > LEAST_TIMES * least + noise:
        words.append(f"{mine['moves']:.0f} above {LEAST_TIMES} times {least}")
    if rival is not None and _is_as_good(mine, rival) and _is_beaten("moves", mine, rival):
        words.append(f"{mine['moves']:.0f} above {DEFAULT}'s {rival['moves']:.0f}")
    return "; ".join(words)


def _thrash(mine: Row, _rivals: Sequence[Row]) -> str:
    return f"{mine['thrash']:.1%} above {THRASH_MAX:.0%}" if mine["thrash"] > THRASH_MAX else ""


def _balanced(mine: Row, rivals: Sequence[Row]) -> str:
    fastest = _fastest(rivals)
    if fastest is None:
        return ""
    late = as_number(mine["balanced"]) > fastest + 2 * REPORT_INTERVAL_MS
    words = [format_value("balanced", value) for value in (mine["balanced"], fastest)]
    return f"{words[0]} after {words[1]} and two reports" if late else ""


def _worse(mine: Row, rivals: Sequence[Row]) -> str:
    words = []
    for metric in MARGINS:
        better = [r for r in rivals if _is_as_good(mine, r) and _is_beaten(metric, mine, r)]
        if better:
            best = min(better, key=lambda row: (as_number(row[metric]), row["strategy"]))
            figures = [format_value(metric, row[metric]) for row in (mine, best)]
            words.append(f"{title_of(metric)} {figures[0]} ({best['strategy']} {figures[1]})")
    return ", ".join(words)


_BARS: Mapping[str, Callable[[Row, Sequence[Row]], str]] = {
    "unmet": _unmet,
    "floor p95": _floor,
    "moves": _moves,
    "thrash": _thrash,
    "balanced": _balanced,
    "worse in": _worse,
}


def _is_as_good(mine: Row, rival: Row) -> bool:
    """Whether a rival met all demands and was as balanced: what it did better then counts."""
    if rival["unmet"]:
        return False
    return not any(
        is_worse(metric, rival[metric], or_balanced(mine[metric]))
        for metric in ("floor_adjusted.p50", "floor_adjusted.p95")
    )


def _is_beaten(metric: str, mine: Row, rival: Row) -> bool:
    return is_worse(metric, mine[metric], rival[metric])


def _fastest(rivals: Iterable[Row]) -> float | None:
    known = [r["balanced"] for r in rivals if not r["unmet"] and r["balanced"] is not None]
    return min(known, default=None)


def _named(name: str, rows: Iterable[Row]) -> Row | None:
    return next((row for row in rows if row["strategy"] == name), None)
