"""Conversion of table rows to the lookup's values.

Decides which columns and rows a lookup reads. Connects `delta_follower` with `lbcore.route`.
`advertised_listeners` is Pulsar 4.0.8's map of AdvertisedListener.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta.table_scan import scan
from lbcore.model.bundles import HashFunction
from lbcore.model.names import check_namespace, parse_range
from lbcore.model.tables import (
    BROKERS,
    BUNDLE_OWNERSHIP,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    PINS,
    RECORDS,
)
from lbcore.ownership.records import State
from lbcore.route.addresses import BrokerAddress, ListenerUrls
from lbcore.route.bundles import BundleRoute

Row: TypeAlias = Mapping[str, Any]
Value = TypeVar("Value")

_RECORDS = f"{OWNERSHIP_EVENTS.name} or {BUNDLE_OWNERSHIP.name}"
_CHUNK_ROWS = 1_000
_STATES = {state.value: state for state in State}
ROUTE_COLUMNS = ("namespace", "bundle", "version_id", "state", "source", "destination")
ORDER_COLUMNS = ("writer_epoch", "batch_id", "at_ms")
_BROKER_COLUMNS = (
    "broker",
    "incarnation",
    "state",
    "web_service_url",
    "web_service_url_tls",
    "pulsar_service_url",
    "pulsar_service_url_tls",
    "advertised_listeners",
)


PRESENT: Mapping[str, str] = {
    BROKERS.name: "state <> 'forgotten'",
    NAMESPACES.name: "NOT is_deleted",
    PINS.name: "is_set",
    RECORDS.name: "NOT is_deleted",
}
"""SQL condition for what exists, of the tables that keep rows of what was deleted."""


class CorruptRowError(ValueError):
    """A row that no version of Ballast writes."""


_PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """Unreadable row. name: of the bundle, broker or namespace that it is about."""

    table: str
    name: str
    error: str
    namespace: str = ""


def literal(text: str) -> str:
    """A text as SQL writes it, whatever is in it."""
    return "'" + text.replace("'", "''") + "'"


def of_cluster(cluster: str) -> str:
    """The SQL condition for the rows of one cluster."""
    return f"cluster = {literal(cluster)}"


def is_one_of(column: str, texts: Iterable[str]) -> str:
    """The SQL condition that a column has one of some texts."""
    return f"{column} IN ({', '.join(map(literal, texts))})"


def routes_of(rows: pa.Table) -> tuple[list[BundleRoute], list[BadRow]]:
    """Return the records of rows with ROUTE_COLUMNS, in order, and the bad rows."""
    ranges: dict[str, tuple[int, int]] = {}
    found: list[BundleRoute] = []
    bad: list[BadRow] = []
    # never all values of the rows at once beside the records
    for values in zip(*(_values(rows, name) for name in ROUTE_COLUMNS), strict=True):
        try:
            found.append(_route(ranges, values))
        except _PARSE_ERRORS as error:  # noqa: PERF203 one row's fault is no other's
            namespace, bundle = (str(value) for value in values[:2])
            bad.append(BadRow(table=_RECORDS, name=bundle, namespace=namespace, error=repr(error)))
    return found, bad


def brokers_of(table: DeltaTable, cluster: str) -> tuple[list[BrokerAddress], list[BadRow]]:
    """Return a cluster's brokers that are not forgotten, and the bad rows."""
    rows = scan(table, _BROKER_COLUMNS, f"{of_cluster(cluster)} AND {PRESENT[BROKERS.name]}")
    return readable(rows.to_pylist(), broker_of, BROKERS.name, "broker")


def hashes_of(table: DeltaTable, cluster: str) -> tuple[dict[str, HashFunction], list[BadRow]]:
    """Return a cluster's existing namespaces with their hash, and the bad rows."""
    condition = f"{of_cluster(cluster)} AND {PRESENT[NAMESPACES.name]}"
    rows = scan(table, ("namespace", "hash"), condition)
    found, bad = readable(rows.to_pylist(), hash_of, NAMESPACES.name, "namespace")
    return dict(found), bad


def readable(
    rows: Iterable[Row], read: Callable[[Row], Value], table: str, column: str
) -> tuple[list[Value], list[BadRow]]:
    """Parse rows; return the values, and the rows that this version can't read.

    An unreadable row does not affect the others. column: has what a row is about.
    """
    found: list[Value] = []
    bad: list[BadRow] = []
    for row in rows:
        try:
            found.append(read(row))
        except _PARSE_ERRORS as error:  # noqa: PERF203 one row's fault is no other's
            name = str(row.get(column))
            namespace = name.rpartition("/")[0] if column == "bundle" else ""
            bad.append(BadRow(table=table, name=name, error=repr(error), namespace=namespace))
    return found, bad


def hash_of(row: Row) -> tuple[str, HashFunction]:
    """Return a row's namespace and hash function. Raises ValueError."""
    return check_namespace(row["namespace"]), HashFunction(row["hash"])


def _values(rows: pa.Table, name: str) -> Iterator[Any]:
    """A column's values; equal texts are one object, which keeps many records small."""
    column = rows[name].combine_chunks()
    if not pa.types.is_integer(column.type) and name != "bundle":
        encoded = column.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        return (texts[index] for index in _items(encoded.indices))
    return _items(column)


def _items(column: pa.Array) -> Iterator[Any]:
    """Yield the values; other threads run in between, as with `rows_in`."""
    for start in range(0, len(column), _CHUNK_ROWS):
        yield from column.slice(start, _CHUNK_ROWS).to_pylist()


def route_of(row: Row) -> BundleRoute:
    """Return a row's record; the row has no namespace. Raises as `readable` expects."""
    return _route({}, (row["bundle"].rpartition("/")[0], *(row[n] for n in ROUTE_COLUMNS[1:])))


def _route(ranges: dict[str, tuple[int, int]], values: tuple[Any, ...]) -> BundleRoute:
    namespace, bundle, version_id, state, source, destination = values
    if not bundle.startswith(f"{namespace}/"):
        raise CorruptRowError(f"bundle {bundle} must be of its row's namespace {namespace}")
    text = bundle[len(namespace) + 1 :]
    if text not in ranges:
        ranges[text] = parse_range(text)
    lower, upper = ranges[text]
    return BundleRoute(
        bundle=bundle,
        namespace=namespace,
        lower=lower,
        upper=upper,
        state=_STATES[state],
        version_id=version_id,
        source=source,
        destination=destination,
    )


def broker_of(row: Mapping[str, Any]) -> BrokerAddress:
    """Return the broker of a row. Raises CorruptRowError.

    Other columns of `brokers` are ignored.
    """
    try:
        listeners = {
            name: ListenerUrls(
                service_url=urls.get("brokerServiceUrl") or "",
                service_url_tls=urls.get("brokerServiceUrlTls") or "",
            )
            for name, urls in json.loads(row["advertised_listeners"] or "{}").items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptRowError(
            f"advertised_listeners of broker {row['broker']} is no JSON object of listeners: "
            f"{error!r}"
        ) from error
    texts = {name: row[name] for name in _BROKER_COLUMNS if name != "advertised_listeners"}
    return BrokerAddress(**texts, listeners=listeners)
