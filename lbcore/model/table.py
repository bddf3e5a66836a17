"""Declaration of a table: columns, key, and conditions the engines enforce.

`tables` declares them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: name, logical type, meaning."""

    name: str
    type: str
    doc: str
    is_nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: name, columns, and the row conditions that the engines enforce.

    key: the columns that, with the cluster, name its one newest row; () = it only grows. gone: the
    SQL condition of a row that only says that there is none any more; such rows go after
    `tables.GONE_DAYS`.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    gone: str = ""
    constraints: tuple[tuple[str, str], ...] = ()


def column(name: str, type_: str, doc: str, *, is_nullable: bool = False) -> Column:
    """A column, in one line."""
    return Column(name=name, type=type_, doc=doc, is_nullable=is_nullable)
