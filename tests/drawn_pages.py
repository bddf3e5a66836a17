"""Writes the pages that are made of declarations: `python -m tests.drawn_pages`.

docs/tables.md from the tables, docs/sql.md from the views and queries, docs/metrics.md from the
lookup service's metrics, and docs/configuration.md from the settings. A test holds each equal to
what is drawn here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from jobs.adapters.delta_follower import ReloadReason
from jobs.adapters.lookup_metrics import METRICS
from jobs.adapters.lookup_replies import OTHER_RESULTS
from jobs.admin.gates import OTHER_REFUSALS
from jobs.admin.tokens import TokenFault
from jobs.sql.queries import QUERIES, Query
from jobs.sql.views import VIEWS, View
from lbcore.config.render import render_page
from lbcore.model.tables import TABLES, Column, Table
from lbcore.route.bundles import Unsound
from lbcore.route.snapshot import Outcome

DOCS = Path(__file__).parents[1] / "docs"

_TABLES_HEAD = """\
# Tables

Every Delta table that the streaming job writes, from the declarations in `lbcore/model/tables.py`
(`python -m tests.drawn_pages` writes this page, a test holds it equal). Only that job writes them;
anybody may read them, with Spark, delta-rs or any other engine that reads Delta. `ownership_events`
is the truth: the other tables of ownership can be made from it. Instants are milliseconds since
1970, UTC. No column is null unless it says so.

The decision log (`decisions`, `decision_candidates`, `decision_effects`) is bounded. With 1,000
brokers and 100,000 bundles, 8,640 cycles a day and load that is skewed all day: a cycle that waits
for hits writes 1 row of `decisions` and 22 of `decision_candidates`, 106 MB a day with the entries
in Delta's log; one that moves 1,000 bundles, the most that `shedding.max_moves_per_cycle` allows,
1,000 and 98 rows, and later 1,000 of `decision_effects`, 0.12 MB together. A cluster at rest writes
a row of `decisions` a cycle (49 MB a day, nearly all of it Delta's log) and nothing else
(`python -m tests.bench decision_log` measures it)."""

_SQL_HEAD = """\
# SQL

`ballast sql NAME` answers a ready query, `ballast sql "SELECT ..."` one of your own, over the
[tables](tables.md) and the views below (`python -m tests.drawn_pages` writes this page from
`jobs/sql/`, a test holds it equal). It runs in the command's own process with DataFusion, the
engine that the package `deltalake` carries, so it needs no JVM and answers while the job is away.
It only reads: anything but a SELECT is refused.

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

What the lookup service says at `/metrics` for Prometheus, from the declarations in
`jobs/adapters/lookup_metrics.py` (`python -m tests.drawn_pages` writes this page, a test holds it
equal). Counters end in `_total` there. Beside these it has Prometheus's own `process_*` and
`python_gc_*`. The streaming job has no metrics endpoint; its JSON lines are in the log that `--log`
names."""


def draw_metrics() -> str:
    """The page of the metrics."""
    rows = ["| metric | meaning |", "|---|---|"]
    rows += [f"| `{name}` | {doc} |" for name, doc in METRICS.items()]
    results = [*(one.value for one in Outcome), *OTHER_RESULTS]
    labels = [
        ("ballast_lookup_requests", "result", results),
        (
            "ballast_requests_refused",
            "reason",
            [*OTHER_REFUSALS, *(one.value for one in TokenFault)],
        ),
        ("ballast_snapshot_refused", "reason", [one.value for one in Unsound]),
        ("ballast_tables_reloads", "reason", [one.value for one in ReloadReason]),
    ]
    lines = ["| metric | label | values |", "|---|---|---|"]
    lines += [f"| `{name}` | {label} | {', '.join(values)} |" for name, label, values in labels]
    return "\n\n".join([_METRICS_HEAD, "\n".join(rows), "\n".join(lines)]) + "\n"


def draw_tables() -> str:
    """The page of the tables."""
    contents = "\n".join(f"- [{table.name}](#{table.name}): {table.doc}" for table in TABLES)
    return "\n\n".join([_TABLES_HEAD, contents, *map(_draw_table, TABLES)]) + "\n"


def draw_sql() -> str:
    """The page of the views and the ready queries."""
    queries = ["## Ready queries", *map(_draw_query, QUERIES)]
    views = ["## Views", *map(_draw_view, VIEWS)]
    return "\n\n".join([_SQL_HEAD, *queries, *views]) + "\n"


def _draw_query(query: Query) -> str:
    text = query.text.strip()
    return f"### {query.name}\n\n{query.question} {query.reading}\n\n```sql\n{text}\n```"


def _draw_view(view: View) -> str:
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


PAGES: Mapping[str, Callable[[], str]] = {
    "tables.md": draw_tables,
    "sql.md": draw_sql,
    "metrics.md": draw_metrics,
    "configuration.md": render_page,
}


if __name__ == "__main__":
    for name, draw in PAGES.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
