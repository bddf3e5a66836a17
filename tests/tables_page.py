"""Writes docs/tables.md from the declarations of the tables: `python -m tests.tables_page`."""

from pathlib import Path

from lbcore.model.tables import TABLES, Column, Table

PAGE = Path(__file__).parents[1] / "docs" / "tables.md"

_HEAD = """\
# Tables

Every Delta table that the streaming job writes, from the declarations in `lbcore/model/tables.py`
(`python -m tests.tables_page` writes this page, a test holds it equal). Only that job writes them;
anybody may read them, with Spark, delta-rs or any other engine that reads Delta. `ownership_events`
is the truth: the other tables of ownership can be made from it. Instants are milliseconds since
1970, UTC. No column is null unless it says so."""


def draw_page() -> str:
    """The whole page."""
    contents = "\n".join(f"- [{table.name}](#{table.name}): {table.doc}" for table in TABLES)
    return "\n\n".join([_HEAD, contents, *map(_draw_table, TABLES)]) + "\n"


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


if __name__ == "__main__":
    PAGE.write_text(draw_page(), encoding="utf-8")
