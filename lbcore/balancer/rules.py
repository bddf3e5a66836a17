"""The rules: what operators have set, until they take it back.

Command handlers change them; drains, brake and pins update them; placing and the cycle read them.
Kept by the balancer, and in the tables `policies` and `pins`, from which they are rebuilt exactly.
Policies are Pulsar 4.0.8's.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from lbcore.packing import from_plain, to_plain
from lbcore.plan.decision import Decision, Kind
from lbcore.plan.filter.policies import IsolationPolicy, Policies

STEP_BEGUN, STEP_DONE = "begun", "done"
"""Status of a step: its transition is in progress, or its bundle has arrived."""


class PlanStatus(str, Enum):
    """Status of a proposal; the value is stored in the table."""

    WAITS = "waits"
    APPROVED = "approved"
    DONE = "done"
    STOPPED = "stopped"
    REJECTED = "rejected"
    LAPSED = "lapsed"

    @property
    def is_open(self) -> bool:
        """True if the proposal may still be carried out."""
        return self in (PlanStatus.WAITS, PlanStatus.APPROVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedStep:
    """One step: a transfer or a split.

    children (of a split): child → broker, "" = stays. version_id: of the bundle's ownership when it
    was proposed, 0 = not kept. became: "" = nothing yet, STEP_BEGUN, STEP_DONE, or why it was
    skipped or failed.
    """

    kind: str
    bundle: str
    source: str
    destination: str = ""
    strategy: str = ""
    reason: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    children: Mapping[str, str] = field(default_factory=dict)
    version_id: int = 0
    became: str = ""

    @staticmethod
    def of(decision: Decision, version_id: int) -> "ProposedStep":
        """The step that carries a decision out."""
        destination = decision.destination or decision.expected
        kind = Kind.TRANSFER if destination else decision.kind
        return ProposedStep(
            kind=kind.value,
            bundle=decision.bundle,
            source=decision.source,
            destination=destination,
            strategy=decision.strategy,
            reason=decision.reason,
            inputs=decision.inputs,
            children=decision.children,
            version_id=version_id,
        )

    @property
    def is_skipped(self) -> bool:
        """True if the step was skipped or has failed."""
        return self.became not in ("", STEP_BEGUN, STEP_DONE)

    def decision(self, proposal: str) -> Decision:
        """The decision that it is, once it is carried out for a proposal."""
        return Decision(
            kind=Kind(self.kind),
            strategy=self.strategy,
            reason=self.reason,
            bundle=self.bundle,
            source=self.source,
            destination=self.destination,
            inputs={**self.inputs, "plan": proposal},
            children=self.children,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProposal:
    """A plan that a person is asked about. Times in ms since 1970.

    station: its status. until_ms: when it lapses, or when an ended one may be forgotten. why: what
    led to it, and at the end what ended it. by: who proposed it, "" = a cycle; answered_by: who
    approved or rejected it. rejected_ms: when a person rejected or stopped it, 0 = nobody has; what
    is left of it is in its grace period. before, after: broker → usage (1.0 = 100 %) of those
    that it touches, and under "max" and "mean" of all.
    """

    station: PlanStatus
    since_ms: int
    until_ms: int
    steps: tuple[ProposedStep, ...]
    why: str = ""
    by: str = ""
    answered_by: str = ""
    rejected_ms: int = 0
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)

    @property
    def left(self) -> tuple[ProposedStep, ...]:
        """Return the steps that have not begun or ended."""
        return tuple(step for step in self.steps if not step.became)

    @property
    def done(self) -> int:
        """Number of steps that ended as proposed."""
        return sum(step.became == STEP_DONE for step in self.steps)

    @property
    def skipped(self) -> int:
        """Number of steps that were skipped or have failed."""
        return sum(step.is_skipped for step in self.steps)

    def bundles_in_grace(self, now_ms: int, grace_ms: int) -> tuple[str, ...]:
        """Return the bundles left of a rejected or stopped plan, in its grace period."""
        is_in_grace = 0 < self.rejected_ms <= now_ms < self.rejected_ms + grace_ms
        return tuple(step.bundle for step in self.left) if is_in_grace else ()

    def with_steps(self, became: Mapping[str, str]) -> "PlanProposal":
        """Return the plan with new values of `became`, by bundle."""
        steps = tuple(
            replace(step, became=became[step.bundle]) if step.bundle in became else step
            for step in self.steps
        )
        return replace(self, steps=steps)


ISOLATION, PIN, SET_ASIDE, PROPOSAL = "isolation", "pin", "set_aside", "proposal"

WHOLE_CLUSTER = ""

Key = tuple[str, str]
"""Kind and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A bundle is kept on a broker.

    owner: who wants it. until_ms: ms since 1970, 0 = until it is unpinned.
    """

    broker: str
    until_ms: int = 0
    owner: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A broker is being emptied, or kept empty.

    total: bundles that it had when the drain began at since_ms; left: that it has, as last written
    down; estimated_end_ms: by the rate so far, 0 = not known yet. max_in_flight: bundles that move
    at once, 0 = as configured. deadline_ms: when it is given up, ms since 1970, 0 = never.
    """

    since_ms: int
    total: int
    left: int
    estimated_end_ms: int = 0
    max_in_flight: int = 0
    deadline_ms: int = 0
    is_done: bool = False
    command_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Balancing stands still. since_ms: ms since 1970."""

    since_ms: int
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """The brake: many brokers vanished at once.

    lost: their names, sorted; brokers: how many there were.
    """

    since_ms: int
    lost: tuple[str, ...]
    brokers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRules:
    """All rules of a cluster.

    pins: by bundle. drains: by broker. paused: by namespace, "" = the whole cluster. isolation: by
    the policy's name. anti_affinity: namespace → group. excluded: namespaces never shed.
    brake: None = nothing has happened. config_changes: changes of the configuration so far.
    set_aside: changed settings that don't suit the files, by "section.name" → why not. proposals:
    plans that wait for a person, or did of late, by their name.
    """

    pins: Mapping[str, Pin] = field(default_factory=dict)
    drains: Mapping[str, Drain] = field(default_factory=dict)
    paused: Mapping[str, Paused] = field(default_factory=dict)
    isolation: Mapping[str, IsolationPolicy] = field(default_factory=dict)
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, bool] = field(default_factory=dict)
    brake: Brake | None = None
    config_changes: int = 0
    set_aside: Mapping[str, str] = field(default_factory=dict)
    proposals: Mapping[str, PlanProposal] = field(default_factory=dict)

    def policies(self) -> Policies:
        """Return the placement policies of namespaces, in the form that the plan reads."""
        return Policies(
            isolation=tuple(self.isolation[name] for name in sorted(self.isolation)),
            anti_affinity=self.anti_affinity,
        )

    def in_order(self, before: "ClusterRules") -> "ClusterRules":
        """The same rules, those of changed kinds put in name order."""
        changed = {
            kind: rules
            for kind in _RULE_TYPES
            if (rules := getattr(self, kind)) is not getattr(before, kind)
        }
        ordered: dict[str, Any] = {
            kind: dict(sorted(rules.items()))
            for kind, rules in changed.items()
            if isinstance(rules, Mapping)
        }
        return replace(self, **ordered) if ordered else self


def differing(before: ClusterRules, after: ClusterRules) -> list[tuple[Key, dict[str, Any], bool]]:
    """Return (key, value, is set) of each changed rule, in key order.

    value: as JSON; the last one of a rule that is gone. O(rules of the changed kinds).
    """
    found: dict[Key, tuple[dict[str, Any], bool]] = {}
    for kind, (label, to_json, _) in _RULE_TYPES.items():
        was, now = _by_name(getattr(before, kind)), _by_name(getattr(after, kind))
        for name in () if was is now else was.keys() | now.keys():
            if was.get(name) != now.get(name):
                rule = now[name] if name in now else was[name]
                found[label, name] = to_json(rule), name in now
    return [(key, *found[key]) for key in sorted(found)]


def _by_name(rules: Any) -> Mapping[str, Any]:
    """Return the rules of one kind by name; a single one has the name WHOLE_CLUSTER."""
    if isinstance(rules, Mapping):
        return rules
    return {} if rules is None else {WHOLE_CLUSTER: rules}


_RULE_TYPES: Mapping[
    str, tuple[str, Callable[[Any], dict[str, Any]], Callable[[str, Mapping[str, Any]], Any]]
] = {
    "pins": (PIN, to_plain, lambda _, of: from_plain(Pin, of)),
    "drains": ("drain", to_plain, lambda _, of: from_plain(Drain, of)),
    "paused": ("paused", to_plain, lambda _, of: from_plain(Paused, of)),
    "isolation": (ISOLATION, IsolationPolicy.to_json, IsolationPolicy.from_json),
    "anti_affinity": ("anti_affinity", lambda group: {"group": group}, lambda _, of: of["group"]),
    "excluded": ("excluded", lambda _: {}, lambda *_: True),
    "proposals": (PROPOSAL, to_plain, lambda _, of: from_plain(PlanProposal, of)),
    "set_aside": (SET_ASIDE, lambda why: {"why": why}, lambda _, of: of["why"]),
    "brake": ("brake", to_plain, lambda _, of: from_plain(Brake, of)),
}
"""Field of `ClusterRules` → kind of its rules, their conversion to JSON, and that back.

The latter also gets the rule's name.
"""

KIND_OF_FIELD = {name: kind for name, (kind, _, _) in _RULE_TYPES.items()}


def rules_from_rows(
    policies: Iterable[Mapping[str, Any]],
    pins: Iterable[Mapping[str, Any]],
    config_changes: int,
) -> ClusterRules:
    """Return the rules of the newest rows of `policies` and `pins`, in name order."""
    facts = {
        (row["kind"], row["name"]): json.loads(row["value"]) for row in policies if row["is_set"]
    }
    facts |= {
        (PIN, row["bundle"]): {
            name: row[name] for name in ("broker", "until_ms", "owner", "reason")
        }
        for row in pins
        if row["is_set"]
    }
    found: dict[str, Any] = {name: {} for name in _RULE_TYPES}
    fields_of = {kind: name for name, kind in KIND_OF_FIELD.items()}
    for kind, name in sorted(facts):
        if field_name := fields_of.get(kind):
            found[field_name][name] = _RULE_TYPES[field_name][2](name, facts[kind, name])
    brake = found.pop("brake").get(WHOLE_CLUSTER)
    return ClusterRules(**found, brake=brake, config_changes=config_changes)
