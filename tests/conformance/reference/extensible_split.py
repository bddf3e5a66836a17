"""The extensible manager's split rule, to the letter: what one broker splits of its own bundles.

Decides which of a broker's bundles it would split in one cycle, with the hit counts that it keeps.
The job runs `lbcore.plan.phases.split` instead, whose limits are held to this one's.
Source: Pulsar 4.0.8, DefaultNamespaceBundleSplitStrategyImpl.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import (
    BundleRange,
    InvalidRangeError,
    children_of,
    parse_range_leniently,
)
from lbcore.model.names import split_bundle_name
from lbcore.plan.split.decision import SplitReason

FAILED = f"Failure/{SplitReason.UNKNOWN.value}"
"""The counter's key of everything that goes wrong."""


class LookupFailedError(LookupError):
    """Pulsar could not find something out: a namespace's bundle count, a bundle's boundaries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBundle:
    """One bundle as its broker sees it now.

    sessions: producers and consumers. msg_rate: msg/s, throughput: bytes/s, in and out together.
    """

    name: str
    topics: int
    sessions: int
    msg_rate: float
    throughput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """What the rule asks its broker and the cluster.

    broker: its own name. is_owner: whether it owns a bundle (full name as reported). bundle_count:
    of a namespace; boundaries_of: the default algorithm's answer for (namespace, range), None = no
    split; both may raise LookupFailedError. splitting: full names of all bundles now in Splitting.
    """

    broker: str
    is_owner: Callable[[str], bool]
    bundle_count: Callable[[str], int]
    boundaries_of: Callable[[str, BundleRange], Sequence[int] | None]
    splitting: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensibleSplit:
    """One bundle to split in two; the broker stays the owner of both children."""

    bundle: str
    broker: str
    reason: SplitReason
    children: tuple[BundleRange, BundleRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensibleState:
    """Kept between cycles. hits: by bundle; counter: "Label/Reason" -> failures so far."""

    hits: Mapping[str, int] = field(default_factory=dict)
    counter: Mapping[str, int] = field(default_factory=dict)


def decide_extensible_splits(
    bundles: Sequence[SeenBundle], state: ExtensibleState, config: Splitting, view: BrokerView
) -> tuple[tuple[ExtensibleSplit, ...], ExtensibleState]:
    """The broker's splits of one cycle in the order of `bundles`, and the next state.

    The order matters: the cycle ends with the decision that reaches `max_splits_per_cycle`, and
    bundles after it do not even gain a hit. Only a single boundary is accepted; several, or none,
    count as a failure and keep the hits. A bundle is passed over while a bundle of a namespace
    whose text begins with its namespace's is splitting with the same lower or upper boundary text.
    O(bundles x splitting).
    """
    present = {bundle.name for bundle in bundles}
    cycle = _Cycle(
        config=config,
        view=view,
        hits={name: count for name, count in state.hits.items() if name in present},
        counter=dict(state.counter),
    )
    for bundle in bundles:
        cycle.visit(bundle)
        if len(cycle.decisions) == config.max_splits_per_cycle and cycle.has_just_decided:
            break
    return tuple(cycle.decisions), ExtensibleState(hits=cycle.hits, counter=cycle.counter)


def limit_reason(bundle: SeenBundle, config: Splitting) -> SplitReason:
    """The first limit that the bundle is over; UNKNOWN for none. All comparisons are strict."""
    if bundle.topics > config.max_topics:
        return SplitReason.TOPICS
    if 0 < config.max_sessions < bundle.sessions:
        return SplitReason.SESSIONS
    if bundle.msg_rate > config.max_msg_rate_per_s:
        return SplitReason.MSG_RATE
    if bundle.throughput > config.max_throughput_bytes_per_s:
        return SplitReason.BANDWIDTH
    return SplitReason.UNKNOWN


@dataclass(slots=True, kw_only=True)
class _Cycle:
    """One run over a broker's bundles, step by step as Pulsar's loop."""

    config: Splitting
    view: BrokerView
    hits: dict[str, int]
    counter: dict[str, int]
    chosen: dict[str, int] = field(default_factory=dict)
    decisions: list[ExtensibleSplit] = field(default_factory=list)
    has_just_decided: bool = False

    def visit(self, bundle: SeenBundle) -> None:
        """One turn of the loop: at most one decision, one failure or one hit."""
        self.has_just_decided = False
        if bundle.topics < 2 or not self.view.is_owner(bundle.name):
            return
        namespace, text = split_bundle_name(bundle.name)
        target = parse_range_leniently(text)
        if not target.can_split:
            self._fail()
            return
        reason = limit_reason(bundle, self.config)
        if reason is SplitReason.UNKNOWN:
            self.hits.pop(bundle.name, None)
        else:
            self.hits[bundle.name] = self.hits.get(bundle.name, 0) + 1
        if self.hits.get(bundle.name, 0) <= self.config.hit_count_threshold:
            return
        try:
            children = self._children(namespace, text, target)
        except (LookupFailedError, InvalidRangeError):
            self._fail()
            return
        if children is not None:
            self._decide(bundle.name, namespace, reason, children)

    def _children(
        self, namespace: str, text: str, target: BundleRange
    ) -> tuple[BundleRange, BundleRange] | None:
        """The two halves; None = passed over. Raises for whatever counts as a failure."""
        count = self.view.bundle_count(namespace) + self.chosen.get(namespace, 0)
        if count >= self.config.max_namespace_bundles:
            return None
        if self._is_beside_a_split(namespace, text):
            return None
        boundaries = self.view.boundaries_of(namespace, target)
        if boundaries is None or len(boundaries) != 1:
            raise LookupFailedError(boundaries)
        lower, upper = children_of(target, boundaries)
        return lower, upper

    def _is_beside_a_split(self, namespace: str, text: str) -> bool:
        lower, _, upper = text.partition("_")
        for other in self.view.splitting:
            other_text = split_bundle_name(other)[1]
            is_touching = other_text.startswith(lower) or other_text.endswith(upper)
            if other.startswith(namespace) and is_touching:
                return True
        return False

    def _decide(
        self,
        name: str,
        namespace: str,
        reason: SplitReason,
        children: tuple[BundleRange, BundleRange],
    ) -> None:
        self.decisions.append(
            ExtensibleSplit(bundle=name, broker=self.view.broker, reason=reason, children=children)
        )
        self.chosen[namespace] = self.chosen.get(namespace, 0) + 1
        del self.hits[name]
        self.has_just_decided = True

    def _fail(self) -> None:
        self.counter[FAILED] = self.counter.get(FAILED, 0) + 1
