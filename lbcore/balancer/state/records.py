"""The record store: tenants and topics that exist without a bundle's record.

The balancer keeps it because it alone writes. Table `records` has the same rows, from which the
store is rebuilt. The planner reads nothing of it but the created topics of a namespace.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.balancer.state.effects import to_json
from lbcore.model.names import namespace_of_topic
from lbcore.wire.kinds.record_commands import RECORD_TYPES, TOPIC, read_value

MAX_TOPICS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All records of a cluster.

    by_type: type → name → value, as `read_value` gives it. The packed form is made when it is asked
    for, once, because a long list rarely changes.
    """

    by_type: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {name: {} for name in RECORD_TYPES}
    )
    _packed: list[bytes] = field(default_factory=list, init=False, compare=False, repr=False)

    def pack(self) -> bytes:
        """Canonical JSON: equal records give equal bytes."""
        if not self._packed:
            self._packed.append(to_json(self.by_type).encode())
        return self._packed[0]

    @staticmethod
    def unpack(packed: bytes) -> "Records":
        """The inverse of `pack`."""
        return Records(by_type=json.loads(packed))

    @staticmethod
    def from_rows(rows: Iterable[Mapping[str, Any]]) -> "Records":
        """Read rows of table `records`. Raises ValueError for invalid ones."""
        by_type: dict[str, dict[str, Any]] = {name: {} for name in RECORD_TYPES}
        for row in rows:
            if not row["is_deleted"]:
                record_type = row["record_type"]
                value = read_value(record_type, json.loads(row["value"]))
                by_type[record_type][row["name"]] = value
        return Records(by_type=by_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopics:
    """Topics that were created and may not be reported yet.

    hashes: ascending, of some of them; stands_for: of how many topics each is one.
    """

    hashes: NDArray[np.int64]
    stands_for: int


class OpenRecords:
    """Records during one batch.

    A change is O(1), the first of a type copies it.
    """

    def __init__(self, records: Records) -> None:
        self._before = records
        self._by_type = dict(records.by_type)
        self._topics: dict[str, dict[str, int]] | None = None

    def of(self, record_type: str) -> Mapping[str, Any]:
        """Name → value of all records of a type."""
        return self._by_type[record_type]

    def set(self, record_type: str, name: str, value: Any) -> dict[str, Any]:
        """Keep a record, or (None) remove it; the row of table `records` that tells it."""
        if self._by_type[record_type] is self._before.by_type[record_type]:
            self._by_type[record_type] = dict(self._by_type[record_type])
        _set(self._by_type[record_type], name, value)
        if record_type == TOPIC and self._topics is not None:
            _set(self._topics.setdefault(namespace_of_topic(name), {}), name, value)
        return {
            "record_type": record_type,
            "name": name,
            "value": to_json(value),
            "is_deleted": value is None,
        }

    def topics_of(self, namespace: str) -> Mapping[str, int]:
        """Return a namespace's topics, unordered. O(1), after one call of O(topics)."""
        if self._topics is None:
            self._topics = {}
            for name, partitions in self.of(TOPIC).items():
                self._topics.setdefault(namespace_of_topic(name), {})[name] = partitions
        return self._topics.get(namespace, {})

    def close(self) -> Records:
        """The records as they are now; the same object when nothing has changed."""
        before = self._before.by_type
        is_same = all(self._by_type[name] is before[name] for name in before)
        return self._before if is_same else Records(by_type=self._by_type)


def _set(of: Any, name: str, value: Any) -> None:
    if value is None:
        of.pop(name, None)
    else:
        of[name] = value
