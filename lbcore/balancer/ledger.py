"""Ledger: ownership records and load averages of all bundles as numpy columns.

Instances of brokers are numbered, and names are kept in order while rows come and go.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.balancer.book import (
    RowChunks,
    read,
    set_or_drop,
    write_all_chunks,
    write_changes,
)
from lbcore.machine import UnknownStateSchemaError
from lbcore.model.names import bundle_order, index_namespaces
from lbcore.ownership.changes import Instance
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.states import IN_FLIGHT, LEAVING
from lbcore.signals.averages import DEFAULT_TRAFFIC, BundleAverages, with_rows

NOBODY = -1


@dataclass(slots=True)
class Instances:
    """All starts of brokers that a record may name; ids hold until `prune_instances`."""

    rows: list[Instance] = field(default_factory=list)
    ids: dict[Instance, int] = field(default_factory=dict)

    def id_of(self, broker: str, incarnation: str) -> int:
        """The id of this start, given on first use; NOBODY for no broker."""
        if not broker:
            return NOBODY
        instance = Instance(broker=broker, incarnation=incarnation)
        if instance not in self.ids:
            self.ids[instance] = len(self.rows)
            self.rows.append(instance)
        return self.ids[instance]

    def find(self, broker: str, incarnation: str) -> int:
        """The id of this start; NOBODY for one that no record ever named."""
        return self.ids.get(Instance(broker=broker, incarnation=incarnation), NOBODY)

    def of(self, instance_id: int) -> tuple[str, str]:
        """Broker and incarnation; two empty texts for NOBODY."""
        if instance_id == NOBODY:
            return "", ""
        instance = self.rows[instance_id]
        return instance.broker, instance.incarnation


_FEW = 16
"""Names that are fewer than the known ones by this factor are looked for one by one."""


STATE_SCHEMA = 5
"""Rises with the layout; see `balancer`."""

STATES = tuple(State)
LIVE = tuple(state for state in State if state not in (State.INIT, State.DELETED))
"""States of a live bundle: it has a record, and is not deleted; as `live_rows` finds them."""
CAUSES = tuple(Cause)
STATE_CODE = {state: code for code, state in enumerate(STATES)}
CAUSE_CODE = {cause: code for code, cause in enumerate(CAUSES)}

_NAMES, _OWNERSHIP, _LOAD = "ledger.names", "ledger.ownership", "ledger.load"
_OWNERSHIP_SLICES = 32
_LOAD_SLICES = 8
"""Also how many chunks of changes are kept: a batch changes few owners, a tenth of the load."""

Array = NDArray[Any]

_COLUMNS: Mapping[str, tuple[str, Any]] = {
    "state": ("u1", STATE_CODE[State.INIT]),
    "cause": ("u1", 0),
    "version": ("<i8", 0),
    "source": ("<i4", NOBODY),
    "destination": ("<i4", NOBODY),
    "at_ms": ("<i8", 0),
    "moved_ms": ("<i8", 0),
    "clock_ms": ("<i8", 0),
    "closing_clock_ms": ("<i8", 0),
    "resent_clock_ms": ("<i8", 0),
}
_LOAD_COLUMNS: Mapping[str, tuple[str, Any]] = {
    "short": ("<f8", DEFAULT_TRAFFIC),
    "long": ("<f8", DEFAULT_TRAFFIC),
    "short_count": ("<i8", 0),
    "long_count": ("<i8", 0),
    "topics": ("<i8", 0),
    "sessions": ("<i8", 0),
}
_ALL_COLUMNS = {**_COLUMNS, **_LOAD_COLUMNS}
_WIDE = frozenset({"short", "long"})
_NARROW = {"short_count": "u1", "long_count": "<i2", "topics": "<i4", "sessions": "<i4"}
"""Types that suffice for columns in packed form."""

COUNT_MAX = 2**31 - 1
"""Maximum topics or sessions of a bundle that are counted."""

_INSTANCES_KEPT = 64


class Ledger:
    """Bundles in name order, m rows; change it through its methods only.

    state, cause: codes of STATES and CAUSES. version: of the record, 0 = none yet. source,
    destination: instance ids. at_ms: when the record was written; moved_ms: when the bundle last
    got another owner. clock_ms: `Times.clock_ms` when the record was written;
    closing_clock_ms: and when its source last said that it is closing the bundle;
    resent_clock_ms: and when the record was last sent again.
    short, long: float64[m, 4] averages; topics, sessions: as last reported, at most COUNT_MAX.
    Rare parts of a record are in dicts by name: children (of a split or merge), origins (decision
    and command behind a transition in flight; at rest only the tables have them).
    """

    names: list[str]
    state: Array
    cause: Array
    version: Array
    source: Array
    destination: Array
    at_ms: Array
    moved_ms: Array
    clock_ms: Array
    closing_clock_ms: Array
    resent_clock_ms: Array
    short: Array
    long: Array
    short_count: Array
    long_count: Array
    topics: Array
    sessions: Array

    ARRAYS: ClassVar[tuple[str, ...]] = (*_COLUMNS, *_LOAD_COLUMNS)

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.instances = Instances()
        self.children: dict[str, dict[str, str]] = {}
        self.origins: dict[str, tuple[str, str]] = {}
        self._set_names([])
        self._is_shared = False
        for name, (dtype, _) in _ALL_COLUMNS.items():
            setattr(self, name, np.empty((0, 4) if name in _WIDE else 0, dtype=dtype))

    def copy(self) -> "Ledger":
        """An independent copy: what is done to it is not seen here.

        Cheap: both share what is never changed in place, and the ownership columns until the copy
        is written to. The one copied from must not be written to any more.
        """
        other: Ledger = copy(self)
        other.instances = Instances(list(self.instances.rows), dict(self.instances.ids))
        other.children, other.origins = dict(self.children), dict(self.origins)
        other._blobs, other._changed = dict(self._blobs), set(self._changed)
        other._reported_rows = list(self._reported_rows)
        other._is_shared = True
        return other

    def _open_ownership(self, rows: Iterable[int]) -> None:
        """Make the ownership columns this ledger's own, to be written to in these rows."""
        self._blobs.pop(_OWNERSHIP, None)
        self._changed.update(rows)
        if self._is_shared:
            self._is_shared = False
            for name in _COLUMNS:
                setattr(self, name, getattr(self, name).copy())

    def __len__(self) -> int:
        return len(self.names)

    def add(self, names: Iterable[str]) -> None:
        """Add bundles without a record (Init, version 0). O(m), so add many at once.

        The places of few names are found in O(new × log known), of many in O(known + new × log
        known) with a smaller constant.
        """
        fresh = sorted({name for name in names if name not in self.index}, key=bundle_order)
        if not fresh:
            return
        if len(fresh) * _FEW < len(self.names):
            places = [bisect_left(self.names, bundle_order(n), key=bundle_order) for n in fresh]
        else:
            keys = list(map(bundle_order, self.names))
            places = [bisect_left(keys, bundle_order(name)) for name in fresh]
        for name, (_, default) in _ALL_COLUMNS.items():
            setattr(self, name, np.insert(getattr(self, name), places, default, axis=0))
        self._is_shared = False
        known: list[str] = []
        for start, place, name in zip([0, *places[:-1]], places, fresh, strict=True):
            known += self.names[start:place]
            known.append(name)
        self._set_names([*known, *self.names[places[-1] :]])

    def remove(self, names: Iterable[str]) -> None:
        """Forget bundles whole. O(m)."""
        gone = sorted({self.index[name] for name in names if name in self.index})
        for row in gone:
            self.children.pop(self.names[row], None)
            self.origins.pop(self.names[row], None)
        for name in self.ARRAYS:
            setattr(self, name, np.delete(getattr(self, name), gone, axis=0))
        self._is_shared = False
        self._set_names(np.delete(np.array(self.names, dtype=object), gone))

    def _set_names(self, names: Iterable[str]) -> None:
        """Replace the names, and drop all that depends on row numbers."""
        self.names = list(names)
        self.index = {name: row for row, name in enumerate(self.names)}
        self._namespaces: tuple[list[str], NDArray[np.int64]] | None = None
        self._blobs: dict[str, bytes] = {}
        self._owned: RowChunks | None = None
        self._changed: set[int] = set()
        self._load: RowChunks | None = None
        self._reported_rows: list[NDArray[np.int64]] = []

    def record(self, name: str) -> OwnershipRecord | None:
        """The bundle's record; None when there is no such bundle or no record yet."""
        row = self.index.get(name)
        return None if row is None or self.version[row] == 0 else self.record_at(row)

    def record_at(self, row: int) -> OwnershipRecord:
        """The record of a row."""
        name = self.names[row]
        source, source_incarnation = self.instances.of(int(self.source[row]))
        destination, destination_incarnation = self.instances.of(int(self.destination[row]))
        decision_id, command_id = self.origins.get(name, ("", ""))
        return OwnershipRecord(
            cluster=self.cluster,
            bundle=name,
            state=STATES[self.state[row]],
            version_id=int(self.version[row]),
            source=source,
            source_incarnation=source_incarnation,
            destination=destination,
            destination_incarnation=destination_incarnation,
            children=self.children.get(name, {}),
            timestamp_ms=int(self.at_ms[row]),
            cause=CAUSES[self.cause[row]],
            decision_id=decision_id,
            command_id=command_id,
        )

    def put(self, record: OwnershipRecord, clock_ms: int) -> None:
        """Make this the bundle's record. The bundle must have been added."""
        row = self.index[record.bundle]
        self._open_ownership([row])
        self.state[row] = STATE_CODE[record.state]
        self.cause[row] = CAUSE_CODE[record.cause]
        self.version[row] = record.version_id
        self.source[row] = self.instances.id_of(record.source, record.source_incarnation)
        self.destination[row] = self.instances.id_of(
            record.destination, record.destination_incarnation
        )
        self.at_ms[row] = record.timestamp_ms
        if record.state is State.OWNED and record.source:
            self.moved_ms[row] = record.timestamp_ms
        self.clock_ms[row] = self.closing_clock_ms[row] = clock_ms
        set_or_drop(self.children, record.bundle, dict(record.children) or None)
        origin = (record.decision_id, record.command_id)
        is_kept = record.state in IN_FLIGHT and any(origin)
        set_or_drop(self.origins, record.bundle, origin if is_kept else None)

    def stamp(
        self,
        column: Literal["moved_ms", "closing_clock_ms", "resent_clock_ms"],
        rows: Sequence[int],
        time_ms: int,
    ) -> None:
        """Set a column of times to a time in some rows."""
        self._open_ownership(rows)
        getattr(self, column)[rows] = time_ms

    def prune_instances(self, present: Sequence[tuple[str, str]], *, is_due: bool) -> None:
        """Forget starts that no record names, when due or when most are unnamed.

        present: (broker, incarnation) of the brokers that are known. O(m) when it happens.
        """
        if not is_due and len(self.instances.rows) <= 2 * (len(present) + _INSTANCES_KEPT):
            return
        named = np.bincount(np.append(self.source, self.destination) + 1)[1:]
        kept = {self.instances.rows[i] for i in np.flatnonzero(named).tolist()}
        kept |= {Instance(broker=broker, incarnation=start) for broker, start in present}
        before, self.instances = self.instances, Instances()
        ids = np.full(len(before.rows) + 1, NOBODY, dtype="<i4")
        for old, one in enumerate(before.rows):
            if one in kept:
                ids[old] = self.instances.id_of(one.broker, one.incarnation)
        self._open_ownership(range(len(self)))
        self.source, self.destination = ids[self.source], ids[self.destination]

    def averages(self) -> BundleAverages:
        """The averages as `signals.averages` works on them (not copied)."""
        return BundleAverages(
            short=self.short,
            short_count=self.short_count,
            long=self.long,
            long_count=self.long_count,
            topics=self.topics,
        )

    def keep_load(
        self, averages: BundleAverages, sessions: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> None:
        """Take over averages and sessions of all rows, changed in `rows` alone."""
        if self._load is not None:  # else all rows are packed, whichever have changed
            self._reported_rows.append(rows)
        self.sessions = sessions
        self.short, self.short_count = averages.short, averages.short_count
        self.long, self.long_count = averages.long, averages.long_count
        self.topics = averages.topics

    def clear_load(self, names: Iterable[str]) -> None:
        """Forget averages, topics, sessions and the last move of bundles. O(m)."""
        rows = np.array([self.index[name] for name in names], dtype=np.int64)
        if not len(rows):
            return
        for name, (_, default) in _LOAD_COLUMNS.items():
            column = getattr(self, name)
            setattr(self, name, with_rows(column, rows, np.array(default, dtype=column.dtype)))
        if self._load is not None:
            self._reported_rows.append(rows)
        self.stamp("moved_ms", rows.tolist(), 0)

    def namespaces(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the namespaces in row order, each once, and each row's index into them."""
        if self._namespaces is None:
            self._namespaces = index_namespaces(self.names)
        return self._namespaces

    def rows_in(self, *states: State) -> NDArray[np.int64]:
        """Rows whose record is in one of these states, in name order."""
        return np.flatnonzero(self._is_in(*states))

    def live_rows(self, namespace: str) -> list[int]:
        """Return rows of a namespace's live bundles in name order. O(log m + rows)."""
        first = bisect_left(self.names, f"{namespace}/\0", key=bundle_order)
        end = bisect_left(self.names, f"{namespace}/\1", lo=first, key=bundle_order)
        is_live = self.version[first:end] > 0
        is_live &= self.state[first:end] != STATE_CODE[State.DELETED]
        live: list[int] = (np.flatnonzero(is_live) + first).tolist()
        return live

    def holders(self) -> NDArray[np.int64]:
        """Return the instance that has each bundle open or will open it; NOBODY if free."""
        return self._instances(self._is_in(*LEAVING))

    def prospects(self) -> NDArray[np.int64]:
        """Return the instance that has each bundle next, or still without a destination."""
        return self._instances(self._is_in(*LEAVING) & (self.destination == NOBODY))

    def count_by_broker(self, instances: NDArray[np.int64]) -> dict[str, int]:
        """Return broker → how many of these are its instances; NOBODY is left out."""
        counts: dict[str, int] = Counter()
        ids, times = np.unique(instances[instances != NOBODY], return_counts=True)
        for instance, count in zip(ids.tolist(), times.tolist(), strict=True):
            counts[self.instances.rows[instance].broker] += count
        return counts

    def broker_indices(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return each instance's broker as an index into `names`; the last is for NOBODY.

        -1 for a broker not among them.
        """
        index = {name: i for i, name in enumerate(names)}
        brokers = [index.get(instance.broker, NOBODY) for instance in self.instances.rows]
        return np.array([*brokers, NOBODY], dtype=np.int64)

    def _instances(self, is_source: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return each bundle's source or destination; NOBODY if no broker has it."""
        has_nobody = self._is_in(State.INIT, State.FREE, State.DELETED)
        return np.where(has_nobody, NOBODY, np.where(is_source, self.source, self.destination))

    def _is_in(self, *states: State) -> NDArray[np.bool_]:
        is_wanted = np.array([state in states for state in STATES], dtype=np.bool_)
        return np.asarray(is_wanted[self.state], dtype=np.bool_)

    def pack(self) -> dict[str, bytes]:
        """Pack chunks by rate of change: names, ownership, load. O(changed)."""
        if _NAMES not in self._blobs:
            self._blobs[_NAMES] = packing.pack(
                {"count": len(self.names)}, {"names": packing.join_names(self.names)}
            )
        if _OWNERSHIP not in self._blobs:
            plain = {
                "schema": STATE_SCHEMA,
                "cluster": self.cluster,
                "children": self.children,
                "origins": self.origins,
                "instances": [[i.broker, i.incarnation] for i in self.instances.rows],
            }
            self._blobs[_OWNERSHIP] = packing.pack(plain, {})
        owned, load = self._owned, self._load
        if owned is None:
            owned = write_all_chunks(_OWNERSHIP, self._packed(_COLUMNS), slices=_OWNERSHIP_SLICES)
        elif self._changed:
            owned = write_changes(owned, self._packed(_COLUMNS), np.array(sorted(self._changed)))
        if load is None:
            load = write_all_chunks(_LOAD, self._packed(_LOAD_COLUMNS), slices=_LOAD_SLICES)
        elif self._reported_rows:
            rows = np.concatenate(self._reported_rows)
            load = write_changes(load, self._packed(_LOAD_COLUMNS), rows)
        self._owned, self._changed = owned, set()
        self._load, self._reported_rows = load, []
        return {**self._blobs, **owned.blobs, **load.blobs}

    def _packed(self, columns: Mapping[str, tuple[str, Any]]) -> dict[str, Array]:
        return {
            name: getattr(self, name).astype(_NARROW.get(name, dtype), copy=False)
            for name, (dtype, _) in columns.items()
        }

    @classmethod
    def unpack(cls, chunks: Mapping[str, bytes]) -> "Ledger":
        """The inverse of `pack`. Raises UnknownStateSchemaError, MalformedBlobError."""
        plain, _ = packing.unpack(chunks[_OWNERSHIP])
        if plain["schema"] != STATE_SCHEMA:
            raise UnknownStateSchemaError.of("ClusterBalancer", plain["schema"], STATE_SCHEMA)
        ledger = cls(plain["cluster"])
        ledger.children = plain["children"]
        ledger.origins = {name: (d, c) for name, (d, c) in plain["origins"].items()}
        for broker, incarnation in plain["instances"]:
            ledger.instances.id_of(broker, incarnation)
        count, names = packing.unpack(chunks[_NAMES])
        ledger._set_names(packing.split_names(names["names"], count["count"]))
        ownership, ledger._owned = read(_OWNERSHIP, chunks)
        load, ledger._load = read(_LOAD, chunks)
        for name, (dtype, _) in _ALL_COLUMNS.items():
            setattr(ledger, name, {**ownership, **load}[name].astype(dtype))
        return ledger
