"""The tables of the state machine, and the pictures drawn from them."""

from dataclasses import replace

import pytest

from lbcore.ownership.changes import ProtocolError, next_record
from lbcore.ownership.records import State
from lbcore.ownership.specification import mermaid_text
from lbcore.ownership.states import (
    ACTIVE,
    BALLAST,
    IN_FLIGHT,
    METADATA_STORE,
    MOVES,
    RULES,
    SYSTEM_TOPIC,
    Move,
    ReplacementRules,
    TransitionRule,
)
from tests.support.values.ownership_diagram import DOCUMENT, draw_rules, redraw
from tests.support.values.ownership_records import ORIGIN, A, B, owned

UNFORCED = [(move, arrow) for move, arrow in MOVES.items() if not arrow.is_forced]


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_rules_name_targets_for_every_state_and_no_state_follows_itself(
    rules: ReplacementRules,
) -> None:
    assert set(rules.targets) == set(State)
    assert not any(state in targets for state, targets in rules.targets.items())


def test_ballasts_rules_are_the_system_topics_and_merges_without_gaps() -> None:
    merges = {State.OWNED: {State.MERGING}, State.MERGING: {State.DELETED}}
    for state, targets in SYSTEM_TOPIC.targets.items():
        assert BALLAST.targets[state] == targets | merges.get(state, set())
    assert State.MERGING not in set().union(*SYSTEM_TOPIC.targets.values())
    assert SYSTEM_TOPIC.accepts_gaps
    assert not BALLAST.accepts_gaps
    assert not METADATA_STORE.accepts_gaps


@pytest.mark.parametrize("move", Move)
@pytest.mark.parametrize("state", State)
def test_next_record_takes_state_and_force_from_the_table_or_refuses(
    move: Move, state: State
) -> None:
    before, arrow = replace(owned(), state=state), MOVES[move]
    if state not in arrow.sources:
        with pytest.raises(ProtocolError, match=f"{move.name} must start from .*, got"):
            next_record(before, move, ORIGIN)
        return
    made = next_record(before, move, ORIGIN, A, B)
    assert (made.state, made.is_forced) == (arrow.target, arrow.is_forced)
    assert made.version_id == before.version_id + 1


@pytest.mark.parametrize(("move", "arrow"), UNFORCED, ids=[move.name for move, _ in UNFORCED])
def test_unforced_move_obeys_the_rules_in_each_of_its_states(
    move: Move, arrow: TransitionRule
) -> None:
    begins_a_life = move in (Move.CREATE, Move.BEGIN_AS_CHILD)
    sources = arrow.sources - {State.DELETED} if begins_a_life else arrow.sources
    assert sources
    assert all(BALLAST.allows(source, arrow.target) for source in sources)


def test_every_state_is_left_and_reached_by_some_move() -> None:
    reached = {arrow.target for arrow in MOVES.values()}
    left = set().union(*(arrow.sources for arrow in MOVES.values()))
    assert reached == left == set(State)


def test_every_state_in_flight_ends_without_its_broker() -> None:
    forced = [arrow for arrow in MOVES.values() if arrow.is_forced and arrow.target in ACTIVE]
    assert all(any(state in arrow.sources for arrow in forced) for state in IN_FLIGHT)


def test_document_shows_the_pictures_that_the_tables_draw() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert mermaid_text() in text
    assert draw_rules() in text
    assert redraw(text) == text
