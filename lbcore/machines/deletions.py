"""Deletions: namespaces on their way out, and deleted bundles that may be forgotten.

Decides when a namespace's bundles are closed everywhere, so that all of them are Deleted in one
batch, and when nobody can ask for a deleted bundle any more. Runs in each batch after the repairs.
Source: ours; the tombstone delay is Pulsar 4.0.8's, where each broker deletes its records itself.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lbcore.machines.forgetting import drop_rules_of
from lbcore.machines.handlers.catalogue import forget_topics
from lbcore.machines.outcome import DONE, Outcome
from lbcore.machines.waiting import finish_command
from lbcore.machines.work import Work
from lbcore.ownership.changes import Transition, holder_of
from lbcore.ownership.protocol import delete, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State

DELETING = "deleting"
"""The property of a namespace that is being deleted: the id of the command."""


def is_deleting(work: Work, namespace: str) -> bool:
    """Whether the namespace is on its way out, so that its bundles need no owners any more."""
    entry = work.namespaces.get(namespace)
    return entry is not None and DELETING in entry.properties


def live_records(work: Work, namespace: str) -> list[OwnershipRecord]:
    """The records of the namespace's bundles that are not deleted, in name order."""
    return [work.ledger.record_at(row) for row in work.ledger.live_rows(namespace)]


def drive_deletions(work: Work) -> None:
    """Release what namespaces being deleted still own; delete those that own nothing any more."""
    deleting = [name for name in sorted(work.namespaces) if is_deleting(work, name)]
    work.guard.each("delete", deleting, lambda some: _drive(work, some), lambda name, _: name)


def _drive(work: Work, namespaces: Sequence[str]) -> None:
    for name in namespaces:
        _release(work, name)
        records = live_records(work, name)
        if all(_is_closed(work, record) for record in records):
            _delete(work, name, records)


def forget_expired(work: Work) -> None:
    """Forget deleted bundles after the tombstone delay; versions go on above theirs. O(bundles)."""
    ledger = work.ledger
    deleted = ledger.rows_in(State.DELETED)
    age_ms = work.now_ms - ledger.at_ms[deleted]
    expired = deleted[age_ms > work.config.ownership.tombstone_delay_ms]
    if not len(expired):
        return
    highest: dict[str, int] = {}
    names = [ledger.names[row] for row in expired.tolist()]
    versions = np.asarray(ledger.version)[expired].tolist()
    for name, version in zip(names, versions, strict=True):
        namespace = name.rpartition("/")[0]
        highest[namespace] = max(highest.get(namespace, 0), version)
    for namespace in sorted(highest):
        entry = work.namespaces[namespace]
        above = max(entry.highest_version, highest[namespace])
        work.keep_namespace(namespace, replace(entry, highest_version=above))
    work.forget(names)
    work.counts["forgotten"] += len(names)


def _release(work: Work, name: str) -> None:
    command_id = str(work.namespaces[name].properties[DELETING])
    origin = work.origin(Cause.DELETE, command_id=command_id)
    for record in live_records(work, name):
        if record.state is State.OWNED:
            answer = unload(record, origin)
            if isinstance(answer, Transition):
                work.apply(answer)


def _is_closed(work: Work, record: OwnershipRecord) -> bool:
    """Whether no living broker can have the bundle open."""
    holder = holder_of(record)
    entry = work.brokers.get(holder.broker)
    return entry is None or entry.is_silent or entry.incarnation != holder.incarnation


def _delete(work: Work, name: str, records: Sequence[OwnershipRecord]) -> None:
    entry = work.namespaces[name]
    command_id = str(entry.properties[DELETING])
    origin = work.origin(Cause.DELETE, command_id=command_id)
    count, highest = 0, entry.highest_version
    for record in records:
        answer = delete(record, origin)
        if isinstance(answer, Transition):
            work.apply(answer)
            count, highest = count + 1, max(highest, answer.record.version_id)
    left = {key: value for key, value in entry.properties.items() if key != DELETING}
    gone = replace(entry, is_deleted=True, highest_version=highest, properties=left)
    work.keep_namespace(name, gone)
    forget_topics(work, name)
    drop_rules_of(work, name)
    work.topics = work.topics.without(record.bundle for record in records)
    finish_command(work, command_id, Outcome(status=DONE, result={"bundles": count}))
