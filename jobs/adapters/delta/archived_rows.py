"""Reads a table and its archive as the one table that it was before rows moved.

Decides in which order the two are opened: the table first, so that a row that leaves it meanwhile
is in the archive that is opened next. A row that is in both for a while is given once. Used by
every reader of rows that may be old.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.adapters.delta.table_place import TablePlace
from jobs.adapters.delta.table_scan import newest_ms, open_delta, scan
from jobs.adapters.delta.table_tail import is_delta
from jobs.adapters.delta.tables import lacking_columns, open_table, table_path
from lbcore.model.archives import ARCHIVES
from lbcore.model.tables import declared


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTable:
    """A table and, where there is one, its archive. live: may be at an older version."""

    name: str
    live: DeltaTable
    archive: DeltaTable | None = None

    def read(self, columns: Sequence[str] | None, condition: str | None) -> pa.Table:
        """The rows of both that meet an SQL condition, columns None = all; O(rows that do).

        Without the nullable columns that a table of an older version lacks. Raises OSError,
        DeltaError, ArrowException for a table that can't be read.
        """
        names = tuple(field.name for field in self.live.schema().fields)
        lacking = {one.name for one in lacking_columns(self.live, declared(self.name).columns)}
        wanted = tuple(name for name in columns or names if name not in lacking)
        if self.archive is None:
            return scan(self.live, wanted, condition)
        key = ARCHIVES[self.name].key
        read = tuple(dict.fromkeys((*wanted, *key)))
        known = {field.name for field in self.archive.schema().fields}
        live = scan(self.live, read, condition)
        archived = scan(self.archive, [name for name in read if name in known], condition)
        if key != ARCHIVES[self.name].identity:  # a row that does not meet it may be the newer one
            there = pc.unique(archived[key[-1]])
            named = scan(self.live, key)
            newer = named.filter(pc.is_in(named[key[-1]], there))
        else:
            newer = live
        parts = [live, rows_not_in(archived, newer, key)]
        return pa.concat_tables(parts, promote_options="default").select(wanted)

    def as_of(self, at_ms: int) -> "WholeTable":
        """Return the table as a query for a time reads it.

        Leaves out an archive whose rows are all at or before at_ms. The table itself keeps each
        bundle's newest row before the archive's end.
        """
        if self.archive is None:
            return self
        is_older = newest_ms(self.archive) <= at_ms
        return replace(self, archive=None) if is_older else self


def open_whole(root: str | TablePlace, name: str) -> WholeTable:
    """The newest version of an existing table with its archive; raises as `open_table`."""
    live = open_table(root, name)
    return WholeTable(name=name, live=live, archive=open_archive(root, name))


def open_archive(root: str | TablePlace, name: str) -> DeltaTable | None:
    """The archive of a table; None where it has none, or none was made yet."""
    if name not in ARCHIVES:
        return None
    path = table_path(root, ARCHIVES[name].name)
    return open_delta(path) if is_delta(path) else None


def rows_not_in(rows: pa.Table, others: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The rows that `others` has not, by the columns of `identity`. O(rows + others)."""
    if not len(rows) or not len(others):
        return rows
    keys = others.select(identity)
    return rows.join(keys, keys=list(identity), join_type="left anti")
