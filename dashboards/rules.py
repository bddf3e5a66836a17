"""The alert rules: expression, severity, and section of the runbook.

`python -m dashboards` writes them to alerts.yml. Ranges suit the times of conf/base.toml. Each has
a section of its name in docs/runbook.md.
"""

import json
from dataclasses import dataclass

from lbcore.balancer.candidate_rows import BLOCKED_ALARM_S
from lbcore.model.times import ALERTED_MS, WARNED_MS
from lbcore.plan.shed.custom import FAULTS

CRITICAL, WARNING, INFO = "critical", "warning", "info"
"""Wake somebody; look today; know of it."""
RUNBOOK = "docs/runbook.md"
"""Where the runbook is, unless a URL is named: `python -m dashboards --runbook-url`."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule.

    expr: true for each series that is wrong; for_s: for so long before it fires.
    """

    name: str
    severity: str
    for_s: int
    expr: str
    summary: str


def _grew(counter: str, *by: str) -> str:
    """Return growth within ten minutes, from nothing too.

    What a start's first batch counts is seen once.
    """
    kept = ", ".join(by)
    now, before = (f"sum by ({kept}) ({counter}{ago})" for ago in ("", " offset 10m"))
    return f"sum by ({kept}) (increase({counter}[10m])) > 0 or ({now} > 0 unless {before})"


# a series that was never written can't pass a threshold: its absence is asked for, once whatever
# should write it was there for longer than a start takes
_NO_BATCH = (
    "((ballast_job_info and on (instance) (ballast_job_info offset 4m))"
    ' unless on (instance) (ballast_job_phase{phase="standing by"} == 1)'
    " unless on (instance) ballast_batch_timestamp_seconds)"
)
_NO_COMMIT = (
    "((ballast_snapshot_ready and on (instance) (ballast_snapshot_ready offset 4m))"
    " unless on (instance) ballast_writer_silent_seconds)"
)
_NO_REPORT = "(ballast_broker_up == 1 unless on (cluster, broker) ballast_report_age_seconds)"

JOB = (
    Alert("BallastJobDown", CRITICAL, 60, "absent(ballast_job_info)",
          "No streaming job serves metrics: nothing is balanced, no crash is repaired."),
    Alert("BallastJobSilent", CRITICAL, 30, f"time() - ballast_batch_timestamp_seconds > 60 or {_NO_BATCH}",
          "The job has written no batch of {{ $labels.cluster }} for a minute, or none since its start."),
    Alert("BallastWriterSilent", CRITICAL, 30, f"ballast_writer_silent_seconds > 60 or {_NO_COMMIT}",
          "{{ $labels.instance }} has seen no commit of the job for a minute, or none at all."),
    Alert("BallastBehind", WARNING, 120, "ballast_catching_up == 1",
          "What the job reads of {{ $labels.cluster }} is too old to decide on."),
    Alert("BallastKafkaLag", WARNING, 300, "ballast_kafka_lag_messages > 20000",
          "{{ $value }} messages wait in Kafka: more than a batch takes."),
    Alert("BallastSlowBatches", WARNING, 600,
          'ballast_spark_phase_seconds{phase="triggerExecution"} > 5',
          "A batch takes {{ $value | humanizeDuration }}."),
    Alert("BallastNoTicks", CRITICAL, 30, 'ballast_alarm{alarm="ticks"} == 1',
          "No ticks on broker-load: nobody in {{ $labels.cluster }} is judged dead or alive."),
    Alert("BallastClockSkew", WARNING, 0, "abs(ballast_clock_ahead_seconds) > 0",
          "The clock {{ $labels.clock }} of {{ $labels.cluster }} is ahead by {{ $value | humanizeDuration }}."),
    Alert("BallastServiceClockSkew", WARNING, 0, "abs(ballast_service_clock_ahead_seconds) > 0",
          "The clock of {{ $labels.instance }} is ahead of the job's by {{ $value | humanizeDuration }}."),
    Alert("BallastFaults", CRITICAL, 0,
          _grew("ballast_faults_total", "cluster", "phase"),
          "An item of {{ $labels.cluster }} raised an error in {{ $labels.phase }} and was skipped."),
    Alert("BallastNoCandidate", CRITICAL, 0,
          "max_over_time(ballast_bundles_without_candidate[1m]) > 0",
          "No broker of {{ $labels.cluster }} may take {{ $value }} bundles: {{ $labels.setting }}."),
    Alert("BallastSettingIgnored", WARNING, 0, "ballast_ignored_settings > 0",
          "{{ $value }} changed settings of {{ $labels.cluster }} don't suit the files and are not in force."),
    Alert("BallastStateLarge", WARNING, 600, "ballast_state_bytes > 2e9",
          "The state of {{ $labels.operator }} takes {{ $value | humanize1024 }}B of memory."),
    Alert("BallastDebugLeftOn", INFO, 14_400, "ballast_debug == 1",
          "Debug mode of {{ $labels.cluster }} has been on for four hours."),
)  # fmt: skip

BROKERS = (
    Alert("BallastBrokerDown", WARNING, 0, "ballast_broker_up == 0",
          "{{ $labels.broker }} is silent and was found dead: its bundles move to other brokers."),
    Alert("BallastBrake", CRITICAL, 0, 'ballast_alarm{alarm="brake"} == 1',
          "Many brokers of {{ $labels.cluster }} vanished at once: drains and plans wait, failover goes on."),
    Alert("BallastManyBrokersSilent", CRITICAL, 0, 'ballast_alarm{alarm="silence"} == 1',
          "Half of the brokers of {{ $labels.cluster }} or more are silent: failover waits until they report."),
    Alert("BallastFlapping", WARNING, 0, 'ballast_alarm{alarm="flapping"} == 1',
          "A broker of {{ $labels.cluster }} restarts repeatedly and gets no bundles."),
    Alert("BallastStaleReports", WARNING, 120,
          f"ballast_report_age_seconds > 300 and on (cluster, broker) ballast_broker_up == 1 or {_NO_REPORT}",
          "{{ $labels.broker }} lives, but its load is more than 5 minutes old or was never reported."),
    Alert("BallastRejectedReports", WARNING, 0,
          _grew("ballast_rejected_total", "cluster", "topic", "reason"),
          "Messages of {{ $labels.topic }} can't be used: {{ $labels.reason }}."),
    Alert("BallastCallbacksFail", WARNING, 0,
          'sum by (cluster, broker, callback) (increase(ballast_agent_callbacks_total{result=~"failed|overdue"}[10m])) > 0',
          "{{ $labels.callback }} of the service on {{ $labels.broker }} fails."),
    Alert("BallastCallbacksHang", WARNING, 60, "ballast_agent_hanging_callbacks > 0",
          "{{ $value }} callbacks ({{ $labels.callback }}) of the service on {{ $labels.broker }} do not return."),
    Alert("BallastLoadUnreadable", WARNING, 0,
          "sum by (cluster, broker) (increase(ballast_agent_load_errors_total[10m])) > 0",
          "{{ $labels.broker }} can't read its load, or only a part: it is judged by old numbers."),
    Alert("BallastLeaseLost", CRITICAL, 10, "ballast_agent_lease_seconds == 0",
          "{{ $labels.broker }} serves nothing: its lease has run out."),
)  # fmt: skip

OWNERSHIP = (
    Alert("BallastStuckBundles", CRITICAL, 30, "ballast_stuck_bundles > 0",
          "{{ $value }} bundles of {{ $labels.cluster }} are in flight for longer than any timeout."),
    Alert("BallastRepairs", WARNING, 0,
          'sum by (cluster, reason) (increase(ballast_decisions_total{kind="repair", reason!="restarted"}[10m])) > 0',
          "Bundles of {{ $labels.cluster }} were stuck and repaired: {{ $labels.reason }}."),
    Alert("BallastUnowned", CRITICAL, 60, 'ballast_oldest_record_seconds{state="Free"} > 120',
          "A bundle of {{ $labels.cluster }} has had no owner for {{ $value | humanizeDuration }}."),
    Alert("BallastDisagreement", WARNING, 120, 'ballast_disagreements{kind="lasting"} > 0',
          "{{ $value }} bundles are served by other brokers than the records of {{ $labels.cluster }} say."),
    Alert("BallastOverride", INFO, 0,
          'sum by (cluster) (increase(ballast_overrides_total{cause="admin"}[10m])) > 0',
          "An operator has taken bundles of {{ $labels.cluster }} by force."),
    Alert("BallastDrainStalled", WARNING, 900,
          "ballast_drain_remaining_bundles > 0 and delta(ballast_drain_remaining_bundles[10m]) >= 0",
          "The drain of {{ $labels.broker }} makes no progress; {{ $value }} bundles are left."),
)  # fmt: skip


def _found(name: str, severity: str, trouble: str, summary: str) -> Alert:
    expr = f'ballast_bridge_findings{{trouble="{trouble}"}} > 0'
    return Alert(name, severity, 0, expr, summary)


PULSAR = (
    _found("BallastPulsarDoubled", CRITICAL, "doubled",
           "{{ $value }} bundles of {{ $labels.cluster }} have two brokers that say they own them."),
    _found("BallastPulsarUnserved", CRITICAL, "unserved",
           "{{ $value }} bundles of {{ $labels.cluster }} have clients and no broker."),
    _found("BallastPulsarStuck", CRITICAL, "stuck",
           "{{ $value }} bundles of {{ $labels.cluster }} are in flight for longer than a move takes."),
    _found("BallastPulsarCircling", CRITICAL, "circling",
           "Lookups of {{ $value }} bundles of {{ $labels.cluster }} go in circles."),
    _found("BallastPulsarPoison", CRITICAL, "poison",
           "The owners of {{ $value }} bundles of {{ $labels.cluster }} die one after the other."),
    _found("BallastPulsarUnlisted", CRITICAL, "unlisted",
           "{{ $value }} brokers of {{ $labels.cluster }} serve bundles and are no longer listed by Pulsar."),
    _found("BallastPulsarUnresponsive", CRITICAL, "unresponsive",
           "{{ $value }} brokers of {{ $labels.cluster }} are listed and answer nothing."),
    _found("BallastPulsarNarrow", WARNING, "narrow",
           "{{ $value }} topics of {{ $labels.cluster }} have their partitions on too few brokers."),
    _found("BallastPulsarUnread", WARNING, "unread",
           "{{ $value }} namespaces, policies or brokers of {{ $labels.cluster }} can't be read from Pulsar."),
    _found("BallastPulsarMisreporting", WARNING, "misreporting",
           "{{ $value }} brokers of {{ $labels.cluster }} report fields that can't be used."),
    Alert("BallastPulsarQuarantined", CRITICAL, 0, "ballast_bridge_quarantined > 0",
          "{{ $value }} bundles of {{ $labels.cluster }} could not be repaired, and are quarantined."),
)  # fmt: skip

BALANCE = (
    Alert("BallastClusterFull", WARNING, 60, 'ballast_alarm{alarm="full"} == 1',
          "The brokers of {{ $labels.cluster }} are full: moves can't help, more brokers would."),
    Alert("BallastImbalance", WARNING, 900, "ballast_floor_adjusted_imbalance > 1.6",
          "One broker of {{ $labels.cluster }} carries {{ $value | humanize }} times the load that moves could achieve."),
    Alert("BallastBrokerBlocked", WARNING, BLOCKED_ALARM_S, "ballast_broker_blocked_seconds > 0",
          "{{ $labels.broker }} is hot for {{ $value | humanizeDuration }} and gives nothing "
          "({{ $labels.reason }}): ballast explain broker {{ $labels.broker }}."),
    Alert("BallastStrategyFailed", WARNING, 60,
          f'sum by (cluster) (increase(ballast_decisions_total{{kind="skip", reason=~"{"|".join(FAULTS)}"}}[10m])) > 0',
          "The custom strategy of {{ $labels.cluster }} fails and decides nothing: ballast explain cluster."),
    Alert("BallastUnsplittable", WARNING, 300, "ballast_unsplittable_bundles > 0",
          "{{ $value }} bundles of {{ $labels.cluster }} are too hot, and nothing divides them."),
    Alert("BallastThrash", WARNING, 0,
          "sum by (cluster) (increase(ballast_returns_total[1h])) > 10 and "
          "sum by (cluster) (increase(ballast_returns_total[1h])) > 0.1 * "
          "sum by (cluster) (increase(ballast_moves_total[1h]))",
          "Bundles of {{ $labels.cluster }} go back and forth."),
    Alert("BallastMovesDontHelp", WARNING, 0,
          'sum by (cluster) (increase(ballast_decision_effects_total{outcome="ineffective"}[1h])) > 20 and '
          'sum by (cluster) (increase(ballast_decision_effects_total{outcome="ineffective"}[1h])) > '
          'sum by (cluster) (increase(ballast_decision_effects_total{outcome="helped"}[1h]))',
          "Most moves of {{ $labels.cluster }} did not help."),
    Alert("BallastPaused", INFO, 3_600, "ballast_paused == 1",
          "Balancing of {{ $labels.cluster }} has been paused for an hour."),
)  # fmt: skip

_WARNED_S, _ALERTED_S = WARNED_MS // 1_000, ALERTED_MS // 1_000
_CERTIFICATE_LEFT = "ballast_lookup_certificate_expiry_timestamp_seconds - time()"

CERTIFICATES = (
    Alert("BallastCertificateExpires", WARNING, 0,
          'ballast_bridge_findings{trouble="expiring"} > 0 or '
          f"({_CERTIFICATE_LEFT} < {_WARNED_S}) >= {_ALERTED_S}",
          "A certificate that {{ $labels.instance }} shows or is shown ends within "
          f"{_WARNED_S // 86_400} days."),
    Alert("BallastCertificateExpiresSoon", CRITICAL, 0,
          'ballast_bridge_findings{trouble="expiring_soon"} > 0 or '
          f"{_CERTIFICATE_LEFT} < {_ALERTED_S}",
          "A certificate that {{ $labels.instance }} shows or is shown ends within "
          f"{_ALERTED_S // 86_400} days."),
)  # fmt: skip

LOOKUP = (
    Alert("BallastLookupNotReady", CRITICAL, 30, "ballast_snapshot_ready == 0",
          "{{ $labels.instance }} answers no lookup: it has no tables yet."),
    Alert("BallastLookupStale", WARNING, 30, "ballast_snapshot_age_seconds > 10",
          "{{ $labels.instance }} answers from tables that are {{ $value | humanizeDuration }} old."),
    Alert("BallastTablesUnreadable", CRITICAL, 60, "ballast_tables_unreadable == 1",
          "{{ $labels.instance }} refuses or can't read the newest tables."),
    Alert("BallastLookupLag", WARNING, 60,
          'scalar(max(ballast_table_version{table="ownership_events"})) - ballast_snapshot_table_version > 20',
          "{{ $labels.instance }} is {{ $value }} commits behind the job."),
    Alert("BallastLookupsFail", WARNING, 120,
          'sum by (instance) (rate(ballast_lookup_requests_total{result=~"no_owner|broker_unknown|not_ready"}[5m])) > '
          "0.01 * sum by (instance) (rate(ballast_lookup_requests_total[5m]))",
          "{{ $labels.instance }} answers {{ $value | humanize }} lookups a second without an owner."),
    Alert("BallastLookupsSlow", WARNING, 300,
          "histogram_quantile(0.99, sum by (instance, le) (rate(ballast_lookup_duration_seconds_bucket[5m]))) > 0.25",
          "One of 100 lookups of {{ $labels.instance }} takes {{ $value | humanizeDuration }} or longer."),
    Alert("BallastAuthFailures", WARNING, 0,
          'sum by (instance) (increase(ballast_requests_refused_total{reason!="too_many_requests"}[5m])) > 20',
          "{{ $labels.instance }} refused {{ $value | humanize }} requests within 5 minutes."),
    Alert("BallastConnectionsClosed", WARNING, 0,
          "sum by (instance, reason) (increase(ballast_connections_closed_total[5m])) > 100",
          "{{ $labels.instance }} has cut {{ $value | humanize }} connections in 5 minutes: {{ $labels.reason }}."),
    Alert("BallastReadersFail", WARNING, 0,
          "sum by (instance) (increase(ballast_reader_failures_total[10m])) > 0",
          "{{ $value | humanize }} processes of {{ $labels.instance }} that read tables were killed."),
    Alert("BallastAuditDropped", CRITICAL, 0, "increase(ballast_audit_dropped_total[10m]) > 0",
          "{{ $labels.instance }} could not record requests in the audit."),
)  # fmt: skip

GROUPS = {
    "ballast-job": JOB,
    "ballast-brokers": BROKERS,
    "ballast-ownership": OWNERSHIP,
    "ballast-pulsar": PULSAR,
    "ballast-balance": BALANCE,
    "ballast-lookup": LOOKUP,
    "ballast-certificates": CERTIFICATES,
}
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)


def render_rules(*, for_max_s: int | None = None, runbook: str = RUNBOOK) -> str:
    """The rules as Prometheus reads them. for_max_s: no rule waits for longer (tests)."""
    lines = [
        "# Written by `python -m dashboards` from dashboards/rules.py; a test holds it equal.",
        "groups:",
    ]
    for name, alerts in GROUPS.items():
        lines += [f"  - name: {name}", "    rules:"]
        for alert in alerts:
            for_s = alert.for_s if for_max_s is None else min(alert.for_s, for_max_s)
            lines += [
                f"      - alert: {alert.name}",
                f"        expr: {json.dumps(alert.expr)}",
                f"        for: {for_s}s",
                f"        labels: {{severity: {alert.severity}}}",
                "        annotations:",
                f"          summary: {json.dumps(alert.summary)}",
                f"          runbook_url: {runbook}#{alert.name.lower()}",
            ]
    return "\n".join(lines) + "\n"
