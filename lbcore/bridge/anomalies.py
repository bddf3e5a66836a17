"""Sights of trouble in one round of questions to a Pulsar cluster.

Decides what counts as a sight of trouble, by the brokers' own words and the lookups;
`lbcore.bridge.guardian` decides whether it lasts. Nothing is concluded about a broker that did not
answer, with one exception: its bundles are not served if it was the last to have them.
Apache/pulsar 24057 (a broker lost by the registry), 24478 (two owners), 25379 and 25394 (no owner
after a restart).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from lbcore.model.names import parts_word
from lbcore.model.spread import are_on_too_few
from lbcore.model.times import CertificateEnd, expiry_message, judge_end

_OWNERS = 2
"""So many say that they own it, or have died with it: one too many, and not by chance."""

_NAMED = 20
"""So many of one kind are named; the rest is counted."""

FAILURES = (
    "html_page",
    "no_answer",
    "not_allowed",
    "other_broker",
    "refused",
    "server_error",
    "unreadable",
)
"""The kinds of failure to read something of Pulsar, as metrics count them."""


class Trouble(Enum):
    """Kind of trouble; also the label of metrics."""

    CIRCLING = "circling"
    DOUBLED = "doubled"
    EXPIRING = "expiring"
    EXPIRING_SOON = "expiring_soon"
    MISREPORTING = "misreporting"
    NARROW = "narrow"
    POISON = "poison"
    STUCK = "stuck"
    UNLISTED = "unlisted"
    UNREAD = "unread"
    UNRESPONSIVE = "unresponsive"
    UNSERVED = "unserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Answer to a lookup of a topic.

    named: the broker, "" = none. refused: in Pulsar's words. hops: the places that it went through,
    when it came to the same question twice.
    """

    named: str = ""
    refused: str = ""
    hops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRound:
    """One round.

    listed: brokers that Pulsar lists as active. owned: broker (also one that is listed no more) →
    bundles that it says it owns, None without an answer. closing: bundles that their owner says
    are not active; moving: bundle → the step that our records have it in. asked_for: bundles that
    exist and had clients when last reported. lookups: of bundles that were looked up. partitions:
    bundle → partitioned topic → how many of its partitions are loaded there. certificates: whose
    (a broker, or the bridge itself) → until when it is good, ms since 1970. unread: what Pulsar
    does not answer, or not so that it can be used → why. unreported: broker → the fields of its
    load that can't be used.
    """

    listed: frozenset[str]
    owned: Mapping[str, frozenset[str] | None]
    closing: frozenset[str] = frozenset()
    moving: Mapping[str, str] = field(default_factory=dict)
    asked_for: frozenset[str] = frozenset()
    lookups: Mapping[str, Looked] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    certificates: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    unreported: Mapping[str, str] = field(default_factory=dict)

    def is_unclear(self, anomaly: "Anomaly") -> bool:
        """True if some broker that the sight concerns has not answered."""
        return any(one in self.owned and self.owned[one] is None for one in anomaly.witnesses)

    def silent(self) -> frozenset[str]:
        """Listed brokers without an answer."""
        return frozenset(one for one in self.listed if self.owned.get(one) is None)

    def claims(self) -> Mapping[str, tuple[str, ...]]:
        """Bundle → who says that it owns it, in name order. O(bundles)."""
        found: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for broker in sorted(self.owned):
            for bundle in self.owned[broker] or ():
                found[bundle] += (broker,)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """Something wrong. witnesses: what must stay the same for it to be the same sight."""

    trouble: Trouble
    subject: str
    evidence: str
    witnesses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """An owner died with the bundle."""

    broker: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of earlier rounds.

    homes: bundle → its last clear owner. silent_ms: broker → since when it has not answered though
    it is listed. dead: those of them whose death has been counted. deaths: bundle → deaths of its
    owners.
    """

    homes: Mapping[str, str] = field(default_factory=dict)
    silent_ms: Mapping[str, int] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    deaths: Mapping[str, tuple[Death, ...]] = field(default_factory=dict)


def remember(
    memory: Memory, seen: ProbeRound, now_ms: int, confirm_ms: int, poison_ms: int
) -> Memory:
    """The memory after a round; a broker dies once, when it was silent for confirm_ms.

    One that leaves the list before it falls silent was stopped, and has not died.
    """
    homes = dict(memory.homes)
    for bundle, brokers in seen.claims().items():
        homes[bundle] = brokers[0] if len(brokers) == 1 else homes.get(bundle, brokers[0])
    homes = {name: one for name, one in homes.items() if one in seen.listed or one in seen.owned}
    silent_ms = {one: memory.silent_ms.get(one, now_ms) for one in sorted(seen.silent())}
    over = {one for one, since_ms in silent_ms.items() if now_ms - since_ms >= confirm_ms}
    deaths = {
        bundle: kept
        for bundle, known in memory.deaths.items()
        if (kept := tuple(one for one in known if now_ms - one.at_ms < poison_ms))
    }
    for bundle, broker in sorted(homes.items()):
        if broker in over - memory.dead:
            deaths[bundle] = (*deaths.get(bundle, ()), Death(broker=broker, at_ms=now_ms))
    return Memory(homes=homes, silent_ms=silent_ms, dead=frozenset(over), deaths=deaths)


def anomalies(memory: Memory, seen: ProbeRound, crowd: int, now_ms: int) -> Iterable[Anomaly]:
    """All that is wrong in this round; now_ms: of what ends at a time. O(bundles)."""
    claims = seen.claims()
    yield from _doubled(claims)
    yield from _unserved(memory, seen, claims)
    yield from _stuck(seen)
    yield from _circling(seen)
    yield from _unlisted(seen)
    yield from _unresponsive(seen)
    yield from _poison(memory, crowd)
    yield from _narrow(seen, claims)
    yield from _expiring(seen, now_ms)
    yield from _named(Trouble.UNREAD, seen.unread)
    yield from _named(Trouble.MISREPORTING, seen.unreported)


def _doubled(claims: Mapping[str, tuple[str, ...]]) -> Iterable[Anomaly]:
    for bundle, brokers in claims.items():
        if len(brokers) >= _OWNERS:
            words = f"{' and '.join(brokers)} say that they own it"
            yield _anomaly(Trouble.DOUBLED, bundle, words, *brokers)


def _unserved(
    memory: Memory, seen: ProbeRound, claims: Mapping[str, tuple[str, ...]]
) -> Iterable[Anomaly]:
    silent = seen.silent()
    for bundle in seen.asked_for - claims.keys():
        home = memory.homes.get(bundle, "")
        if silent and home not in silent:
            continue  # one of those that have not answered may have taken it
        words = f"{home}, which had it, does not answer" if home in silent else "no broker owns it"
        looked = seen.lookups.get(bundle, Looked())
        if looked.named:
            words += f", and the lookup names {looked.named}"
        elif looked.refused:
            words += f", and the lookup says: {looked.refused}"
        yield _anomaly(Trouble.UNSERVED, bundle, words)


def _stuck(seen: ProbeRound) -> Iterable[Anomaly]:
    for bundle in seen.closing:
        yield _anomaly(
            Trouble.STUCK, bundle, "its owner has closed it and not let it go", "closing"
        )
    for bundle, step in seen.moving.items():
        if bundle not in seen.closing:
            yield _anomaly(Trouble.STUCK, bundle, f"our records have it {step}", step)


def _circling(seen: ProbeRound) -> Iterable[Anomaly]:
    for bundle, looked in seen.lookups.items():
        if looked.hops:
            words = f"lookups go in circles: {' → '.join(looked.hops)}"
            yield _anomaly(Trouble.CIRCLING, bundle, words)


def _unlisted(seen: ProbeRound) -> Iterable[Anomaly]:
    for broker, owned in seen.owned.items():
        if owned and broker not in seen.listed:
            words = f"Pulsar lists it no more, and it serves {len(owned)} bundles"
            yield _anomaly(Trouble.UNLISTED, broker, words, broker)


def _unresponsive(seen: ProbeRound) -> Iterable[Anomaly]:
    for broker in sorted(seen.silent()):
        words = "Pulsar lists it, and it answers no question about what it owns"
        yield _anomaly(Trouble.UNRESPONSIVE, broker, words)


def _poison(memory: Memory, crowd: int) -> Iterable[Anomaly]:
    """Return the bundles whose owners died; none where so many did that it is chance."""
    victims = {
        bundle: brokers
        for bundle, deaths in memory.deaths.items()
        if len(brokers := sorted({one.broker for one in deaths})) >= _OWNERS
    }
    if len(victims) > crowd:
        return
    for bundle, brokers in victims.items():
        words = f"{' and '.join(brokers)} died while they owned it"
        yield _anomaly(Trouble.POISON, bundle, words)


def _narrow(seen: ProbeRound, claims: Mapping[str, tuple[str, ...]]) -> Iterable[Anomaly]:
    """Topics whose partitions are on too few of the brokers. O(partitions)."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for bundle, topics in seen.partitions.items():
        for broker in claims.get(bundle, ())[:1]:
            for topic, count in topics.items():
                held[topic][broker] += count
    for topic, brokers in held.items():
        if are_on_too_few(len(brokers), brokers.total(), len(seen.listed)):
            where = ", ".join(f"{count} on {one}" for one, count in sorted(brokers.items()))
            words = f"{brokers.total()} {parts_word(topic)} are on {len(brokers)}"
            words += f" of {len(seen.listed)} brokers: {where}"
            yield _anomaly(Trouble.NARROW, topic, words)


def _expiring(seen: ProbeRound, now_ms: int) -> Iterable[Anomaly]:
    for whose, ends_ms in seen.certificates.items():
        near = judge_end(ends_ms, now_ms)
        if near is not CertificateEnd.FAR:
            yield _anomaly(Trouble(near.value), whose, expiry_message(ends_ms))


def _named(trouble: Trouble, reasons: Mapping[str, str]) -> Iterable[Anomaly]:
    """Return the first by name, and how many more.

    An instance may refuse thousands of namespaces.
    """
    named = sorted(reasons)
    for subject in named[:_NAMED]:
        yield _anomaly(trouble, subject, reasons[subject])
    if len(named) > _NAMED:
        yield _anomaly(trouble, "others", f"{len(named) - _NAMED} more, {named[_NAMED]} first")


def _anomaly(trouble: Trouble, subject: str, evidence: str, *witnesses: str) -> Anomaly:
    return Anomaly(trouble=trouble, subject=subject, evidence=evidence, witnesses=witnesses)
