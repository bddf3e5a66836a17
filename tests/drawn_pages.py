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

from jobs.service.lookup_names import LOOKUP_METRICS
from jobs.sql.queries import QUERIES, Query
from jobs.sql.views import VIEWS, SqlView
from jobs.telemetry.agent_names import AGENT_METRICS
from jobs.telemetry.bridge_names import BRIDGE_METRICS
from jobs.telemetry.declared import DeclaredMetric, by_name
from jobs.telemetry.job_names import JOB_METRICS
from lbcore.config.load import differences
from lbcore.config.pulsar_presets import PRESETS, Preset
from lbcore.config.render import render_config, render_differences, render_page
from lbcore.config.tree import Config
from lbcore.model.archives import ARCHIVES, MONTH, Archive
from lbcore.model.resources import WIRE_NAMES
from lbcore.model.table import Column, Table
from lbcore.model.tables import TABLES
from lbcore.plan.registry import STRATEGIES
from lbcore.plan.strategy import Strategy
from lbcore.wire.commands import KINDS
from lbcore.wire.kinds.command_about import CommandArguments

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

Every Delta table that the streaming job writes, from the declarations in `lbcore/model/tables.py`
(`python -m tests.drawn_pages` writes this page, a test holds it equal). Only that job writes them,
but for `backtests`, to which `ballast backtest --keep` adds what it found, beside the job;
anybody may read them, with Spark, delta-rs or any other engine that reads Delta. `ownership_events`
is the truth: the other tables of ownership can be made from it. Instants are milliseconds since
1970, UTC. No column is null unless it says so.

The decision log (`decisions`, `decision_candidates`, `decision_effects`) is bounded. With 1,000
brokers and 100,000 bundles, 8,640 cycles a day and load that is skewed all day: a cycle that waits
for hits writes 1 row of `decisions` and 22 of `decision_candidates`, 106 MB a day with the entries
in Delta's log; one that moves 1,000 bundles, the most that `shedding.max_moves_per_cycle` allows,
1,000 and 98 rows, and later 1,000 of `decision_effects`, 0.12 MB together. A cluster at rest writes
a row of `decisions` a cycle (49 MB a day, nearly all of it Delta's log) and nothing else
(`python -m tests.bench decision_log` measures it).

What is committed outlasts a power cut: the job syncs a batch's data files, its commits and their
folders to the disk before brokers are told. What becomes of a damaged file stands in
[damaged tables](operate.md#damaged-tables).

Upkeep is the job's own: between two batches, each `pipeline.upkeep_interval_ms`, it joins the
small files of one table, writes a checkpoint, and removes what is past its time. A version can be
read for half an hour (the log); a data file that was replaced stays for a day, in
`bundle_ownership` for an hour, and up to a sixth longer, so that who reads an older version can
finish. Any other file that lies in a table's folder for as long is removed, too. Rows of the
decision log stay 90 days (but those of kind `plan` for ever: who proposed and approved what),
those of `load_history` and `rejected_reports` 30, those of `audit` a year, and so do settings in
`config_versions` and `settings_in_force` that others have replaced, but for the last ones of
before; history as below; a row that says only that something is no more (a deleted namespace,
tenant or topic, a forgotten broker, a rule taken back) 7 days; of `backtests` the newest 20 runs
of each cluster; all others for ever. Followers that are away for longer load whole.

Rows of `ownership_events` and `commands` past `pipeline.history_days` are history, of which
`pipeline.history` says what becomes: `archive` (unless set otherwise) lets a row go once its
archive has it, `drop` lets it go, `keep` keeps all. What stays in any case answers every question
about the time since: of each living bundle the newest event before, of commands those that have not
ended and the 2,000 of a cluster that the job remembers. `python -m jobs.archive_history --tables
DIR` (by hand, by cron or by spark-submit, with the job's `--conf` and `--set`) copies what is due
into the archives, beside the job, which alone takes rows out of its tables; killed at any point it
is started again. Without it nothing goes. With `drop` a question about an older time finds nothing.
With the first row that goes `ownership_events` stops being append-only for Delta: who streams from
it with Spark needs `skipChangeCommits`.

`settings_in_force` is what the job decides by, whatever files are where you ask: verbs and the
lookup service answer by it. How Kafka is reached, who may ask and what agents do is each process's
own and does not stand in it. What holds now, and who set it:
`SELECT setting, value, origin FROM settings_in_force WHERE cluster = 'local' AND at_ms = (SELECT
MAX(at_ms) FROM settings_in_force WHERE cluster = 'local')`.

`ownership_events/_batches` has the rows that the newest batches owe the other tables: who copies
the tables copies it too. A rebuild writes from it what a crash kept from them."""

_SQL_HEAD = """\
# SQL

`ballast sql NAME` answers a ready query, `ballast sql "SELECT ..."` one of your own, over the
[tables](tables.md) and the views below (`python -m tests.drawn_pages` writes this page from
`jobs/sql/`, a test holds it equal). It runs in the command's own process with DataFusion, the
engine that the package `deltalake` carries, so it needs no JVM and answers while the job is away.
It only reads: a statement runs if the engine's own plan of it has nothing but reading steps, so
COPY, INTO, INSERT or SET are refused however they are written. Files outside the tables can't be
named. Decimals are written as text with all digits, durations and intervals as ISO 8601
durations, bytes that are no UTF-8 as 0x...

In Spark the same views are made by what `ballast sql --spark` writes, in any session with Delta:

```
ballast sql --spark --tables DIR > views.sql
spark-sql --packages io.delta:delta-spark_4.2_2.13:4.4.0 \\
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \\
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \\
  -i views.sql
```

Each ready query is one text, which a test lets both engines answer on the same tables and compares.
`ballast sql NAME --text` writes it, to start one of your own from. Instants that end in `_ms` are
milliseconds since 1970, others are UTC to the second."""

_METRICS_HEAD = """\
# Metrics

What the processes say at `/metrics` for Prometheus, from the declarations in `jobs/telemetry`
(`python -m tests.drawn_pages` writes this page, a test holds it equal; dashboards and alert rules
in `dashboards/`, made by `python -m dashboards`, may query nothing else). Names and labels that
begin with `pulsar_` or `brk_` are Pulsar 4.0.8's: in Pulsar each broker says them of itself, here
the job says them of each broker, and where in Pulsar the leader counts, the label `broker` is
`balancer`.

- **The job**: `balance_cluster --metrics-port 9400` (0 takes a free port, `--metrics-port-file`
  says which), at `telemetry.host`. Only the job that holds the tables gives them out, and a standby
  that is warm its `ballast_job_phase` where the port is free; counters begin at 0 with each start.
- **The lookup service**: `/metrics` on its own port, under the rules of `lookup.open_metrics`. With
  several workers whichever is asked answers for all, with a label `worker`.
- **An agent**: `ballast run-agent --metrics-port 9401`.
- **The bridge**: `ballast bridge pulsar --metrics-port 9402`.

Each has Prometheus's own `process_*` and `python_gc_*` beside these. A histogram has the series
`_bucket`, `_sum` and `_count`. Brokers are labels, and a broker that is forgotten takes its series
with it; bundles are only with `telemetry.bundle_metrics` (five series a bundle); topics, clients
and whatever anybody can make up never are. The job has 31 series a broker at rest, up to 70
for one that gives, takes and splits, and 600 more: 30,000 to 70,000 at 1,000 brokers.

`python -m tests.integration.eventful_run FOLDER` plays a run with a hotspot, a split, a callback
that hangs, one that fails, a crash and a drain, has a real Prometheus watch it, and draws every
dashboard as a PNG file into FOLDER."""


def draw_metrics() -> str:
    """The page of the metrics."""
    blocks = [_METRICS_HEAD]
    for title, metrics in METRIC_PAGES.items():
        rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        rows += [_draw_metric(metric) for metric in metrics]
        blocks += [f"## {title}", "\n".join(rows)]
    closed = ["| metric | label | values |", "|---|---|---|"]
    for metric in ALL_METRICS.values():
        for label, values in (metric.values or {}).items():
            closed.append(f"| `{metric.name}` | {label} | {', '.join(values)} |")
    return "\n\n".join([*blocks, "## Labels with a closed set", "\n".join(closed)]) + "\n"


def _draw_metric(metric: DeclaredMetric) -> str:
    return f"| `{metric.name}` | {metric.type.value} | {', '.join(metric.labels)} | {metric.doc} |"


def draw_tables() -> str:
    """The page of the tables."""
    contents = "\n".join(f"- [{table.name}](#{table.name}): {table.doc}" for table in TABLES)
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
    queries = ["## Ready queries", *map(_draw_query, QUERIES)]
    views = ["## Views", *map(_draw_view, VIEWS)]
    return "\n\n".join([_SQL_HEAD, *queries, *views]) + "\n"


def _draw_query(query: Query) -> str:
    text = query.text.strip()
    return f"### {query.name}\n\n{query.question} {query.reading}\n\n```sql\n{text}\n```"


def _draw_view(view: SqlView) -> str:
    columns = ["| column | type | meaning |", "|---|---|---|", *map(_draw_column, view.columns)]
    reads = ", ".join(f"`{name}`" for name in view.reads)
    return "\n\n".join([f"### {view.name}\n\n{view.doc} Reads {reads}.", "\n".join(columns)])


def _draw_table(table: Table) -> str:
    columns = ["| column | type | meaning |", "|---|---|---|", *map(_draw_column, table.columns)]
    blocks = [f"## {table.name}\n\n{table.doc}", "\n".join(columns)]
    if table.constraints:
        rules = [f"- `{name}`: `{condition}`" for name, condition in table.constraints]
        blocks.append("Both engines refuse a row that breaks one of these:\n\n" + "\n".join(rules))
    return "\n\n".join(blocks)


def _draw_column(column: Column) -> str:
    type_ = column.type + (", may be null" if column.is_nullable else "")
    return f"| `{column.name}` | {type_} | {column.doc} |"


def draw_strategies() -> str:
    """The page of the strategies: its own words, and the tables of the records."""
    page = (DOCS / "strategies.md").read_text(encoding="utf-8")
    for kind, strategies in STRATEGIES.items():
        columns = ["Pulsar's class", "take it when", "beware"]
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
    end = next(at for at, line in enumerate(lines) if not line.startswith("|"))
    return before + "\n".join(rows) + "\n" + "".join(lines[end:])


def _draw_strategy(one: Strategy, width: int) -> str:
    cells = [f"`{one.name}`", one.pulsar_class, one.use_when, one.beware]
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
    by = f"`ballast {about.verb.words}`, {role}" if about.verb else "a bridge"
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
