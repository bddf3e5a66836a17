"""Metrics of one agent: messages, callbacks, records and permits.

Any thread of the agent may count.
"""

from prometheus_client import CollectorRegistry

from jobs.telemetry.declared import DeclaredMetric, counter, gauge
from jobs.telemetry.job_names import CHANNEL
from jobs.telemetry.store import MetricStore
from lbcore.ownership.holding import Callback
from lbcore.ownership.records import State

_CALLBACKS = tuple(one.value for one in Callback)
_WHO = ("cluster", "broker")

AGENT_METRICS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_agent_open_bundles", "Bundles that may be served now.", *_WHO),
    gauge("ballast_agent_lease_seconds", "Until the lease runs out; absent without one.", *_WHO),
    gauge("ballast_agent_confirmed_timestamp_seconds", "When Kafka last confirmed a message.",
          *_WHO),
    counter("ballast_agent_messages_total", "Messages by topic and what became of them.", *_WHO,
            "topic", "result", result=("delivered", "not_delivered")),
    counter("ballast_agent_callbacks_total", "Callbacks of the service that ended.", *_WHO,
            "callback", "result", callback=_CALLBACKS, result=("done", "failed", "overdue")),
    gauge("ballast_agent_hanging_callbacks", "Callbacks that were given up and have not returned.",
          *_WHO, "callback", callback=(*_CALLBACKS, "load")),
    counter("ballast_agent_load_errors_total", "Times that load could not be read, or not whole.",
            *_WHO),
    counter("pulsar_sunit_state_chn_subscribe_ops_total", "Records read that name the broker.",
            *_WHO, "event", "metric", "result",
            event=tuple(state.value for state in State), result=("Total",)),
)  # fmt: skip


_S = 1_000


class AgentMetrics:
    """The numbers of one agent."""

    def __init__(self, cluster: str, broker: str) -> None:
        self._store = MetricStore(AGENT_METRICS)
        self._who = (cluster, broker)
        self._store.set("ballast_agent_open_bundles", 0, *self._who)
        self._store.add("ballast_agent_load_errors_total", *self._who, by=0)
        for callback in Callback:
            for result in ("done", "failed", "overdue"):
                name = "ballast_agent_callbacks_total"
                self._store.add(name, *self._who, callback.value, result, by=0)
            self.show_overdue(callback.value, 0)
        self.show_overdue("load", 0)

    @property
    def registry(self) -> CollectorRegistry:
        """Registry for Prometheus."""
        return self._store.registry()

    def show_permits(self, bundles: int, left_ms: int | None) -> None:
        """Set the number of bundles that may be served, and the lease's rest.

        left_ms: remaining time of the lease, None = there is none.
        """
        self._store.set("ballast_agent_open_bundles", bundles, *self._who)
        if left_ms is not None:
            self._store.set("ballast_agent_lease_seconds", max(0, left_ms) / _S, *self._who)

    def count_message(self, topic: str, *, is_delivered: bool, at_s: float) -> None:
        """Count a message that Kafka confirmed or that was given up.

        The time is in seconds since 1970.
        """
        result = "delivered" if is_delivered else "not_delivered"
        self._store.add("ballast_agent_messages_total", *self._who, topic, result)
        if is_delivered:
            self._store.set("ballast_agent_confirmed_timestamp_seconds", at_s, *self._who)

    def count_callback(self, callback: Callback, *, is_done: bool) -> None:
        """A callback has ended."""
        result = "done" if is_done else "failed"
        self._store.add("ballast_agent_callbacks_total", *self._who, callback.value, result)

    def count_overdue(self, callback: Callback) -> None:
        """A callback was given up; when it ends it is not counted again."""
        self._store.add("ballast_agent_callbacks_total", *self._who, callback.value, "overdue")

    def show_overdue(self, callback: str, hanging: int) -> None:
        """Set the number of callbacks that were given up and have not returned."""
        self._store.set("ballast_agent_hanging_callbacks", hanging, *self._who, callback)

    def count_load_error(self) -> None:
        """The service's load could not be read, or not all of it can be reported."""
        self._store.add("ballast_agent_load_errors_total", *self._who)

    def count_record(self, state: State) -> None:
        """A record was read that names the broker."""
        name = "pulsar_sunit_state_chn_subscribe_ops_total"
        self._store.add(name, *self._who, state.value, CHANNEL, "Total")
