"""Actions: requests to Pulsar for records in flight, and the brokers' answers.

Decides, from what Pulsar says at this moment, the next step of an unload or a split: ask Pulsar for
it, look again, or acknowledge. A request that Pulsar accepted proves nothing: an outcome is only
what a new look shows. When Pulsar has done something else, the mirror records it. Pulsar 4.0.8
unloads within namespaceBundleUnloadingTimeoutMs, 60 s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lbcore.bridge.answers import Settings
from lbcore.bridge.mirror import NOBODY
from lbcore.model.names import format_bundle, parse_bundle
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.messages import AckOutcome

_NOT_MEASURED = ""
_ATTEMPTS_MAX = 3
"""Maximum requests for one record."""
_PATIENCE_MS = 90_000
"""Longest work on one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarState:
    """State of a bundle in Pulsar now.

    owner: a broker, NOBODY, or None when it is not clear. incarnations: of the active brokers, ""
    for one that has not been measured yet. boundaries: of the bundle's namespace, () = not known.
    """

    owner: str | None
    incarnations: Mapping[str, str]
    boundaries: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Attempts for the record so far.

    asked: number of unloads or splits sent. refused: the last refusal or failure, "" = none.
    waited_ms: time since the work on this record began. is_old: the record is too old to begin its
    work now. forbidden: why Pulsar may not be asked for anything now, "" = it may.
    """

    asked: int = 0
    refused: str = ""
    waited_ms: int = 0
    is_old: bool = False
    forbidden: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    """Ask Pulsar to unload the bundle; destination "" = whoever Pulsar chooses."""

    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Ask Pulsar to split `bundle` at hash values."""

    bundle: str
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Look up a topic of the bundle, which makes Pulsar's modular manager assign it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Wait a moment, and ask Pulsar for its state again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAnswer:
    """Acknowledge the record in the name of one of its brokers."""

    broker: str
    incarnation: str
    outcome: AckOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Do no more for the record: Pulsar did something else, which the mirror records."""

    reason: str


Action: TypeAlias = Unload | Split | Lookup | LookAgain | RecordAnswer | Leave


def next_action(record: OwnershipRecord, now: PulsarState, attempts: Attempts) -> Action:
    """Return the next action for a record; `Leave` for one that is not in flight."""
    actor = record.destination if record.state is State.ASSIGNING else record.source
    if now.incarnations.get(actor) == _NOT_MEASURED:
        return _look_or_leave(record, attempts, f"{actor} has not been measured yet")
    if record.state is State.RELEASING:
        return _next_of_unload(record, now, attempts)
    if record.state is State.ASSIGNING:
        return _next_of_assignment(record, now)
    if record.state is State.SPLITTING:
        return _next_of_split(record, now, attempts)
    return Leave(reason="it is not in flight")


def _next_of_unload(record: OwnershipRecord, now: PulsarState, attempts: Attempts) -> Action:
    """Return the next action for a Releasing record."""
    source, destination = record.source, record.destination
    if now.incarnations.get(source) != record.source_incarnation:
        return Leave(reason=f"{source} is gone or has restarted")
    if now.owner is None:
        return _look_or_leave(record, attempts, "it is not clear who owns it")
    if now.owner == source:
        return _ask(record, attempts, Unload(destination=destination))
    if not destination or now.owner == destination:
        return _answer_of_source(record, AckOutcome.CLOSED)
    if now.owner == NOBODY and attempts.waited_ms <= _PATIENCE_MS:
        return Lookup()
    return Leave(reason=f"Pulsar gave it to {now.owner or 'nobody'}")


def _next_of_assignment(record: OwnershipRecord, now: PulsarState) -> Action:
    """Return the next action for an Assigning record."""
    if now.owner != record.destination:
        return LookAgain() if now.owner is None else Leave(reason="it is somewhere else")
    if now.incarnations.get(record.destination) != record.destination_incarnation:
        return Leave(reason=f"{record.destination} has restarted")
    return RecordAnswer(
        broker=record.destination,
        incarnation=record.destination_incarnation,
        outcome=AckOutcome.OPENED,
    )


def _next_of_split(record: OwnershipRecord, now: PulsarState, attempts: Attempts) -> Action:
    """Return the next action for a Splitting record: the cuts that are missing."""
    if now.incarnations.get(record.source) != record.source_incarnation:
        return Leave(reason=f"{record.source} is gone or has restarted")
    if not now.boundaries:
        return _look_or_leave(record, attempts, "the namespace's bundles are not known")
    _, lower, upper = parse_bundle(record.bundle)
    wanted = {parse_bundle(child)[1] for child in record.children}
    within = {at for at in now.boundaries if lower <= at < upper}
    if within == wanted:
        return _answer_of_source(record, AckOutcome.SPLIT)
    if within - wanted or lower not in within:
        return _answer_of_source(record, AckOutcome.FAILED, "Pulsar has cut it otherwise")
    missing = tuple(sorted(wanted - within))
    rest = max(at for at in within if at < missing[0])
    end = min([at for at in within if at > missing[0]], default=upper)
    bundle = format_bundle(record.bundle.rpartition("/")[0], rest, end)
    return _ask(record, attempts, Split(bundle=bundle, positions=missing))


def _ask(record: OwnershipRecord, attempts: Attempts, action: Action) -> Action:
    """Return the action; if it may not be asked for again, the answer that it failed."""
    if attempts.forbidden:
        return _answer_of_source(record, AckOutcome.FAILED, attempts.forbidden)
    if attempts.is_old and not attempts.asked:
        return _answer_of_source(record, AckOutcome.FAILED, "it waited too long to be begun")
    asked_max = _ATTEMPTS_MAX + len(record.children)  # a chain of splits needs one for each
    if attempts.asked >= asked_max or attempts.waited_ms > _PATIENCE_MS:
        reason = attempts.refused or "Pulsar said yes and did nothing"
        return _answer_of_source(record, AckOutcome.FAILED, reason)
    return action


def _look_or_leave(record: OwnershipRecord, attempts: Attempts, why: str) -> Action:
    """Return `LookAgain`, or `Leave` once the longest work on a record is over."""
    is_over = attempts.waited_ms > _PATIENCE_MS
    return Leave(reason=f"{record.bundle}: {why}") if is_over else LookAgain()


def _answer_of_source(
    record: OwnershipRecord, outcome: AckOutcome, reason: str = ""
) -> RecordAnswer:
    return RecordAnswer(
        broker=record.source, incarnation=record.source_incarnation, outcome=outcome, reason=reason
    )


def positions_for(split: Split, *, at_once: bool) -> Sequence[int]:
    """Return the positions of the next request: all, or only the first.

    at_once: the load manager takes several in one request.
    """
    return split.positions if at_once else split.positions[:1]


SHEDDING = "loadBalancerSheddingEnabled"
SPLITTING = "loadBalancerAutoBundleSplitEnabled"
BALANCING = "loadBalancerEnabled"
_TRUE = "true"


def reason_not_to_act(settings: Mapping[str, Settings | None]) -> str:
    """Return why no bundle may be moved; "" = they may.

    settings: by broker, None = no answer. One broker that sheds or does not answer forbids it.
    Source: Pulsar 4.0.8, ServiceConfiguration.
    """
    if not settings:
        return "no active broker is known"
    for broker, found in sorted(settings.items()):
        if found is None:
            return f"{broker} does not tell its configuration"
        if found.get(BALANCING, _TRUE) == _TRUE and found.get(SHEDDING, _TRUE) == _TRUE:
            return f"{broker} has {SHEDDING}=true: Pulsar sheds by itself"
    return ""


def splits_by_itself(settings: Mapping[str, Settings | None]) -> bool:
    """True if some broker splits bundles by itself.

    This is harmless: the mirror records it like any change that Pulsar makes.
    """
    return any(found is not None and found.get(SPLITTING) == _TRUE for found in settings.values())
