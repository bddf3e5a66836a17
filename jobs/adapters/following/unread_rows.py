"""Rows of the tables that a follower can't read, and what it shows of what they are about.

Decides that a row costs nothing but itself: the bundle, broker or namespace stays as it was known
before, and where a namespace's bundles don't fit together without the row, all of them stay; of
what was never known nothing is shown. Such rows come from damage, or from a newer version of the
job. Used by `delta_follower`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from jobs.adapters.delta.rows import BadRow
from lbcore.model.hashing import HashFunction
from lbcore.model.tables import BROKERS, NAMESPACES
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute, NamespaceRoutes
from lbcore.route.snapshot import LookupSnapshot

_Hashes: TypeAlias = dict[str, HashFunction]


@dataclass(slots=True)
class UnreadRows:
    """Those of the tables as they are loaded now. known: what was shown before; None = nothing."""

    known: LookupSnapshot | None = None
    _rows: dict[tuple[str, str], BadRow] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return True if there are unread rows."""
        return bool(self._rows)

    @property
    def text(self) -> str:
        """Error text with the next step; "" if there are no unread rows."""
        if not self._rows:
            return ""
        first = self._rows[min(self._rows)]
        return (
            f"{len(self._rows)} rows of the tables can't be read, what they are about is answered "
            f"as it was known before: the row of {first.name} in {first.table} is not what this "
            f"version of the job writes ({first.error}); run the version that wrote it, or compare "
            "the tables with a backup"
        )

    def of_brokers(
        self, found: Iterable[BrokerAddress], bad: Sequence[BadRow]
    ) -> list[BrokerAddress]:
        """The brokers, and as before those whose row can't be read."""
        before = self.known.brokers if self.known is not None else {}
        self._note(BROKERS.name, bad)
        return [*found, *(before[row.name] for row in bad if row.name in before)]

    def of_namespaces(self, found: _Hashes, bad: Sequence[BadRow]) -> _Hashes:
        """The hashes, and as before those of namespaces whose row can't be read."""
        self._note(NAMESPACES.name, bad)
        kept = {row.name: self._namespace(row.name).hash_function for row in bad}
        return found | {name: known for name, known in kept.items() if known is not None}

    def of_bundles(
        self, found: Sequence[BundleRoute], bad: Sequence[BadRow], *, is_whole: bool = False
    ) -> list[BundleRoute]:
        """The records. is_whole: of all that there are, with those known of what can't be read."""
        for route in found if self._rows else ():
            self._rows.pop(("", route.bundle), None)
        self._rows |= {("", row.name): row for row in bad}
        if not is_whole:
            return list(found)
        known = [self._namespace(row.namespace).records.get(row.name) for row in bad]
        return [*found, *(route for route in known if route is not None)]

    def shown(self, candidate: LookupSnapshot) -> LookupSnapshot:
        """The candidate, with namespaces that don't fit together without a row as before."""
        spoilt = {row.namespace for row in self._rows.values()} & candidate.unsound.keys()
        held = []
        for name in sorted(spoilt):
            function = candidate.namespaces[name].hash_function
            held.append(self._namespace(name).with_hash(function))
        return candidate.with_held(held)

    def _note(self, table: str, bad: Sequence[BadRow]) -> None:
        self._rows = {key: row for key, row in self._rows.items() if key[0] != table}
        self._rows |= {(table, str(row.name)): row for row in bad}

    def _namespace(self, name: str) -> NamespaceRoutes:
        none = NamespaceRoutes(namespace=name)
        return none if self.known is None else self.known.namespaces.get(name, none)
