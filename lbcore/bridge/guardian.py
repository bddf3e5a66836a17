"""The guardian: faults of ownership in a Pulsar cluster, found from outside.

Decides, by the brokers' answers and the lookups of one round, what is wrong; what of it lasts too
long to be a move; and what repair to ask of the admin interface. Trouble is a finding once it was
the same in every round for `GuardianTimeouts.of`; while one of its brokers does not answer, it
stays as it is. A repair is asked for at most every `again_ms`; a finding that outlasts it is
quarantined until it ends. A broker that does not answer is UNRESPONSIVE, may count as dead
(POISON), and what it had last is UNSERVED; nothing else is concluded about it. Seen in
apache/pulsar 24057 (a broker lost by the registry), 24478 (two owners), 25379 and 25394 (no owner
after a restart). Quarantine of a bundle that kills its owners: Databricks Dicer,
KeyOfDeathDetector.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from lbcore.model.names import are_on_too_few, parts_word
from lbcore.model.times import MINUTE_MS, CertificateEnd, expiry_message, judge_end

_OWNERS = 2
"""Least number of owners at once, or of owners that died with a bundle, for a finding."""
_NAMED = 20
"""Maximum findings of one kind with a subject of their own; the rest is counted."""

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


_REPAIRABLE = (Trouble.CIRCLING, Trouble.DOUBLED, Trouble.STUCK, Trouble.UNSERVED)
ADVISORY = (Trouble.EXPIRING, Trouble.EXPIRING_SOON, Trouble.NARROW)
"""Kinds that are no fault of ownership."""
_NOT_URGENT = (
    Trouble.NARROW,
    Trouble.STUCK,
    Trouble.UNREAD,
    Trouble.MISREPORTING,
    Trouble.UNRESPONSIVE,
)


class FindingStage(Enum):
    """Stage of a finding. TOLD: reported only. MENDING: a repair was asked for."""

    TOLD = "told"
    MENDING = "mending"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardianTimeouts:
    """Time limits in ms, and limits of what is asked of Pulsar.

    confirm_ms: a move is over by then. stuck_ms: for a bundle in transit. repair_ms: a repair has
    helped by then. again_ms: until the same is asked for again. poison_ms: deaths within this time
    count together. narrow_ms: for partitions on few brokers. unresponsive_ms: for a broker that is
    listed; a dead one is no longer listed by then. crowd: if the brokers of more bundles than this
    have died, no bundle is POISON.
    """

    confirm_ms: int = 3_000
    stuck_ms: int = 30_000
    repair_ms: int = 20_000
    again_ms: int = 300_000
    poison_ms: int = 600_000
    narrow_ms: int = 60_000
    unresponsive_ms: int = 60_000
    crowd: int = 8
    repairs_per_minute: int = 4

    def of(self, trouble: Trouble) -> int:
        """Return how long trouble must last to be a finding; 0 = at once."""
        own = {
            Trouble.EXPIRING: 0,
            Trouble.EXPIRING_SOON: 0,
            Trouble.NARROW: self.narrow_ms,
            Trouble.POISON: 0,
            Trouble.STUCK: self.stuck_ms,
            Trouble.UNRESPONSIVE: self.unresponsive_ms,
        }
        return own.get(trouble, self.confirm_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Trouble that the guardian found.

    subject: a bundle, a topic (NARROW), or a broker (UNLISTED, MISREPORTING, UNRESPONSIVE); the
    holder of a certificate that expires (EXPIRING, EXPIRING_SOON); or what can't be read (UNREAD).
    since_ms: of the first round that showed it. witnesses: brokers, or a step; if they change, it
    begins again. rounds: that have shown it.
    """

    trouble: Trouble
    subject: str
    since_ms: int
    evidence: str
    stage: FindingStage = FindingStage.TOLD
    witnesses: tuple[str, ...] = ()
    rounds: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Answer to a lookup of a topic.

    named: the broker, "" = none. refused: in Pulsar's words. hops: addresses of a redirect loop,
    () = none.
    """

    named: str = ""
    refused: str = ""
    hops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRound:
    """One round.

    listed: brokers that Pulsar lists as active. owned: broker (also one that is listed no more) →
    bundles that it says it owns, None without an answer. closing: bundles that their owner says
    are not active; moving: bundle → the step that our records have it in. used_bundles: those that
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
    used_bundles: frozenset[str] = frozenset()
    lookups: Mapping[str, Looked] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    certificates: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    unreported: Mapping[str, str] = field(default_factory=dict)

    def silent(self) -> frozenset[str]:
        """Listed brokers without an answer."""
        return frozenset(one for one in self.listed if self.owned.get(one) is None)

    def claims(self) -> Mapping[str, tuple[str, ...]]:
        """Return bundle → brokers that say they own it, in name order. O(bundles)."""
        found: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for broker in sorted(self.owned):
            for bundle in self.owned[broker] or ():
                found[bundle] += (broker,)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of earlier rounds.

    homes: bundle → its last clear owner. silent_ms: broker → since when it has not answered though
    it is listed. dead: those of them whose death has been counted. deaths: bundle → the owners that
    died with it, and when.
    """

    homes: Mapping[str, str] = field(default_factory=dict)
    silent_ms: Mapping[str, int] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    deaths: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)


Key = tuple[str, str]
"""A trouble's value, and its subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """State of the guardian between rounds.

    lasting: what is wrong, sure or not, with its stage. repaired_ms: recent times at which Pulsar
    was asked for each repair. They outlast the trouble: a repair may give the bundle another owner,
    with whom it is wrong again.
    """

    memory: Memory = field(default_factory=Memory)
    lasting: Mapping[Key, Finding] = field(default_factory=dict)
    repaired_ms: Mapping[Key, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One round's outcome, in order of trouble and subject.

    repairs: findings that Pulsar is asked to repair now. look_in_ms: time until the next round can
    confirm a trouble; None = no hurry.
    """

    state: GuardState
    findings: tuple[Finding, ...]
    repairs: tuple[Finding, ...] = ()
    look_in_ms: int | None = None

    @property
    def quarantined(self) -> frozenset[str]:
        """The bundles that are left alone."""
        held = (one for one in self.findings if one.stage is FindingStage.QUARANTINED)
        return frozenset(one.subject for one in held)


def judge(
    state: GuardState, probed: ProbeRound, now_ms: int, timeouts: GuardianTimeouts, *, acts: bool
) -> Judged:
    """Run the guardian's step. O(bundles).

    Trouble is sure after its time and over two rounds, or at once. now_ms: monotonic. acts:
    Pulsar may be asked for repairs.
    """
    memory = remember(state.memory, probed, now_ms, timeouts.confirm_ms, timeouts.poison_ms)
    lasting = _lasting(state.lasting, anomalies(memory, probed, timeouts.crowd, now_ms), probed)
    needed_ms = {key: timeouts.of(one.trouble) for key, one in lasting.items()}
    sure = {
        key: one
        for key, one in lasting.items()
        if now_ms - one.since_ms >= needed_ms[key] and (one.rounds > 1 or not needed_ms[key])
    }
    repaired = {
        key: at_ms for key, at_ms in state.repaired_ms.items() if now_ms - at_ms < timeouts.again_ms
    }
    lately = sum(now_ms - at_ms < MINUTE_MS for at_ms in repaired.values())
    may_ask = max(0, timeouts.repairs_per_minute - lately) if acts else 0
    due = [key for key in sure if sure[key].trouble in _REPAIRABLE and key not in repaired]
    # first those never repaired: others come due again and again without effect
    due = sorted(due, key=lambda key: sure[key].stage is not FindingStage.TOLD)[:may_ask]
    repaired |= dict.fromkeys(due, now_ms)
    for key, one in sure.items() if acts else ():
        is_unhelped = now_ms - repaired.get(key, now_ms) >= timeouts.repair_ms
        if one.trouble is Trouble.POISON or is_unhelped:
            sure[key] = replace(one, stage=FindingStage.QUARANTINED)
        elif key in repaired and one.stage is FindingStage.TOLD:
            sure[key] = replace(one, stage=FindingStage.MENDING)
    lasting |= sure
    left_ms = [  # findings, and troubles that must last long, can wait
        one.since_ms + needed_ms[key] - now_ms
        for key, one in lasting.items()
        if one.trouble not in _NOT_URGENT and key not in sure
    ]
    return Judged(
        state=GuardState(memory=memory, lasting=lasting, repaired_ms=repaired),
        findings=tuple(sure.values()),
        repairs=tuple(sure[key] for key in due),
        look_in_ms=max(0, min(left_ms)) if left_ms else None,
    )


def _lasting(
    before: Mapping[Key, Finding], found: Iterable[Finding], probed: ProbeRound
) -> dict[Key, Finding]:
    """Return the troubles after a round, by key.

    A known one goes on while its witnesses are the same or one does not answer.
    """
    lasting = {
        key: one
        for key, one in before.items()
        if any(who in probed.owned and probed.owned[who] is None for who in one.witnesses)
    }
    for one in found:
        key = one.trouble.value, one.subject
        known = before.get(key)
        lasting[key] = one
        if known is not None and known.witnesses == one.witnesses:
            lasting[key] = replace(
                one, since_ms=known.since_ms, rounds=known.rounds + 1, stage=known.stage
            )
    return dict(sorted(lasting.items()))


def remember(
    memory: Memory, probed: ProbeRound, now_ms: int, confirm_ms: int, poison_ms: int
) -> Memory:
    """Return the memory after a round; a broker silent for confirm_ms dies once.

    One that leaves the list before it falls silent was stopped, and has not died.
    """
    homes = dict(memory.homes)
    for bundle, brokers in probed.claims().items():
        homes[bundle] = brokers[0] if len(brokers) == 1 else homes.get(bundle, brokers[0])
    homes = {
        name: one for name, one in homes.items() if one in probed.listed or one in probed.owned
    }
    silent_ms = {one: memory.silent_ms.get(one, now_ms) for one in sorted(probed.silent())}
    over = {one for one, since_ms in silent_ms.items() if now_ms - since_ms >= confirm_ms}
    deaths = {
        bundle: kept
        for bundle, known in memory.deaths.items()
        if (kept := tuple(one for one in known if now_ms - one[1] < poison_ms))
    }
    for bundle, broker in sorted(homes.items()):
        if broker in over - memory.dead:
            deaths[bundle] = (*deaths.get(bundle, ()), (broker, now_ms))
    return Memory(homes=homes, silent_ms=silent_ms, dead=frozenset(over), deaths=deaths)


def anomalies(memory: Memory, probed: ProbeRound, crowd: int, now_ms: int) -> Iterable[Finding]:
    """Yield all troubles of this round, as if they began now. O(bundles + partitions)."""
    claims, find = probed.claims(), partial(Finding, since_ms=now_ms)
    yield from _of_bundles(memory, probed, claims, find)
    yield from _of_brokers(memory, probed, crowd, find)
    yield from _narrow(probed, claims, find)
    for whose, ends_ms in probed.certificates.items():
        near = judge_end(ends_ms, now_ms)
        if near is not CertificateEnd.FAR:
            yield find(trouble=Trouble(near.value), subject=whose, evidence=expiry_message(ends_ms))
    yield from _named(Trouble.UNREAD, probed.unread, find)
    yield from _named(Trouble.MISREPORTING, probed.unreported, find)


def _of_brokers(
    memory: Memory, probed: ProbeRound, crowd: int, find: Callable[..., Finding]
) -> Iterable[Finding]:
    """Yield brokers that don't do their part, and bundles that kill them."""
    for broker, owned in probed.owned.items():
        if owned and broker not in probed.listed:
            evidence = f"Pulsar lists it no more, and it serves {len(owned)} bundles"
            yield find(
                trouble=Trouble.UNLISTED, subject=broker, evidence=evidence, witnesses=(broker,)
            )
    for broker in sorted(probed.silent()):
        evidence = "Pulsar lists it, and it answers no question about what it owns"
        yield find(trouble=Trouble.UNRESPONSIVE, subject=broker, evidence=evidence)
    deaths = {name: sorted({who for who, _ in died}) for name, died in memory.deaths.items()}
    victims = {name: brokers for name, brokers in deaths.items() if len(brokers) >= _OWNERS}
    for bundle, brokers in victims.items() if len(victims) <= crowd else ():
        evidence = f"{' and '.join(brokers)} died while they owned it"
        yield find(trouble=Trouble.POISON, subject=bundle, evidence=evidence)


def _narrow(
    probed: ProbeRound, claims: Mapping[str, tuple[str, ...]], find: Callable[..., Finding]
) -> Iterable[Finding]:
    """Yield topics whose partitions are on too few of the brokers. O(partitions)."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for bundle, topics in probed.partitions.items():
        for broker in claims.get(bundle, ())[:1]:
            for topic, count in topics.items():
                held[topic][broker] += count
    for topic, parts in held.items():
        if are_on_too_few(len(parts), parts.total(), len(probed.listed)):
            where = ", ".join(f"{count} on {one}" for one, count in sorted(parts.items()))
            evidence = f"{parts.total()} {parts_word(topic)} are on {len(parts)}"
            evidence += f" of {len(probed.listed)} brokers: {where}"
            yield find(trouble=Trouble.NARROW, subject=topic, evidence=evidence)


def _named(
    trouble: Trouble, reasons: Mapping[str, str], find: Callable[..., Finding]
) -> Iterable[Finding]:
    """Yield the first _NAMED by name, and one for all others: they may be thousands."""
    named = sorted(reasons)
    for subject in named[:_NAMED]:
        yield find(trouble=trouble, subject=subject, evidence=reasons[subject])
    if len(named) > _NAMED:
        evidence = f"{len(named) - _NAMED} more, {named[_NAMED]} first"
        yield find(trouble=trouble, subject="others", evidence=evidence)


def _of_bundles(
    memory: Memory,
    probed: ProbeRound,
    claims: Mapping[str, tuple[str, ...]],
    find: Callable[..., Finding],
) -> Iterable[Finding]:
    """Yield bundles that are owned twice, unowned, stuck, or in a redirect loop."""
    silent = probed.silent()
    for bundle, brokers in claims.items():
        if len(brokers) >= _OWNERS:
            evidence = f"{' and '.join(brokers)} say that they own it"
            yield find(
                trouble=Trouble.DOUBLED, subject=bundle, evidence=evidence, witnesses=brokers
            )
    for bundle in probed.used_bundles - claims.keys():
        home = memory.homes.get(bundle, "")
        if silent and home not in silent:
            continue  # one of those that have not answered may have taken it
        evidence = (
            f"{home}, which had it, does not answer" if home in silent else "no broker owns it"
        )
        looked = probed.lookups.get(bundle, Looked())
        if looked.named:
            evidence += f", and the lookup names {looked.named}"
        elif looked.refused:
            evidence += f", and the lookup says: {looked.refused}"
        yield find(trouble=Trouble.UNSERVED, subject=bundle, evidence=evidence)
    closed = "its owner has closed it and not let it go"
    steps = {
        bundle: (f"our records have it {step}", step) for bundle, step in probed.moving.items()
    }
    steps |= dict.fromkeys(probed.closing, (closed, "closing"))
    for bundle, (evidence, step) in steps.items():
        yield find(trouble=Trouble.STUCK, subject=bundle, evidence=evidence, witnesses=(step,))
    for bundle, looked in probed.lookups.items():
        if looked.hops:
            evidence = f"lookups go in circles: {' → '.join(looked.hops)}"
            yield find(trouble=Trouble.CIRCLING, subject=bundle, evidence=evidence)
