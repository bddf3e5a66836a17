"""Actions: requests to Pulsar for records in flight, and the brokers' answers.

Decides, from what Pulsar says at this moment, the next step of an unload or a split: ask Pulsar for
it, look again, or acknowledge. Nothing is believed because it was asked for: an outcome is what a
new look shows. What has gone another way is left to the mirror. Pulsar 4.0.8 unloads within
namespaceBundleUnloadingTimeoutMs, 60 s.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarState:
    """State of a bundle in Pulsar now.

    owner: NOBODY, or None when it is not clear. incarnations: of the active brokers, "" of one that
    has not been measured yet. boundaries: of the bundle's namespace, () = not known.
    """

    owner: str | None
    incarnations: Mapping[str, str]
    boundaries: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Attempts for the record so far.

    asked: number of unloads or splits sent. refused: Pulsar's last refusal, "" = none. waited_ms:
    time since the work on this record began. is_old: it was written before we could have carried it
    out.
    """

    asked: int = 0
    refused: str = ""
    waited_ms: int = 0
    is_old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of the attempts.

    forbidden: why nothing may be asked of Pulsar now, "" = it may.
    """

    attempts: int = 3
    patience_ms: int = 90_000
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
    """Look a topic of the bundle up, which makes Pulsar's modular manager assign it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Wait a moment, and look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAnswer:
    """Acknowledge the record for a broker of it."""

    broker: str
    incarnation: str
    outcome: AckOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Nothing more from here: it went another way, and the mirror takes that over."""

    reason: str


Action: TypeAlias = Unload | Split | Lookup | LookAgain | RecordAnswer | Leave


def next_action(
    record: OwnershipRecord, seen: PulsarState, attempts: Attempts, bounds: RetryPolicy
) -> Action:
    """Return the next action for a record; `Leave` for one that is not in flight."""
    doer = record.destination if record.state is State.ASSIGNING else record.source
    if seen.incarnations.get(doer) == _NOT_MEASURED:
        return _patiently(record, attempts, bounds, f"{doer} has not been measured yet")
    if record.state is State.RELEASING:
        return _releasing(record, seen, attempts, bounds)
    if record.state is State.ASSIGNING:
        return _assigning(record, seen)
    if record.state is State.SPLITTING:
        return _splitting(record, seen, attempts, bounds)
    return Leave(reason="it is not in flight")


def _releasing(
    record: OwnershipRecord, seen: PulsarState, attempts: Attempts, bounds: RetryPolicy
) -> Action:
    source, destination = record.source, record.destination
    if seen.incarnations.get(source) != record.source_incarnation:
        return Leave(reason=f"{source} is gone or has restarted")
    if seen.owner is None:
        return _patiently(record, attempts, bounds, "it is not clear who owns it")
    if seen.owner == source:
        return _ask(record, attempts, bounds, Unload(destination=destination))
    if not destination or seen.owner == destination:
        return _of_source(record, AckOutcome.CLOSED)
    if seen.owner == NOBODY and attempts.waited_ms <= bounds.patience_ms:
        return Lookup()
    return Leave(reason=f"Pulsar gave it to {seen.owner or 'nobody'}")


def _assigning(record: OwnershipRecord, seen: PulsarState) -> Action:
    if seen.owner != record.destination:
        return LookAgain() if seen.owner is None else Leave(reason="it is somewhere else")
    if seen.incarnations.get(record.destination) != record.destination_incarnation:
        return Leave(reason=f"{record.destination} has restarted")
    return RecordAnswer(
        broker=record.destination,
        incarnation=record.destination_incarnation,
        outcome=AckOutcome.OPENED,
    )


def _splitting(
    record: OwnershipRecord, seen: PulsarState, attempts: Attempts, bounds: RetryPolicy
) -> Action:
    if seen.incarnations.get(record.source) != record.source_incarnation:
        return Leave(reason=f"{record.source} is gone or has restarted")
    if not seen.boundaries:
        return _patiently(record, attempts, bounds, "the namespace's bundles are not known")
    _, lower, upper = parse_bundle(record.bundle)
    wanted = {parse_bundle(child)[1] for child in record.children}
    within = {at for at in seen.boundaries if lower <= at < upper}
    if within == wanted:
        return _of_source(record, AckOutcome.SPLIT)
    if within - wanted or lower not in within:
        return _of_source(record, AckOutcome.FAILED, "Pulsar has cut it otherwise")
    missing = tuple(sorted(wanted - within))
    rest = max(at for at in within if at < missing[0])
    end = min([at for at in within if at > missing[0]], default=upper)
    namespace = record.bundle.rpartition("/")[0]
    bundle = format_bundle(namespace, rest, end)
    return _ask(record, attempts, bounds, Split(bundle=bundle, positions=missing))


def _ask(
    record: OwnershipRecord, attempts: Attempts, bounds: RetryPolicy, action: Action
) -> Action:
    """The action, or, where it may not or need not be tried again, that it failed."""
    if bounds.forbidden:
        return _of_source(record, AckOutcome.FAILED, bounds.forbidden)
    if attempts.is_old and not attempts.asked:
        return _of_source(record, AckOutcome.FAILED, "it waited too long to be begun")
    asked_max = bounds.attempts + len(record.children)  # a chain of splits needs one for each
    if attempts.asked >= asked_max or attempts.waited_ms > bounds.patience_ms:
        reason = attempts.refused or "Pulsar said yes and did nothing"
        return _of_source(record, AckOutcome.FAILED, reason)
    return action


def _patiently(
    record: OwnershipRecord, attempts: Attempts, bounds: RetryPolicy, why: str
) -> Action:
    is_over = attempts.waited_ms > bounds.patience_ms
    return Leave(reason=f"{record.bundle}: {why}") if is_over else LookAgain()


def _of_source(record: OwnershipRecord, outcome: AckOutcome, reason: str = "") -> RecordAnswer:
    return RecordAnswer(
        broker=record.source, incarnation=record.source_incarnation, outcome=outcome, reason=reason
    )


def positions_for(split: Split, *, at_once: bool) -> Sequence[int]:
    """Return the positions of the next request.

    All, or the first where the manager takes one only.
    """
    return split.positions if at_once else split.positions[:1]


SHEDDING = "loadBalancerSheddingEnabled"
SPLITTING = "loadBalancerAutoBundleSplitEnabled"
BALANCING = "loadBalancerEnabled"
_TRUE = "true"


def reason_not_to_act(settings: Mapping[str, Settings | None]) -> str:
    """Return why nothing may be moved; "" = it may.

    settings: by broker, None = no answer. One broker that sheds or does not answer is enough.
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

    This is harmless, and taken over like all it does.
    """
    return any(found is not None and found.get(SPLITTING) == _TRUE for found in settings.values())
