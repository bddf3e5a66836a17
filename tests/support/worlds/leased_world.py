"""A checked world whose agents hold leases: at no moment may two brokers use one bundle.

Kafka's acknowledgements are the world's: a report is confirmed when it stands in the log, and the
end of ownership when a broker has read all that was announced to it. A frozen broker uses nothing
while it is frozen, and asks its agent first thing when it goes on. Each holder goes by the clock of
its own machine (`Broker.ahead_ms`), its service too.
"""

from collections import defaultdict

from lbcore.agent.lease import EndConfirmed, ReportConfirmed
from lbcore.config.load import parse_config
from lbcore.config.ownership import FENCING_LEASE
from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.wire.messages import BrokerLoad, Heartbeat, Message
from tests.support.worlds.lagging_world import LaggingWorld
from tests.support.worlds.simulated_brokers import Broker

LEASED = parse_config({"ownership": {"fencing": FENCING_LEASE}})


class LeasedWorld(LaggingWorld):
    """A world under `fencing = lease`.

    confirmed: sending times by incarnation. late_readers: brokers that get no records for now.
    """

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.confirmed: dict[str, list[int]] = defaultdict(list)
        self.late_readers: set[str] = set()
        super().__init__(config, brokers, seed=seed)

    def used(self) -> dict[str, dict[str, int]]:
        """Bundle → broker → token of what services may use at this moment."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for name, broker in self.brokers.items():
            if broker.agent is None or broker.is_paused:
                continue
            usable = broker.agent.usable_at(self.now_ms + broker.ahead_ms)
            for bundle, token in usable.items():
                found[bundle][name] = token
        return found

    def look(self) -> None:
        """No hash of a namespace is used by two brokers, whatever has happened."""
        super().look()
        used = [(Bundle.parse(b), name) for b, names in self.used().items() for name in names]
        for number, (bundle, name) in enumerate(used):
            for other, other_name in used[number + 1 :]:
                is_apart = bundle.namespace != other.namespace or not bundle.range.overlaps(
                    other.range
                )
                assert name == other_name or is_apart, (self.now_ms, bundle, name, other_name)

    def append(self, message: Message, partition: int | None = None) -> None:
        """Kafka confirms what agents sent."""
        super().append(message, partition)
        if isinstance(message, Heartbeat | BrokerLoad):
            made = message.envelope
            self.confirmed[made.incarnation].append(made.reported_at_ms)

    def _step_broker(self, broker: Broker) -> None:
        if broker.agent is None or broker.is_paused:
            return
        is_connected = not broker.is_cut_off
        if is_connected:
            sent = self.confirmed.pop(f"{broker.name}/{broker.starts}", [])
            self.advance(broker, [ReportConfirmed(sent_ms=sent_ms) for sent_ms in sent])
        is_late = broker.name in self.late_readers
        held, broker.inbox = (broker.inbox, []) if is_late else ([], broker.inbox)
        super()._step_broker(broker)
        broker.inbox = [*held, *broker.inbox]
        if is_connected and not is_late:
            self.advance(broker, [EndConfirmed(asked_ms=self.now_ms + broker.ahead_ms)])
