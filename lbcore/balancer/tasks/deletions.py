"""Deletions: namespaces in slices, and expiry of brokers, bundles and state."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

import numpy as np

from lbcore.balancer.state.batch_context import BatchContext
from lbcore.balancer.state.book import DONE, FAILED, NamespaceEntry, Outcome, namespace_row
from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.tasks.creations import PARTITIONS, RULES, TOPICS, note_gone
from lbcore.balancer.tasks.drains import is_named
from lbcore.balancer.tasks.waiting import finish_command, record_progress
from lbcore.model.names import (
    FULL_UPPER,
    format_bundle,
    namespace_of_topic,
    parse_bundle,
    tenant_of,
)
from lbcore.model.tables import NAMESPACES, RECORDS
from lbcore.ownership.changes import Transition, holder_of
from lbcore.ownership.protocol import create, delete, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.wire.kinds.namespace_commands import TOPIC
from lbcore.wire.messages import Command

FLOOR = ""
"""The row of `namespaces` with the version floor: no namespace is called so."""


def version_floor(work: BatchContext, namespace: str) -> int:
    """The version above which bundles of a new namespace begin."""
    entry = work.namespaces.get(namespace)
    return max(work.times.version_floor, entry.highest_version if entry else 0)


def expire_state(work: BatchContext) -> None:
    """Expire namespaces, brokers, and plan state of them. O(namespaces + brokers)."""
    _forget_namespaces(work)
    gone = _long_silent(work)
    for broker in gone:
        deregister_broker(work, broker)
    work.counts["brokers_forgotten"] += len(gone)
    if work.deregistered or work.forgotten:
        names = {record.bundle for record in work.forgotten}
        work.plan = work.plan.without(brokers=work.deregistered, bundles=names)


def deregister_broker(work: BatchContext, broker: str, command: Command | None = None) -> None:
    """Take a silent broker that no record names off the list; its drain goes with it."""
    del work.brokers[broker]
    work.liveness = work.liveness.forget(broker)
    work.deregistered.add(broker)
    drain = work.rules.drains.get(broker)
    if drain is not None:
        work.set_rule("drains", broker, None, command)
        reason = f"broker {broker} is silent and was forgotten; it had {drain.left} bundles left"
        finish_command(work, drain.command_id, Outcome(status=FAILED, reason=reason))


def expire_topics(work: BatchContext, namespace: str) -> None:
    """Drop the created topics of a namespace, as it is deleted."""
    for topic in sorted(work.records.topics_of(namespace)):
        drop_topic(work, topic)


def drop_topic(work: BatchContext, name: str) -> None:
    """Drop a topic that was created."""
    tenant = tenant_of(namespace_of_topic(name))
    note_gone(work, TOPICS, tenant)
    note_gone(work, PARTITIONS, tenant, work.records.of(TOPIC)[name])
    work.add_row(RECORDS.name, work.records.set(TOPIC, name, None))


def drop_rules_of(work: BatchContext, namespace: str) -> None:
    """Take back the rules that are of a namespace, which is deleted."""
    tenant = tenant_of(namespace)
    for kind in ("paused", "anti_affinity"):
        if namespace in getattr(work.rules, kind):
            work.set_rule(kind, namespace, None)
            note_gone(work, RULES, tenant)
    if namespace in work.rules.excluded:
        left = tuple(name for name in work.rules.excluded if name != namespace)
        work.rules = replace(work.rules, excluded=left)
        note_gone(work, RULES, tenant)


def still_needed(
    namespaces: Mapping[str, NamespaceEntry], with_records: set[str], floor: int
) -> dict[str, NamespaceEntry]:
    """Return the namespaces still needed.

    Not those deleted, without records and below the floor. with_records: namespaces that some
    bundle's record is of.
    """
    return {
        name: entry
        for name, entry in namespaces.items()
        if not entry.is_deleted or name in with_records or entry.highest_version > floor
    }


def _forget_namespaces(work: BatchContext) -> None:
    deleted = [name for name, entry in work.namespaces.items() if entry.is_deleted]
    if not deleted:
        return
    with_records = set(work.ledger.namespaces()[0])
    gone = [name for name in deleted if name not in with_records]
    if not gone:
        return
    highest = max(work.namespaces[name].highest_version for name in gone)
    _raise_floor(work, highest)
    work.namespaces = still_needed(work.namespaces, with_records, work.times.version_floor)
    work.counts["namespaces_forgotten"] += len(gone)


def _raise_floor(work: BatchContext, version: int) -> None:
    if version <= work.times.version_floor:
        return
    work.note(version_floor=version)
    entry = NamespaceEntry(hash="", is_deleted=True, highest_version=version)
    work.add_row(NAMESPACES.name, namespace_row(FLOOR, entry))


def _long_silent(work: BatchContext) -> list[str]:
    """Return brokers to deregister, sorted.

    Both Kafka's clock and ours must say that it is time.
    """
    after_ms = work.config.ownership.forget_broker_after_ms
    if work.is_catching_up:
        return []
    before_ms = min(work.now_ms, work.times.tick_ms) - after_ms
    silent = [name for name, e in work.brokers.items() if e.is_silent and e.silent_ms < before_ms]
    return [name for name in sorted(silent) if not is_named(work, name)]


DELETING = "deleting"
"""The property of a namespace that is being deleted: the id of the command."""


def is_deleting(work: BatchContext, namespace: str) -> bool:
    """True if the namespace is being deleted, so its bundles need no owners any more."""
    entry = work.namespaces.get(namespace)
    return entry is not None and DELETING in entry.properties


def reason_not_to_change(work: BatchContext, name: str) -> str:
    """Return the reason why the namespace can't be changed; "" if it can."""
    entry = work.namespaces.get(name)
    if entry is None or entry.is_deleted:
        return f"there is no namespace {name}; create it first, or look at the list of namespaces"
    if is_deleting(work, name):
        return f"namespace {name} is being deleted already; wait for its end"
    return ""


def live_records(work: BatchContext, namespace: str) -> list[OwnershipRecord]:
    """The records of the namespace's bundles that are not deleted, in name order."""
    return [work.ledger.record_at(row) for row in work.ledger.live_rows(namespace)]


def drive_deletions(work: BatchContext) -> None:
    """Release bundles of namespaces in deletion; delete namespaces without owners."""
    deleting = [name for name in sorted(work.namespaces) if is_deleting(work, name)]
    work.guard.each("delete", deleting, lambda some: _drive(work, some), lambda name, _: name)


def _drive(work: BatchContext, namespaces: Sequence[str]) -> None:
    """The smallest first; each has an equal part of what is left of a batch's share."""
    room = work.share
    sizes = sorted((len(work.ledger.live_rows(name)), name) for name in namespaces)
    for at, (size, name) in enumerate(sizes):
        part = max(room // (len(sizes) - at), 1)
        room -= min(size, part)
        _advance(work, name, part)


def _advance(work: BatchContext, name: str, part: int) -> None:
    """Release, and delete, at most so many bundles, from the last one on.

    Those that are closed make way for one bundle, so that the rest covers the hash space until all
    of it is deleted in one batch.
    """
    rows = work.ledger.live_rows(name)
    owned = np.flatnonzero(work.ledger.state[rows] == STATE_CODE[State.OWNED])[-part:]
    _release(work, name, [rows[at] for at in owned.tolist()])
    records = [work.ledger.record_at(row) for row in rows[-part:]]
    closed = list(takewhile(partial(_is_closed, work), reversed(records)))
    if len(closed) == len(rows):
        entry = work.namespaces[name]
        command_id = str(entry.properties[DELETING])
        highest = max(entry.highest_version, _delete_all(work, command_id, records))
        count = deleted_so_far(work, command_id) + len(records)
        left = {key: value for key, value in entry.properties.items() if key != DELETING}
        gone = replace(entry, is_deleted=True, highest_version=highest, properties=left)
        work.keep_namespace(name, gone)
        expire_topics(work, name)
        drop_rules_of(work, name)
        finish_command(work, command_id, Outcome(status=DONE, result={"bundles": count}))
    elif len(rows) > part and len(closed) > 1:
        _merge(work, name, closed)


def _merge(work: BatchContext, name: str, closed: Sequence[OwnershipRecord]) -> None:
    """Merge these last bundles of the namespace into an unowned one, last first."""
    entry = work.namespaces[name]
    command_id = str(entry.properties[DELETING])
    whole = format_bundle(name, parse_bundle(closed[-1].bundle)[1], FULL_UPPER)
    highest = max(entry.highest_version, _delete_all(work, command_id, closed))
    work.ledger.add([whole])
    previous, origin = work.ledger.record(whole), work.origin(Cause.DELETE, command_id=command_id)
    made = create(work.cluster, whole, origin, previous=previous, version_floor=highest)
    if isinstance(made, Transition):
        work.apply(made)
    work.keep_namespace(name, replace(entry, highest_version=highest))
    gone = deleted_so_far(work, command_id) + len(closed) - 1
    record_progress(work, command_id, {"deleted": gone})


def deleted_so_far(work: BatchContext, command_id: str) -> int:
    """Return the number of bundles deleted so far, as the deletion's command says."""
    waiting = work.waiting.get(command_id)
    return int(waiting.result.get("deleted", 0)) if waiting else 0


def expire_deleted(work: BatchContext) -> None:
    """Expire deleted bundles after the tombstone delay. O(bundles).

    Versions go on above theirs. Of very many, after an absence, some a batch.
    """
    ledger = work.ledger
    deleted = ledger.rows_in(State.DELETED)
    age_ms = work.now_ms - ledger.at_ms[deleted]
    expired = deleted[age_ms > work.config.ownership.tombstone_delay_ms]
    expired = expired[: work.share]
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


def _release(work: BatchContext, name: str, rows: Sequence[int]) -> None:
    command_id = str(work.namespaces[name].properties[DELETING])
    origin = work.origin(Cause.DELETE, command_id=command_id)
    for row in rows:
        answer = unload(work.ledger.record_at(row), origin)
        if isinstance(answer, Transition):
            work.apply(answer)


def _is_closed(work: BatchContext, record: OwnershipRecord) -> bool:
    """True if no live broker can have the bundle open."""
    holder = holder_of(record)
    entry = work.brokers.get(holder.broker)
    return entry is None or entry.is_silent or entry.incarnation != holder.incarnation


def _delete_all(work: BatchContext, command_id: str, records: Sequence[OwnershipRecord]) -> int:
    """Delete these bundles; their highest version."""
    origin = work.origin(Cause.DELETE, command_id=command_id)
    for record in records:
        answer = delete(record, origin)
        if isinstance(answer, Transition):
            work.apply(answer)
    work.topics = work.topics.without(record.bundle for record in records)
    return max((record.version_id + 1 for record in records), default=0)
