"""The guardian: lost and doubled ownership of a Pulsar cluster, seen from outside.

Decides which sights last too long to be a move, and what the admin interface may be asked to mend.
A sight is made by one round of questions; it is a finding once it was the same in every round for
`confirm_ms` (a broker of its that does not answer keeps it as it is). Each finding is mended once,
and quarantined when that has not helped. Sights are `lbcore.bridge.anomalies`'. The holding back of
a bundle that kills its owners: Databricks Dicer, KeyOfDeathDetector.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from lbcore.bridge.anomalies import Anomaly, Memory, ProbeRound, Trouble, anomalies, remember

_MINUTE_MS = 60_000
_MENDED = (Trouble.CIRCLING, Trouble.DOUBLED, Trouble.STUCK, Trouble.UNSERVED)
_PATIENT = (
    Trouble.NARROW,
    Trouble.STUCK,
    Trouble.UNREAD,
    Trouble.MISREPORTING,
    Trouble.UNRESPONSIVE,
)


class FindingStage(Enum):
    """Stage of a finding."""

    TOLD = "told"
    MENDING = "mending"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardianTimeouts:
    """Time limits in ms, and limits of what is asked of Pulsar.

    confirm_ms: a move is over by then. stuck_ms: for a bundle in transit. mend_ms: a repair has
    helped by then. again_ms: until the same is asked for again. poison_ms: deaths within this time
    count together. narrow_ms: for partitions on few brokers. unresponsive_ms: for a broker that is
    listed; a dead one is no longer listed by then. crowd: where more bundles than these have died
    with their brokers, none has killed them.
    """

    confirm_ms: int = 3_000
    stuck_ms: int = 30_000
    mend_ms: int = 20_000
    again_ms: int = 300_000
    poison_ms: int = 600_000
    narrow_ms: int = 60_000
    unresponsive_ms: int = 60_000
    crowd: int = 8
    mends_per_minute: int = 4

    def of(self, trouble: Trouble) -> int:
        """Return how long a sight must last to be a finding.

        0 for what has been waited for already.
        """
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
    since_ms: time of the first sight.
    """

    trouble: Trouble
    subject: str
    since_ms: int
    evidence: str
    stage: FindingStage = FindingStage.TOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class _LastingAnomaly:
    """A sight that goes on."""

    anomaly: Anomaly
    since_ms: int
    rounds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """State of the guardian between rounds.

    mended_ms: recent times at which Pulsar was asked for each repair. They outlast the sight: a
    repair may give the bundle another owner, with whom it is wrong again.
    """

    memory: Memory = field(default_factory=Memory)
    lasting: Mapping[tuple[Trouble, str], _LastingAnomaly] = field(default_factory=dict)
    mended_ms: Mapping[tuple[Trouble, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One round's outcome, in order of trouble and subject.

    mends: what to ask of Pulsar now. look_in_ms: a look by then confirms a sight; None = no hurry.
    """

    state: GuardState
    findings: tuple[Finding, ...]
    mends: tuple[Finding, ...] = ()
    look_in_ms: int | None = None

    @property
    def quarantined(self) -> frozenset[str]:
        """The bundles that are left alone."""
        held = (one for one in self.findings if one.stage is FindingStage.QUARANTINED)
        return frozenset(one.subject for one in held)


def judge(
    state: GuardState, seen: ProbeRound, now_ms: int, timeouts: GuardianTimeouts, *, acts: bool
) -> Judged:
    """Run the guardian's step. O(bundles).

    now_ms: never runs back. acts: Pulsar may be asked.
    """
    memory = remember(state.memory, seen, now_ms, timeouts.confirm_ms, timeouts.poison_ms)
    found = {
        (one.trouble, one.subject): one for one in anomalies(memory, seen, timeouts.crowd, now_ms)
    }
    lasting = dict(sorted(_watch(state.lasting, found, seen, now_ms), key=_order))
    sure = {key: one for key, one in lasting.items() if _is_sure(one, now_ms, timeouts)}
    mended = {
        key: at_ms for key, at_ms in state.mended_ms.items() if now_ms - at_ms < timeouts.again_ms
    }
    lately = sum(now_ms - at_ms < _MINUTE_MS for at_ms in mended.values())
    may_ask = timeouts.mends_per_minute - lately if acts else 0
    due = [key for key in sure if key[0] in _MENDED and key not in mended][: max(0, may_ask)]
    mended |= dict.fromkeys(due, now_ms)
    told = {
        key: replace(_finding(one), stage=_stage(key, mended, now_ms, timeouts, acts=acts))
        for key, one in sure.items()
    }
    kept = GuardState(memory=memory, lasting=lasting, mended_ms=mended)
    return Judged(
        state=kept,
        findings=tuple(told.values()),
        mends=tuple(told[key] for key in due),
        look_in_ms=_look_in(lasting.values(), now_ms, timeouts),
    )


def _order(item: tuple[tuple[Trouble, str], _LastingAnomaly]) -> tuple[str, str]:
    (trouble, subject), _ = item
    return trouble.value, subject


def _watch(
    before: Mapping[tuple[Trouble, str], _LastingAnomaly],
    found: Mapping[tuple[Trouble, str], Anomaly],
    seen: ProbeRound,
    now_ms: int,
) -> Iterable[tuple[tuple[Trouble, str], _LastingAnomaly]]:
    """Update the findings.

    Known ones go on while they are the same, or while nothing can be said; new ones begin.
    """
    for key in before.keys() | found.keys():
        known, anomaly = before.get(key), found.get(key)
        if anomaly is None:
            if known is not None and seen.is_unclear(known.anomaly):
                yield key, known
        elif known is not None and known.anomaly.witnesses == anomaly.witnesses:
            yield key, replace(known, anomaly=anomaly, rounds=known.rounds + 1)
        else:
            yield key, _LastingAnomaly(anomaly=anomaly, since_ms=now_ms)


def _is_sure(one: _LastingAnomaly, now_ms: int, timeouts: GuardianTimeouts) -> bool:
    needed_ms = timeouts.of(one.anomaly.trouble)
    return now_ms - one.since_ms >= needed_ms and (one.rounds > 1 or not needed_ms)


def _finding(one: _LastingAnomaly) -> Finding:
    return Finding(
        trouble=one.anomaly.trouble,
        subject=one.anomaly.subject,
        since_ms=one.since_ms,
        evidence=one.anomaly.evidence,
    )


def _stage(
    key: tuple[Trouble, str],
    mended_ms: Mapping[tuple[Trouble, str], int],
    now_ms: int,
    timeouts: GuardianTimeouts,
    *,
    acts: bool,
) -> FindingStage:
    if not acts:
        return FindingStage.TOLD
    if key[0] is Trouble.POISON:
        return FindingStage.QUARANTINED
    if key not in mended_ms:
        return FindingStage.TOLD
    is_over = now_ms - mended_ms[key] >= timeouts.mend_ms
    return FindingStage.QUARANTINED if is_over else FindingStage.MENDING


def _look_in(
    lasting: Iterable[_LastingAnomaly], now_ms: int, timeouts: GuardianTimeouts
) -> int | None:
    """Return the wait until the first finding is certain.

    Those that are certain, or far from it, can wait.
    """
    left = [
        one.since_ms + timeouts.of(one.anomaly.trouble) - now_ms
        for one in lasting
        if one.anomaly.trouble not in _PATIENT and not _is_sure(one, now_ms, timeouts)
    ]
    return max(0, min(left)) if left else None
