"""Tables whose old rows move to an archive, and the rows that may.

Decides nothing about time. A row is in the table, in its archive, or for a while in both; it is the
same row where all columns of `identity` are equal, without which the job lets none go. Readers take
of each `key` the table's row first, so that a command that was carried out again under its old id
has one row, as before.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lbcore.model.tables import COMMANDS, OWNERSHIP_EVENTS, Column, Table

MONTH = Column(name="month", type="string", doc="month of at_ms, YYYY-MM, UTC; a folder each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One table's archive.

    identity: what makes a row itself. key: of which there is one row, in the table before any in
    the archive. ordered_by: what most questions ask for. ended: the SQL condition of rows that
    nothing changes any more, "" = every one.
    """

    table: Table
    identity: tuple[str, ...]
    key: tuple[str, ...]
    ordered_by: str
    ended: str = ""

    @property
    def name(self) -> str:
        """Of the archive's table, beside its source."""
        return f"{self.table.name}_archive"

    @property
    def live_name(self) -> str:
        """Name of the source alone in SQL, where its own name means both."""
        return f"{self.table.name}_live"

    @property
    def is_append_only(self) -> bool:
        """True if each row has a key of its own, so that none is ever replaced."""
        return self.key == self.identity

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the source, and the month."""
        return (*self.table.columns, MONTH)


_EVENT = ("cluster", "bundle", "version_id", "writer_epoch", "batch_id", "seq_in_batch", "at_ms")
EVENTS_ARCHIVE = Archive(
    table=OWNERSHIP_EVENTS,
    identity=_EVENT,
    key=_EVENT,
    ordered_by="bundle",
)
COMMANDS_ARCHIVE = Archive(
    table=COMMANDS,
    identity=("cluster", "command_id", "status", "batch_id", "at_ms"),
    key=("cluster", "command_id"),
    ordered_by="command_id",
    ended="status <> 'accepted'",
)
ARCHIVES: Mapping[str, Archive] = {
    archive.table.name: archive for archive in (EVENTS_ARCHIVE, COMMANDS_ARCHIVE)
}
"""By the name of the table whose rows they take."""
