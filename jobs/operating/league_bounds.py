"""What was possible, in the league: each strategy beside bounds that nobody beats.

Decides the columns and their words; `lbcore.sim.judge.possible` computes. Source: ours.
"""

from collections.abc import Iterable, Iterator, Sequence

from jobs.operating.league_figures import Row
from lbcore.sim.judge.possible import BAR

TITLES = (
    "bound p50",
    "bound p95",
    "over p50",
    "over p95",
    "above",
    "nobody",
    "unforeseen",
    "avoidable",
    "moves",
    "least",
    "over least",
    "by report",
)
_MINUTE_MS = 60_000.0
ABOUT = f"""\
*bound*: no assignment of whole bundles to the brokers that were there has a lower imbalance
(highest over mean); *over*: the run's imbalance over it. *above*: minutes with an imbalance
above {BAR}; *nobody*: of them those at which the bound is above it, too; *unforeseen*: at which
what was reported a minute before, laid out evenly, would have been above it; *avoidable*: the
rest. *least*: no fewer moves hold the bar whenever the bound does, even knowing the future
(marked = where a solver has counted, at the times that are worst for some broker); *by report*:
moves, and minutes above the bar, of a plan that sees the report of a minute before and moves
for free. A run that split bundles is held against the bound of single topics, and its moves
against nothing."""


def possible_cells(row: Row) -> list[str]:
    """A row's cells, in the order of TITLES."""
    found, moves = row["possible"], row["moves"]
    least, exact = found["least"], found.get("exact_least")
    fewest = least if exact is None else max(exact, least)
    times = f"{moves / fewest:.1f}" if fewest else "-"
    plan = found["report_moves"]
    return [
        *(_ratio(found[name]) for name in ("bound_p50", "bound_p95", "over_p50", "over_p95")),
        *(_minutes(found[name]) for name in ("above_ms", "nobody_ms", "unforeseen_ms")),
        _minutes(found["avoidable_ms"]),
        f"{moves:.0f}",
        "-" if fewest is None else f"{'=' if exact is not None else ''}{fewest}",
        times,
        "-" if plan is None else f"{plan} / {_minutes(found['report_above_ms'])}",
    ]


def possible_lines(rows: Sequence[Row]) -> Iterator[str]:
    """For people: a line a strategy, scenario after scenario; nothing of rows that don't tell."""
    known = [row for row in rows if "possible" in row]
    if not known:
        return
    yield ""
    yield f"{'what was possible':20}" + "".join(f"{title:>11}" for title in TITLES)
    scenario = ""
    for row in known:
        if row["scenario"] != scenario:
            scenario = row["scenario"]
            yield str(scenario)
        yield f"  {row['strategy']:18}" + "".join(f"{cell:>11}" for cell in possible_cells(row))


def possible_page(rows: Sequence[Row]) -> Iterator[str]:
    """The page's section, Markdown; nothing of rows that don't tell."""
    known = [row for row in rows if "possible" in row]
    if not known:
        return
    yield f"\n## What was possible\n\n{ABOUT}\n"
    for scenario in dict.fromkeys(row["scenario"] for row in known):
        own = [row for row in known if row["scenario"] == scenario]
        yield f"\n### {scenario}: bounds\n"
        yield _table(("name", *TITLES), [(f"`{r['strategy']}`", *possible_cells(r)) for r in own])


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _minutes(value_ms: float) -> str:
    return f"{round(value_ms / _MINUTE_MS, 1):g}m"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
