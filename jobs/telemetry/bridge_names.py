"""The metrics of the bridge to a Pulsar cluster, declared."""

from jobs.telemetry.declared import DeclaredMetric, counter, gauge
from lbcore.bridge.anomalies import FAILURES, Trouble
from lbcore.wire.messages import AckOutcome

_OF = "cluster"
LOOKED, FAILED = "looked", "failed"
UNLOAD, SPLIT = "unload", "split"
REFUSED = "refused"
DELIVERED, NOT_DELIVERED = "delivered", "not_delivered"

BRIDGE_METRICS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_bridge_acting", "1 while decisions are carried out, 0 while it observes.", _OF),
    gauge("ballast_bridge_brokers", "Brokers that Pulsar lists as active.", _OF),
    gauge("ballast_bridge_silent_brokers", "Of these, without an answer in the last look.", _OF),
    gauge("ballast_bridge_bundles", "Bundles that brokers say they own.", _OF),
    gauge("ballast_bridge_differences",
          "Bundles and namespaces that Pulsar has otherwise than our records.", _OF),
    gauge("ballast_bridge_pending_actions", "Bundles whose unload or split is being followed.",
          _OF),
    gauge("ballast_bridge_findings", "What is wrong in the cluster, by trouble.", _OF, "trouble",
          trouble=tuple(trouble.value for trouble in Trouble)),
    gauge("ballast_bridge_quarantined", "Findings that could not be mended, left alone.", _OF),
    counter("ballast_bridge_polls_total", "Looks at who owns what.", _OF, "result",
            result=(LOOKED, FAILED)),
    counter("ballast_bridge_requests_total", "Unloads and splits that Pulsar was asked for.", _OF,
            "action", action=(UNLOAD, SPLIT)),
    counter("ballast_bridge_failed_requests_total",
            "Of these, those that Pulsar refused, and those that failed on the way.", _OF,
            "result", result=(REFUSED, FAILED)),
    counter("ballast_bridge_answers_total", "Records acknowledged for brokers.", _OF, "outcome",
            outcome=tuple(outcome.value for outcome in AckOutcome)),
    counter("ballast_bridge_load_errors_total", "Times that a broker's load could not be read.",
            _OF, "broker"),
    gauge("ballast_bridge_unread", "What Pulsar does not answer, or not so that it can be used:"
          " tenants, namespaces, policies, domains, groups, brokers' loads and settings.", _OF,
          "reason", reason=FAILURES),
    counter("ballast_bridge_unreported_total",
            "Fields of brokers' loads that can't be used and count as not reported.", _OF, "field"),
    counter("ballast_bridge_messages_total", "Messages to Kafka that were confirmed or given up.",
            _OF, "result", result=(DELIVERED, NOT_DELIVERED)),
)  # fmt: skip
