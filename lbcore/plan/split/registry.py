"""The split rules and algorithms by name, each with its rule in one line.

Decides nothing. `ballast strategies` and the documentation list them; a rule is found by our short
name or by Pulsar's class name. Source: Pulsar 4.0.8's class names; the short names are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lbcore.plan.split.algorithms import SplitAlgorithm
from lbcore.plan.split.decide import decide_splits
from lbcore.plan.split.extensible import decide_extensible_splits
from lbcore.plan.split.modular import find_modular_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """A rule that says which bundles are split.

    name: ours; pulsar_class: simple name of Pulsar's class, "" for a rule of ours; summary: one
    line; decide: the function, whose own docstring says what it takes.
    """

    name: str
    pulsar_class: str
    summary: str
    decide: Callable[..., Any]


RULES = (
    SplitRule(
        name="ballast",
        pulsar_class="",
        summary="Over one of four limits in more than `hit_count_threshold` fresh observations in "
        "a row: the worst first, each into as many parts as it is over its limit.",
        decide=decide_splits,
    ),
    SplitRule(
        name="extensible",
        pulsar_class="DefaultNamespaceBundleSplitStrategyImpl",
        summary="Each broker for its own bundles, in the order of its map: over a limit in more "
        "than `hit_count_threshold` cycles in a row, at one boundary.",
        decide=decide_extensible_splits,
    ),
    SplitRule(
        name="modular",
        pulsar_class="BundleSplitterTask",
        summary="The leader for all bundles: over a limit once, by long-term averages, without "
        "hit counts and without a limit a cycle.",
        decide=find_modular_splits,
    ),
)

ALGORITHM_SUMMARIES = {
    SplitAlgorithm.RANGE: "In halves of equal width, whatever the topics.",
    SplitAlgorithm.TOPIC_COUNT: "With as many topics on each side.",
    SplitAlgorithm.SPECIFIED_POSITIONS: "At the positions that the command names; needs 2 topics.",
    SplitAlgorithm.SPECIFIED_POSITIONS_FORCED: "At the positions that the command names.",
    SplitAlgorithm.FLOW_OR_QPS: "Wherever the next topic would take a part over a rate limit.",
}


def split_rule(name: str) -> SplitRule:
    """The rule of a short name or a Pulsar class name, with or without its package.

    Raises KeyError for another one.
    """
    simple = name.rpartition(".")[2]
    for rule in RULES:
        if simple in (rule.name, rule.pulsar_class) and simple:
            return rule
    raise KeyError(name)
