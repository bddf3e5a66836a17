"""The bundle channel as TLA+ and as a Mermaid diagram, from the transition table.

The model has one bundle, its record and the brokers that serve it. Each of TRANSITIONS is an
action: its states and force are from the table, its effects on brokers from here. Brokers act on
the newest record; one that lags behind is fenced by the version and is not modelled.
"""

from collections.abc import Iterator, Mapping

from lbcore.ownership.records import State
from lbcore.ownership.resolve import BROKER_CHECKS, BrokerCheck
from lbcore.ownership.states import (
    BALLAST,
    IN_FLIGHT,
    LEAVING,
    TRANSITIONS,
    ReplacementRules,
    TransitionKind,
)

_HOLDER_ENDED = "Holder \\notin open"
_FORMER = "IF b = Holder THEN Nobody ELSE Holder"
_NOBODY_SERVES = "open = {}"
_KEPT, _NONE = ("source", "destination"), ("Nobody", "Nobody")

EFFECTS: Mapping[TransitionKind, tuple[str, tuple[str, str]]] = {
    TransitionKind.CREATE: (_NOBODY_SERVES, _NONE),
    TransitionKind.BEGIN_AS_CHILD: (_NOBODY_SERVES, ("Nobody", "b")),
    TransitionKind.ASSIGN: ("", ("Nobody", "b")),
    TransitionKind.OPENED: ("destination \\in open", _KEPT),
    TransitionKind.UNLOAD: ("b # destination", ("destination", "b")),
    TransitionKind.CLOSED_WITH_DESTINATION: ("source \\notin open /\\ destination # Nobody", _KEPT),
    TransitionKind.CLOSED_WITHOUT_DESTINATION: (
        "source \\notin open /\\ destination = Nobody",
        _KEPT,
    ),
    TransitionKind.SPLIT: ("", ("destination", "Nobody")),
    TransitionKind.SPLIT_DONE: ("", _KEPT),
    TransitionKind.MERGE: ("", ("destination", "Nobody")),
    TransitionKind.MERGE_DONE: ("", _KEPT),
    TransitionKind.REASSIGN: (_HOLDER_ENDED, (_FORMER, "b")),
    TransitionKind.REDIRECT: ("b # source", ("source", "b")),
    TransitionKind.CANCEL: ("", ("Nobody", "source")),
    TransitionKind.DELETE: ("", ("Holder", "Nobody")),
    TransitionKind.FORGET: (_NOBODY_SERVES, _NONE),
    TransitionKind.OBSERVE_OWNER: ("open \\subseteq {b}", (_FORMER, "b")),
    TransitionKind.OBSERVE_FREE: (_NOBODY_SERVES, ("Holder", "Nobody")),
}
"""Kind → its guard ("" = none), and the source and destination of the next record; b: a broker."""

_MAY_HAVE_NO_BROKER = frozenset({TransitionKind.UNLOAD, TransitionKind.REDIRECT})
"""Kinds whose b may be Nobody: the bundle becomes Free when it is closed."""

_CHECKS: Mapping[BrokerCheck, str] = {
    BrokerCheck.DESTINATION_BLANK: "destination' = Nobody",
    BrokerCheck.DESTINATION_GIVEN: "destination' # Nobody",
    BrokerCheck.SOURCE_BLANK: "source' = Nobody",
    BrokerCheck.SOURCE_GIVEN: "source' # Nobody",
    BrokerCheck.SOURCE_IS_THE_OWNER: "source' = destination",
    BrokerCheck.DESTINATION_IS_NOT_THE_OWNER: "destination' # destination",
    BrokerCheck.BROKERS_KEPT: "destination' = destination /\\ source' = source",
}

_HEAD = """\
---- MODULE BundleChannel ----
\\* One bundle: its ownership record, and the brokers that serve it.
\\* Check with Brokers = {"a", "b", "c"}, Nobody = "", MaxVersion = 8.
EXTENDS Naturals, FiniteSets
CONSTANTS Brokers, Nobody, MaxVersion
VARIABLES state, version, source, destination, forced, open
vars == <<state, version, source, destination, forced, open>>

Init ==
    /\\ state = "Init"
    /\\ version = 0
    /\\ source = Nobody
    /\\ destination = Nobody
    /\\ forced = FALSE
    /\\ open = {}

Holder ==
    IF state \\in {"Owned", "Assigning"} THEN destination
    ELSE IF state \\in {leaving} THEN source
    ELSE Nobody
"""
_BROKERS = """\
Opens(b) ==
    /\\ state \\in {"Assigning", "Owned"}
    /\\ b = destination
    /\\ open' = open \\union {b}
    /\\ UNCHANGED <<state, version, source, destination, forced>>

Closes(b) ==
    /\\ state \\in {"Releasing", "Deleted"}
    /\\ b \\in open
    /\\ open' = open \\ {b}
    /\\ UNCHANGED <<state, version, source, destination, forced>>

Ends(b) ==
    /\\ b \\in open
    /\\ open' = open \\ {b}
    /\\ UNCHANGED <<state, version, source, destination, forced>>
"""
_PROPERTIES = """\
OneServes == Cardinality(open) <= 1
ServesByRecord == open \\subseteq {source, destination}
OwnedHasOwner == state \\notin {"Owned", "Assigning"} \\/ destination # Nobody
ReleasedHasSource == state \\notin {leaving} \\/ source # Nobody
VersionsGrow == [][version' = version \\/ version' = version + 1]_vars
OnlyAccepted == [][Accepted]_vars

Spec == Init /\\ [][Next]_vars
====
"""


def tla_text(rules: ReplacementRules = BALLAST) -> str:
    """Return the module BundleChannel.

    rules: which records replace others without force.
    """
    acts = [f"    \\/ \\E b \\in Brokers: {act}(b)" for act in ("Opens", "Closes", "Ends")]
    following = ["Next ==", *(f"    \\/ {_quantified(kind)}" for kind in TRANSITIONS), *acts, ""]
    blocks = [
        _HEAD,
        *map(_action, TRANSITIONS),
        _BROKERS,
        *following,
        *_accepted(rules),
        _PROPERTIES,
    ]
    return "\n".join(blocks).replace("{leaving}", _states(LEAVING))


def mermaid_text() -> str:
    """Return the transitions as a Mermaid state diagram; forced ones have a !."""
    box = {state: "[*]" if state is State.INIT else state.value for state in State}
    lines = [
        f"    {box[source]} --> {box[rule.target]}: {kind.value}{' !' * rule.is_forced}"
        for kind, rule in TRANSITIONS.items()
        for source in State
        if source in rule.sources
    ]
    notes = [f"    note right of {state.value}: in flight" for state in State if state in IN_FLIGHT]
    return "\n".join(["stateDiagram-v2", *lines, *notes])


def _action(kind: TransitionKind) -> str:
    rule = TRANSITIONS[kind]
    guard, (source, destination) = EFFECTS[kind]
    lines = [
        f"state \\in {_states(rule.sources)}",
        *([guard] if guard else []),
        "version < MaxVersion",
        f'state\' = "{rule.target.value}"',
        "version' = version + 1",
        f"source' = {source}",
        f"destination' = {destination}",
        f"forced' = {str(rule.is_forced).upper()}",
        "UNCHANGED open",
    ]
    return "\n".join([f"{_name(kind)} ==", *(f"    /\\ {line}" for line in lines), ""])


def _quantified(kind: TransitionKind) -> str:
    if "b" not in EFFECTS[kind][1]:
        return _name(kind)
    brokers = "Brokers \\union {Nobody}" if kind in _MAY_HAVE_NO_BROKER else "Brokers"
    return f"\\E b \\in {brokers}: {_name(kind)}"


def _accepted(rules: ReplacementRules) -> Iterator[str]:
    """Yield the predicate of the records that may follow another without force.

    As the conflict resolver decides; after Deleted, the next version may have any state.
    """
    yield "Accepted =="
    yield "    \\/ forced' \\/ version' = version"
    yield '    \\/ state = "Deleted" /\\ version\' = version + 1'
    for before in State:
        for after in sorted(rules.targets[before], key=list(State).index):
            checks = BROKER_CHECKS.get((before, after), ())
            parts = [f'state = "{before.value}"', f'state\' = "{after.value}"']
            yield "    \\/ " + " /\\ ".join([*parts, *(_CHECKS[check] for check in checks)])
    yield ""


def _name(kind: TransitionKind) -> str:
    name = "".join(part.capitalize() for part in kind.name.split("_"))
    return f"{name}(b)" if "b" in EFFECTS[kind][1] else name


def _states(states: frozenset[State]) -> str:
    return "{" + ", ".join(f'"{state.value}"' for state in State if state in states) + "}"
