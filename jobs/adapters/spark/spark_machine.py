"""Runs any Machine as a transformWithState operator of Spark.

A key's state is one index entry in the state store: the digest of each chunk, and small chunks
themselves, because a call of the store costs more than their bytes. Only changed chunks are
written. A worker that still holds the state which the index names does not read it again. The one
clock is the batch's timestamp, which comes with each row. Spark's timers are not used: their
encoders cost a fifth of a batch, and Kafka's ticks step every cluster each second. A change of this
layout raises `checkpoint.LAYOUT`.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor  # type: ignore[attr-defined]

from lbcore.machine import Machine, Step, step_safely

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[Any, ...]
Chunks = Mapping[str, bytes]

NOW_MS = "now_ms"
"""The column of every row with the batch's timestamp."""

_INDEX = "digests"
_DIGEST_SIZE = 16
_SMALL_BYTES = 2_048
_INLINE = "="
"""Prefix of an index entry that has the chunk itself; no digest begins with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Operator that runs one Machine between two streams.

    make_machine: the Machine of a key. decode: rows of a micro-batch to events. encode: the key,
    its effects and the batch's timestamp to rows of `schema` (a DDL text).
    """

    name: str
    schema: str
    make_machine: Callable[[Key], Machine[Any, Any, Any]]
    decode: Callable[[pd.DataFrame], list[Any]]
    encode: Callable[[Key, Sequence[Any], int], pd.DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedState:
    """State as this worker last wrote it, with its chunks and their index."""

    index: Mapping[str, str]
    state: Any
    chunks: Chunks

    def entry_of(self, name: str, chunk: bytes) -> str:
        """Return the index entry of a chunk; known already if the object is the same."""
        return self.index[name] if self.chunks.get(name) is chunk else _entry(chunk)


def raise_gc_thresholds() -> None:
    """Run full garbage collections a hundred times less often in this process.

    A batch that repairs tens of thousands of bundles makes a million objects, and by default Python
    scans all of them again and again: up to a third of its time.
    """
    gc.set_threshold(*gc.get_threshold()[:2], 1_000)


_NOTHING = _CachedState(index={}, state=None, chunks={})
_CACHE: dict[tuple[str, Key], _CachedState] = {}


class MachineProcessor(StatefulProcessor):
    """The operator's handler: one state of named chunks a key."""

    def __init__(self, operator: Operator) -> None:
        # unpacked by the first step: at a query's start Spark starts a process for each operator
        # only to declare its state, and loading all that a Machine needs takes a second
        self._packed: bytes = cloudpickle.dumps(operator)  # type: ignore[no-untyped-call]

    @cached_property
    def _operator(self) -> Operator:
        raise_gc_thresholds()
        operator: Operator = pickle.loads(self._packed)  # noqa: S301 (the driver made it)
        return operator

    def init(self, handle: Any) -> None:
        """Declare the state: one map of its large chunks and the index of all chunks.

        One variable, because each costs some 10 ms a batch to declare.
        """
        self._chunks = handle.getMapState("chunks", "name string", "blob binary")

    def handleInitialState(  # noqa: N802 Spark's name
        self,
        key: Any,
        initialState: Any,  # noqa: N803 Spark's name
        timerValues: Any,  # noqa: ARG002, N803 Spark's name
    ) -> None:
        """Write a state that was rebuilt from the tables: rows of (name, blob)."""
        chunks = {
            name: bytes(blob)
            for name, blob in zip(initialState["name"], initialState["blob"], strict=True)
        }
        machine = self._operator.make_machine(tuple(key))
        self._write(tuple(key), {}, machine.unpack(chunks), chunks)

    def handleInputRows(  # noqa: N802 Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803 Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Step the key's Machine with this batch's rows; yield its effects as rows."""
        events, now_ms = self._decode(rows)
        yield self._step(tuple(key), events, now_ms)

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def _decode(self, rows: Iterator[pd.DataFrame]) -> tuple[list[Any], int]:
        events: list[Any] = []
        now_ms = 0
        for frame in rows:
            events += self._operator.decode(frame)
            now_ms = int(frame[NOW_MS].max())
        return events, now_ms

    def _step(self, key: Key, events: list[Any], now_ms: int) -> pd.DataFrame:
        machine = self._operator.make_machine(key)
        index, state = self._read(key, machine)

        def encoded(step: Step[Any, Any]) -> tuple[Chunks | None, pd.DataFrame]:
            chunks = None if step.state is None else machine.pack(step.state)
            return chunks, self._operator.encode(key, step.effects, now_ms)

        step, (chunks, rows) = step_safely(machine, state, events, now_ms, encoded)
        if chunks is None:
            self._chunks.clear()
            _CACHE.pop((self._operator.name, key), None)
        else:
            self._write(key, index, step.state, chunks)
        return rows

    def _read(self, key: Key, machine: Machine[Any, Any, Any]) -> tuple[Mapping[str, str], Any]:
        found = self._chunks.getValue((_INDEX,))
        if found is None:
            return {}, None
        index = json.loads(bytes(found[0]))
        cached = _CACHE.get((self._operator.name, key))
        if cached is not None and cached.index == index:
            return index, cached.state
        chunks = {
            name: base64.b64decode(entry.removeprefix(_INLINE))
            if _is_inline(entry)
            else bytes(self._chunks.getValue((name,))[0])
            for name, entry in index.items()
        }
        return index, machine.unpack(chunks)

    def _write(self, key: Key, before: Mapping[str, str], state: Any, chunks: Chunks) -> None:
        cached = _CACHE.get((self._operator.name, key), _NOTHING)
        index = {name: cached.entry_of(name, chunks[name]) for name in sorted(chunks)}
        separate = {name for name, entry in index.items() if not _is_inline(entry)}
        for name in sorted(separate):
            if before.get(name) != index[name]:
                self._chunks.updateValue((name,), (chunks[name],))
        for name, entry in before.items():
            if name not in separate and not _is_inline(entry):
                self._chunks.removeKey((name,))
        if index != before:
            self._chunks.updateValue((_INDEX,), (json.dumps(index).encode(),))
        _CACHE[self._operator.name, key] = _CachedState(index=index, state=state, chunks=chunks)


def _entry(chunk: bytes) -> str:
    if len(chunk) <= _SMALL_BYTES:
        return _INLINE + base64.b64encode(chunk).decode("ascii")
    return hashlib.blake2b(chunk, digest_size=_DIGEST_SIZE).hexdigest()


def _is_inline(entry: str) -> bool:
    return entry.startswith(_INLINE)
