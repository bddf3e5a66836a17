"""The rows that a state is rebuilt from, out of everything that was ever written to tables."""

from collections.abc import Iterable, Mapping

from lbcore.machines.rebuild import TableRows

Row = Mapping[str, object]

KEYS = {
    "tenants": ("tenant",),
    "topics": ("topic",),
    "brokers": ("broker",),
    "namespaces": ("namespace",),
    "commands": ("command_id",),
    "policies": ("kind", "name"),
    "pins": ("bundle",),
    "config_versions": ("number",),
}


def newest_rows(ownership: Iterable[Row], written: Mapping[str, Iterable[Row]]) -> TableRows:
    """The newest row of each key. written: table → its rows, oldest first."""
    found = {
        table: {tuple(row[column] for column in key): row for row in written.get(table, ())}
        for table, key in KEYS.items()
    }
    newest = {table: rows.values() for table, rows in found.items()}
    return TableRows(bundle_ownership=ownership, **newest)
