"""Adds rows to a table that the job makes and looks after but does not write: from a verb.

Decides that such a commit needs no epoch: an append changes nothing that is there, so delta-rs
puts it after whatever was committed meanwhile, by the job or by another verb. The job's own
tables are `table_writer`'s. Source: ours; Delta's blind appends.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from jobs.adapters.delta.table_mending import sync_commits
from jobs.adapters.delta.table_place import TablePlace, store_errors
from jobs.adapters.delta.table_writer import NO_CLEANING
from jobs.adapters.delta.tables import arrow_schema, ensure_table, table_path, with_all_columns
from jobs.console import CommandError, first_line
from lbcore.model.table import Table

_ATTEMPTS = 8
_FAILURES = (OSError, DeltaError, pa.ArrowException)


def make_ready(root: TablePlace, table: Table) -> None:
    """The table is there and has its columns. Raises CommandError."""
    with _refusals(root, table):
        ensure_table(root, table)


def append_rows(root: TablePlace, table: Table, rows: Sequence[dict[str, Any]]) -> int:
    """Commit the rows, all or none, to a table that is made where it is missing; its version.

    Raises CommandError.
    """
    added = pa.Table.from_pylist(list(rows), schema=arrow_schema(table))
    with _refusals(root, table):
        for _ in range(_ATTEMPTS - 1):
            with suppress(CommitFailedError):  # its columns or properties were changed meanwhile
                return _append(root, table, added)
        return _append(root, table, added)
    raise AssertionError


def _append(root: TablePlace, table: Table, added: pa.Table) -> int:
    handle = ensure_table(root, table)
    before = handle.version()
    with store_errors(handle.table_uri):
        write_deltalake(
            handle,
            with_all_columns(handle, added),
            mode="append",
            post_commithook_properties=NO_CLEANING,
        )
    sync_commits(table_path(root, table.name), before, handle.version())
    return handle.version()


@contextmanager
def _refusals(root: TablePlace, table: Table) -> Iterator[None]:
    try:
        yield
    except CommandError:  # a store's as well
        raise
    except _FAILURES as error:
        raise CommandError(
            f"{table_path(root, table.name)} can't be written",
            why=f"{type(error).__name__}: {first_line(error)}",
            next_step="let a user do it who may write there, as the job's does (`ballast doctor` "
            "says whether this one may), or do without keeping the result",
        ) from error
