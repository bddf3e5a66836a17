"""The starts of brokers that records name, numbered, so that arrays can hold them.

Decides nothing. Part of the ledger. Source: ours.
"""

from dataclasses import dataclass, field

from lbcore.ownership.changes import Instance

NOBODY = -1


@dataclass(slots=True)
class Instances:
    """All starts of brokers that a record may name; an id stays valid for ever."""

    rows: list[Instance] = field(default_factory=list)
    ids: dict[Instance, int] = field(default_factory=dict)

    def id_of(self, broker: str, incarnation: str) -> int:
        """The id of this start, given on first use; NOBODY for no broker."""
        if not broker:
            return NOBODY
        instance = Instance(broker=broker, incarnation=incarnation)
        if instance not in self.ids:
            self.ids[instance] = len(self.rows)
            self.rows.append(instance)
        return self.ids[instance]

    def find(self, broker: str, incarnation: str) -> int:
        """The id of this start; NOBODY for one that no record ever named."""
        return self.ids.get(Instance(broker=broker, incarnation=incarnation), NOBODY)

    def of(self, instance_id: int) -> tuple[str, str]:
        """Broker and incarnation; two empty texts for NOBODY."""
        if instance_id == NOBODY:
            return "", ""
        instance = self.rows[instance_id]
        return instance.broker, instance.incarnation
