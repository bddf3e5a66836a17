"""Verdicts on answers of lookups, by the whole history of ownership.

Right, wrong, unavailable or failed, and the time until a decision showed. It reads
`ownership_events` by itself and shares no code with the service that it judges; `jobs.local.prober`
does the I/O.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from lbcore.model.bundles import BundleRange, HashFunction, hash_topic
from lbcore.model.names import InvalidNameError, namespace_of_topic, parse_bundle
from lbcore.ownership.records import State
from lbcore.ownership.states import RESHAPING

FAR_MS = 1 << 62
LONG_AGO = -1
"""Table version of transitions before the judge began: known, but not measured."""

_ANSWERED_BY_DESTINATION = frozenset({State.OWNED, State.ASSIGNING, State.RELEASING})
_SETTLED = frozenset({State.OWNED}) | RESHAPING


class LookupVerdict(str, Enum):
    """Verdict on a lookup; the value is the word in the summary.

    right: the broker was the owner within the staleness that the service declared. wrong: it never
    was in that time. unavailable: the service answered *later* while the bundle had no settled
    owner. failed: everything else (refused, timed out, an error, *later* without a reason).
    """

    RIGHT = "right"
    WRONG = "wrong"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent:
    """The columns of a row of ownership_events that the judge needs.

    decided_at_ms: the batch's `now_ms`. table_version: its commit. committed_from_ms,
    committed_to_ms: wall times between which the commit became readable.
    """

    bundle: str
    version_id: int
    state: State
    source: str
    destination: str
    decided_at_ms: int
    table_version: int
    committed_from_ms: int
    committed_to_ms: int

    @property
    def answer(self) -> str:
        """The right answer to a lookup in this state; "" = none yet."""
        if self.state in _ANSWERED_BY_DESTINATION:
            return self.destination
        return self.source if self.state in RESHAPING else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedAnswer:
    """Answer to one lookup, with the prober's wall-clock times.

    broker: the owner in the answer, "" = none. bundle: as the service named it. age_ms: the age
    that it declared. asked_later: 503 with Retry-After. error: any other failure, "" = none.
    """

    topic: str
    asked_at_ms: int
    answered_at_ms: int
    broker: str = ""
    bundle: str = ""
    age_ms: int = 0
    table_version: int = -1
    asked_later: bool = False
    error: str = ""


class OwnershipHistory:
    """Every transition of every bundle, in the order of the table's commits."""

    def __init__(self, hash_functions: Mapping[str, HashFunction]) -> None:
        """hash_functions: namespace → hash function of its topics."""
        self._hash_functions = dict(hash_functions)
        self._chains: dict[str, list[JudgedEvent]] = {}

    def add(self, transitions: Iterable[JudgedEvent]) -> None:
        """Append transitions that were committed after all earlier ones."""
        for transition in transitions:
            self._chains.setdefault(transition.bundle, []).append(transition)

    def bundle_at(self, topic: str, bundle: str) -> bool:
        """True if the topic hashes into the bundle, which is of the topic's namespace."""
        try:
            namespace, lower, upper = parse_bundle(bundle)
            wanted = namespace_of_topic(topic)
        except InvalidNameError:
            return False
        if namespace != wanted or namespace not in self._hash_functions:
            return False
        position = hash_topic(self._hash_functions[namespace], topic)
        return BundleRange(lower, upper).includes(position)

    def during(self, bundle: str, from_ms: int, to_ms: int) -> list[JudgedEvent]:
        """Return the records that may have been current at a time in [from_ms, to_ms].

        A record counts from the earliest moment of its commit to the latest of its successor's.
        """
        chain = self._chains.get(bundle, [])
        last = bisect_right(chain, to_ms, key=lambda transition: transition.committed_from_ms)
        ends = (*(one.committed_to_ms for one in chain[1 : last + 1]), FAR_MS)
        return [
            one for one, ended_ms in zip(chain[:last], ends, strict=False) if ended_ms >= from_ms
        ]

    def judge(self, answer: ProbedAnswer, clock_allowance_ms: int) -> LookupVerdict:
        """Return the verdict on one answer, once all commits up to its time are here.

        The broker must have been right for the topic's bundle at a time in [asked − age −
        allowance, answered + allowance]: the service answered between asked and answered, with data
        at most `age` old. The allowance covers the difference of the clocks of prober, table and
        service. O(bundles) for *later*.
        """
        if answer.error:
            return LookupVerdict.FAILED
        from_ms = answer.asked_at_ms - answer.age_ms - clock_allowance_ms
        to_ms = answer.answered_at_ms + clock_allowance_ms
        if answer.asked_later:  # right unless the bundle was settled all the time
            states = [
                one.state
                for bundle in self._chains
                if self.bundle_at(answer.topic, bundle)
                for one in self.during(bundle, from_ms, to_ms)
            ]
            was_settled = bool(states) and _SETTLED.issuperset(states)
            return LookupVerdict.FAILED if was_settled else LookupVerdict.UNAVAILABLE
        if not self.bundle_at(answer.topic, answer.bundle):
            return LookupVerdict.WRONG
        current = self.during(answer.bundle, from_ms, to_ms)
        owners = {transition.answer for transition in current} - {""}
        return LookupVerdict.RIGHT if answer.broker in owners else LookupVerdict.WRONG


class Visibility:
    """Delay from decisions until lookups show them."""

    def __init__(self) -> None:
        self._seen_at_ms: dict[int, int] = {}
        self._highest = -1

    def see(self, table_version: int, at_ms: int) -> None:
        """Note that a lookup showed this version of the table, or a newer one, then."""
        if table_version > self._highest:
            self._highest = table_version
            self._seen_at_ms[table_version] = at_ms

    def latencies_ms(self, transitions: Iterable[JudgedEvent]) -> tuple[list[int], int]:
        """Return latencies from decision to first answer, and the number never shown.

        Counted are transitions that change a lookup's broker, without those of LONG_AGO; a bundle's
        come in order.
        """
        versions = sorted(self._seen_at_ms)
        before: dict[str, str] = {}
        latencies, unseen = [], 0
        for transition in transitions:
            is_new = transition.answer not in ("", before.get(transition.bundle))
            before[transition.bundle] = transition.answer
            if not is_new or transition.table_version == LONG_AGO:
                continue
            index = bisect_right(versions, transition.table_version - 1)
            if index == len(versions):
                unseen += 1
            else:
                latencies.append(self._seen_at_ms[versions[index]] - transition.decided_at_ms)
        return latencies, unseen
