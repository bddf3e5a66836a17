"""The metrics of an agent, declared.

With Pulsar 4.0.8's name for the records that a broker reads.
"""

from jobs.telemetry.declared import DeclaredMetric, counter, gauge
from lbcore.ownership.holding import Callback
from lbcore.ownership.records import State

_CALLBACKS = tuple(one.value for one in Callback)
_WHO = ("cluster", "broker")

AGENT_METRICS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_agent_open_bundles", "Bundles that may be served now.", *_WHO),
    gauge("ballast_agent_lease_seconds", "Until the lease runs out; absent without one.", *_WHO),
    gauge("ballast_agent_confirmed_seconds", "When Kafka last confirmed a message.", *_WHO),
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
