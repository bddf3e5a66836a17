"""A strategy of the user's own in a plan: what it proposes, and what becomes of a wrong answer."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from lbcore.config.placement import LEAST_LONG_TERM_MESSAGE_RATE, PlacementConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.config.tree import CustomStrategy
from lbcore.plan.decision import EVERYTHING, Kind, Plan, PlanState, Skip
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.planner import plan
from lbcore.plan.snapshot import Proposal, ProposedMove, Snapshot
from tests.support.values.clusters import Sections, cluster_of

NOW_MS = 1_000_000
SCOPE = replace(EVERYTHING, splits=False, is_traced=True)
BUNDLE = "t/n0/00000000"
Decide = Callable[..., Any]
POLICY = {
    "primary": ["a", "b"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}


def cluster() -> Snapshot:
    return cluster_of({"a": [30_000.0, 20_000.0], "b": [1_000.0], "c": [900.0]})


def config_with(decide: Decide | None, **own: Any) -> Sections:
    strategy = CustomStrategy(
        name="mine", origin="pack.mine:decide", digest="ab" * 32, decide=decide, **own
    )
    return Sections(
        own={"mine": strategy},
        shedding=SheddingConfig(strategy="mine"),
        placement=PlacementConfig(strategy=LEAST_LONG_TERM_MESSAGE_RATE),
    )


def planned(
    decide: Decide | None,
    state: PlanState | None = None,
    snapshot: Snapshot | None = None,
    **own: Any,
) -> tuple[Plan | Skip, PlanState]:
    before = state or PlanState(strategy="mine")
    return plan(snapshot or cluster(), before, config_with(decide, **own), NOW_MS, SCOPE)


def proposing(*moves: ProposedMove, state: Any = None, **numbers: float) -> Decide:
    def decide(*_: Any) -> Any:
        return Proposal(moves=moves, numbers=numbers), {} if state is None else state

    return decide


def test_own_strategy_moves_what_it_proposes_where_it_says() -> None:
    move = ProposedMove(bundle=BUNDLE, destination="c", numbers={"gap": 3.0})
    found, state = planned(proposing(move, state={"seen": 1}, level=7.0))
    assert isinstance(found, Plan)
    (decision,) = found.decisions
    assert (decision.kind, decision.strategy, decision.reason) == (
        Kind.TRANSFER,
        "mine",
        "Proposed",
    )
    assert (decision.bundle, decision.source, decision.destination) == (BUNDLE, "a", "c")
    assert decision.inputs["gap"] == 3.0
    assert decision.inputs["level"] == 7.0
    assert decision.inputs["code"] == "pack.mine:decide@abababababab"
    assert state.own == {"seen": 1}


def test_own_strategy_without_a_destination_leaves_it_to_placement() -> None:
    found, _ = planned(proposing(ProposedMove(bundle=BUNDLE)))
    assert isinstance(found, Plan)
    assert [one.destination for one in found.decisions] == ["c"]


def _raising(*_: Any) -> Any:
    raise KeyError("broker-7")


def _writing(snapshot: Snapshot, *_: Any) -> Any:
    snapshot.brokers.traffic[0, 0] = 0.0
    return Proposal(), {}


def _unsteady() -> Decide:
    numbers: Iterator[int] = count()
    return lambda *_: (Proposal(), {"call": next(numbers)})


WRONG = {
    "no pair": (lambda *_: Proposal(), "must return (Proposal, state), got Proposal"),
    "no proposal": (lambda *_: ([], {}), "must return a Proposal first, got list"),
    "no moves": (lambda *_: (Proposal(moves=(BUNDLE,)), {}), "moves must be ProposedMoves"),  # type: ignore[arg-type]
    "bundle": (proposing(ProposedMove(bundle="t/n/nope")), "there is no bundle 't/n/nope'"),
    "twice": (
        proposing(ProposedMove(bundle=BUNDLE), ProposedMove(bundle=BUNDLE, destination="b")),
        "must move a bundle once",
    ),
    "broker": (
        proposing(ProposedMove(bundle=BUNDLE, destination="z")),
        "there is no broker 'z' that takes part",
    ),
    "owner": (
        proposing(ProposedMove(bundle=BUNDLE, destination="a")),
        f"{BUNDLE} is on a already",
    ),
    "NaN": (proposing(level=math.nan), "the number level must be finite, got nan"),
    "NaN of a move": (
        proposing(ProposedMove(bundle=BUNDLE, numbers={"gap": math.inf})),
        "the number gap must be finite, got inf",
    ),
    "state": (proposing(state=[1]), "the state must be a dict, got list"),
    "NaN in the state": (proposing(state={"x": math.nan}), "must be plain JSON without NaN"),
    "object in the state": (proposing(state={"x": {1, 2}}), "must be plain JSON"),
    "large state": (proposing(state={"x": "y" * 1_000_001}), "must have 1000000 bytes at most"),
}


@pytest.mark.parametrize("case", WRONG)
def test_answer_that_makes_no_sense_is_a_skip_that_says_why(case: str) -> None:
    decide, words = WRONG[case]
    before = PlanState(strategy="mine", own={"kept": 1})
    found, state = planned(decide, before)
    assert isinstance(found, Skip)
    assert found.reason == "StrategyAnswer"
    assert found.skipped["strategy"].startswith("pack.mine:decide@abababababab: ")
    assert words in found.skipped["strategy"]
    assert (state.own, state.shed) == (before.own, before.shed)


@pytest.mark.parametrize(
    ("decide", "reason", "words"),
    [
        (_raising, "StrategyFailed", "raised KeyError in _raising, line"),
        (_writing, "StrategyFailed", "raised ValueError in _writing, line"),
        (_unsteady(), "StrategyUnsteady", "asked twice, it answered differently"),
    ],
)
def test_strategy_that_fails_is_a_skip_that_says_where(
    decide: Decide, reason: str, words: str
) -> None:
    before = PlanState(strategy="mine", own={"kept": 1})
    found, state = planned(decide, before)
    assert isinstance(found, Skip)
    assert found.reason == reason
    assert words in found.skipped["strategy"]
    assert (state.own, state.shed) == (before.own, before.shed)


def test_strategy_that_is_not_there_is_a_skip_that_says_what_to_do() -> None:
    found, _ = planned(None, problem="install it")
    assert isinstance(found, Skip)
    assert (found.reason, found.skipped["strategy"]) == ("StrategyMissing", "install it")


def test_memory_that_ran_out_is_the_machines_and_not_the_strategys() -> None:
    def decide(*_: Any) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        planned(decide)


def test_destination_that_a_policy_forbids_costs_that_move_only() -> None:
    policy = IsolationPolicy.from_json("p", {**POLICY, "namespaces": ["t/n0"]})
    snapshot = replace(cluster(), policies=Policies(isolation=(policy,)))
    moves = (ProposedMove(bundle=name, destination="c") for name in (BUNDLE, "t/n1/00000001"))
    found, _ = planned(proposing(*moves), snapshot=snapshot)
    assert isinstance(found, Plan)
    assert [(one.bundle, one.destination) for one in found.decisions] == [("t/n1/00000001", "c")]
    assert found.decisions[0].inputs["left_out_forbidden"] == 1.0


def test_bundle_that_may_not_move_is_left_out() -> None:
    snapshot = cluster()
    can_move = snapshot.bundles.can_move.copy()
    can_move[0] = False
    held = replace(snapshot, bundles=replace(snapshot.bundles, can_move=can_move))
    found, _ = planned(proposing(ProposedMove(bundle=BUNDLE)), snapshot=held)
    assert isinstance(found, Skip)
    assert found.reason == "NoBundles"
    assert found.trace.numbers["shed.left_out_kept"] == 1.0
