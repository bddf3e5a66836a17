"""The rules of Pulsar's two managers, where the conformance cases do not say why."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lbcore.config.splitting import MEBIBYTE, Splitting
from lbcore.model.bundles import BundleRange
from tests.conformance.reference.extensible_split import (
    FAILED,
    BrokerView,
    ExtensibleState,
    LookupFailedError,
    SeenBundle,
    decide_extensible_splits,
)
from tests.conformance.reference.modular_split import find_modular_splits
from tests.conformance.reference.pulsar_section import section_from_pulsar

PULSAR = section_from_pulsar(Splitting, {})
AT_ONCE = replace(PULSAR, hit_count_threshold=0)
LEFT, RIGHT = "t/a/0x00000000_0x80000000", "t/a/0x80000000_0xffffffff"


def hot(name: str, topics: int = 5) -> SeenBundle:
    return SeenBundle(name=name, topics=topics, sessions=0, msg_rate=30_001.0, throughput=0.0)


def middle(_namespace: str, target: BundleRange) -> Sequence[int] | None:
    return [(target.lower + target.upper) // 2]


VIEW = BrokerView(
    broker="b1", is_owner=lambda _: True, bundle_count=lambda _: 2, boundaries_of=middle
)


def test_pulsar_preset_has_the_defaults_of_4_0_8() -> None:
    assert PULSAR.algorithm == "range_equally_divide"
    assert (PULSAR.max_topics, PULSAR.max_sessions) == (1_000, 1_000)
    assert PULSAR.max_throughput_bytes_per_s == 100 * MEBIBYTE
    assert (PULSAR.max_children, PULSAR.require_division, PULSAR.averages) == (2, False, "long")


@pytest.mark.parametrize("answer", [None, [], [1, 2], [0x80000000]])
def test_extensible_answer_other_than_one_inner_boundary_is_a_failure(
    answer: list[int] | None,
) -> None:
    view = replace(VIEW, boundaries_of=lambda _namespace, _target: answer)
    decisions, state = decide_extensible_splits([hot(LEFT)], ExtensibleState(), AT_ONCE, view)
    assert (decisions, state.counter, state.hits) == ((), {FAILED: 1}, {LEFT: 1})


def test_extensible_single_topic_and_foreign_bundles_keep_their_hits() -> None:
    before = ExtensibleState(hits={LEFT: 2, RIGHT: 2, "gone": 5})
    view = replace(VIEW, is_owner=lambda name: name == LEFT)
    _, state = decide_extensible_splits([hot(LEFT, topics=1), hot(RIGHT)], before, AT_ONCE, view)
    assert state.hits == {LEFT: 2, RIGHT: 2}


def failing(_namespace: str) -> int:
    raise LookupFailedError("no metadata")


def test_modular_rates_are_the_long_term_averages_not_the_reports() -> None:
    report = [("b1", [hot(LEFT), hot(RIGHT)])]
    found = find_modular_splits(report, {RIGHT: (30_001.0, 0.0)}, PULSAR, lambda _: 2)
    assert found == {RIGHT: "b1"}


def test_modular_choice_counts_what_it_has_chosen_in_the_namespace() -> None:
    many = [("b1", [hot(LEFT, topics=2_000), hot(RIGHT, topics=2_000)])]
    assert find_modular_splits(many, {}, PULSAR, lambda _: 127) == {LEFT: "b1"}
    assert find_modular_splits(many, {}, PULSAR, failing) == {}
