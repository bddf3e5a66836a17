"""Entries of brokers, namespaces and commands, and packed columns in slices.

A chunk whose content has not changed is not packed again: its bytes are kept beside the state.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.balancer.effects import to_json
from lbcore.model.resources import COUNT, complete
from lbcore.packing import from_plain
from lbcore.plan.decision import PlanState
from lbcore.plan.pending import complete_vector
from lbcore.wire.messages import NOT_REPORTED, Command

STARTS_KEPT = 16

TEXTS = (
    "web_service_url",
    "web_service_url_tls",
    "pulsar_service_url",
    "pulsar_service_url_tls",
    "broker_version",
    "load_manager_class",
    "failure_domain",
)


ACTIVE = "active"
DRAINING = "draining"
SILENT = "silent"
FORGOTTEN = "forgotten"
"""The states of a broker that the `brokers` table shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEntry:
    """A broker as its newest reports show it.

    is_dead: taken for dead; is_suspected: silent for so long that it may be dead. percent: of
    each resource; traffic: msg/s in, out, bytes/s in, out; reported_ms: time of the load report,
    0 = none of this incarnation yet. starts_ms: when it was first seen, each new incarnation, and
    when it came back from silence, newest last, the latest STARTS_KEPT; restarted_ms: the newest of
    them, 0 = only one so far. died_clock_ms: the waiting clock when it was last taken for dead,
    -1 = not in this state's time; silent_ms: time of that batch while it is silent.
    offered_msg_rate: as `BrokerLoad` has it.
    """

    incarnation: str
    is_dead: bool = False
    is_suspected: bool = False
    is_draining: bool = False
    reported_ms: int = 0
    percent: tuple[float, ...] = (0.0,) * COUNT
    traffic: tuple[float, ...] = (0.0,) * 4
    weighted_max_ema: float = 1.0
    throughput_ema: float = 0.0
    topic_count: int = 0
    bundle_count: int = 0
    capacity: float = 1.0
    texts: Mapping[str, str] = field(default_factory=dict)
    listeners: Mapping[str, Any] = field(default_factory=dict)
    starts_ms: tuple[int, ...] = ()
    restarted_ms: int = 0
    died_clock_ms: int = -1
    silent_ms: int = 0
    offered_msg_rate: float = NOT_REPORTED

    @property
    def demand(self) -> float:
        """Return offered over served load, from 1; NaN = not reported, or less."""
        served = self.traffic[0] + self.traffic[1]
        is_known = 0.0 < served <= self.offered_msg_rate
        return self.offered_msg_rate / served if is_known else math.nan

    def state(self, *, is_drained: bool) -> str:
        """The state that the `brokers` table shows. is_drained: by command, empty or not."""
        if self.is_dead:
            return SILENT
        return DRAINING if self.is_draining or is_drained else ACTIVE


SPLIT_ALGORITHM = "split_algorithm"
"""The property of a namespace that says where its bundles are cut."""
BUNDLES_WANTED = "bundles"
"""The property that says how many bundles it was created with: merges leave it as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceEntry:
    """A namespace: its hash function, and the highest version of its bundles."""

    hash: str
    is_deleted: bool = False
    highest_version: int = 0
    properties: Mapping[str, Any] = field(default_factory=dict)


def namespace_row(name: str, entry: NamespaceEntry) -> dict[str, Any]:
    """A namespace as a row of the `namespaces` table."""
    return {
        "namespace": name,
        "hash": entry.hash,
        "is_deleted": entry.is_deleted,
        "highest_version": entry.highest_version,
        "properties": to_json(entry.properties),
    }


DONE = "done"
ACCEPTED = "accepted"
REFUSED = "refused"
FAILED = "failed"
TIMED_OUT = "timed_out"

DEADLINE, QUEUED, FROM = "deadline_ms", "queued", "from"
FAULTS, FAILURES = "faults", "failed"
"""Keys of an accepted command's result, from which the waiting is rebuilt.

from: bundle → its previous broker, of `moving`; a repair may since have taken it from another.
faults, failed: as in `Waiting`; left out while nothing has failed.
"""


AFTER = "after"
"""In the result of an accepted command that goes on in slices: the last bundle of those begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a command.

    reason: a sentence when it was not done. moving: with ACCEPTED, bundles whose transitions under
    the command's id must end, each with its previous owner. If there are none, the code that does
    the work calls `waiting.finish_command`.
    """

    status: str
    reason: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    moving: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A command that was accepted and has not ended.

    deadline_ms: Kafka's time after which nobody waits for it any more. is_queued: it is
    not begun, because its bundle is busy. moving: as in Outcome, what is left of it. faults: what
    went otherwise, the first few sentences; failed: how many did.
    """

    command: Command
    deadline_ms: int
    is_queued: bool = False
    moving: Mapping[str, str] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    failed: int = 0


class RefusedCommandError(Exception):
    """A command is impossible: what is wrong, what to do next."""


def refuse_if(problem: object, sentence: str = "") -> None:
    """Raise RefusedCommandError if there is a problem.

    sentence: what is wrong and what to do next; "" = the problem says it itself.
    """
    if problem:
        raise RefusedCommandError(sentence or str(problem))


def set_or_drop(values: dict[str, Any], name: str, value: Any) -> None:
    """Set a value, or (None) remove it if it is there."""
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


Made = TypeVar("Made")

Memo = dict[str, tuple[Any, Any]]
"""Part of a state → what it was made of, and what was made."""


def remembered(memo: Memo, name: str, parts: object, make: Callable[[], Made]) -> Made:
    """Return the memo's value if its parts are equal, else store what `make` returns.

    parts: never changed in place.
    """
    if name not in memo or memo[name][0] != parts:
        memo[name] = (parts, make())
    made: Made = memo[name][1]
    return made


ROWS_TO_SLICE = 8_192
"""Fewer rows are one slice."""

Columns = Mapping[str, NDArray[Any]]

_SLICE, _CHANGES = ".slice.", ".changes."


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChunks:
    """The columns as they were last written.

    prefix: of the chunks' names. round: counts the writes. written: of each slice, the round in
    which it was. blobs: chunk name → packed rows, of a slice or of a round's changes.
    """

    prefix: str
    round: int
    written: tuple[int, ...]
    blobs: Mapping[str, bytes]


def write_all_chunks(
    prefix: str, columns: Columns, *, slices: int, rows_to_slice: int = ROWS_TO_SLICE
) -> RowChunks:
    """Every row of the columns, which are equally long. O(rows).

    prefix: no other chunk's name may begin with it and a dot.
    """
    slices = slices if _length(columns) >= rows_to_slice else 1
    blobs = {f"{prefix}{_SLICE}{i}": _slice(columns, i, slices, 0) for i in range(slices)}
    return RowChunks(prefix=prefix, round=0, written=(0,) * slices, blobs=blobs)


def write_changes(chunks: RowChunks, columns: Columns, rows: NDArray[np.int64]) -> RowChunks:
    """Write changed rows into the columns. O(changed + rows / slices).

    Each row changed at least once. columns: as long as those that were written before.
    """
    prefix, slices = chunks.prefix, len(chunks.written)
    changed = np.unique(rows)
    if slices == 1 or 2 * len(changed) > _length(columns):
        return write_all_chunks(prefix, columns, slices=slices, rows_to_slice=0)
    turn = chunks.round + 1
    renewed = turn % slices
    written = (*chunks.written[:renewed], turn, *chunks.written[renewed + 1 :])
    oldest = min(written)
    kept = {
        name: blob
        for name, blob in chunks.blobs.items()
        if _SLICE in name or _number(name) > oldest  # else every slice has seen the changes
    }
    columns_changed = {name: column[changed] for name, column in columns.items()}
    blobs = {
        **kept,
        f"{prefix}{_SLICE}{renewed}": _slice(columns, renewed, slices, turn),
        f"{prefix}{_CHANGES}{turn}": packing.pack({}, {"row": changed, **columns_changed}),
    }
    return RowChunks(prefix=prefix, round=turn, written=written, blobs=blobs)


def read(prefix: str, state: Mapping[str, bytes]) -> tuple[Columns, RowChunks]:
    """Return the columns of a packed state, and the chunks to continue from.

    Other chunks are ignored. Raises MalformedBlobError. O(rows).
    """
    starts = (f"{prefix}{_SLICE}", f"{prefix}{_CHANGES}")
    blobs = {name: blob for name, blob in state.items() if name.startswith(starts)}
    names = sorted(blobs, key=_number)
    slices = [packing.unpack(blobs[name]) for name in names if _SLICE in name]
    written = tuple(plain["round"] for plain, _ in slices)
    columns = {
        name: np.concatenate([arrays[name] for _, arrays in slices]) for name in slices[0][1]
    }
    round_of_row = np.repeat(written, [_length(arrays) for _, arrays in slices])
    for name in names:
        if _CHANGES in name:
            _, changed = packing.unpack(blobs[name])
            is_newer = round_of_row[changed["row"]] < _number(name)
            rows = changed["row"][is_newer]
            for key, column in columns.items():
                column[rows] = changed[key][is_newer]
    chunks = RowChunks(prefix=prefix, round=max(written), written=written, blobs=blobs)
    return columns, chunks


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])


def _slice(columns: Columns, number: int, slices: int, turn: int) -> bytes:
    length = _length(columns)
    first, end = length * number // slices, length * (number + 1) // slices
    cut = {name: column[first:end] for name, column in columns.items()}
    return packing.pack({"round": turn}, cut)


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


_BROKERS, _LOADS = "brokers", "brokers.loads"
_LOAD_FIELDS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "reported_ms": ("<i8", ()),
    "percent": ("<f8", (COUNT,)),
    "traffic": ("<f8", (4,)),
    "weighted_max_ema": ("<f8", ()),
    "throughput_ema": ("<f8", ()),
    "topic_count": ("<i8", ()),
    "bundle_count": ("<i8", ()),
}
_FIXED = tuple(name for name in BrokerEntry.__dataclass_fields__ if name not in _LOAD_FIELDS)
_fixed_of = attrgetter(*_FIXED)


def load_columns(entries: Sequence[BrokerEntry]) -> dict[str, Any]:
    """Return an array for each field of a broker's newest load. O(brokers).

    All but `reported_ms` have the names of `BrokerTable`'s fields.
    """
    return {
        field: np.array([getattr(entry, field) for entry in entries], dtype=dtype).reshape(
            len(entries), *shape
        )
        for field, (dtype, shape) in _LOAD_FIELDS.items()
    }


def pack_brokers(brokers: Mapping[str, BrokerEntry], memo: Memo) -> Mapping[str, bytes]:
    """Their chunks by name. O(brokers)."""
    names = sorted(brokers)
    entries = [brokers[name] for name in names]
    fixed = dict(zip(names, map(_fixed_of, entries), strict=True))

    def made() -> bytes:
        plain = {name: dict(zip(_FIXED, values, strict=True)) for name, values in fixed.items()}
        return packing.pack(plain, {})

    return {
        _BROKERS: remembered(memo, _BROKERS, fixed, made),
        _LOADS: packing.pack({}, load_columns(entries)),
    }


def unpack_brokers(chunks: Mapping[str, bytes]) -> dict[str, BrokerEntry]:
    """The inverse of `pack_brokers`. Raises MalformedBlobError."""
    fixed, _ = packing.unpack(chunks[_BROKERS])
    _, arrays = packing.unpack(chunks[_LOADS])
    loads = zip(*(arrays[field].tolist() for field in _LOAD_FIELDS), strict=True)
    entries = {
        name: from_plain(BrokerEntry, {**fixed[name], **dict(zip(_LOAD_FIELDS, load, strict=True))})
        for name, load in zip(sorted(fixed), loads, strict=True)
    }
    return {name: replace(one, percent=complete(one.percent)) for name, one in entries.items()}


def completed(state: PlanState) -> PlanState:
    """The plan's unpacked state, with 0 for resources that an older one lacks."""
    return replace(
        state,
        moves={
            name: replace(one, load=complete_vector(one.load)) for name, one in state.moves.items()
        },
        unseen={
            name: replace(one, shown=complete_vector(one.shown), load=complete_vector(one.load))
            for name, one in state.unseen.items()
        },
    )
