"""Metrics of one agent: messages, callbacks, records and permits.

Any thread of the agent may count.
"""

from jobs.telemetry.store import DeclaredMetric, MetricStore, counter, gauge
from lbcore.ownership.holding import Callback
from lbcore.ownership.records import State

_CALLBACKS = tuple(one.value for one in Callback)
_LABELS = ("cluster", "broker")

AGENT_METRICS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_agent_open_bundles", "Bundles that may be served now.", *_LABELS),
    gauge("ballast_agent_lease_seconds", "Time until the lease expires; absent without one.",
          *_LABELS),
    gauge("ballast_agent_confirmed_timestamp_seconds", "When Kafka last confirmed a message.",
          *_LABELS),
    counter("ballast_agent_messages_total", "Messages to Kafka, by topic and result.", *_LABELS,
            "topic", "result", result=("delivered", "not_delivered")),
    counter("ballast_agent_callbacks_total", "Callbacks of the service that ended.", *_LABELS,
            "callback", "result", callback=_CALLBACKS, result=("done", "failed", "overdue")),
    gauge("ballast_agent_hanging_callbacks", "Callbacks that were given up and have not returned.",
          *_LABELS, "callback", callback=(*_CALLBACKS, "load")),
    counter("ballast_agent_load_errors_total", "Times that load could not be read, or only partly.",
            *_LABELS),
    counter("pulsar_sunit_state_chn_subscribe_ops_total", "Records read that name the broker.",
            *_LABELS, "event", "metric", "result",
            event=tuple(state.value for state in State), result=("Total",)),
)  # fmt: skip


_S = 1_000


class AgentMetrics(MetricStore):
    """The numbers of one agent."""

    def __init__(self, cluster: str, broker: str) -> None:
        super().__init__(AGENT_METRICS, cluster, broker)
        self.begin()
        self.set("ballast_agent_open_bundles", 0)
        for callback in (*_CALLBACKS, "load"):
            self.set("ballast_agent_hanging_callbacks", 0, callback)

    def show_permits(self, bundles: int, left_ms: int | None) -> None:
        """Set the number of bundles that may be served, and the rest of the lease.

        left_ms: None = no lease.
        """
        self.set("ballast_agent_open_bundles", bundles)
        if left_ms is not None:
            self.set("ballast_agent_lease_seconds", max(0, left_ms) / _S)

    def count_message(self, topic: str, *, is_delivered: bool, at_s: float) -> None:
        """Count a message that was confirmed or given up. at_s: s since 1970."""
        result = "delivered" if is_delivered else "not_delivered"
        self.add("ballast_agent_messages_total", topic, result)
        if is_delivered:
            self.set("ballast_agent_confirmed_timestamp_seconds", at_s)
