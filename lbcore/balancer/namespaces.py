"""Namespaces from creation to expiry: slices of work, its pace, tenants' limits.

Large namespaces are created and deleted over several batches, some bundles in each. While one is
created, one bundle, the *rest*, covers all ranges that are still to be made. Brokers and bundles
that are gone expire with namespaces.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import DONE, FAILED, NamespaceEntry, Outcome, namespace_row
from lbcore.balancer.brokers import is_external, is_named
from lbcore.balancer.ledger import LIVE, STATE_CODE
from lbcore.balancer.waiting import finish_command, record_progress
from lbcore.config.cluster import LimitsConfig
from lbcore.model import tables
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
from lbcore.ownership.changes import Origin, ProtocolError, Refused, Transition, holder_of
from lbcore.ownership.protocol import create, delete, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.wire.commands import parse_arguments
from lbcore.wire.kinds.namespace_commands import TOPIC, CreateNamespace
from lbcore.wire.messages import Command

CREATING, DELETING = "creating", "deleting"
"""Properties of a namespace that is being made or deleted.

CREATING: command_id, bundles, and boundaries if uneven. DELETING: the command's id.
"""


def namespaces_with(work: BatchContext, name: str) -> list[str]:
    """The namespaces that have a property, sorted."""
    entries = work.namespaces.items()
    return sorted(namespace for namespace, entry in entries if name in entry.properties)


def has_namespace(work: BatchContext, name: str) -> bool:
    """True if there is such a namespace, also while it is being deleted."""
    return name in work.namespaces and not work.namespaces[name].is_deleted


def is_deleting(work: BatchContext, namespace: str) -> bool:
    """True if the namespace is being deleted, so its bundles need no owners any more."""
    entry = work.namespaces.get(namespace)
    return entry is not None and DELETING in entry.properties


def reason_not_to_change(work: BatchContext, name: str) -> str:
    """Return the reason why the namespace can't be changed; "" if it can."""
    if not has_namespace(work, name):
        return f"there is no namespace {name}; create it first, or look at the list of namespaces"
    if is_deleting(work, name):
        return f"namespace {name} is being deleted already; wait for its end"
    return ""


def reserve_bundles(work: BatchContext) -> None:
    """Add the bundles of one batch for namespaces that its commands create.

    Rows of the ledger for all of them are made at once: one row costs as much as all. A row that
    got no record is taken back by `drop_unrecorded`. Too many bundles have one placeholder.
    """
    commands: list[Any] = [item.message for item in work.messages_of(Command)]
    creating = [command for command in commands if command.kind == "create_namespace"]
    names: list[str] = []
    for command in creating if len(creating) > 1 else ():
        arguments = parse_arguments(command.kind, command.arguments)
        if (
            command.command_id in work.commands
            or not isinstance(arguments, CreateNamespace)
            or has_namespace(work, arguments.namespace)
        ):
            continue
        with suppress(InvalidRangeError):  # the command is refused with the reason
            count = arguments.bundles or work.config.splitting.default_bundles
            if max(count, len(arguments.boundaries)) > work.max_usual - len(names):
                names.append(format_bundle(arguments.namespace, FULL_LOWER, FULL_UPPER))
            else:
                boundaries = arguments.boundaries or even_boundaries(count)
                names += NamespaceBundles(arguments.namespace, boundaries).names()
    work.ledger.add(names)


def drop_unrecorded(work: BatchContext) -> None:
    """Take back rows of bundles that got no record. O(m)."""
    rows = np.flatnonzero(work.ledger.version == 0).tolist()
    if rows:
        work.ledger.remove(work.ledger.names[row] for row in rows)


_LATE = 0.5  # a batch is late from this share of the planned interval beyond the usual time
_IN_TIME = 0.35  # and in time up to this share; in between nothing changes
_LEAST_SHARE = 32
"""Divisor of the configured share for the least one, which shows how long a batch takes anyway."""
_ENOUGH_PART = 4
"""Divisor of the configured share: a late batch with at most this part drops to the least."""
_NEW_MS = 600_000
"""A cluster is new while none of its bundles has been open for longer."""
_NEW_PATIENCE = 4


def adapt_creation_rate(work: BatchContext) -> None:
    """Set the batch's share, `BatchContext.max_created`. O(bundles), in numpy.

    The share is the number of bundles that a batch creates, deletes, unloads or expires. It halves
    after a batch that came late and doubles after one in time, as TCP avoids congestion (Jacobson
    1988). Late is by comparison with a batch that makes little, as in Vegas (Brakmo and Peterson
    1995): where that takes long, making less helps nobody. The driver's clock decides; one wrong
    jump of it halves the share once. A new cluster may take several times as long.
    """
    limits, pipeline = work.config.limits, work.config.pipeline
    if not work.times.stepped_ms:
        return
    is_long_open = (work.ledger.state == STATE_CODE[State.OWNED]) & (
        work.ledger.at_ms < work.now_ms - _NEW_MS
    )
    patience = 1 if np.any(is_long_open) else _NEW_PATIENCE
    most = patience * limits.bundles_made_max
    least = max(limits.bundles_made_max // _LEAST_SHARE, 1)
    interval_ms = max(pipeline.trigger_ms, pipeline.tick_interval_ms)
    planned_ms = patience * interval_ms
    passed_ms = max(0, work.wall_ms - work.times.stepped_ms)
    share, usual_ms = min(work.max_created, most), work.times.usual_ms
    if share <= least:
        usual_ms = (usual_ms + passed_ms) // 2 if usual_ms else passed_ms
    usual_ms = min(usual_ms, passed_ms)
    beyond_ms = passed_ms - max(usual_ms, planned_ms)
    if beyond_ms > _LATE * planned_ms:
        is_halved = usual_ms or share > limits.bundles_made_max // _ENOUGH_PART
        share = max(share // 2, least) if is_halved else least
    elif beyond_ms <= _IN_TIME * planned_ms:
        share = min(2 * share, most)
    work.set_times(share=share, usual_ms=usual_ms)


_even = lru_cache(maxsize=8)(even_boundaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """Progress of a namespace's creation.

    made: bundles that exist, below the rest. left: bundles still to be made, apart from the last
    one, which is what the rest becomes.
    """

    name: str
    boundaries: Sequence[int]
    made: int
    left: int

    def parts(self, count: int) -> list[str]:
        """The next `count` bundles, and the rest after them."""
        lowers = self.boundaries[self.made : self.made + count + 1]
        return [format_bundle(self.name, *ends) for ends in pairwise((*lowers, FULL_UPPER))]


def _making(work: BatchContext, name: str) -> _Making:
    creation = work.namespaces[name].properties[CREATING]
    boundaries = creation.get("boundaries") or _even(creation["bundles"])
    rest = work.ledger.names[work.ledger.live_rows(name)[-1]]
    made = bisect_left(boundaries, parse_bundle(rest)[1])
    return _Making(name=name, boundaries=boundaries, made=made, left=len(boundaries) - 2 - made)


def is_placeholder(work: BatchContext, bundle: str) -> bool:
    """True if the bundle stands for those yet to be created, so it gets no owner."""
    namespace, _, upper = parse_bundle(bundle)
    entry = work.namespaces.get(namespace)
    return entry is not None and CREATING in entry.properties and upper == FULL_UPPER


def creations(
    work: BatchContext, bundles: Iterable[str], origin: Origin, floor: int
) -> list[Transition | Refused]:
    """Return the creation of each bundle.

    Its version is above the floor and those of an earlier bundle of this name.
    """
    return [
        create(
            work.cluster,
            bundle,
            origin,
            previous=work.ledger.record(bundle),
            version_floor=floor,
        )
        for bundle in bundles
    ]


def begin_creation(
    work: BatchContext, name: str, entry: NamespaceEntry, creation: Mapping[str, Any]
) -> None:
    """Make the namespace with one bundle, the rest; creation: see CREATING."""
    whole = format_bundle(name, FULL_LOWER, FULL_UPPER)
    work.ledger.add([whole])
    properties = {**entry.properties, CREATING: dict(creation)}
    work.keep_namespace(name, replace(entry, properties=properties))
    _create(work, name, [whole])


def end_creation(work: BatchContext, name: str, outcome: Outcome) -> None:
    """Leave the namespace as far as it is made; nothing if it isn't in the making."""
    entry = work.namespaces[name]
    properties = dict(entry.properties)
    creation = properties.pop(CREATING, None)
    if creation is not None:
        work.keep_namespace(name, replace(entry, properties=properties))
        finish_command(work, creation["command_id"], outcome)


_CHANGES = 2.25
"""Maximum transitions of a batch, in shares: bundles of the last batch that are now open, and two
for each that this batch makes and places."""
_LEAST_PART = 8
"""Divisor of the share that is made at least, whatever else the batch has done."""
_LEAST_SLICE = 64
"""Least bundles of a namespace in a batch: replacing the rest costs two changes besides."""


def continue_creations(work: BatchContext, names: Sequence[str]) -> None:
    """Share the batch's work among namespaces in creation, smallest rest first.

    Each gets an equal part of what is left, so that a small one needs few batches beside any large
    one. A part has at least _LEAST_SLICE bundles, so the last of very many namespaces wait.
    O(namespaces + bundles made + bundles of namespaces in creation).
    """
    if is_external(work):
        return
    may_change = int(_CHANGES * work.max_created) - len(work.transitions)
    most = max(may_change // 2, work.max_created // _LEAST_PART)
    room = max(min(most, work.max_created - work.made), 0)
    makings = sorted((_making(work, name) for name in names), key=lambda one: (one.left, one.name))
    served: list[tuple[_Making, int]] = []
    for at, making in enumerate(makings):
        if at and room <= 0:
            break
        part = max(room // (len(makings) - at), min(_LEAST_SLICE, work.max_created))
        served.append((making, min(making.left, part)))
        room -= served[-1][1]
    work.ledger.add(bundle for making, part in served for bundle in making.parts(part))
    for making, part in served:
        _make(work, making, part)


def _make(work: BatchContext, making: _Making, part: int) -> None:
    """Replace the rest by `part` bundles and a smaller rest, at last by the last one.

    part: bundles to make now.
    """
    creation = work.namespaces[making.name].properties[CREATING]
    if part:
        rest = work.ledger.record_at(work.ledger.live_rows(making.name)[-1])
        _create(work, making.name, making.parts(part), rest)
        work.made += part
    result = {"bundles": len(making.boundaries) - 1, "made": making.made + part}
    if part < making.left:
        record_progress(work, creation["command_id"], result)
    else:
        result = {**result, "made": result["bundles"]}
        end_creation(work, making.name, Outcome(status=DONE, result=result))


def _create(
    work: BatchContext, name: str, bundles: Sequence[str], *replaced: OwnershipRecord
) -> None:
    """Make bundles of a namespace in place of others; raises ProtocolError for a bug."""
    entry = work.namespaces[name]
    origin = work.origin(Cause.CREATE, command_id=entry.properties[CREATING]["command_id"])
    deletions = [delete(record, origin) for record in replaced]
    for change in (*deletions, *creations(work, bundles, origin, entry.highest_version)):
        refused = work.apply(change)
        if refused:
            raise ProtocolError(f"a bundle in the making must be free to change, got {refused}")


NAMESPACES, BUNDLES, RULES = "namespaces", "bundles", "rules"
TOPICS, PARTITIONS = "topics", "partitions"


def reason_not_to_add(work: BatchContext, tenant: str, more: Mapping[str, int]) -> str:
    """Return why a tenant can't have so many more, as a sentence; "" if it can.

    more: kind → number. What is allowed counts as created from now on, so ask last. O(1), except
    the first question about a kind in a batch, which counts everything.
    """
    for kind, count in more.items():
        has, most = _counted(work, kind)[tenant], _LIMITS[kind](work.config.limits)
        if count > 0 and has + count > most:
            or_else = ", or have limits.tenant_bundles_max raised" if kind == BUNDLES else ""
            return (
                f"tenant {tenant} has {has} {kind} and may have {most}; delete some, or ask for "
                f"fewer{or_else}"
            )
    for kind, count in more.items():
        work.tenant_counts[kind][tenant] += count
    return ""


def note_gone(work: BatchContext, kind: str, tenant: str, count: int = 1) -> None:
    """Subtract from a tenant's number of a kind, if that was counted in this batch."""
    if kind in work.tenant_counts:
        work.tenant_counts[kind][tenant] -= count


def has_namespaces(work: BatchContext, tenant: str) -> bool:
    """True if a tenant has any namespace."""
    return _counted(work, NAMESPACES)[tenant] > 0


def _counted(work: BatchContext, kind: str) -> Counter[str]:
    """Return tenant → number, counted once a batch, then updated by its creations."""
    if kind not in work.tenant_counts:
        work.tenant_counts[kind] = Counter()
        for namespace, count in _COUNTS[kind](work):
            work.tenant_counts[kind][tenant_of(namespace)] += count
    return work.tenant_counts[kind]


def _bundle_counts(work: BatchContext) -> Iterable[tuple[str, int]]:
    """Return namespaces with their live bundles, and with those still to be made."""
    ledger = work.ledger
    names, index = ledger.namespaces()
    counts = np.bincount(index[ledger.rows_in(*LIVE)], minlength=len(names)).tolist()
    making = [(name, _making(work, name).left) for name in namespaces_with(work, CREATING)]
    return [*zip(names, counts, strict=True), *making]


_COUNTS: Mapping[str, Callable[[BatchContext], Iterable[tuple[str, int]]]] = {
    NAMESPACES: lambda work: (
        (name, 1) for name, entry in work.namespaces.items() if not entry.is_deleted
    ),
    BUNDLES: _bundle_counts,
    TOPICS: lambda work: ((namespace_of_topic(topic), 1) for topic in work.catalog.of(TOPIC)),
    PARTITIONS: lambda work: (
        (namespace_of_topic(topic), count) for topic, count in work.catalog.of(TOPIC).items()
    ),
    RULES: lambda work: (
        (name, 1)
        for name in (
            *work.rules.paused,
            *work.rules.anti_affinity,
            *work.rules.excluded,
            *map(namespace_of_bundle, work.rules.pins),
        )
    ),
}
"""Kind → function that returns namespaces, each with its number of the kind."""

_LIMITS: Mapping[str, Callable[[LimitsConfig], int]] = {
    NAMESPACES: lambda limits: limits.tenant_namespaces_max,
    BUNDLES: lambda limits: limits.tenant_bundles_max,
    TOPICS: lambda limits: limits.tenant_topics_max,
    PARTITIONS: lambda limits: limits.tenant_partitions_max,
    RULES: lambda limits: limits.tenant_rules_max,
}


FLOOR = ""
"""The row of `namespaces` with the version floor: no namespace is called so."""


def version_floor(work: BatchContext, namespace: str) -> int:
    """The version above which bundles of a new namespace begin."""
    entry = work.namespaces.get(namespace)
    return max(work.times.version_floor, entry.highest_version if entry else 0)


def continue_deletions(work: BatchContext, namespaces: Sequence[str]) -> None:
    """Release bundles of namespaces in deletion; delete namespaces without owners.

    The smallest first; each gets an equal part of what is left of a batch's share, so the last of
    very many wait. Namespaces that wait for owners to close take nothing of it.
    """
    room = max(work.max_usual, 2)
    names = sorted(namespaces, key=lambda name: (len(work.ledger.live_rows(name)), name))
    for at, name in enumerate(names):
        if room <= 1:  # less than two bundles can't make way for one
            break
        part = min(max(room // (len(names) - at), _LEAST_SLICE), room)
        before = len(work.transitions)
        _delete_part(work, name, part)
        room -= min(len(work.transitions) - before, part)


def _delete_part(work: BatchContext, name: str, part: int) -> None:
    """Release, and delete, at most `part` bundles, from the last one on.

    Those that are closed make way for one bundle without an owner, so that the rest covers the hash
    space until all of it is deleted in one batch.
    """
    entry, rows = work.namespaces[name], work.ledger.live_rows(name)
    command_id = str(entry.properties[DELETING])
    origin = work.origin(Cause.DELETE, command_id=command_id)
    for at in np.flatnonzero(work.ledger.state[rows] == STATE_CODE[State.OWNED])[-part:].tolist():
        work.apply(unload(work.ledger.record_at(rows[at]), origin))
    records = (work.ledger.record_at(row) for row in reversed(rows[-part:]))
    closed = list(takewhile(partial(_is_closed, work), records))
    is_last = len(closed) == len(rows)
    if not is_last and (len(rows) <= part or len(closed) <= 1):
        return
    for record in closed[::-1] if is_last else closed:
        work.apply(delete(record, origin))
    work.clear_load([record.bundle for record in closed])
    highest = max([entry.highest_version, *(record.version_id + 1 for record in closed)])
    waiting = work.waiting.get(command_id)
    deleted = len(closed) + (int(waiting.result.get("deleted", 0)) if waiting else 0)
    if is_last:
        left = {key: value for key, value in entry.properties.items() if key != DELETING}
        gone = replace(entry, is_deleted=True, highest_version=highest, properties=left)
        work.keep_namespace(name, gone)
        drop_contents(work, name)
        finish_command(work, command_id, Outcome(status=DONE, result={"bundles": deleted}))
        return
    whole = format_bundle(name, parse_bundle(closed[-1].bundle)[1], FULL_UPPER)
    work.ledger.add([whole])
    work.apply(creations(work, [whole], origin, highest)[0])
    work.keep_namespace(name, replace(entry, highest_version=highest))
    record_progress(work, command_id, {"deleted": deleted - 1})


def _is_closed(work: BatchContext, record: OwnershipRecord) -> bool:
    """True if no live broker can have the bundle open."""
    holder = holder_of(record)
    entry = work.brokers.get(holder.broker)
    return entry is None or entry.is_dead or entry.incarnation != holder.incarnation


def drop_contents(work: BatchContext, namespace: str) -> None:
    """Drop the created topics and the rules of a namespace, as it is deleted."""
    for topic in sorted(work.catalog.topics_of(namespace)):
        drop_topic(work, topic)
    tenant = tenant_of(namespace)
    for kind in ("paused", "anti_affinity", "excluded"):
        if namespace in getattr(work.rules, kind):
            work.set_rule(kind, namespace, None)
            note_gone(work, RULES, tenant)


def drop_topic(work: BatchContext, name: str) -> None:
    """Drop a topic that was created."""
    tenant = tenant_of(namespace_of_topic(name))
    note_gone(work, TOPICS, tenant)
    note_gone(work, PARTITIONS, tenant, work.catalog.of(TOPIC)[name])
    work.add_row(tables.RECORDS.name, work.catalog.set(TOPIC, name, None))


def expire_deleted(work: BatchContext) -> None:
    """Expire deleted bundles after the tombstone delay. O(bundles).

    Later versions continue above theirs. At most a share of a batch at once. Of their rows only
    the events stay.
    """
    ledger = work.ledger
    deleted = ledger.rows_in(State.DELETED)
    age_ms = work.now_ms - ledger.at_ms[deleted]
    expired = deleted[age_ms > work.config.ownership.tombstone_delay_ms][: work.max_usual]
    if not len(expired):
        return
    names = [ledger.names[row] for row in expired.tolist()]
    versions = zip(map(namespace_of_bundle, names), ledger.version[expired].tolist(), strict=True)
    for namespace, version in dict(sorted(versions)).items():  # the highest of each
        entry = work.namespaces[namespace]
        above = max(entry.highest_version, version)
        work.keep_namespace(namespace, replace(entry, highest_version=above))
    records = map(ledger.record_at, expired.tolist())
    work.forgotten += [replace(record, state=State.INIT) for record in records]
    ledger.remove(names)
    work.topics = work.topics.without(names)
    work.counts["forgotten"] += len(names)


def expire_state(work: BatchContext) -> None:
    """Expire namespaces, brokers, and plan state of them. O(namespaces + brokers).

    A broker expires when both Kafka's clock and ours say that it is time.
    """
    deleted = [name for name, entry in work.namespaces.items() if entry.is_deleted]
    with_records = set(work.ledger.namespaces()[0]) if deleted else set()
    gone = [name for name in deleted if name not in with_records]
    highest = max((work.namespaces[name].highest_version for name in gone), default=0)
    if highest > work.times.version_floor:
        work.set_times(version_floor=highest)
        floor = NamespaceEntry(hash="", is_deleted=True, highest_version=highest)
        work.add_row(tables.NAMESPACES.name, namespace_row(FLOOR, floor))
    if gone:
        work.namespaces = still_needed(work.namespaces, with_records, work.times.version_floor)
        work.counts["namespaces_forgotten"] += len(gone)
    before_ms = min(work.now_ms, work.times.tick_ms) - work.config.ownership.forget_broker_after_ms
    for name in [] if work.is_catching_up else sorted(work.brokers):
        entry = work.brokers[name]
        if entry.is_dead and entry.silent_ms < before_ms and not is_named(work, name):
            deregister_broker(work, name)
            work.counts["brokers_forgotten"] += 1
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
