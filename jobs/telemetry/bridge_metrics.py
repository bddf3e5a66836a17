"""Metrics of a Pulsar bridge: looks, differences, requests and answers.

Any thread of the bridge may count.
"""

from collections.abc import Collection

from prometheus_client import CollectorRegistry

from jobs.telemetry.declared import DeclaredMetric, counter, gauge
from jobs.telemetry.store import MetricStore
from lbcore.bridge.anomalies import FAILURES, Trouble
from lbcore.bridge.guardian import Finding, FindingStage
from lbcore.bridge.mirror import Look
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


class BridgeMetrics:
    """The numbers of one bridge."""

    def __init__(self, cluster: str) -> None:
        """cluster: its name here."""
        self._store, self._cluster = MetricStore(BRIDGE_METRICS), cluster
        self._messages = [0, 0]
        self.show_acting(is_acting=False)
        self.show_findings(())
        self.show_unread(())
        for name, labels in (
            ("ballast_bridge_polls_total", (LOOKED, FAILED)),
            ("ballast_bridge_requests_total", (UNLOAD, SPLIT)),
            ("ballast_bridge_failed_requests_total", (REFUSED, FAILED)),
            ("ballast_bridge_messages_total", (DELIVERED, NOT_DELIVERED)),
            ("ballast_bridge_answers_total", tuple(outcome.value for outcome in AckOutcome)),
        ):
            for label in labels:
                self._store.add(name, cluster, label, by=0)

    @property
    def registry(self) -> CollectorRegistry:
        """Registry for Prometheus."""
        return self._store.registry()

    def show_acting(self, *, is_acting: bool) -> None:
        """Set whether decisions are carried out."""
        self._store.set("ballast_bridge_acting", int(is_acting), self._cluster)

    def count_look(self, look: Look) -> None:
        """The brokers were asked who owns what."""
        silent = sum(owned is None for owned in look.owned.values())
        bundles = sum(len(owned or ()) for owned in look.owned.values())
        self._store.add("ballast_bridge_polls_total", self._cluster, LOOKED)
        self._store.set("ballast_bridge_brokers", len(look.owned), self._cluster)
        self._store.set("ballast_bridge_silent_brokers", silent, self._cluster)
        self._store.set("ballast_bridge_bundles", bundles, self._cluster)

    def count_failed_look(self) -> None:
        """There was no list of brokers."""
        self._store.add("ballast_bridge_polls_total", self._cluster, FAILED)

    def show_mirror(self, differences: int, working: int) -> None:
        """Set the number of differences, and of bundles being worked on."""
        self._store.set("ballast_bridge_differences", differences, self._cluster)
        self._store.set("ballast_bridge_pending_actions", working, self._cluster)

    def show_findings(self, findings: Collection[Finding]) -> None:
        """Set the numbers of the guardian's findings in this look."""
        for trouble in Trouble:
            count = sum(one.trouble is trouble for one in findings)
            self._store.set("ballast_bridge_findings", count, self._cluster, trouble.value)
        held = sum(one.stage is FindingStage.QUARANTINED for one in findings)
        self._store.set("ballast_bridge_quarantined", held, self._cluster)

    def show_messages(self, delivered: int, not_delivered: int) -> None:
        """Count the messages to Kafka, given as totals since the start.

        Called by one thread.
        """
        for at, (result, count) in enumerate(
            ((DELIVERED, delivered), (NOT_DELIVERED, not_delivered))
        ):
            name = "ballast_bridge_messages_total"
            self._store.add(name, self._cluster, result, by=count - self._messages[at])
            self._messages[at] = count

    def count_asked(self, action: str) -> None:
        """Pulsar is asked for an UNLOAD or a SPLIT."""
        self._store.add("ballast_bridge_requests_total", self._cluster, action)

    def count_not_done(self, *, is_refusal: bool) -> None:
        """It did not go through."""
        result = REFUSED if is_refusal else FAILED
        self._store.add("ballast_bridge_failed_requests_total", self._cluster, result)

    def count_answer(self, outcome: AckOutcome) -> None:
        """A record was acknowledged."""
        self._store.add("ballast_bridge_answers_total", self._cluster, outcome.value)

    def count_load_error(self, broker: str) -> None:
        """A broker's load could not be read."""
        self._store.add("ballast_bridge_load_errors_total", self._cluster, broker)

    def show_unread(self, labels: Collection[str]) -> None:
        """Set the number of things that can't be read now, for each of FAILURES."""
        for label in FAILURES:
            count = sum(one == label for one in labels)
            self._store.set("ballast_bridge_unread", count, self._cluster, label)

    def count_unreported(self, field: str) -> None:
        """A field of a broker's load counts as not reported."""
        self._store.add("ballast_bridge_unreported_total", self._cluster, field)

    def keep_brokers(self, brokers: Collection[str]) -> None:
        """Forget the series of all others."""
        self._store.keep_brokers(self._cluster, brokers)
