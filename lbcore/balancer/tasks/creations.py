"""Creation of namespaces in slices: reserved names and the pace of work.

Rows of the ledger for all namespaces of a batch are made at once: one row costs as much as all. A
row that got no record is taken back.
The pace is a batch's share of bundles that are made, deleted, unloaded or forgotten: half as many
after a batch that came late, twice as many after one in time, as TCP avoids congestion (Jacobson
1988). Late is by comparison with a batch that makes little, as in Vegas (Brakmo and Peterson 1995):
where that takes long, making less helps nobody. By the driver's clock, whose one wrong jump halves
the share once. A new cluster may take several times as long and makes as much more.

Usage per tenant, checked against the limits of a tenant. Decides whether a tenant may have more of
something; handlers of commands ask before they create it. Counted once per batch, at the first
question, then updated as the batch creates more.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from lbcore.balancer.intake.brokers import is_external
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.balancer.state.book import DONE, FAILED, NamespaceEntry, Outcome
from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.tasks.waiting import finish_command, record_progress
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
from lbcore.ownership.changes import ProtocolError, Refused, Transition
from lbcore.ownership.protocol import create, delete
from lbcore.ownership.records import Cause, State
from lbcore.wire.commands import parse_arguments
from lbcore.wire.kinds.namespace_commands import TOPIC, CreateNamespace
from lbcore.wire.messages import Command


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
    """Set the batch's share, `BatchContext.share_made`. O(bundles), in numpy."""
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
        work.guard.each("create", names, lambda some: _drive(work, some), lambda name, _: name)


_CHANGES = 2.25
"""Of a share so many: what was made in the last batch and is found opened in this one, and twice
what this one makes, which it also places."""
_LEAST_PART = 8
"""Of the share, whatever else the batch has done."""
_LEAST_SLICE = 64
"""Bundles of a namespace: each slice replaces a rest besides, which is two changes more."""


def _drive(work: BatchContext, names: Sequence[str]) -> None:
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
    return _summed((namespace_of_topic(topic), 1) for topic in work.records.of(TOPIC))


def _partitions(work: BatchContext) -> Counter[str]:
    found = work.records.of(TOPIC).items()
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
