"""What a local run reads from the Delta tables itself.

Decides nothing. Source: ours.
"""

from pathlib import Path

from deltalake import DeltaTable

from lbcore.model.tables import NAMESPACES, OWNERSHIP_EVENTS


class RunTables:
    """The tables of one run, which may not be there yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def events(self) -> Path:
        """The folder of ownership_events."""
        return self._folder / OWNERSHIP_EVENTS.name

    def namespaces(self) -> set[str]:
        """The namespaces that exist; one look at the table."""
        path = str(self._folder / NAMESPACES.name)
        if not (DeltaTable.is_deltatable(path) and DeltaTable.is_deltatable(str(self.events))):
            return set()
        rows = DeltaTable(path).to_pyarrow_table(columns=["namespace", "is_deleted"]).to_pylist()
        return {row["namespace"] for row in rows if not row["is_deleted"]}
