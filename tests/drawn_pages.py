"""Writes what is made of declarations: `python -m tests.drawn_pages`, part of `make draw`.

docs/tables.md from the tables, docs/sql.md from the views and queries and docs/metrics.md from the
metrics, each below its own words; docs/configuration.md from the settings, and the tables of
docs/strategies.md, docs/commands.md and docs/ownership.md from the records of strategies and
commands and the rules of ownership; conf/base.toml and the presets of Pulsar's releases from the
settings, and what a report may have from the resources. A test holds each equal to what is drawn
here.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

from jobs.service.lookup_metrics import LOOKUP_METRICS
from jobs.sql.queries import QUERIES, VIEWS, Query, SqlView
from jobs.telemetry.agent_metrics import AGENT_METRICS
from jobs.telemetry.bridge_metrics import BRIDGE_METRICS
from jobs.telemetry.job_names import JOB_METRICS
from jobs.telemetry.store import DeclaredMetric, by_name
from lbcore.config.load import differences
from lbcore.config.pulsar_keys import PRESETS, Preset
from lbcore.config.render import render_config, render_differences, render_page
from lbcore.config.tree import Config
from lbcore.model.resources import WIRE_NAMES
from lbcore.model.tables import ARCHIVES, MONTH, TABLES, Archive, Column, Table
from lbcore.ownership.records import State
from lbcore.ownership.specification import mermaid_text
from lbcore.ownership.states import ACTIVE, BALLAST, IN_FLIGHT, METADATA_STORE, SYSTEM_TOPIC
from lbcore.plan.registry import STRATEGIES
from lbcore.plan.strategy import Strategy
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import KINDS
from lbcore.wire.kinds.mirror_commands import MIRROR_COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REPORT_SCHEMA = "lbcore/wire/schemas/broker-load.json"

METRIC_PAGES: Mapping[str, Sequence[DeclaredMetric]] = {
    "The job": JOB_METRICS,
    "The lookup service": LOOKUP_METRICS,
    "An agent": AGENT_METRICS,
    "The bridge to a Pulsar cluster": BRIDGE_METRICS,
}
ALL_METRICS = by_name(metric for metrics in METRIC_PAGES.values() for metric in metrics)


def _own_words(page: str, first: str) -> str:
    """What stands on a page before its first drawn paragraph, which begins so."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text[: text.index(f"\n\n{first}")]


def draw_metrics() -> str:
    """The page of the metrics."""
    blocks = [_own_words("metrics.md", "## The job")]
    for title, metrics in METRIC_PAGES.items():
        rows = [_draw_metric(metric) for metric in metrics]
        blocks += [f"## {title}", "\n".join(rows)]
    sets: dict[str, list[str]] = {}
    for metric in ALL_METRICS.values():
        for label, values in (metric.values or {}).items():
            sets.setdefault(f"{label}: {', '.join(values)}", []).append(f"`{metric.name}`")
    closed = [f"- {', '.join(names)}, {values}" for values, names in sets.items()]
    return "\n\n".join([*blocks, "## Labels with a closed set", "\n".join(closed)]) + "\n"


def _draw_metric(metric: DeclaredMetric) -> str:
    labels = f" ({', '.join(metric.labels)})" if metric.labels else ""
    return f"- `{metric.name}` {metric.type.value}{labels}: {metric.doc}"


def draw_tables() -> str:
    """The page of the tables."""
    contents = ", ".join(f"[{table.name}](#{table.name})" for table in TABLES)
    archives = map(_draw_archive, ARCHIVES.values())
    head = _own_words("tables.md", f"[{TABLES[0].name}]")
    return "\n\n".join([head, contents, *map(_draw_table, TABLES), *archives]) + "\n"


def _draw_archive(archive: Archive) -> str:
    name = archive.table.name
    return (
        f"## {archive.name}\n\nThe rows of [{name}](#{name}) past their days, written by "
        f"`jobs/archive_history.py` alone: its columns, and `{MONTH.name}` ({MONTH.doc}); in "
        f"Z-order by `{archive.ordered_by}`. A row is in both for a while. `ballast sql`, "
        "`explain`, `ownership` and the views of `ballast sql --spark` read both as "
        f"`{name}`, each row once; "
        f"`ballast sql` knows the two alone as `{archive.live_name}` and `{archive.name}`."
    )


def draw_sql() -> str:
    """The page of the views and the ready queries."""
    queries = ["| query | question | how to read the answer |", "|---|---|---|"]
    queries += map(_draw_query, QUERIES)
    views = ["## Views", *map(_draw_view, VIEWS)]
    head = _own_words("sql.md", "## Ready queries")
    return "\n\n".join([head, "## Ready queries", "\n".join(queries), *views]) + "\n"


def _draw_query(query: Query) -> str:
    return f"| `{query.name}` | {query.question} | {query.reading} |"


def _draw_view(view: SqlView) -> str:
    columns = _draw_columns(view.columns)
    reads = ", ".join(f"`{name}`" for name in view.reads)
    return "\n\n".join([f"### {view.name}\n\n{view.doc} Reads {reads}.", columns])


def _draw_table(table: Table) -> str:
    blocks = [f"## {table.name}\n\n{table.doc}", _draw_columns(table.columns)]
    if table.constraints:
        rules = [f"- `{name}`: `{condition}`" for name, condition in table.constraints]
        blocks.append("Spark and delta-rs refuse rows that break these:\n\n" + "\n".join(rules))
    return "\n\n".join(blocks)


_COMMON = {
    ("cluster", "cluster"),
    ("batch_id", "micro-batch that wrote it"),
    ("at_ms", "time of the batch that wrote it"),
}


def _draw_columns(columns: Sequence[Column]) -> str:
    """A line a column; those that most tables have share the last one."""
    common = [column.name for column in columns if (column.name, column.doc) in _COMMON]
    lines = [_draw_column(column) for column in columns if column.name not in common]
    return "\n".join([*lines, *([f"- `{'`, `'.join(common)}`"] if common else [])])


def _draw_column(column: Column) -> str:
    type_ = column.type + (", may be null" if column.is_nullable else "")
    return f"- `{column.name}` {type_}: {column.doc}"


def draw_strategies() -> str:
    """The page of the strategies: its own words, and the tables of the records."""
    page = (DOCS / "strategies.md").read_text(encoding="utf-8")
    for kind, strategies in STRATEGIES.items():
        columns = ["Pulsar's class", "take it when", "caveats"]
        columns += ["seen in"] if any(one.seen_in for one in strategies) else []
        head = f"| {' | '.join([kind, *columns])} |"
        width = len(columns) + 1
        rows = [head, "|" + "---|" * width, *(_draw_strategy(one, width) for one in strategies)]
        page = _with_table(page, f"| {kind} |", rows)
    return page


def _with_table(page: str, head: str, rows: Sequence[str]) -> str:
    """The page, with these rows in place of the table whose first line begins so."""
    before, _, after = page.partition(head)
    lines = after.splitlines(keepends=True)[2:]
    end = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + "\n".join(rows) + "\n" + "".join(lines[end:])


def _draw_strategy(one: Strategy, width: int) -> str:
    cells = [f"`{one.name}`", one.pulsar_class, one.use_when, one.caveats]
    cells += [one.seen_in.replace("](", "](../tests/")]
    return f"| {' | '.join(cells[:width])} |"


def draw_commands() -> str:
    """The page of the command line: its own words, and the table of the commands' records."""
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    head = "| command |"
    rows = [f"{head} it | takes | asked for by |", "|---|---|---|---|"]
    return _with_table(page, head, [*rows, *map(_draw_command, KINDS.values())])


def _draw_command(declaring: type[CommandArguments]) -> str:
    spec = declaring.spec
    what = (declaring.__doc__ or "").splitlines()[0]
    names = ", ".join(f"`{one.name}`" for one in fields(declaring))
    role = "an operator" if spec.is_for_operators else "an admin"
    others = "a bridge" if declaring in MIRROR_COMMANDS else f"HTTP, {role}"
    by = f"`ballast {spec.verb.words}`, {role}" if spec.verb else others
    return f"| `{spec.kind}` | {what} | {names} | {by} |"


def draw_ownership() -> str:
    """The page of ownership: its own words, the state diagram, and which state may follow which."""
    page = (DOCS / "ownership.md").read_text(encoding="utf-8")
    diagram = f"```mermaid\n{mermaid_text()}\n```"
    page = re.sub(r"```mermaid\nstateDiagram.*?\n```", diagram, page, flags=re.DOTALL)
    rows = [
        "| from | Ballast | system topic | metadata store | in flight | active |",
        "|---|---|---|---|---|---|",
    ]
    for state in State:
        each = (rules.targets[state] for rules in (BALLAST, SYSTEM_TOPIC, METADATA_STORE))
        cells = [", ".join(one.value for one in State if one in targets) for targets in each]
        cells += ["yes" if state in group else "" for group in (IN_FLIGHT, ACTIVE)]
        rows.append(f"| {' | '.join([state.value, *cells])} |")
    return _with_table(page, "| from |", rows)


def draw_report_schema() -> str:
    """The schema of reports: its own words, the declared resources, and what makes it a load."""
    schema = json.loads((ROOT / REPORT_SCHEMA).read_text(encoding="utf-8"))
    report, of_resource = schema["$defs"]["report"], {"$ref": "#/$defs/resource"}
    others = [(name, of) for name, of in report["properties"].items() if of != of_resource]
    envelope = [(name, of) for name, of in others if name in report["required"]]
    loads = [(name, of_resource) for name in WIRE_NAMES] + others[len(envelope) :]
    report["properties"] = dict(envelope + loads)
    report["if"]["anyOf"] = [{"required": [name]} for name, _ in loads]
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _draw_preset(preset: Preset) -> str:
    return render_differences(differences(preset.config()), preset.head)


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/tables.md": draw_tables,
    "docs/sql.md": draw_sql,
    "docs/metrics.md": draw_metrics,
    "docs/configuration.md": render_page,
    "docs/strategies.md": draw_strategies,
    "docs/commands.md": draw_commands,
    "docs/ownership.md": draw_ownership,
    REPORT_SCHEMA: draw_report_schema,
    "conf/base.toml": lambda: render_config(Config()),
    **{f"conf/{name}.toml": partial(_draw_preset, preset) for name, preset in PRESETS.items()},
}
"""What is drawn, by its path in the project."""


if __name__ == "__main__":
    for name, draw in PAGES.items():
        (ROOT / name).write_text(draw(), encoding="utf-8")
