"""Writes what is made of declarations: `python -m tests.drawn_pages`, part of `make draw`.

docs/tables.md from the tables, docs/sql.md from the views and queries, docs/metrics.md from the
metrics, docs/configuration.md from the settings, and the tables of docs/strategies.md and
docs/commands.md from the records of strategies and commands; conf/base.toml and the presets of
Pulsar's releases from the settings, and what a report may have from the resources. A test
holds each equal to what is drawn here.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

from jobs.service.lookup_metrics import LOOKUP_METRICS
from jobs.sql.queries import QUERIES, VIEWS, Query, SqlView
from jobs.telemetry.agent_metrics import AGENT_METRICS
from jobs.telemetry.bridge_metrics import BRIDGE_METRICS
from jobs.telemetry.declared import DeclaredMetric, by_name
from jobs.telemetry.job_names import JOB_METRICS
from lbcore.config.load import differences
from lbcore.config.pulsar_keys import PRESETS, Preset
from lbcore.config.render import render_config, render_differences, render_page
from lbcore.config.tree import Config
from lbcore.model.resources import WIRE_NAMES
from lbcore.model.tables import ARCHIVES, MONTH, TABLES, Archive, Column, Table
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

_TABLES_HEAD = """\
# Tables

Only the streaming job writes these Delta tables; any engine that reads Delta may read them.
`ownership_events` is the truth: the other tables of ownership can be made from it. Instants are
milliseconds since 1970, UTC. No column is null unless it says so. Common columns: `cluster`,
`batch_id` (long: the micro-batch that wrote the row) and `at_ms` (long: that batch's time).

| rows of | stay |
|---|---|
| `decisions`, `decision_candidates`, `decision_effects` | 90 days; of kind `plan` for ever |
| `load_history`, `rejected_reports` | 30 days |
| `audit`; replaced settings in `config_versions`, `settings_in_force` | a year |
| `ownership_events`, `commands` | `pipeline.history_days`, then by `pipeline.history` |
| any table that only say that something is no more | 7 days |
| all others | for ever |

**History.** `pipeline.history` says what becomes of old rows: `archive` (default) lets a row go
once its archive has it, `drop` lets it go, `keep` keeps all. [The archive's
job](operate.md#history) copies due rows; without it nothing goes. The newest event of each living
bundle stays, and so do unfinished commands and the 2,000 newest of a cluster. Once rows go,
streaming from `ownership_events` with Spark needs `skipChangeCommits`.

**Upkeep.** Every 30 s the job joins the small files of one table and removes what is past its time.
A version can be read for half an hour. A replaced data file stays for a day, in `bundle_ownership`
for an hour. Any other file in a table's folder is removed after as long.

**Size.** 1,000 brokers with 100,000 bundles write 49 MB of decision log a day at rest, and 106 MB
when every cycle waits for hits. A cycle with 1,000 moves, the most that
`shedding.max_moves_per_cycle` allows, adds 0.12 MB.

**Settings in force.** The job decides by `settings_in_force`; verbs and the lookup service answer
by it. What holds now:
`SELECT setting, value, origin FROM settings_in_force WHERE cluster = 'local' AND at_ms = (SELECT
MAX(at_ms) FROM settings_in_force WHERE cluster = 'local')`.

For damaged files see [damaged tables](operate.md#damaged-tables). Copy `ownership_events/_batches`
with the tables: it has the rows that the newest batches owe the other tables."""

_SQL_HEAD = """\
# SQL

`ballast sql NAME` answers a ready query, `ballast sql "SELECT ..."` one of your own, over the
[tables](tables.md) and the views below. `ballast sql NAME --text` writes a ready query, to start
your own from.

- It runs in its own process with DataFusion, without a JVM, and answers while the job is away.
- It only reads: a statement runs if the engine's plan has nothing but reading steps. COPY, INTO,
  INSERT and SET are refused, and files outside the tables can't be named.
- Instants that end in `_ms` are milliseconds since 1970, others are UTC to the second.
- Decimals are text with all digits, durations and intervals ISO 8601, bytes without UTF-8 0x...

`ballast sql --spark` writes the same views for any Spark session with Delta:

```
ballast sql --spark --tables DIR > views.sql
spark-sql --packages io.delta:delta-spark_4.2_2.13:4.4.0 \\
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \\
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \\
  -i views.sql
```

A test compares both engines' answers."""

_METRICS_HEAD = """\
# Metrics

Each process serves these at `/metrics` for Prometheus; dashboards and alert rules in `dashboards/`
query nothing else. Names that begin with `pulsar_` or `brk_` are Pulsar 4.0.8's. In Pulsar each
broker reports them of itself, here the job reports them of each broker; where in Pulsar the leader
counts, the label `broker` is `balancer`.

- **The job**: `balance_cluster --metrics-port 9400` (0 takes a free port, `--metrics-port-file`
  says which), at `telemetry.host`. Only the job that holds the tables serves them, and a started
  standby its `ballast_job_phase` where the port is free. Counters begin at 0 with each start.
- **The lookup service**: `/metrics` on its own port, under the rules of `lookup.open_metrics`. With
  several workers any of them answers for all, with a label `worker`.
- **Spark**, in the job: its pages at `http://localhost:4040` and its own metrics at
  `/metrics/prometheus` there, or at the next free port (the log's `spark_ui` line says which). They
  ask for no password: with a local master only this machine reaches them, unless `SPARK_LOCAL_IP`
  names another address. `--spark spark.ui.enabled=false` turns them off.
- **An agent**: `ballast run-agent --metrics-port 9401`.
- **The bridge**: `ballast bridge pulsar --metrics-port 9402`.

Each has Prometheus's own `process_*` and `python_gc_*` beside these. A histogram has the series
`_bucket`, `_sum` and `_count`. Brokers are labels; bundles only with `telemetry.bundle_metrics`
(five series a bundle), topics and clients never. The job has 31 to 70 series a broker and 600 more:
30,000 to 70,000 at 1,000 brokers."""


def draw_metrics() -> str:
    """The page of the metrics."""
    blocks = [_METRICS_HEAD]
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
    return "\n\n".join([_TABLES_HEAD, contents, *map(_draw_table, TABLES), *archives]) + "\n"


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
    return "\n\n".join([_SQL_HEAD, "## Ready queries", "\n".join(queries), *views]) + "\n"


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
        blocks.append("Both engines refuse a row that breaks one of these:\n\n" + "\n".join(rules))
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
    about = declaring.about
    what = (declaring.__doc__ or "").splitlines()[0]
    names = ", ".join(f"`{one.name}`" for one in fields(declaring))
    role = "an operator" if about.is_operating else "an admin"
    others = "a bridge" if declaring in MIRROR_COMMANDS else f"HTTP, {role}"
    by = f"`ballast {about.verb.words}`, {role}" if about.verb else others
    return f"| `{about.kind}` | {what} | {names} | {by} |"


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
    REPORT_SCHEMA: draw_report_schema,
    "conf/base.toml": lambda: render_config(Config()),
    **{f"conf/{name}.toml": partial(_draw_preset, preset) for name, preset in PRESETS.items()},
}
"""What is drawn, by its path in the project."""


if __name__ == "__main__":
    for name, draw in PAGES.items():
        (ROOT / name).write_text(draw(), encoding="utf-8")
