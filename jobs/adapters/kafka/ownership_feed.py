"""Events for agents from the records of the ownership topic.

A record counts as new by its version, because old records stay until compaction. It concerns the
brokers that it names, and those that earlier records of the bundle named. One feed serves all
agents of a process.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import orjson

from jobs.adapters.kafka.clients import Received
from lbcore.agent.state import RecordRead, RecordTombstone
from lbcore.ownership.records import OwnershipRecord, named_brokers, parse_record
from lbcore.ownership.resolve import is_newer
from lbcore.wire.messages import Rejected

RecordEvent: TypeAlias = RecordRead | RecordTombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressed:
    """An event, and the brokers that must get it, sorted."""

    event: RecordEvent
    brokers: tuple[str, ...]


class OwnershipFeed:
    """The newest record of each bundle in one cluster.

    recipients: the brokers whose events are wanted, None = all. A process with one broker names it,
    so that memory does not grow with every broker that records ever named.
    """

    def __init__(self, cluster: str, recipients: Collection[str] | None = None) -> None:
        self.records: dict[str, OwnershipRecord] = {}
        self.rejected = 0
        self._recipients = None if recipients is None else frozenset(recipients)
        self._prefix = f"{cluster}/"
        self._concerned: dict[str, set[str]] = {}

    def take(self, messages: Iterable[Received]) -> list[Addressed]:
        """Return the events of new records in messages, in order; skip other clusters."""
        ours = (message for message in messages if message.key.startswith(self._prefix))
        return [addressed for addressed in map(self._event_of, ours) if addressed is not None]

    def current(self, broker: str) -> list[RecordRead]:
        """Return the newest records that name a starting broker, in name order.

        The agent checks which of its incarnations is meant.
        """
        return [
            RecordRead(record=self.records[bundle])
            for bundle in sorted(self.records)
            if broker in named_brokers(self.records[bundle])
        ]

    def _event_of(self, message: Received) -> Addressed | None:
        parsed = parse_record(message.key.encode(), message.value, orjson.loads)
        if isinstance(parsed, Rejected):
            self.rejected += 1
            return None
        if parsed is None:
            bundle = message.key.removeprefix(self._prefix)
            self.records.pop(bundle, None)
            brokers = self._concerned.pop(bundle, set())
            return Addressed(event=RecordTombstone(bundle=bundle), brokers=tuple(sorted(brokers)))
        known = self.records.get(parsed.bundle)
        if known is not None and not is_newer(parsed.version_id, known.version_id):
            return None
        self.records[parsed.bundle] = parsed
        named = (
            named_brokers(parsed)
            if self._recipients is None
            else named_brokers(parsed) & self._recipients
        )
        concerned = self._concerned.get(parsed.bundle, set()) | named
        if concerned:
            self._concerned[parsed.bundle] = concerned
        return Addressed(event=RecordRead(record=parsed), brokers=tuple(sorted(concerned)))
