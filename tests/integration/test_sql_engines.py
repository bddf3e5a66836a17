"""Each ready query has one text, and both engines answer it alike on the same tables."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.sql.engine import SqlEngine, plain_rows
from jobs.sql.queries import QUERIES, VIEWS, Query
from jobs.verbs.sql import spark_statements
from tests.support.tables.spark_sql import SparkSql
from tests.support.worlds.explained_world import eventful, write_tables


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of an eventful cluster."""
    found = tmp_path_factory.mktemp("sql")
    write_tables(eventful(), found)
    return found


@pytest.fixture(scope="module")
def spark(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    """Spark with the views, made as `ballast sql --spark` says."""
    running = SparkSql(tmp_path_factory.mktemp("spark"))
    for statement in spark_statements(root):
        running.run(statement)
    yield running
    running.close()


@pytest.fixture(scope="module")
def engine(root: Path) -> SqlEngine:
    return SqlEngine(root)


def comparable(value: Any) -> Any:
    """As both engines' JSON writes it; a sum in another order may differ in its last bits."""
    if isinstance(value, float):
        return None if math.isnan(value) else pytest.approx(value, rel=1e-6)
    return value.replace("T", " ") if isinstance(value, str) and value[10:11] == "T" else value


@pytest.mark.long
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_ready_query_is_answered_alike(spark: SparkSql, engine: SqlEngine, query: Query) -> None:
    wanted = [
        {name: comparable(value) for name, value in row.items()}
        for row in plain_rows(engine.query(query.text))
    ]
    assert spark.run(query.text) == wanted


def test_view_of_every_name_is_behind_a_ready_query() -> None:
    below = {name for view in VIEWS for name in view.reads}
    texts = " ".join(query.text for query in QUERIES)
    assert [v.name for v in VIEWS if v.name not in below and f" {v.name} " not in texts] == []
