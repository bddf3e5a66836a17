"""The ownership record: who owns a bundle, in which state, since which version.

Field names on the wire are Pulsar's ServiceUnitStateData (4.0.8) plus ours. `balancer` writes
records, agents and the lookup service read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class State(str, Enum):
    """States of Pulsar's ServiceUnitState, and Merging, by their names on the wire.

    Stored states are numbered in this order: a new one comes last.
    """

    INIT = "Init"
    FREE = "Free"
    OWNED = "Owned"
    ASSIGNING = "Assigning"
    RELEASING = "Releasing"
    SPLITTING = "Splitting"
    DELETED = "Deleted"
    MERGING = "Merging"


class Cause(str, Enum):
    """Cause of a transition, and label of its metric; a new one comes last."""

    CREATE = "create"
    ASSIGN = "assign"
    SHED = "shed"
    ADMIN = "admin"
    DRAIN = "drain"
    SPLIT = "split"
    FAILOVER = "failover"
    RESTART = "restart"
    REPAIR = "repair"
    ACK = "ack"
    DELETE = "delete"
    EXTERNAL = "external"
    MERGE = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipRecord:
    """One version of a bundle's ownership.

    Brokers are names, "" where there is none. children: child bundle name → broker that shall get
    it ("" = stay with the splitting broker). Of a merge it is the one bundle that the two become.
    """

    cluster: str
    bundle: str
    state: State
    version_id: int
    source: str = ""
    source_incarnation: str = ""
    destination: str = ""
    destination_incarnation: str = ""
    children: Mapping[str, str] = field(default_factory=dict)
    is_forced: bool = False
    timestamp_ms: int = 0
    cause: Cause = Cause.ASSIGN
    decision_id: str = ""
    command_id: str = ""
    writer_epoch: int = 0
