"""The league as a page: who met what is demanded, ours against the default, where ours is not best.

Decides the form; `league_figures` when a difference counts. Used by `ballast league --page`.
Source: ours.
"""

from collections.abc import Iterable, Iterator, Sequence

from jobs.operating.league_bars import bars_page
from jobs.operating.league_bounds import possible_page
from jobs.operating.league_figures import (
    COLUMNS,
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
from jobs.operating.machine import computed_where
from jobs.operating.simulations import RECOMMENDED, STRATEGIES
from lbcore.sim.reports.report import format_value

_HEAD = """\
# The league of strategies

`{command}`
writes this page; run it again and the same comes out,
on every machine: all is simulated in virtual time ([simulator.md](simulator.md)), so no
number here depends on who computed it. {where} Every strategy plays golden scenarios with the
scenario's own settings, its strategy replaced.

*floor*: highest load over the greater of the mean and what the hottest bundle alone makes (what no
move can undo is left out); *imb*: highest over mean; both over the whole run, so a slow remedy
shows. *balanced*: time until *floor* stays at or below 1.2. *least*: the fewest moves that could
have led from the first owners to a floor of 1.2 at the end; "-" where bundles were split. *thrash*:
moves back to an owner left less than an hour before. *topics*: interrupted, each time counted.
*unserved*: time without service, summed over topics. *unmet*: of what the scenario demands.
"""


def cells_of(row: Row) -> list[str]:
    """A row's cells, in the order of COLUMNS."""
    return [_cell(row, title, metric) for title, (metric, _) in COLUMNS.items()]


def league_page(rows: Sequence[Row]) -> str:
    """The page, Markdown. rows: one a scenario and strategy, as `ballast league --json` gives."""
    played = (f"--strategy {','.join(_names(rows))}", "--page FILE")
    command = " ".join(("ballast league", *_folders(rows), *played))
    parts = [
        _HEAD.format(command=command, where=computed_where()),
        *_contestants(rows),
        *_summary(rows),
        *_duel(rows),
        *_not_best(rows),
        *bars_page(rows, OURS),
        *possible_page(rows),
    ]
    return "\n".join([*parts, *_everything(rows), ""])


def _cell(row: Row, title: str, metric: str) -> str:
    if metric:
        return format_value(metric, row[metric])
    value = row[title]
    if value is None:
        return "-"
    return str(len(value) if isinstance(value, list) else value)


def _contestants(rows: Sequence[Row]) -> Iterator[str]:
    names = _names(rows)
    yield "## Who competes\n"
    yield _table(("name", "settings"), [(f"`{name}`", _settings(name)) for name in names])


def _settings(name: str) -> str:
    if name in RECOMMENDED:
        return "Pulsar 4.0.8's defaults with " + _words(RECOMMENDED[name])
    plain = name.removeprefix("pulsar-")
    base = "Pulsar 4.0.8's defaults with " if plain != name else "Ballast's defaults with "
    return base + _words(STRATEGIES[plain])


def _words(settings: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in settings)


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    yield "\n## In sum\n"
    yield (
        "*clean*: scenarios in which all demands are met. *balanced*: in which *floor* stays at or "
        "below 1.2 at the end. Means over scenarios of the others.\n"
    )
    played = {
        name: {row["scenario"] for row in rows if row["strategy"] == name} for name in _names(rows)
    }
    by_all, by_any = set.intersection(*played.values()), set.union(*played.values())
    if by_all != by_any:
        yield (
            f"Of those {len(by_all)} of {len(by_any)} scenarios that all of them have played (who "
            "is not in a scenario's table below was not let play it here, for time; the command "
            "plays all):\n"
        )
    common = [row for row in rows if row["scenario"] in by_all]
    folders = _folders(common)
    for folder in folders:
        if len(folders) > 1:
            yield f"\nOf `{folder}`:\n"
        yield _sum_table([row for row in common if _folder(row) == folder])
    if by_all != by_any:
        yield f"\nOf all {len(by_any)}, those who have played them all:\n"
        yield _sum_table([row for row in rows if played[row["strategy"]] == by_any])


def _sum_table(rows: Sequence[Row]) -> str:
    head = ("name", "clean", "unmet", "balanced", "floor p50", "floor p95", "moves", "thrash")
    return _table(head, [_sums(name, rows) for name in _names(rows)])


def _sums(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    own = [row for row in rows if row["strategy"] == name]
    unmet = [len(row["unmet"]) for row in own]
    balanced = sum(row["balanced"] is not None for row in own)

    def mean(metric: str) -> float:
        return sum(row[metric] or 0.0 for row in own) / len(own)

    return (
        f"`{name}`",
        f"{unmet.count(0)} of {len(own)}",
        str(sum(unmet)),
        f"{balanced}",
        f"{mean('floor_adjusted.p50'):.2f}",
        f"{mean('floor_adjusted.p95'):.2f}",
        f"{mean('moves'):.0f}",
        f"{mean('thrash'):.1%}",
    )


def _duel(rows: Sequence[Row]) -> Iterator[str]:
    """Ours against the default, scenario by scenario, and whether ours may become the default."""
    pairs = [
        (mine, theirs)
        for mine in rows
        for theirs in rows
        if (mine["strategy"], theirs["strategy"]) == (OURS, DEFAULT)
        and mine["scenario"] == theirs["scenario"]
    ]
    if not pairs:
        return
    verdicts = [_verdict(mine, theirs) for mine, theirs in pairs]
    yield f"\n## `{OURS}` against `{DEFAULT}`\n"
    yield (
        f"`{OURS}` would be the default if it were worse in nothing on any scenario and clearly "
        "better on most. What differs by less than two hundredths of an imbalance, a tenth of "
        "moves, of time, or of time without service is the same.\n"
    )
    lines = [
        (mine["scenario"], ", ".join(better) or "-", ", ".join(worse) or "-")
        for (mine, _), (better, worse) in zip(pairs, verdicts, strict=True)
    ]
    yield _table(("scenario", f"`{OURS}` is better in", "and worse in"), lines)
    ahead = sum(bool(better) and not worse for better, worse in verdicts)
    behind = sum(bool(worse) and not better for better, worse in verdicts)
    mixed = sum(bool(worse) and bool(better) for better, worse in verdicts)
    yield (
        f"\nOf {len(pairs)} scenarios it is better without a price in {ahead}, better at a price "
        f"in {mixed}, worse in {behind}, and the same in {len(pairs) - ahead - behind - mixed}. "
        + _conclusion(ahead, mixed + behind, len(pairs))
    )


def _conclusion(ahead: int, priced: int, count: int) -> str:
    if priced:
        return f"It is worse in something on {priced}, so `{DEFAULT}` stays the default."
    if ahead * 2 <= count:
        return f"That is not most of them, so `{DEFAULT}` stays the default."
    return "By this rule it may be the default."


def _verdict(mine: Row, theirs: Row) -> tuple[list[str], list[str]]:
    """What ours is better in, and what worse; each with both values."""
    better, worse = [], []
    for metric in MARGINS:
        words = f"{title_of(metric)} {_value(mine, metric)} ({_value(theirs, metric)})"
        if is_worse(metric, theirs[metric], mine[metric]):
            better.append(words)
        elif is_worse(metric, mine[metric], theirs[metric]):
            worse.append(words)
    unmet = len(mine["unmet"]), len(theirs["unmet"])
    if unmet[0] != unmet[1]:
        (better if unmet[0] < unmet[1] else worse).append(f"unmet {unmet[0]} ({unmet[1]})")
    return better, worse


def _not_best(rows: Sequence[Row]) -> Iterator[str]:
    """Each number in which somebody who met all demands did better than ours."""
    lines = []
    for mine in (row for row in rows if row["strategy"] == OURS):
        for metric in MARGINS:
            best = _best(mine, metric, rows)
            if best is not None:
                ours, theirs = _value(mine, metric), _value(best, metric)
                lines.append(
                    (mine["scenario"], title_of(metric), ours, f"{theirs} (`{best['strategy']}`)")
                )
    if not any(row["strategy"] == OURS for row in rows):
        return
    yield f"\n## Where `{OURS}` is not best\n"
    yield (
        "Against the best of those that meet all of the scenario's demands and end as balanced "
        "(a strategy that moves nothing has the fewest moves).\n"
    )
    yield _table(("scenario", "number", OURS, "best"), lines)


def _best(mine: Row, metric: str, rows: Sequence[Row]) -> Row | None:
    """Who beats ours by more than the margin, the best of them."""
    enough = or_balanced(mine["floor_adjusted.p50"])
    rivals = [
        row
        for row in rivals_of(mine, rows)
        if not row["unmet"]
        and not is_worse("floor_adjusted.p50", row["floor_adjusted.p50"], enough)
        and is_worse(metric, mine[metric], row[metric])
    ]
    return min(rivals, key=lambda row: as_number(row[metric]), default=None)


def _everything(rows: Sequence[Row]) -> Iterator[str]:
    yield "\n## Everything\n"
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        own = [row for row in rows if row["scenario"] == scenario]
        yield f"\n### {scenario}\n\n{own[0].get('title', '')}\n"
        yield _table(("name", *COLUMNS), [(f"`{r['strategy']}`", *cells_of(r)) for r in own])


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["strategy"] for row in rows))


def _folders(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(map(_folder, rows)))


def _folder(row: Row) -> str:
    """Where its scenario lies; rows of older versions don't say."""
    return str(row.get("folder", "conf/scenarios"))


def _value(row: Row, metric: str) -> str:
    return format_value(metric, row[metric]) if row[metric] is not None else "never"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
