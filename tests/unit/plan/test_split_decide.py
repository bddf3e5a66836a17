"""The split phase on small clusters: hits, verdicts, caps, the namespace's maximum, its state."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.splitting import Splitting
from lbcore.model.names import parse_range
from lbcore.plain import from_plain, to_plain
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.split.algorithms import SplitAlgorithm, TopicLoads
from lbcore.plan.split.decide import decide_splits
from lbcore.plan.split.decision import (
    EMPTY_STATE,
    SplitDecision,
    SplitReason,
    SplitState,
    SplitVerdict,
)
from tests.support.values.clusters import broker_table, bundle_table, snapshot

HOT = [20_000.0, 20_000.0, 0.0, 0.0]
COLD = [1.0, 1.0, 0.0, 0.0]
AT_ONCE = Splitting(hit_count_threshold=0)
LEFT, RIGHT = "t/a/0x00000000_0x80000000", "t/a/0x80000000_0xffffffff"


def cluster(traffic: Mapping[str, Sequence[float]], **columns: object) -> Snapshot:
    """One broker that owns bundles with these short-term averages; 5 topics each."""
    count = len(traffic)
    given = {
        "short": np.array(list(traffic.values()), dtype=np.float64),
        "owner": np.zeros(count, dtype=np.int64),
        "topics": np.full(count, 5, dtype=np.int64),
    }
    return snapshot(broker_table(["b1"]), bundle_table(list(traffic), **(given | columns)))


def nothing(_bundle: str) -> TopicLoads | None:
    return None


def run(
    view: Snapshot,
    state: SplitState = EMPTY_STATE,
    config: Splitting = AT_ONCE,
    topics_of: Callable[[str], TopicLoads | None] = nothing,
    blocked: Sequence[str] = (),
) -> tuple[tuple[SplitDecision, ...], SplitState, dict[str, SplitVerdict]]:
    mask = np.array([name in blocked for name in view.bundles.names], dtype=np.bool_)
    decisions, after, trace = decide_splits(view, state, config, topics_of, mask)
    names, verdicts = view.bundles.names, tuple(SplitVerdict)
    seen = {
        names[at]: verdicts[code]
        for at, code in zip(trace.bundle.tolist(), trace.verdict.tolist(), strict=True)
    }
    return decisions, from_plain(SplitState, json.loads(json.dumps(to_plain(after)))), seen


def test_hot_bundle_is_split_with_everything_that_explains_it() -> None:
    decisions, _, seen = run(cluster({LEFT: HOT, RIGHT: COLD}))
    assert decisions == (
        SplitDecision(
            bundle=0,
            name=LEFT,
            broker="b1",
            reason=SplitReason.MSG_RATE,
            algorithm=SplitAlgorithm.RANGE,
            boundaries=(0x40000000,),
            children=("t/a/0x00000000_0x40000000", "t/a/0x40000000_0x80000000"),
            is_adjusted=False,
            place_children=True,
            hits=1,
            excess=40_000 / 30_000,
        ),
    )
    assert seen == {LEFT: SplitVerdict.SPLIT}


@pytest.mark.parametrize(
    ("topics", "sessions", "traffic", "reason"),
    [
        (1_001, 1_001, HOT, SplitReason.TOPICS),
        (1_000, 1_001, HOT, SplitReason.SESSIONS),
        (1_000, 1_000, HOT, SplitReason.MSG_RATE),
        (5, 5, [30_000.0, 0.0, 0.0, 104_857_601.0], SplitReason.BANDWIDTH),
        (1_000, 1_000, [30_000.0, 0.0, 52_428_800.0, 52_428_800.0], None),
    ],
)
def test_reason_is_the_first_limit_that_is_exceeded_strictly(
    topics: int, sessions: int, traffic: list[float], reason: SplitReason | None
) -> None:
    counts = {"topics": np.array([topics]), "sessions": np.array([sessions])}
    decisions, _, _ = run(cluster({LEFT: traffic}, **counts))
    assert [decision.reason for decision in decisions] == ([] if reason is None else [reason])


@pytest.mark.parametrize("limit", [0, -1])
def test_session_limit_of_zero_or_less_is_none(limit: int) -> None:
    view = cluster({LEFT: COLD}, sessions=np.array([10**6]))
    assert run(view, config=replace(AT_ONCE, max_sessions=limit))[0] == ()


def test_fourth_observation_over_a_limit_splits_with_threshold_three() -> None:
    view, state = cluster({LEFT: HOT}), SplitState()
    counted = []
    for _ in range(4):
        decisions, state, _ = run(view, state, Splitting())
        counted.append((len(decisions), dict(state.hits)))
    assert counted == [(0, {LEFT: 1}), (0, {LEFT: 2}), (0, {LEFT: 3}), (1, {})]


def test_stale_report_is_no_hit() -> None:
    view = cluster({LEFT: HOT})
    stale = replace(view, brokers=replace(view.brokers, is_fresh=np.array([False])))
    _, state, seen = run(stale, SplitState(hits={LEFT: 2}), Splitting())
    assert (state.hits, seen) == ({LEFT: 2}, {LEFT: SplitVerdict.HIT_COUNT})


def test_observation_below_the_limits_forgets_the_hits() -> None:
    _, state, _ = run(cluster({LEFT: COLD}), SplitState(hits={LEFT: 3, RIGHT: 3}), Splitting())
    assert state.hits == {}


def test_long_term_averages_are_used_when_configured() -> None:
    view = cluster({LEFT: HOT}, long=np.array([COLD]))
    assert run(view, config=replace(AT_ONCE, averages="long"))[0] == ()


@pytest.mark.parametrize(
    ("columns", "blocked", "verdict"),
    [
        ({"owner": np.array([-1])}, (), SplitVerdict.UNOWNED),
        ({}, (LEFT,), SplitVerdict.IN_FLIGHT),
        ({"topics": np.array([1])}, (), SplitVerdict.SINGLE_TOPIC),
    ],
)
def test_bundle_that_cannot_be_split_now_says_why(
    columns: dict[str, object], blocked: tuple[str, ...], verdict: SplitVerdict
) -> None:
    judged_before = SplitState(hits={LEFT: 9})
    decisions, _, seen = run(cluster({LEFT: HOT}, **columns), judged_before, blocked=blocked)
    assert (decisions, seen) == ((), {LEFT: verdict})


def test_bundle_in_flight_keeps_its_hits_and_is_split_when_owned() -> None:
    view = cluster({LEFT: HOT})
    _, state, _ = run(view, blocked=(LEFT,))
    assert state.hits == {LEFT: 1}
    assert len(run(view, state)[0]) == 1


def test_worst_bundles_are_split_first_within_the_cycles_limit() -> None:
    names = [f"t/n{index}/0x00000000_0xffffffff" for index in range(4)]
    heat = [40_000.0, 90_000.0, 40_000.0, 60_000.0]
    view = cluster({name: [rate, 0, 0, 0] for name, rate in zip(names, heat, strict=True)})
    decisions, state, seen = run(view, config=replace(AT_ONCE, max_splits_per_cycle=3))
    assert [decision.name for decision in decisions] == [names[1], names[3], names[0]]
    assert seen[names[2]] is SplitVerdict.CYCLE_LIMIT
    assert state.hits == {names[2]: 1}


def test_namespace_gets_no_more_bundles_than_its_maximum() -> None:
    view = cluster({LEFT: [150_000.0, 0, 0, 0], RIGHT: HOT})
    decisions, _, seen = run(view, config=replace(AT_ONCE, max_namespace_bundles=4))
    assert [len(decision.children) for decision in decisions] == [3]
    assert seen == {LEFT: SplitVerdict.SPLIT, RIGHT: SplitVerdict.NAMESPACE_FULL}


def test_full_namespace_is_not_split_and_others_are() -> None:
    other = "t/b/0x00000000_0xffffffff"
    view = cluster({LEFT: HOT, RIGHT: HOT, other: HOT})
    decisions, _, _ = run(view, config=replace(AT_ONCE, max_namespace_bundles=2))
    assert [decision.name for decision in decisions] == [other]


def test_split_under_way_counts_towards_the_namespaces_maximum() -> None:
    view, config = cluster({LEFT: HOT, RIGHT: HOT}), replace(AT_ONCE, max_namespace_bundles=3)
    decisions, state, _ = run(view, config=config)
    assert [decision.name for decision in decisions] == [LEFT]
    assert run(view, state, config, blocked=(LEFT,))[0] == ()
    assert [each.name for each in run(view, state, config)[0]] == [LEFT]


def test_children_stay_with_the_owner_when_configured() -> None:
    config = replace(AT_ONCE, auto_unload_split_bundles=False)
    assert not run(cluster({LEFT: HOT}), config=config)[0][0].place_children


def one_hot(bundle: str) -> TopicLoads:
    """One hot topic at 0x12345678 and four idle ones, those of the bundle's range only."""
    lower, upper = parse_range(bundle.rpartition("/")[2])
    hashes = np.array([0x12345678, 0x10, 0x20000000, 0x60000000, 0x7FFFFFFF])
    inside = (hashes >= lower) & (hashes < upper)
    return TopicLoads(
        hashes=hashes[inside],
        msg_rate=np.array([40_000.0, 0, 0, 0, 0])[inside],
        throughput=np.zeros(int(inside.sum())),
    )


def test_one_hot_topic_is_reported_and_never_split() -> None:
    view, state = cluster({LEFT: HOT}), SplitState()
    for _ in range(10):
        decisions, state, seen = run(view, state, topics_of=one_hot)
        assert (decisions, seen) == ((), {LEFT: SplitVerdict.SINGLE_HASH})
    assert state.unsplittable == {LEFT: 5}


def test_one_hot_topic_is_split_again_once_it_is_two() -> None:
    def two_hot(_bundle: str) -> TopicLoads:
        return TopicLoads(
            hashes=np.array([16, 32]),
            msg_rate=np.array([20_000.0, 20_000.0]),
            throughput=np.zeros(2),
        )

    _, state, _ = run(cluster({LEFT: HOT}), topics_of=one_hot)
    decisions, after, _ = run(cluster({LEFT: HOT}), state, topics_of=two_hot)
    assert [decision.boundaries for decision in decisions] == [(25,)]
    assert after.unsplittable == {}


def test_unsplittable_bundles_do_not_keep_others_waiting() -> None:
    names = [f"t/n{index:02}/0x00000000_0x80000000" for index in range(12)]
    heat = [40_000.0] + [90_000.0] * 11
    view = cluster({name: [rate, 0, 0, 0] for name, rate in zip(names, heat, strict=True)})
    config = replace(AT_ONCE, max_splits_per_cycle=1)

    def topics_of(bundle: str) -> TopicLoads | None:
        return None if bundle == names[0] else one_hot(bundle)

    first, state, _ = run(view, config=config, topics_of=topics_of)
    second, _, seen = run(view, state, config, topics_of)
    assert first == ()
    assert [decision.name for decision in second] == [names[0]]
    assert set(seen.values()) == {SplitVerdict.SPLIT, SplitVerdict.SINGLE_HASH}


def test_trace_names_the_unsplittable_and_counts_the_verdicts() -> None:
    view = cluster({LEFT: HOT, RIGHT: HOT}, topics=np.array([1, 5]))
    _, _, trace = decide_splits(view, SplitState(), AT_ONCE, nothing, np.zeros(2, dtype=np.bool_))
    assert trace.unsplittable() == (0,)
    assert trace.counts() == {SplitVerdict.SPLIT: 1, SplitVerdict.SINGLE_TOPIC: 1}


def test_cluster_without_bundles_has_nothing_to_split() -> None:
    view = cluster({}, short=np.zeros((0, 4)))
    assert run(view) == ((), SplitState(), {})
