"""Ask the tables in SQL: a ready query by its name, or a SELECT of your own.

From the tables in this process, or by a service (--url), which takes an admin's token: it answers
while the job and Kafka are away. Views and queries are in docs/sql.md; --spark writes what makes
the same views in Spark.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.adapters.delta.table_location import TablePlace, spark_uri
from jobs.adapters.delta.table_scan import is_delta
from jobs.adapters.delta.tables import table_path
from jobs.console import Exit, MisuseError, answer, text_table
from jobs.operating.answers import answers_of
from jobs.operating.connection_options import TABLES_OPTIONS, connection_options
from jobs.parser import argument, arguments
from jobs.sql.queries import QUERIES, VIEWS, SqlRunner, one_table, whole_table
from lbcore.explain.explanation import number
from lbcore.model.names import did_you_mean
from lbcore.model.tables import ARCHIVES, TABLES

_BY_NAME = {query.name: query for query in QUERIES}
_SHOWN_ROWS = 1_000


add_arguments = arguments(
    argument(
        "query", nargs="?", default="", metavar="QUERY", help="a ready query's name, or a SELECT"
    ),
    argument("--text", action="store_true", help="write the ready query's SQL instead"),
    argument(
        "--spark", action="store_true", help="write the statements that make the views in Spark"
    ),
    TABLES_OPTIONS,
    example="ballast sql most-moved\n"
    'example: ballast sql "SELECT broker, count(*) FROM owners GROUP BY broker"\n'
    "without a query: a list of the ready ones",
)


def run(args: argparse.Namespace) -> int:
    """Write the rows."""
    if args.spark:
        statements = list(spark_statements(connection_options(args).place().absolute()))
        answer(args, statements, [line for one in statements for line in f"{one};".split("\n")])
    elif not args.query:
        listed = [{"name": one.name, "question": one.question} for one in QUERIES]
        cells = [("query", "answers"), *((one.name, one.question) for one in QUERIES)]
        answer(args, listed, text_table(cells))
    elif args.text:
        answer(args, _text(args.query), _text(args.query).split("\n"))
    else:
        names, rows = answers_of(connection_options(args)).query(_text(args.query))
        answer(args, rows, _lines(names, rows))
    return Exit.DONE


def spark_statements(tables: TablePlace) -> Iterable[str]:
    """Return the SQL that registers the tables and views in a Spark session.

    The session needs Delta.
    """
    yield "SET spark.sql.session.timeZone = UTC"
    for table in TABLES:
        path = spark_uri(table_path(tables, table.name))
        text = one_table(f"delta.`{path}`")
        archive = ARCHIVES.get(table.name)
        if archive is not None and is_delta(table_path(tables, archive.name)):
            past = spark_uri(table_path(tables, archive.name))
            text = whole_table(archive, f"delta.`{path}`", f"delta.`{past}`")
        yield f"CREATE OR REPLACE TEMPORARY VIEW {table.name} AS {text}"
    yield from (view.statement(SqlRunner.SPARK) for view in VIEWS)


def _text(query: str) -> str:
    if query in _BY_NAME:
        return _BY_NAME[query].text.strip()
    if len(query.split()) > 1:
        return query
    raise MisuseError(
        f"there is no ready query {query!r}",
        why=f"there are {', '.join(_BY_NAME)}",
        next_step=f"{did_you_mean(query, _BY_NAME)}take one of them, or write a SELECT",
    )


def _lines(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    shown = rows[:_SHOWN_ROWS]
    numbers = {
        at
        for at, name in enumerate(names)
        if any(isinstance(row[name], int | float) for row in shown)
    }
    yield from text_table(
        [names, *([_cell(row[name]) for name in names] for row in shown)], numbers
    )
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} rows more; --json has all"
    elif not rows:
        yield "(no rows)"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
