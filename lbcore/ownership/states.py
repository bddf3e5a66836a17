"""The ownership state machine as data: allowed transitions.

`ReplacementRules` define which record may replace which; `resolve` applies them. There is one set
for each of Pulsar's two stores, and Ballast's: SYSTEM_TOPIC's with merges and without version gaps.
`TRANSITIONS` are those that Ballast makes: `changes.next_record` takes the target state and
`is_forced` from them. Source: Pulsar 4.0.8, ServiceUnitState (tables, in-flight and active sets).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from lbcore.ownership.records import State

RESHAPING = frozenset({State.SPLITTING, State.MERGING})
"""States in which the owner shall serve the range as other bundles."""

LEAVING = RESHAPING | {State.RELEASING}
"""States in which the source still holds the bundle, and shall give it up or reshape it."""

IN_FLIGHT = LEAVING | {State.ASSIGNING}
"""States in which a transition is under way."""

ACTIVE = IN_FLIGHT | {State.OWNED}
"""States in which a broker serves the bundle or is about to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementRules:
    """Rules for replacing one record by another.

    targets: state → states that may follow. accepts_gaps: a version more than one above the present
    one is accepted without further checks (a compacted log loses records in between).
    accepts_any_first: the first record of a bundle may have any version, and a state that may
    follow Init; otherwise its version must be 1, and nothing else is checked.
    """

    name: str
    targets: Mapping[State, frozenset[State]]
    accepts_gaps: bool
    accepts_any_first: bool

    def allows(self, before: State, after: State) -> bool:
        """Return True if the table has the transition."""
        return after in self.targets[before]


_TARGETS_IN_BOTH_STORES: Mapping[State, frozenset[State]] = {
    State.OWNED: frozenset({State.SPLITTING, State.RELEASING}),
    State.ASSIGNING: frozenset({State.OWNED}),
    State.RELEASING: frozenset({State.ASSIGNING, State.FREE}),
    State.SPLITTING: frozenset({State.DELETED}),
    State.MERGING: frozenset(),
    State.DELETED: frozenset({State.INIT}),
}
SYSTEM_TOPIC = ReplacementRules(
    name="SystemTopic",
    targets={
        **_TARGETS_IN_BOTH_STORES,
        State.INIT: frozenset(set(State) - {State.INIT, State.MERGING}),
        State.FREE: frozenset({State.ASSIGNING, State.INIT}),
    },
    accepts_gaps=True,
    accepts_any_first=True,
)
METADATA_STORE = ReplacementRules(
    name="MetadataStore",
    targets={
        **_TARGETS_IN_BOTH_STORES,
        State.INIT: frozenset({State.ASSIGNING}),
        State.FREE: frozenset({State.ASSIGNING}),
    },
    accepts_gaps=False,
    accepts_any_first=False,
)
BALLAST = replace(
    SYSTEM_TOPIC,
    name="Ballast",
    accepts_gaps=False,
    targets={
        **SYSTEM_TOPIC.targets,
        State.OWNED: SYSTEM_TOPIC.targets[State.OWNED] | {State.MERGING},
        State.MERGING: frozenset({State.DELETED}),
    },
)

RULES = {rules.name: rules for rules in (SYSTEM_TOPIC, METADATA_STORE, BALLAST)}


class TransitionKind(str, Enum):
    """Transition of a bundle by the balancer; the value is its name in the diagram."""

    CREATE = "create"
    BEGIN_AS_CHILD = "child of a split or merge"
    ASSIGN = "assign"
    OPENED = "opened"
    UNLOAD = "unload, transfer"
    CLOSED_WITH_DESTINATION = "closed, with a destination"
    CLOSED_WITHOUT_DESTINATION = "closed, without one"
    SPLIT = "split"
    SPLIT_DONE = "split done"
    MERGE = "merge"
    MERGE_DONE = "merge done"
    REASSIGN = "reassign"
    REDIRECT = "redirect"
    CANCEL = "cancel"
    DELETE = "delete"
    FORGET = "forget"
    OBSERVE_OWNER = "bridge saw an owner"
    OBSERVE_FREE = "bridge saw no owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionRule:
    """Source states and target state; is_forced: it bypasses ReplacementRules."""

    sources: frozenset[State]
    target: State
    is_forced: bool = False


def _rule(target: State, *sources: State, is_forced: bool = False) -> TransitionRule:
    return TransitionRule(sources=frozenset(sources), target=target, is_forced=is_forced)


TRANSITIONS: Mapping[TransitionKind, TransitionRule] = {
    TransitionKind.CREATE: _rule(State.FREE, State.INIT, State.DELETED),
    TransitionKind.BEGIN_AS_CHILD: _rule(State.OWNED, State.INIT, State.DELETED),
    TransitionKind.ASSIGN: _rule(State.ASSIGNING, State.FREE),
    TransitionKind.OPENED: _rule(State.OWNED, State.ASSIGNING),
    TransitionKind.UNLOAD: _rule(State.RELEASING, State.OWNED),
    TransitionKind.CLOSED_WITH_DESTINATION: _rule(State.ASSIGNING, State.RELEASING),
    TransitionKind.CLOSED_WITHOUT_DESTINATION: _rule(State.FREE, State.RELEASING),
    TransitionKind.SPLIT: _rule(State.SPLITTING, State.OWNED),
    TransitionKind.SPLIT_DONE: _rule(State.DELETED, State.SPLITTING),
    TransitionKind.MERGE: _rule(State.MERGING, State.OWNED),
    TransitionKind.MERGE_DONE: _rule(State.DELETED, State.MERGING),
    TransitionKind.REASSIGN: _rule(State.ASSIGNING, *ACTIVE, is_forced=True),
    TransitionKind.REDIRECT: _rule(State.RELEASING, State.RELEASING, is_forced=True),
    TransitionKind.CANCEL: _rule(State.OWNED, *LEAVING, is_forced=True),
    TransitionKind.DELETE: _rule(State.DELETED, State.FREE, *ACTIVE, is_forced=True),
    TransitionKind.FORGET: _rule(State.INIT, State.DELETED),
    TransitionKind.OBSERVE_OWNER: _rule(State.OWNED, State.FREE, *ACTIVE, is_forced=True),
    TransitionKind.OBSERVE_FREE: _rule(State.FREE, *ACTIVE, is_forced=True),
}


def may_start(kind: TransitionKind, state: State) -> bool:
    """Return True if a transition of this kind may start from the state."""
    return state in TRANSITIONS[kind].sources
