"""Proposals: plans that wait for a person, and what became of them.

The cycle and commands make them, `approvals` follows them. Kept among the rules, and so in the
table `policies`, from which they are rebuilt exactly. Strimzi's rebalance proposals have the same
stations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from lbcore.plan.decision import Decision, Kind

STEP_BEGUN, STEP_DONE = "begun", "done"
"""Status of a step: its transition is in progress, or its bundle has arrived."""


class Station(str, Enum):
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
        return self in (Station.WAITS, Station.APPROVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedStep:
    """One thing to do: a transfer, or a split (then children: child → broker, "" = stays).

    version_id: of the bundle's ownership when it was proposed, 0 = not kept. became: "" = nothing
    yet, STEP_BEGUN, STEP_DONE, or why it was skipped or failed.
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

    until_ms: when it lapses, or when it may be forgotten once it has ended. why: what led to it,
    and at the end what ended it. by: who proposed it, "" = a cycle; answered_by: who approved or
    rejected it. before, after: broker → usage (1.0 = 100 %) of those that it touches, and under
    "max" and "mean" of all.
    """

    station: Station
    since_ms: int
    until_ms: int
    steps: tuple[ProposedStep, ...]
    why: str = ""
    by: str = ""
    answered_by: str = ""
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)

    @property
    def left(self) -> tuple[ProposedStep, ...]:
        """The steps of which nothing has become yet."""
        return tuple(step for step in self.steps if not step.became)

    @property
    def done(self) -> int:
        """Number of steps that ended as proposed."""
        return sum(step.became == STEP_DONE for step in self.steps)

    @property
    def skipped(self) -> int:
        """Number of steps that were skipped or have failed."""
        return sum(step.is_skipped for step in self.steps)

    def with_steps(self, became: Mapping[str, str]) -> "PlanProposal":
        """The same with what became of steps, by bundle."""
        steps = tuple(
            replace(step, became=became[step.bundle]) if step.bundle in became else step
            for step in self.steps
        )
        return replace(self, steps=steps)

    def to_json(self) -> dict[str, Any]:
        """JSON-able values."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "station": self.station.value,
            "steps": [
                {name: getattr(step, name) for name in step.__dataclass_fields__}
                for step in self.steps
            ],
        }

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> "PlanProposal":
        """The inverse of `to_json`."""
        steps = tuple(ProposedStep(**step) for step in plain["steps"])
        return PlanProposal(**{**plain, "steps": steps, "station": Station(plain["station"])})


_PLAIN = ("since_ms", "until_ms", "why", "by", "answered_by", "before", "after")
