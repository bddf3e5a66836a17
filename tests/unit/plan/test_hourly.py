"""Moves of the last hour: what counts, and what is forgotten when."""

from lbcore.model.times import HOUR_MS
from lbcore.plain import from_plain, to_plain
from lbcore.plan.decision import PlanState
from lbcore.plan.hourly import moves_within_hour, with_moves


def test_a_move_counts_for_exactly_an_hour() -> None:
    hourly = with_moves({}, ["acme", "acme", "beta"], 1_000)
    assert moves_within_hour(hourly, 1_000 + HOUR_MS - 1) == {"acme": 2, "beta": 1}
    assert moves_within_hour(hourly, 1_000 + HOUR_MS).total() == 0


def test_what_is_older_goes_with_the_next_move_and_not_before() -> None:
    hourly = with_moves({}, ["acme", "beta"], 0)
    assert with_moves(hourly, [], 2 * HOUR_MS) is hourly, "a cycle without moves writes nothing"
    hourly = with_moves(hourly, ["beta"], 10)
    assert hourly == {"acme": ((0, 1),), "beta": ((0, 1), (10, 1))}
    assert with_moves(hourly, ["beta"], HOUR_MS) == {"beta": ((10, 1), (HOUR_MS, 1))}


def test_state_brings_them_back_from_its_row() -> None:
    hourly = with_moves(with_moves({}, ["acme", "beta"], 0), ["acme"], 10)
    state = PlanState(hourly=hourly)
    assert from_plain(PlanState, to_plain(state)) == state
