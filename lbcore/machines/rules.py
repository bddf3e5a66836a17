"""The rules: what operators have asked for and what stands until they take it back.

Decides nothing; handlers of commands change it, placing and the cycle read it. Kept by the
balancer, and in the tables from which it is rebuilt. Source: ours; policies are Pulsar 4.0.8's.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lbcore.plan.filter.policies import IsolationPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A bundle is kept on a broker. until_ms: ms since 1970, 0 = until it is unpinned."""

    broker: str
    until_ms: int = 0
    owner: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A broker is being emptied.

    total: bundles that it had when the drain began at since_ms. max_in_flight: bundles that move
    at once, 0 = as configured. deadline_ms: when it is given up, ms since 1970, 0 = never.
    """

    since_ms: int
    total: int
    max_in_flight: int = 0
    deadline_ms: int = 0
    is_done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Balancing stands still. since_ms: ms since 1970."""

    since_ms: int
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All of a cluster's.

    pins: by bundle. drains: by broker. paused: by namespace, "" = the whole cluster. isolation: by
    the policy's name. anti_affinity: namespace → group. excluded: namespaces never shed, sorted.
    """

    pins: Mapping[str, Pin] = field(default_factory=dict)
    drains: Mapping[str, Drain] = field(default_factory=dict)
    paused: Mapping[str, Paused] = field(default_factory=dict)
    isolation: Mapping[str, IsolationPolicy] = field(default_factory=dict)
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """JSON-able values."""
        return {
            "pins": {name: asdict(pin) for name, pin in self.pins.items()},
            "drains": {name: asdict(drain) for name, drain in self.drains.items()},
            "paused": {name: asdict(paused) for name, paused in self.paused.items()},
            "isolation": {name: policy.to_json() for name, policy in self.isolation.items()},
            "anti_affinity": dict(self.anti_affinity),
            "excluded": list(self.excluded),
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> "Rules":
        """The inverse of `to_plain`."""
        return Rules(
            pins={name: Pin(**pin) for name, pin in plain["pins"].items()},
            drains={name: Drain(**drain) for name, drain in plain["drains"].items()},
            paused={name: Paused(**paused) for name, paused in plain["paused"].items()},
            isolation={
                name: IsolationPolicy.from_json(name, policy)
                for name, policy in plain["isolation"].items()
            },
            anti_affinity=dict(plain["anti_affinity"]),
            excluded=tuple(plain["excluded"]),
        )
