"""The split rules and algorithms by name, each with its rule in one line.

`ballast strategies` and the documentation list them. The job runs the first rule, the others are
Pulsar's, to compare it with. Source: Pulsar 4.0.8's class names; the short names are ours.
"""

from dataclasses import dataclass

from lbcore.plan.split.algorithms import SplitAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """A rule that says which bundles are split.

    name: ours; pulsar_class: simple name of Pulsar's class, "" for a rule of ours; summary: one
    line.
    """

    name: str
    pulsar_class: str
    summary: str


RULES = (
    SplitRule(
        name="ballast",
        pulsar_class="",
        summary="Over one of four limits in more than `hit_count_threshold` fresh observations in "
        "a row: the worst first, each into as many parts as it is over its limit.",
    ),
    SplitRule(
        name="extensible",
        pulsar_class="DefaultNamespaceBundleSplitStrategyImpl",
        summary="For comparison, never run: each broker for its own bundles, in the order of its "
        "map: over a limit in more than `hit_count_threshold` cycles in a row, at one boundary.",
    ),
    SplitRule(
        name="modular",
        pulsar_class="BundleSplitterTask",
        summary="For comparison, never run: the leader for all bundles: over a limit once, by "
        "long-term averages, without hit counts and without a limit a cycle.",
    ),
)

ALGORITHM_SUMMARIES = {
    SplitAlgorithm.RANGE: "In halves of equal width, whatever the topics.",
    SplitAlgorithm.TOPIC_COUNT: "With as many topics on each side.",
    SplitAlgorithm.SPECIFIED_POSITIONS: "At the positions that the command names; needs 2 topics.",
    SplitAlgorithm.SPECIFIED_POSITIONS_FORCED: "At the positions that the command names.",
    SplitAlgorithm.FLOW_OR_QPS: "Wherever the next topic would take a part over a rate limit.",
}
