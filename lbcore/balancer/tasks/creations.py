"""Creations: namespaces in the making, a slice of their bundles a batch.

Decides how many bundles each of them gets in this batch. What is not made yet is one bundle, the
*rest*: the namespace's last, without an owner, which each slice replaces by bundles of their final
ranges and a smaller rest. So the bundles cover the hash space at every moment, for every reader,
and where the making stands is read from the ownership itself. Runs in each batch after the repairs.
Source: ours.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from lbcore.balancer.intake.external import is_external
from lbcore.balancer.state.book import NamespaceEntry
from lbcore.balancer.state.outcome import DONE, FAILED, Outcome
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.waiting import finish_command, tell_progress
from lbcore.model.bundles import even_boundaries
from lbcore.model.names import FULL_LOWER, FULL_UPPER, format_bundle, parse_bundle
from lbcore.ownership.changes import ProtocolError, Refused, Transition
from lbcore.ownership.protocol import create, delete
from lbcore.ownership.records import Cause

CREATING = "creating"
"""The property of a namespace in the making: command_id, bundles, and boundaries if uneven."""

_even = lru_cache(maxsize=8)(even_boundaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """How far a namespace is made: `made` of its bundles, then the rest, which begins there."""

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


def is_rest(work: Work, bundle: str) -> bool:
    """Whether the bundle stands for those that are still to be made, so that nobody may have it."""
    namespace, _, upper = parse_bundle(bundle)
    entry = work.namespaces.get(namespace)
    return entry is not None and CREATING in entry.properties and upper == FULL_UPPER


def room_for_whole(work: Work) -> int:
    """How many bundles a namespace may have to be made whole in this batch.

    Half of what a batch makes is left to those that are in the making.
    """
    most = work.share_made
    is_shared = any(CREATING in entry.properties for entry in work.namespaces.values())
    return (most // 2 if is_shared else most) - work.made


def still_to_be_made(work: Work) -> dict[str, int]:
    """Namespace in the making → how many of its bundles are missing."""
    entries = work.namespaces.items()
    return {
        name: _making(work, name).left for name, entry in entries if CREATING in entry.properties
    }


def begin_creation(
    work: Work, name: str, entry: NamespaceEntry, creation: Mapping[str, Any]
) -> None:
    """Make the namespace with one bundle, the rest; creation: see CREATING."""
    whole = format_bundle(name, FULL_LOWER, FULL_UPPER)
    work.ledger.add([whole])
    properties = {**entry.properties, CREATING: dict(creation)}
    work.keep_namespace(name, replace(entry, properties=properties))
    _create(work, name, [whole])


def give_up_creation(work: Work, name: str, reason: str) -> None:
    """Leave the namespace as far as it is made, because it is to be deleted."""
    creation = work.namespaces[name].properties.get(CREATING)
    if creation is not None:
        _end(work, name, Outcome(status=FAILED, reason=reason))


def drive_creations(work: Work) -> None:
    """Give each namespace in the making its part of what a batch makes; the smallest rest first.

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


def _drive(work: Work, names: Sequence[str]) -> None:
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


def _making(work: Work, name: str) -> _Making:
    creation = work.namespaces[name].properties[CREATING]
    boundaries = creation.get("boundaries") or _even(creation["bundles"])
    lower = parse_bundle(work.ledger.names[work.ledger.live_rows(name)[-1]])[1]
    return _Making(name=name, boundaries=boundaries, made=bisect_left(boundaries, lower))


def _make(work: Work, making: _Making, part: int) -> None:
    """Replace the rest by so many bundles and a smaller rest; the last rest is the last bundle."""
    if part:
        work.apply(_deleted(work, making.name))
        _create(work, making.name, making.parts(part))
        work.made += part
    result = {"bundles": len(making.boundaries) - 1, "made": making.made + part}
    if part < making.left:
        creation = work.namespaces[making.name].properties[CREATING]
        tell_progress(work, creation["command_id"], result)
    else:
        result = {**result, "made": result["bundles"]}
        _end(work, making.name, Outcome(status=DONE, result=result))


def _deleted(work: Work, name: str) -> Transition:
    rest = work.ledger.record_at(work.ledger.live_rows(name)[-1])
    return _sure(delete(rest, _origin(work, name)))


def _create(work: Work, name: str, bundles: Sequence[str]) -> None:
    origin, floor = _origin(work, name), work.namespaces[name].highest_version
    for bundle in bundles:
        previous = work.ledger.record(bundle)
        made = create(work.cluster, bundle, origin, previous=previous, version_floor=floor)
        work.apply(_sure(made))


def _origin(work: Work, name: str) -> Any:
    command_id = work.namespaces[name].properties[CREATING]["command_id"]
    return work.origin(Cause.CREATE, command_id=command_id)


def _sure(answer: Transition | Refused) -> Transition:
    """The transition; raises ProtocolError, a bug, because nobody else touches what is not made."""
    if isinstance(answer, Refused):
        message = f"a bundle in the making must be free to change, got {answer.reason.value}"
        raise ProtocolError(message)
    return answer


def _end(work: Work, name: str, outcome: Outcome) -> None:
    entry = work.namespaces[name]
    command_id = entry.properties[CREATING]["command_id"]
    left = {key: value for key, value in entry.properties.items() if key != CREATING}
    work.keep_namespace(name, replace(entry, properties=left))
    finish_command(work, command_id, outcome)
