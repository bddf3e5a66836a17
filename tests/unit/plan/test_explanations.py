"""Explanations of the planner: thresholds, blocked brokers, strategy records, remembered state."""

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from lbcore.balancer.candidate_rows import ENDED, count_message, remedy_messages
from lbcore.balancer.effects import to_json
from lbcore.balancer.merges import COLD
from lbcore.config.placement import PLACEMENT, SHEDDING, PlacementConfig, java_class
from lbcore.config.shedding import SheddingConfig, TransferConfig
from lbcore.config.tree import SETTINGS
from lbcore.explain.reasons import SKIPS, VERDICTS, reason_message
from lbcore.packing import to_plain
from lbcore.plan import shed
from lbcore.plan.blocked import (
    NO_DESTINATION,
    NO_GAIN,
    BlockedBroker,
    blocked_brokers,
    givers,
    stuck,
)
from lbcore.plan.decision import (
    CandidateVerdict,
    Hot,
    Plan,
    PlanState,
    Scope,
    Skip,
    Trace,
    TriggerRows,
)
from lbcore.plan.filter.index import FilterVerdict
from lbcore.plan.pending import COLUMNS, PendingMove, UnreportedLoad
from lbcore.plan.planner import plan
from lbcore.plan.registry import (
    PLACE,
    PLACEMENT_STRATEGIES,
    SHED,
    SHEDDING_STRATEGIES,
    STRATEGIES,
    placement_name,
    shedding_name,
)
from lbcore.plan.shed.ballast_problem import SUSPENDED
from lbcore.plan.shed.common import TransferState
from lbcore.plan.shed.custom import REASON as CUSTOM
from lbcore.plan.shed.transfer import Reason
from lbcore.plan.split.decision import REASONS, SplitVerdict
from lbcore.plan.strategy import Strategy
from lbcore.signals.usage import weighted_usage
from tests.sim.test_blocked import Cycle, random_cycle
from tests.support.values.clusters import Sections, cluster_of

CYCLE_MS = 10_000
FULL = {"cold": [1_000.0] * 10, "hot": [9_000.0] * 10, "mild": [3_000.0] * 10}
HOT = {"cold": [1_000.0] * 10, "hot": [6_000.0] * 10, "mild": [3_000.0] * 10}


def traced(cycles: int, strategy: str, **settings: object) -> tuple[Trace, bool]:
    """The trace of the last of some cycles, and whether it decided something."""
    (*_, answer) = itertools.islice(answers(HOT, strategy, **settings), cycles)
    return answer.trace, isinstance(answer, Plan)


def answers(
    bundles: Mapping[str, Sequence[float]], strategy: str, flapping: str = "", **settings: object
) -> Iterator[Plan | Skip]:
    """What cycle after cycle answers, on fresh reports of loads that never change."""
    config, state = config_of_gauge(strategy, **settings), PlanState()
    for cycle in itertools.count(1):
        seen = cluster_of(bundles, is_flapping=np.array([name == flapping for name in bundles]))
        usage = seen.brokers.percent[:, 0] / 100
        seen = replace(
            seen,
            brokers=replace(
                seen.brokers,
                updated_at_ms=np.full(len(usage), cycle * CYCLE_MS - 5),
                weighted_max_ema=usage,
                throughput_ema=seen.brokers.traffic.sum(axis=1),
            ),
        )
        answer, state = plan(seen, state, config, cycle * CYCLE_MS, Scope(is_traced=True))
        yield answer


@pytest.mark.parametrize("strategy", sorted({*SHEDDING_STRATEGIES} - {"none"}))
def test_flapping_broker_without_bundles_makes_nobody_hot(strategy: str) -> None:
    even = {f"b{number}": [9_000.0] * 6 for number in range(4)} | {"b4": []}
    for answer in itertools.islice(answers(even, strategy, flapping="b4"), 6):
        assert stuck(answer) == {}
        assert not givers(answer), (
            f"{strategy} takes bundles from brokers that are all at 54 %: judge a broker against "
            "the average, or set the default threshold above that"
        )


def config_of_gauge(strategy: str, **settings: object) -> Sections:
    return Sections(
        shedding=SheddingConfig(strategy=strategy, min_throughput_mib_per_s=0.0, **settings),
        transfer=TransferConfig(hit_count_threshold=3),
        placement=PlacementConfig(strategy=SHEDDING_STRATEGIES[strategy].usual_placement),
    )


def trigger_of(trace: Trace) -> TriggerRows:
    (found,) = (part for part in trace.parts if isinstance(part, TriggerRows))
    return found


@pytest.mark.parametrize(
    ("strategy", "settings", "number", "threshold", "needed"),
    [
        ("threshold", {"threshold_percent": 40}, 60.0, 100 / 3 + 40, 1),
        ("overload", {"overloaded_threshold_percent": 85}, 60.0, 85.0, 1),
        ("overload", {"multi_hit": True, "overloaded_threshold_percent": 50}, 60.0, 50.0, 5),
        ("uniform", {"rate_difference_percent": 900, "throughput_ratio": 0}, 500.0, 900.0, 1),
        ("transfer", {}, 20.548, 25.0, 4),
    ],
)
def test_gauge_of_a_strategy_has_what_it_judges(
    strategy: str, settings: dict[str, object], number: float, threshold: float, needed: int
) -> None:
    trace, _ = traced(2, strategy, **settings)
    trigger = trigger_of(trace).trigger
    hot = trace.brokers.index("hot")
    level = next(iter(trigger.of(hot)))
    assert trigger.number[hot] == pytest.approx(number, rel=1e-3)
    assert level["threshold"] == pytest.approx(threshold)
    assert level["needed"] == needed


@pytest.mark.parametrize("multi_hit", [False, True])
@pytest.mark.parametrize("strategy", SHEDDING_STRATEGIES)
def test_strategy_acts_where_its_gauge_has_reached_a_level(
    strategy: str, *, multi_hit: bool
) -> None:
    cycles = list(itertools.islice(answers(FULL, strategy, multi_hit=multi_hit), 20))
    first = next((one for one in cycles if isinstance(one, Plan)), None)
    assert first is not None, f"{strategy} gives nothing in FULL: change it, so that it does"
    trigger = trigger_of(first.trace).trigger
    needed = (trigger.levels[0].needed, trigger.levels[-1].needed)
    told = SHEDDING_STRATEGIES[strategy].hits_needed(config_of_gauge(strategy, multi_hit=multi_hit))
    assert told == needed, (
        f"with multi_hit={multi_hit}, hits_needed of {strategy}'s record is not what its trigger "
        "counts: a rule that reads multi_hit has hits_needed=multi_hits, one that doesn't uses "
        "one_level in its trigger, not multi_hit_levels"
    )
    givers = {first.trace.brokers.index(one.source) for one in first.decisions}
    reached = {
        giver
        for giver in givers
        for level in trigger.levels
        if trigger.number[giver] >= level.threshold[giver] - 1e-9
    }
    assert reached, (
        f"{strategy} has taken bundles, but no giver's number is at a threshold of the `trigger` "
        "of its record: make one by what it judges by (lbcore/plan/shed/common.py)"
    )


def blocked_in(cycle: Cycle) -> tuple[BlockedBroker, ...]:
    result = cycle.plan()
    usage = weighted_usage(cycle.snapshot.brokers.percent, cycle.config.signals)
    mean = np.full(len(usage), usage.mean())
    return blocked_brokers(result.trace, stuck(result), usage, mean)


def test_counts_add_up_to_the_bundles_and_the_words_have_each() -> None:
    reasons: Counter[str] = Counter()
    for seed in range(200):
        cycle = random_cycle(Random(seed))
        names, owner = cycle.snapshot.brokers.names, cycle.snapshot.bundles.owner
        for one in blocked_in(cycle):
            owned = int((owner == names.index(one.broker)).sum())
            assert sum(one.counts.values()) == one.bundles == owned, seed
            assert one.reason == one.verdict or one.counts[one.reason], seed
            words = count_message({"inputs": to_json(asdict(one))})
            counted = [int(part) for part in re.findall(r"(?:^|, )(\d+)", words)]
            assert sum(counted) == owned, (seed, words)
            reasons[one.reason] += 1
    assert {"recently_unloaded", "excluded_namespace", "in_flight"} <= set(reasons), reasons


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("pinned", "1 of its 3 bundles is pinned to it"),
        (
            "recently_unloaded",
            "1 of its 3 bundles moved a short while ago, or is in a rejected plan",
        ),
        ("merging", "1 of its 3 bundles waits for its merge with a neighbour"),
        ("no_destination", "1 of its 3 bundles found no destination"),
    ],
)
def test_one_bundle_has_a_verb_of_its_own(name: str, stated: str) -> None:
    inputs = {"bundles": 3, "counts": {name: 1, "excluded_namespace": 2}, "verdict": "taken"}
    row = {"inputs": to_json(inputs)}
    assert stated.removeprefix("1 of its 3 bundles") in count_message(row)
    assert any(words.startswith(stated) for words in remedy_messages(row, ""))


@pytest.mark.parametrize(
    "name",
    ["in_flight_limit", "broker_limit", "system_namespace", "draining", "not_in_policy"],
)
def test_remedy_of_what_no_setting_bounds_names_none(name: str) -> None:
    inputs = {"bundles": 3, "counts": {name: 3}, "verdict": "taken"}
    (words,) = remedy_messages({"inputs": to_json(inputs)}, "")
    assert "ballast config set" not in words


@pytest.mark.parametrize("name", ["over_budget", "in_flight", "merging", "system_namespace"])
def test_bundles_that_nothing_lets_move_now_have_no_remedy_for_now(name: str) -> None:
    inputs = {"bundles": 3, "counts": {name: 3}, "verdict": "taken"}
    (words,) = remedy_messages({"inputs": to_json(inputs)}, "")
    assert "To allow it now" not in words
    assert ". They " in words or ". The next round " in words


CLASSES = {SHED: SHEDDING, PLACE: PLACEMENT}
NAMES = {SHED: shedding_name, PLACE: placement_name}
ALL = [(kind, one) for kind, found in STRATEGIES.items() for one in found]


def _name(value: object) -> str:
    return value.name if isinstance(value, Strategy) else str(value)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_registry_has_each_name_once_and_every_class_of_pulsar(kind: str) -> None:
    classes = {one.name: one.pulsar_class for one in STRATEGIES[kind]}
    assert len(classes) == len(STRATEGIES[kind])
    assert {name: cls for name, cls in classes.items() if cls} == CLASSES[kind]


@pytest.mark.parametrize(("kind", "one"), ALL, ids=_name)
def test_registry_finds_a_strategy_by_either_name(kind: str, one: Strategy) -> None:
    known: Mapping[str, Strategy] = {SHED: SHEDDING_STRATEGIES, PLACE: PLACEMENT_STRATEGIES}[kind]  # type: ignore[assignment]
    assert known[NAMES[kind](one.name)] is one
    if one.pulsar_class:
        assert known[NAMES[kind](java_class(one.pulsar_class))] is one
    assert all(entry.setting.doc for entry in one.entries())


def test_setting_that_names_strategies_is_read_by_them_alone() -> None:
    """The words before the colon of a setting's text: "avg: ...", "threshold, overload: ..."."""
    told = {
        key: set(found[1].split(", "))
        for key, entry in SETTINGS.items()
        if (found := re.match(r"([a-z_, ]+): ", entry.setting.doc))
    }
    by_strategies = {
        key: names
        for key, names in told.items()
        if names <= {*SHEDDING_STRATEGIES} and not names & {*SETTINGS[key].setting.choices}
    }
    readers = {
        key: {one.name for one in SHEDDING_STRATEGIES.values() if key in one.settings}
        for key in by_strategies
    }
    assert by_strategies
    assert readers == by_strategies


def _reasons(tree: ast.AST) -> Iterator[str]:
    """What is passed as `reason`, or given back by a function that is named so."""
    for node in ast.walk(tree):
        where: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg == "reason":
            where = [node.value]
        elif isinstance(node, ast.FunctionDef) and node.name.strip("_") == "reason":
            where = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
        for one in (found for part in where for found in ast.walk(part)):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def test_reason_that_a_shedding_rule_gives_has_words() -> None:
    files = Path(str(shed.__file__)).parent.glob("*.py")
    given = {found for path in files for found in _reasons(ast.parse(path.read_text("utf-8")))}
    of_moves = {"Overloaded", "Underloaded", "Crowded"}  # the first two as in Pulsar's metrics
    assert {"HitCount", "NoBundles", "Overloaded"} <= given
    assert given - {"", *SKIPS, *of_moves} == set(), (
        "take a reason that is there, or give it a sentence in SKIPS (lbcore/explain/reasons.py);"
        f" a move's is one of {sorted(of_moves)}"
    )


def _texts(value: ast.AST | None) -> Iterator[str]:
    """The texts that an expression may have as its value, or as a value of its map."""
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Dict(values=values):
            yield from (text for one in values for text in _texts(one))
        case ast.IfExp(body=first, orelse=second):
            yield from (*_texts(first), *_texts(second))
        case ast.DictComp(value=inner) | ast.Attribute(value=inner):
            yield from _texts(inner)
        case ast.Call(func=func, args=[*_, last]):
            yield from (*_texts(func), *_texts(last))


def test_verdict_that_a_shedding_rule_gives_has_words() -> None:
    files = Path(str(shed.__file__)).parent.glob("*.py")
    trees = [ast.parse(path.read_text("utf-8")) for path in files]
    given = {
        text
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Return | ast.Assign) or getattr(node, "arg", "") == "verdicts"
        for text in _texts(getattr(node, "value", None))
        if re.fullmatch("[a-z]+(_[a-z]+)+", text)
    }
    assert {"too_few_hits", "sole_bundle", "below_min_throughput", "churn_budget"} <= given
    assert given - VERDICTS.keys() == set(), (
        "take a verdict that is there, or give it words in VERDICTS (lbcore/explain/reasons.py)"
    )


LABELS = {
    *(one.label for one in FilterVerdict),
    *(one.value for kind in (CandidateVerdict, SplitVerdict, Reason) for one in kind),
    *(one.value for one in REASONS),
    *(NO_DESTINATION, NO_GAIN, SUSPENDED, COLD, CUSTOM),
}


def test_label_that_the_planner_writes_has_a_sentence() -> None:
    assert {label for label in LABELS if reason_message(label) == label} == {"split"}


def test_sentence_of_a_label_is_true_of_the_decisions_that_have_it() -> None:
    assert "enough reports" in reason_message("HitCount")  # of transfer also without a hot broker
    assert "your own strategy" in reason_message("Proposed", "transfer")
    assert reason_message("Proposed", "plan") == "it waits for somebody"
    assert reason_message(ENDED, "blocked") == "the broker is no longer blocked"
    assert "broker is" not in reason_message(ENDED, "full") + reason_message(ENDED, "silence")


GONE, THERE = "gone", "there"


def filled(value: Any) -> Any:
    """The same state, with both names in every mapping by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{one.name: filled(getattr(value, one.name)) for one in fields(value)}
        )
    return {GONE: 1, THERE: 1} if isinstance(value, dict) else value


def mappings(value: Any, path: str = "") -> dict[str, Any]:
    """Each mapping of a state by where it is."""
    if isinstance(value, dict):
        return {path: value}
    if not is_dataclass(value):
        return {}
    found: dict[str, Any] = {}
    for one in fields(value):
        found |= mappings(getattr(value, one.name), f"{path}.{one.name}")
    return found


def test_nothing_is_remembered_of_what_is_gone_in_any_field() -> None:
    state = filled(PlanState())
    known = mappings(state)
    assert len(known) > 15
    left = mappings(state.without(brokers={GONE}, bundles={GONE}))
    not_by_name = {".own", ".shed.crowded", ".hourly"}
    # reasons; what a user's strategy keeps for itself; topics, anew in each round; tenants, for an
    # hour
    assert {path for path, names in left.items() if GONE in names} == not_by_name
    assert all(THERE in names for names in left.values())


NOW_MS, FUTURE_MS = 1_000, 5_000
IN_FUTURE = PlanState(
    transfer=TransferState(unloaded_brokers={"a": FUTURE_MS}),
    judged={"a": (FUTURE_MS, FUTURE_MS)},
    split_judged={"a": (FUTURE_MS, FUTURE_MS)},
    moves={
        "n/0": PendingMove(source="a", destination="b", decided_ms=FUTURE_MS, load=(0.0,) * COLUMNS)
    },
    unseen={"a": UnreportedLoad(report_ms=FUTURE_MS, shown=(), load=(), busy_ms=FUTURE_MS)},
    unloaded_ms={"n/0": FUTURE_MS, "n/1": 7},
    gave_ms={"a": FUTURE_MS},
    took_ms={"b": FUTURE_MS},
    hot={"a": Hot(since_ms=FUTURE_MS, told_ms=FUTURE_MS)},
    hourly={"acme": ((7, 2), (FUTURE_MS, 3))},
)


def numbers(plain: Any) -> Iterator[float]:
    """Every number of a state as plain data."""
    if isinstance(plain, dict):
        plain = list(plain.values())
    if isinstance(plain, (list, tuple)):
        for one in plain:
            yield from numbers(one)
    elif isinstance(plain, (int, float)):
        yield plain


def test_what_a_wrong_clock_told_of_the_future_is_of_now_in_every_field() -> None:
    named = {one.name for one in fields(PlanState) if one.name.endswith(("_ms", "judged"))}
    assert all(getattr(IN_FUTURE, name) for name in (*named, "moves", "unseen", "hot", "hourly"))
    row = to_plain(IN_FUTURE.without_future_times(NOW_MS))
    assert max(numbers(row)) == NOW_MS
    assert row["unloaded_ms"]["n/1"] == 7
    assert row == to_plain(IN_FUTURE.without_future_times(NOW_MS).without_future_times(FUTURE_MS))
