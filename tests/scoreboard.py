"""Draw docs/scoreboard.md from the comparisons that scenarios have recorded below `---- compared`.

`python -m tests.scoreboard` keeps the page's own words, draws the tables and runs nothing: `ballast
simulate FILE --compare A,B --rewrite` records a scenario's table, and a plain `--rewrite` renews
it. Scenarios without a table are left out, and a folder's section appears with its first table.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lbcore.sim.reports.report import table_cells
from lbcore.sim.scenario.parse import parse_scenario

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scoreboard.md"
BARS = ROOT / "tests" / "golden" / "bars.json"
_BY_REPORT = re.compile(r"by report (\d+) moves and ([\d.]+) minutes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A strategy on a scenario. p95, end: imbalances as they are printed, - = no load."""

    strategy: str
    moves: int
    returns: int
    variation: str
    minutes_above: float
    p95: str
    end: str
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A recorded table. expected: text of an expectation → strategy → its value, ! = failed."""

    name: str
    folder: str
    title: str
    rows: tuple[Row, ...]
    expected: Mapping[str, Mapping[str, str]]
    possible: str
    by_report_moves: int | None
    by_report_minutes: float | None

    def row(self, strategy: str) -> Row:
        """Return the strategy's row. Raises StopIteration when it has none."""
        return next(row for row in self.rows if row.strategy == strategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A figure of CockroachDB's asim. figure: the column "end", or the expectation that has it."""

    about: str
    value: str
    thrash: str
    figure: str
    file: str
    commit: str


_ASIM = "pkg/kv/kvserver/asim/tests/testdata/non_rand/mma"
PUBLISHED: Mapping[str, Published] = {
    "high-cpu-25-nodes": Published(
        about="highest over mean at the end",
        value="1.50",
        thrash="263 %",
        figure="end",
        file="high_cpu_25nodes.txt",
        commit="0177538aa386",
    ),
    "heterogeneous-cpu": Published(
        about="highest over mean at the end",
        value="1.06",
        thrash="20 %",
        figure="end",
        file="heterogeneous_cpu_unconstrained.txt",
        commit="621a591c49e4",
    ),
    "rebalance-speed": Published(
        about="time until highest over mean stays at 1.15",
        value="210s",
        thrash="14 %",
        figure="balanced:1.15 <= 210s",
        file="sma_vs_mma_rebalance_speed.txt",
        commit="8c777a6528de",
    ),
}
SECTIONS: Mapping[str, tuple[str, str]] = {
    "conf/scenarios/isolation": (
        "Isolation",
        "Namespaces that may run on some brokers only. The imbalance is that of the worst group.",
    ),
    "conf/scenarios/saturation": (
        "Saturation",
        "Brokers that are offered more than they can serve.",
    ),
    "conf/scenarios/performance": (
        "Performance tests",
        "[The announced ones](performance-tests.md). reconnect is recorded for the default alone.",
    ),
    "conf/scenarios": (
        "Known pathologies",
        "The golden scenarios, each with its expectations.",
    ),
}


def recorded(conf: Path = ROOT / "conf") -> list[Compared]:
    """Return every recorded table, in the order of folders and names."""
    found = []
    for path in sorted(conf.glob("**/*.scenario")):
        scenario = parse_scenario(path.read_text(encoding="utf-8"))
        if scenario.compared:
            folder = path.parent.relative_to(conf.parent).as_posix()
            found.append(_compared(path.stem, folder, scenario.title, scenario.compared))
    return found


def _compared(name: str, folder: str, title: str, text: str) -> Compared:
    lines = text.splitlines()
    possible = lines[-1].removeprefix("possible: ")
    by_report = _BY_REPORT.search(possible)
    return Compared(
        name=name,
        folder=folder,
        title=title,
        rows=tuple(map(_row, table_cells(text))),
        expected=dict(_expected(line) for line in lines if line.startswith("expect ")),
        possible=possible,
        by_report_moves=int(by_report[1]) if by_report else None,
        by_report_minutes=float(by_report[2]) if by_report else None,
    )


def _row(cells: Sequence[str]) -> Row:
    strategy, moves, returns, _thrash, variation, above, p95, end, failed, _hash = cells
    return Row(
        strategy=strategy,
        moves=int(float(moves)),
        returns=int(float(returns)),
        variation=variation,
        minutes_above=float(above),
        p95=p95,
        end=end,
        failed=int(failed),
    )


def _expected(line: str) -> tuple[str, Mapping[str, str]]:
    text, _, values = line.removeprefix("expect ").rpartition(": ")
    pairs = (value.split(" ", maxsplit=1) for value in values.split(", "))
    return text, dict(pairs)


def page(found: Sequence[Compared]) -> str:
    """Return the page, Markdown."""
    lines = [_own_words("# The scoreboard", "## In sum"), *_sums(found), *_bars(), *_asim(found)]
    for folder, (title, about) in SECTIONS.items():
        own = [one for one in found if one.folder == folder]
        if own:
            lines += [f"\n## {title}\n", f"{about}\n", *_scenarios(own)]
    return "\n".join([*lines, *_traces(found)]) + "\n"


def _own_words(title: str, first: str) -> str:
    """What stands on the page from this title to the first drawn line, which begins so."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^{title}\n.*?\n(?=\n{first})", text, re.DOTALL | re.MULTILINE)
    return str(found)


def _sums(found: Sequence[Compared]) -> Iterator[str]:
    """Yield a row a strategy: its figures over all scenarios that it has run."""
    yield f"## In sum\n\nOver {len(found)} scenarios and traces.\n"
    yield from _head("strategy", "moves", "returns", "above", "scenarios with a failed expectation")
    for strategy in dict.fromkeys(row.strategy for one in found for row in one.rows):
        rows = [row for one in found for row in one.rows if row.strategy == strategy]
        moves, returns = sum(row.moves for row in rows), sum(row.returns for row in rows)
        above = sum(row.minutes_above for row in rows)
        failed = sum(row.failed > 0 for row in rows)
        yield _line(f"`{strategy}`", moves, returns, f"{above:.0f} min", failed)


def _bars() -> Iterator[str]:
    """Yield the bars of the default strategy, and each known miss with its reason."""
    yield "\n" + _own_words("## Bars of the default", "(?:Misses:|The default misses)")
    known = json.loads(BARS.read_text(encoding="utf-8"))
    yield "Misses:\n" if known else "The default misses none."
    yield from (f"- {bar}: {reason}" for bar, reason in known.items())


def _asim(found: Sequence[Compared]) -> Iterator[str]:
    own = [one for one in found if one.name in PUBLISHED]
    if not own:
        return
    yield "\n" + _own_words("## Beside CockroachDB's asim", r"\| scenario \|")
    names = [row.strategy for row in own[0].rows]
    yield from _head("scenario", "figure", "asim", *(f"`{name}`" for name in names))
    for one in own:
        about = PUBLISHED[one.name]
        values = [_figure(one, about.figure, name) for name in names]
        yield _line(one.name, about.about, about.value, *values)
        variations = [one.row(name).variation for name in names]
        yield _line("", "variation (asim: thrash)", about.thrash, *variations)
    yield ""
    for one in own:
        about = PUBLISHED[one.name]
        yield f"- {one.name}: `{_ASIM}/{about.file}` at {about.commit}"


def _figure(one: Compared, figure: str, strategy: str) -> str:
    if figure == "end":
        return one.row(strategy).end
    return one.expected[figure][strategy].rstrip("!")


def _scenarios(own: Sequence[Compared]) -> Iterator[str]:
    """Yield a row a scenario, with "moves / returns / above / failed" of each strategy."""
    names = list(dict.fromkeys(row.strategy for one in own for row in one.rows))
    yield "Each cell: moves / returns / minutes above 1.2 / failed expectations.\n"
    yield from _head("scenario", *(f"`{name}`" for name in names))
    for one in own:
        rows = {row.strategy: row for row in one.rows}
        yield _line(one.name, *(_cell(rows[name]) if name in rows else "" for name in names))


def _cell(row: Row) -> str:
    return f"{row.moves}/{row.returns}/{row.minutes_above:g}/{row.failed}"


def _traces(found: Sequence[Compared]) -> Iterator[str]:
    own = [one for one in found if one.folder == "conf/traces"]
    if not own:
        return
    yield "\n" + _own_words("## Recorded load", r"\| trace \|")
    yield from _head("trace", "strategy", "moves", "returns", "variation", "above", "p95")
    for one in own:
        for row in one.rows:
            cells = (row.moves, row.returns, row.variation, f"{row.minutes_above:g} min", row.p95)
            yield _line(one.name, f"`{row.strategy}`", *cells)
        if one.by_report_moves is not None:
            minutes = f"{one.by_report_minutes:g} min"
            yield _line(one.name, "*by report*", one.by_report_moves, "", "", minutes, "")
    yield ""
    yield from (f"- {one.name}, possible: {one.possible}" for one in own)


def _head(*titles: str) -> Iterator[str]:
    yield _line(*titles)
    yield f"|{'---|' * len(titles)}"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    PAGE.write_text(page(recorded()), encoding="utf-8")
