"""The ownership state machine as data: which state may follow which, and under which rules.

Decides nothing: `resolve` interprets the tables, `diagram` draws them, `protocol` makes records
that obey them. Three sets of rules are known by name: Pulsar's two storages, and Ballast's own.
Source: Pulsar 4.0.8, ServiceUnitState (tables, in-flight and active sets); the rules of Ballast
are ours: those of the system topic, but a version that leaves a gap is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lbcore.ownership.records import State

IN_FLIGHT = frozenset({State.ASSIGNING, State.RELEASING, State.SPLITTING})
"""Something is under way that ends with another state."""

ACTIVE = IN_FLIGHT | {State.OWNED}
"""Some broker serves the bundle or is about to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When one record may replace another.

    targets: for each state, those that may follow. accepts_gaps: a version more than one above the
    present one is taken without any further check (a compacted log loses predecessors).
    accepts_any_first: a bundle without a record is in Init, whose targets hold whatever the first
    version is; otherwise the first version must be 1, and nothing else is asked.
    """

    name: str
    targets: Mapping[State, frozenset[State]]
    accepts_gaps: bool
    accepts_any_first: bool

    def allows(self, before: State, after: State) -> bool:
        """Whether the table has the transition."""
        return after in self.targets[before]


def _targets(*, init: frozenset[State], free: frozenset[State]) -> dict[State, frozenset[State]]:
    return {
        State.INIT: init,
        State.FREE: free,
        State.OWNED: frozenset({State.SPLITTING, State.RELEASING}),
        State.ASSIGNING: frozenset({State.OWNED}),
        State.RELEASING: frozenset({State.ASSIGNING, State.FREE}),
        State.SPLITTING: frozenset({State.DELETED}),
        State.DELETED: frozenset({State.INIT}),
    }


SYSTEM_TOPIC = Rules(
    name="SystemTopic",
    targets=_targets(
        init=frozenset(set(State) - {State.INIT}),
        free=frozenset({State.ASSIGNING, State.INIT}),
    ),
    accepts_gaps=True,
    accepts_any_first=True,
)
METADATA_STORE = Rules(
    name="MetadataStore",
    targets=_targets(init=frozenset({State.ASSIGNING}), free=frozenset({State.ASSIGNING})),
    accepts_gaps=False,
    accepts_any_first=False,
)
BALLAST = replace(SYSTEM_TOPIC, name="Ballast", accepts_gaps=False)

RULES = {rules.name: rules for rules in (SYSTEM_TOPIC, METADATA_STORE, BALLAST)}
