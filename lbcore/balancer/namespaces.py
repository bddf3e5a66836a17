"""Namespaces from creation to expiry: slices of work, its pace, tenants' limits.

Large namespaces are created and deleted over several batches, some bundles in each. Brokers and
bundles that are gone expire with them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import DONE, FAILED, NamespaceEntry, Outcome, namespace_row
from lbcore.balancer.brokers import is_external
from lbcore.balancer.drains import is_named
from lbcore.balancer.ledger import STATE_CODE
from lbcore.balancer.waiting import finish_command, record_progress
from lbcore.config.cluster import LimitsConfig
from lbcore.model.bundles import InvalidRangeError, NamespaceBundles, even_boundaries
from lbcore.model.names import (
    FULL_LOWER,
    FULL_UPPER,
    format_bundle,
    namespace_of_bundle,
    namespace_of_topic,
    parse_bundle,
    tenant_of,
)
from lbcore.model.tables import NAMESPACES as NAMESPACES_TABLE
from lbcore.model.tables import RECORDS
from lbcore.ownership.changes import ProtocolError, Refused, Transition, holder_of
from lbcore.ownership.protocol import create, delete, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.wire.commands import parse_arguments
from lbcore.wire.kinds.namespace_commands import TOPIC, CreateNamespace
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
    for topic in sorted(work.catalog.topics_of(namespace)):
        drop_topic(work, topic)


def drop_topic(work: BatchContext, name: str) -> None:
    """Drop a topic that was created."""
    tenant = tenant_of(namespace_of_topic(name))
    note_gone(work, TOPICS, tenant)
    note_gone(work, PARTITIONS, tenant, work.catalog.of(TOPIC)[name])
    work.add_row(RECORDS.name, work.catalog.set(TOPIC, name, None))


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
    work.add_row(NAMESPACES_TABLE.name, namespace_row(FLOOR, entry))


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
    work.guard.each(
        "delete", deleting, lambda some: _drive_deletion(work, some), lambda name, _: name
    )


def _drive_deletion(work: BatchContext, namespaces: Sequence[str]) -> None:
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


def reserve_bundles(work: BatchContext, commands: Sequence[Command]) -> None:
    """Add the bundles of one batch for namespaces that these commands create."""
    creating = [command for command in commands if command.kind == "create_namespace"]
    room = work.share
    names: list[str] = []
    for command in creating if len(creating) > 1 else ():
        names += _bundles(work, command, room - len(names))
    work.ledger.add(names)


def drop_unrecorded(work: BatchContext) -> None:
    """Take back rows of bundles that got no record. O(m)."""
    rows = np.flatnonzero(work.ledger.version == 0).tolist()
    if rows:
        work.ledger.remove(work.ledger.names[row] for row in rows)


def _bundles(work: BatchContext, command: Command, room: int) -> Sequence[str]:
    """Return the command's bundles, or the first placeholder if they are too many."""
    arguments = parse_arguments(command.kind, command.arguments)
    if command.command_id in work.commands or not isinstance(arguments, CreateNamespace):
        return ()
    known = work.namespaces.get(arguments.namespace)
    if known is not None and not known.is_deleted:
        return ()
    try:
        count = arguments.bundles or work.config.splitting.default_bundles
        if max(count, len(arguments.boundaries)) > room:
            return (format_bundle(arguments.namespace, FULL_LOWER, FULL_UPPER),)
        boundaries = arguments.boundaries or even_boundaries(count)
        return NamespaceBundles(namespace=arguments.namespace, boundaries=boundaries).names()
    except InvalidRangeError:
        return ()


_LATE = 0.5  # of the planned time between two batches, by so much later than usual one is late
_IN_TIME = 0.35  # and up to so much it is in time; between the two nothing changes
_LEAST_SHARE = 32
"""The share is at most so many times smaller than what the settings allow; one that is as small as
that shows how long a batch takes anyway."""
_ENOUGH_PART = 4
"""Divisor of the maximum share; a late batch at or below it drops to the least."""
_NEW_MS = 600_000
"""A cluster is new while none of its bundles has been open for longer."""
_NEW_PATIENCE = 4


def adapt_creation_rate(work: BatchContext) -> None:
    """Set the batch's share, `BatchContext.share_made`. O(bundles), in numpy.

    The share is the number of bundles that a batch creates, deletes, unloads or expires. It halves
    after a batch that came late and doubles after one in time, as TCP avoids congestion (Jacobson
    1988). Late is by comparison with a batch that makes little, as in Vegas (Brakmo and Peterson
    1995): where that takes long, making less helps nobody. The driver's clock decides; one wrong
    jump of it halves the share once. A new cluster may take several times as long.
    """
    limits, pipeline = work.config.limits, work.config.pipeline
    if not work.times.stepped_ms:
        return
    patience = _NEW_PATIENCE if _is_new(work) else 1
    most = patience * limits.bundles_made_max
    least = max(limits.bundles_made_max // _LEAST_SHARE, 1)
    interval_ms = max(pipeline.trigger_ms, pipeline.tick_interval_ms)
    planned_ms = patience * interval_ms
    passed_ms = max(0, work.wall_ms - work.times.stepped_ms)
    share, usual_ms = min(work.share_made, most), work.times.usual_ms
    if share <= least:
        usual_ms = (usual_ms + passed_ms) // 2 if usual_ms else passed_ms
    usual_ms = min(usual_ms, passed_ms)
    beyond_ms = passed_ms - max(usual_ms, planned_ms)
    if beyond_ms > _LATE * planned_ms:
        has_helped = usual_ms or share > limits.bundles_made_max // _ENOUGH_PART
        share = max(share // 2, least) if has_helped else least
    elif beyond_ms <= _IN_TIME * planned_ms:
        share = min(2 * share, most)
    work.note(share=share, usual_ms=usual_ms)


def _is_new(work: BatchContext) -> bool:
    ledger = work.ledger
    is_open = ledger.state == STATE_CODE[State.OWNED]
    return not np.any(is_open & (ledger.at_ms < work.now_ms - _NEW_MS))


CREATING = "creating"
"""The property of a namespace in the making: command_id, bundles, and boundaries if uneven."""

_even = lru_cache(maxsize=8)(even_boundaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """Progress of a namespace's creation.

    `made` of its bundles exist, followed by the rest, which begins there.
    """

    name: str
    boundaries: Sequence[int]
    made: int

    @property
    def left(self) -> int:
        """Bundles to be made before the rest is the last of them."""
        return len(self.boundaries) - 2 - self.made

    def parts(self, count: int) -> list[str]:
        """The next `count` bundles, and the rest after them."""
        lowers = self.boundaries[self.made : self.made + count + 1]
        return [format_bundle(self.name, *ends) for ends in pairwise((*lowers, FULL_UPPER))]


def is_rest(work: BatchContext, bundle: str) -> bool:
    """True if the bundle stands for those yet to be created, so it gets no owner."""
    namespace, _, upper = parse_bundle(bundle)
    entry = work.namespaces.get(namespace)
    return entry is not None and CREATING in entry.properties and upper == FULL_UPPER


def room_for_whole(work: BatchContext) -> int:
    """Return the maximum size of a namespace created whole in this batch, bundles.

    Half of a batch's maximum is reserved for namespaces whose creation is in progress.
    """
    most = work.share_made
    is_shared = any(CREATING in entry.properties for entry in work.namespaces.values())
    return (most // 2 if is_shared else most) - work.made


def still_to_be_made(work: BatchContext) -> dict[str, int]:
    """Namespace in the making → how many of its bundles are missing."""
    entries = work.namespaces.items()
    return {
        name: _making(work, name).left for name, entry in entries if CREATING in entry.properties
    }


def begin_creation(
    work: BatchContext, name: str, entry: NamespaceEntry, creation: Mapping[str, Any]
) -> None:
    """Make the namespace with one bundle, the rest; creation: see CREATING."""
    whole = format_bundle(name, FULL_LOWER, FULL_UPPER)
    work.ledger.add([whole])
    properties = {**entry.properties, CREATING: dict(creation)}
    work.keep_namespace(name, replace(entry, properties=properties))
    _create(work, name, [whole])


def give_up_creation(work: BatchContext, name: str, reason: str) -> None:
    """Leave the namespace as far as it is made, because it is to be deleted."""
    creation = work.namespaces[name].properties.get(CREATING)
    if creation is not None:
        _end(work, name, Outcome(status=FAILED, reason=reason))


def drive_creations(work: BatchContext) -> None:
    """Share the batch's work among namespaces in creation, smallest rest first.

    Each gets an equal part of what is left, so that a small one is done in few batches beside any
    large one; no part is so small that replacing rests would be most of the work, so of very many
    the last wait. O(namespaces + bundles made + bundles of the namespaces in the making).
    """
    names = sorted(name for name, entry in work.namespaces.items() if CREATING in entry.properties)
    if names and not is_external(work):
        work.guard.each(
            "create", names, lambda some: _drive_creation(work, some), lambda name, _: name
        )


_CHANGES = 2.25
"""Of a share so many: what was made in the last batch and is found opened in this one, and twice
what this one makes, which it also places."""
_LEAST_PART = 8
"""Of the share, whatever else the batch has done."""
_LEAST_SLICE = 64
"""Bundles of a namespace: each slice replaces a rest besides, which is two changes more."""


def _drive_creation(work: BatchContext, names: Sequence[str]) -> None:
    may_change = int(_CHANGES * work.share_made) - len(work.transitions)
    most = max(may_change // 2, work.share_made // _LEAST_PART)
    room = max(min(most, work.share_made - work.made), 0)
    makings = sorted((_making(work, name) for name in names), key=lambda one: (one.left, one.name))
    parts: dict[str, int] = {}
    for at, making in enumerate(makings):
        if at and room <= 0:
            break
        part = max(room // (len(makings) - at), min(_LEAST_SLICE, work.share_made))
        parts[making.name] = min(making.left, part)
        room -= parts[making.name]
    served = [one for one in makings if one.name in parts]
    work.ledger.add(bundle for one in served for bundle in one.parts(parts[one.name]))
    for making in served:
        _make(work, making, parts[making.name])


def _making(work: BatchContext, name: str) -> _Making:
    creation = work.namespaces[name].properties[CREATING]
    boundaries = creation.get("boundaries") or _even(creation["bundles"])
    lower = parse_bundle(work.ledger.names[work.ledger.live_rows(name)[-1]])[1]
    return _Making(name=name, boundaries=boundaries, made=bisect_left(boundaries, lower))


def _make(work: BatchContext, making: _Making, part: int) -> None:
    """Replace the rest by so many bundles and a smaller rest.

    The last rest is the last bundle.
    """
    if part:
        work.apply(_deleted(work, making.name))
        _create(work, making.name, making.parts(part))
        work.made += part
    result = {"bundles": len(making.boundaries) - 1, "made": making.made + part}
    if part < making.left:
        creation = work.namespaces[making.name].properties[CREATING]
        record_progress(work, creation["command_id"], result)
    else:
        result = {**result, "made": result["bundles"]}
        _end(work, making.name, Outcome(status=DONE, result=result))


def _deleted(work: BatchContext, name: str) -> Transition:
    rest = work.ledger.record_at(work.ledger.live_rows(name)[-1])
    return _sure(delete(rest, _origin(work, name)))


def _create(work: BatchContext, name: str, bundles: Sequence[str]) -> None:
    origin, floor = _origin(work, name), work.namespaces[name].highest_version
    for bundle in bundles:
        previous = work.ledger.record(bundle)
        made = create(work.cluster, bundle, origin, previous=previous, version_floor=floor)
        work.apply(_sure(made))


def _origin(work: BatchContext, name: str) -> Any:
    command_id = work.namespaces[name].properties[CREATING]["command_id"]
    return work.origin(Cause.CREATE, command_id=command_id)


def _sure(answer: Transition | Refused) -> Transition:
    """Return the transition. Raises ProtocolError.

    That is a bug: nobody else touches what is not made.
    """
    if isinstance(answer, Refused):
        message = f"a bundle in the making must be free to change, got {answer.reason.value}"
        raise ProtocolError(message)
    return answer


def _end(work: BatchContext, name: str, outcome: Outcome) -> None:
    entry = work.namespaces[name]
    command_id = entry.properties[CREATING]["command_id"]
    left = {key: value for key, value in entry.properties.items() if key != CREATING}
    work.keep_namespace(name, replace(entry, properties=left))
    finish_command(work, command_id, outcome)


NAMESPACES, BUNDLES, RULES = "namespaces", "bundles", "rules"
TOPICS, PARTITIONS = "topics", "partitions"

_RAISED = f"limits.tenant_{BUNDLES}_max"
_ADVICE = "tenant {tenant} has {has} {kind} and may have {most}; delete some, or ask for fewer"


def reason_not_to_add(work: BatchContext, tenant: str, more: Mapping[str, int]) -> str:
    """Return why a tenant can't have so many more, as a sentence; "" if it can.

    more: kind → number. What is allowed counts as created from now on, so ask last. O(1), except
    the first question about a kind in a batch, which counts everything.
    """
    for kind, count in more.items():
        has, most = _counted(work, kind)[tenant], _MOST[kind](work.config.limits)
        if count > 0 and has + count > most:
            more_of_it = f", or have {_RAISED} raised" if kind == BUNDLES else ""
            return _ADVICE.format(tenant=tenant, has=has, kind=kind, most=most) + more_of_it
    for kind, count in more.items():
        work.usage[kind][tenant] += count
    return ""


def reason_not_to_rule(work: BatchContext, name: str, *, is_known: bool) -> str:
    """Return why a namespace or bundle can't have a rule, as a sentence; "" if it can."""
    return "" if is_known else reason_not_to_add(work, tenant_of(name), {RULES: 1})


def note_gone(work: BatchContext, kind: str, tenant: str, count: int = 1) -> None:
    """A tenant has so many less of a kind."""
    if kind in work.usage:
        work.usage[kind][tenant] -= count


def has_any(work: BatchContext, kind: str, tenant: str) -> bool:
    """True if a tenant has any of a kind."""
    return _counted(work, kind)[tenant] > 0


def _counted(work: BatchContext, kind: str) -> Counter[str]:
    if kind not in work.usage:
        work.usage[kind] = _COUNTS[kind](work)
    return work.usage[kind]


def _namespaces(work: BatchContext) -> Counter[str]:
    entries = work.namespaces.items()
    return Counter(tenant_of(name) for name, entry in entries if not entry.is_deleted)


def _bundle_counts(work: BatchContext) -> Counter[str]:
    """Live ones, and those still to be made."""
    ledger = work.ledger
    names, index = ledger.namespaces()
    is_live = (ledger.version > 0) & (ledger.state != STATE_CODE[State.DELETED])
    counts = np.bincount(index[is_live], minlength=len(names)).tolist()
    return _summed([*zip(names, counts, strict=True), *still_to_be_made(work).items()])


def _topics(work: BatchContext) -> Counter[str]:
    return _summed((namespace_of_topic(topic), 1) for topic in work.catalog.of(TOPIC))


def _partitions(work: BatchContext) -> Counter[str]:
    found = work.catalog.of(TOPIC).items()
    return _summed((namespace_of_topic(topic), partitions) for topic, partitions in found)


def _rules(work: BatchContext) -> Counter[str]:
    rules = work.rules
    names = [*rules.paused, *rules.anti_affinity, *rules.excluded]
    names += map(namespace_of_bundle, rules.pins)
    return _summed((name, 1) for name in names)


def _summed(counts: Iterable[tuple[str, int]]) -> Counter[str]:
    """Namespace and number, added up by tenant."""
    found: Counter[str] = Counter()
    for namespace, count in counts:
        found[tenant_of(namespace)] += count
    return found


_COUNTS: Mapping[str, Callable[[BatchContext], Counter[str]]] = {
    NAMESPACES: _namespaces,
    BUNDLES: _bundle_counts,
    TOPICS: _topics,
    PARTITIONS: _partitions,
    RULES: _rules,
}

_MOST: Mapping[str, Callable[[LimitsConfig], int]] = {
    NAMESPACES: lambda limits: limits.tenant_namespaces_max,
    BUNDLES: lambda limits: limits.tenant_bundles_max,
    TOPICS: lambda limits: limits.tenant_topics_max,
    PARTITIONS: lambda limits: limits.tenant_partitions_max,
    RULES: lambda limits: limits.tenant_rules_max,
}
