"""Metrics of a Pulsar bridge: looks, differences, requests and answers.

Any thread of the bridge may count.
"""

from collections.abc import Collection, Sequence

from jobs.telemetry.store import DeclaredMetric, MetricStore, counter, gauge
from lbcore.bridge.guardian import FAILURES, Finding, FindingStage, Trouble
from lbcore.bridge.mirror import Look
from lbcore.wire.messages import AckOutcome

_OF = "cluster"  # the label that all of them have
LOOKED, FAILED = "looked", "failed"
UNLOAD, SPLIT = "unload", "split"
REFUSED = "refused"
DELIVERED, NOT_DELIVERED = "delivered", "not_delivered"

BRIDGE_METRICS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_bridge_acting", "1 while decisions are carried out, 0 while it observes.", _OF),
    gauge("ballast_bridge_brokers", "Brokers that Pulsar lists as active.", _OF),
    gauge("ballast_bridge_silent_brokers", "Of these, without an answer in the last poll.", _OF),
    gauge("ballast_bridge_bundles", "Bundles that brokers say they own.", _OF),
    gauge("ballast_bridge_differences",
          "Bundles and namespaces that differ between Pulsar and our records.", _OF),
    gauge("ballast_bridge_pending_actions", "Bundles whose unload or split is being followed.",
          _OF),
    gauge("ballast_bridge_findings", "Findings in the cluster, by trouble.", _OF,
          "trouble", trouble=tuple(trouble.value for trouble in Trouble)),
    gauge("ballast_bridge_quarantined", "Findings that could not be mended, left alone.", _OF),
    counter("ballast_bridge_polls_total", "Polls of bundle ownership.", _OF, "result",
            result=(LOOKED, FAILED)),
    counter("ballast_bridge_requests_total", "Unloads and splits that Pulsar was asked for.", _OF,
            "action", action=(UNLOAD, SPLIT)),
    counter("ballast_bridge_failed_requests_total",
            "Unloads, splits and lookups that Pulsar refused, or that failed on the way.", _OF,
            "result", result=(REFUSED, FAILED)),
    counter("ballast_bridge_answers_total", "Records acknowledged for brokers.", _OF, "outcome",
            outcome=tuple(outcome.value for outcome in AckOutcome)),
    counter("ballast_bridge_load_errors_total", "Times that a broker's load could not be read.",
            _OF, "broker"),
    gauge("ballast_bridge_unread", "Items that Pulsar does not answer usably:"
          " tenants, namespaces, policies, domains, groups, brokers' loads and settings.", _OF,
          "reason", reason=FAILURES),
    counter("ballast_bridge_unreported_total",
            "Fields of brokers' loads that can't be used and count as not reported.", _OF, "field"),
    counter("ballast_bridge_messages_total", "Messages to Kafka that were confirmed or given up.",
            _OF, "result", result=(DELIVERED, NOT_DELIVERED)),
)  # fmt: skip


class BridgeMetrics(MetricStore):
    """The numbers of one bridge."""

    def __init__(self, cluster: str) -> None:
        super().__init__(BRIDGE_METRICS, cluster)
        self.begin()  # counters at 0
        self.set("ballast_bridge_acting", 0)
        self.show_findings(())
        self.show_unread(())

    def show_look(self, look: Look) -> None:
        """Show the answers of brokers about the bundles that they own."""
        silent = sum(owned is None for owned in look.owned.values())
        bundles = sum(len(owned or ()) for owned in look.owned.values())
        self.add("ballast_bridge_polls_total", LOOKED)
        self.set("ballast_bridge_brokers", len(look.owned))
        self.set("ballast_bridge_silent_brokers", silent)
        self.set("ballast_bridge_bundles", bundles)

    def show_findings(self, findings: Collection[Finding]) -> None:
        """Set the numbers of the guardian's present findings."""
        for trouble in Trouble:
            count = sum(one.trouble is trouble for one in findings)
            self.set("ballast_bridge_findings", count, trouble.value)
        held = sum(one.stage is FindingStage.QUARANTINED for one in findings)
        self.set("ballast_bridge_quarantined", held)

    def show_unread(self, labels: Sequence[str]) -> None:
        """Set the number of unreadable things, for each of FAILURES."""
        for label in FAILURES:
            self.set("ballast_bridge_unread", labels.count(label), label)
