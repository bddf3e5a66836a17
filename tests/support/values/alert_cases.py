"""Cases of the alert rules, and names in PromQL queries."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.rules import ALERTS

Series = Mapping[str, str]
_INTERVAL, _STEPS = "15s", 120
_BRAKE, _TICKS, _FLAPS = (
    f'ballast_alarm{{cluster="c",alarm="{a}"}}' for a in ("brake", "ticks", "flapping")
)
_REFUSED = 'ballast_requests_refused_total{instance="l",reason="bad_signature"}'
_LOOKUPS = 'ballast_lookup_requests_total{instance="l",result="%s"}'
_EFFECTS = 'ballast_decision_effects_total{cluster="c",outcome="%s"}'
_SKIPS = 'ballast_decisions_total{cluster="c",kind="skip",reason="%s"}'
_REPAIRS = 'ballast_decisions_total{cluster="c",kind="repair",reason="%s"}'
_CERTIFICATE = 'ballast_lookup_certificate_expiry_timestamp_seconds{instance="l"}'
_FREE = 'ballast_oldest_record_seconds{cluster="c",state="Free"}'
_BROKER = '{cluster="c",broker="b1"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """fires, quiet: series; at: when both are judged."""

    fires: Series
    quiet: Series
    at: str = "20m"


def _constant(series: str, bad: float, good: float) -> Case:
    return Case(fires={series: f"{bad}x{_STEPS}"}, quiet={series: f"{good}x{_STEPS}"})


def _for_long(series: str, *, steps: int, at: str) -> Case:
    return Case(fires={series: f"1x{steps}"}, quiet={series: f"1x{steps // 2} 0x{steps}"}, at=at)


def _counted(series: str, step: float, good: float = 0) -> Case:
    return Case(fires={series: f"0+{step}x120"}, quiet={series: f"5+{good}x120"})


def _from_nothing(series: str) -> Case:
    return Case(fires={series: "_x70 1x50"}, quiet={series: "1x120"})


def _lookup_times(fast: int, slow: int) -> Series:
    name = 'ballast_lookup_duration_seconds_bucket{instance="l",le="%s"}'
    return {
        name % "0.01": f"0+{fast}x120",
        name % "0.25": f"0+{fast}x120",
        name % "1.0": f"0+{fast + slow}x120",
        name % "+Inf": f"0+{fast + slow}x120",
    }


def _found(trouble: str) -> Case:
    return _constant(f'ballast_bridge_findings{{cluster="c",trouble="{trouble}"}}', 1, 0)


CASES: Mapping[str, Case] = {
    "BallastCertificateExpires": Case(
        fires={_CERTIFICATE: f"{20 * 86_400}x120"}, quiet={_CERTIFICATE: f"{5 * 86_400}x120"}
    ),
    "BallastCertificateExpiresSoon": _constant(_CERTIFICATE, 5 * 86_400, 20 * 86_400),
    "BallastPulsarDoubled": _found("doubled"),
    "BallastPulsarUnserved": _found("unserved"),
    "BallastPulsarStuck": _found("stuck"),
    "BallastPulsarCircling": _found("circling"),
    "BallastPulsarPoison": _found("poison"),
    "BallastPulsarUnlisted": _found("unlisted"),
    "BallastPulsarUnresponsive": _found("unresponsive"),
    "BallastPulsarNarrow": _found("narrow"),
    "BallastPulsarUnread": _found("unread"),
    "BallastPulsarMisreporting": _found("misreporting"),
    "BallastPulsarQuarantined": _constant('ballast_bridge_quarantined{cluster="c"}', 1, 0),
    "BallastJobDown": Case(fires={"up": "1x120"}, quiet={'ballast_job_info{version="1"}': "1x120"}),
    "BallastJobSilent": Case(
        fires={'ballast_batch_timestamp_seconds{cluster="c"}': "100x120"},
        quiet={'ballast_batch_timestamp_seconds{cluster="c"}': "0+15x120"},
    ),
    "BallastWriterSilent": _constant('ballast_writer_silent_seconds{instance="l"}', 90, 12),
    "BallastWriterSilent, never written": Case(
        fires={'ballast_snapshot_ready{instance="l"}': "1x120"},
        quiet={
            'ballast_snapshot_ready{instance="l"}': "1x120",
            'ballast_writer_silent_seconds{instance="l"}': "4x120",
        },
    ),
    "BallastWriterSilent, just started": Case(
        fires={'ballast_snapshot_ready{instance="l"}': "0x120"},
        quiet={'ballast_snapshot_ready{instance="l"}': "_x70 1x50"},
    ),
    "BallastJobSilent, never written": Case(
        fires={'ballast_job_info{instance="j",version="1"}': "1x120"},
        quiet={
            'ballast_job_info{instance="j",version="1"}': "1x120",
            'ballast_job_phase{instance="j",phase="standing by"}': "1x120",
        },
    ),
    "BallastStaleReports, never reported": Case(
        fires={f"ballast_broker_up{_BROKER}": "1x120"},
        quiet={
            f"ballast_broker_up{_BROKER}": "1x120",
            f"ballast_report_age_seconds{_BROKER}": "5x120",
        },
    ),
    "BallastBehind": _constant('ballast_catching_up{cluster="c"}', 1, 0),
    "BallastKafkaLag": _constant("ballast_kafka_lag_messages", 30_000, 1_000),
    "BallastSlowBatches": _constant(
        'ballast_spark_phase_seconds{phase="triggerExecution"}', 6.5, 1.2
    ),
    "BallastNoTicks": _constant(_TICKS, 1, 0),
    "BallastClockSkew": _constant(
        'ballast_clock_ahead_seconds{cluster="c",clock="driver"}', -40, 0
    ),
    "BallastServiceClockSkew": _constant(
        'ballast_service_clock_ahead_seconds{instance="l"}', 40, 0
    ),
    "BallastFaults": _from_nothing('ballast_faults_total{cluster="c",phase="rebuild_rows"}'),
    "BallastNoCandidate": _constant(
        'ballast_bundles_without_candidate{cluster="c",setting="filters.load_manager_class"}', 3, 0
    ),
    "BallastSettingIgnored": _constant('ballast_ignored_settings{cluster="c"}', 1, 0),
    "BallastStateLarge": _constant('ballast_state_bytes{operator="balancer"}', 3e9, 1e8),
    "BallastDebugLeftOn": _for_long('ballast_debug{cluster="c"}', steps=1_000, at="245m"),
    "BallastBrokerDown": _constant(f"ballast_broker_up{_BROKER}", 0, 1),
    "BallastBrake": _constant(_BRAKE, 1, 0),
    "BallastManyBrokersSilent": _constant('ballast_alarm{cluster="c",alarm="silence"}', 1, 0),
    "BallastFlapping": _constant(_FLAPS, 1, 0),
    "BallastStaleReports": Case(
        fires={
            f"ballast_report_age_seconds{_BROKER}": "400x120",
            f"ballast_broker_up{_BROKER}": "1x120",
        },
        quiet={
            f"ballast_report_age_seconds{_BROKER}": "400x120",
            f"ballast_broker_up{_BROKER}": "0x120",
        },
    ),
    "BallastRejectedReports": _counted(
        'ballast_rejected_total{cluster="c",topic="acks",reason="no_json"}', 1
    ),
    "BallastCallbacksFail": _counted(
        'ballast_agent_callbacks_total{cluster="c",broker="b1",callback="open",result="failed"}', 1
    ),
    "BallastCallbacksHang": _constant(
        'ballast_agent_hanging_callbacks{cluster="c",broker="b1",callback="close"}', 1, 0
    ),
    "BallastLoadUnreadable": _counted(
        'ballast_agent_load_errors_total{cluster="c",broker="b1"}', 1
    ),
    "BallastLeaseLost": _constant(f"ballast_agent_lease_seconds{_BROKER}", 0, 4),
    "BallastStuckBundles": _constant('ballast_stuck_bundles{cluster="c"}', 2, 0),
    "BallastRepairs": Case(
        fires={_REPAIRS % "never_opened": "0+1x120"},
        quiet={_REPAIRS % "restarted": "0+1x120"},
    ),
    "BallastUnowned": _constant(_FREE, 180, 20),
    "BallastDisagreement": _constant('ballast_disagreements{cluster="c",kind="lasting"}', 1, 0),
    "BallastOverride": Case(
        fires={'ballast_overrides_total{cluster="c",cause="admin"}': "0+1x120"},
        quiet={'ballast_overrides_total{cluster="c",cause="failover"}': "0+1x120"},
    ),
    "BallastDrainStalled": Case(
        fires={f"ballast_drain_remaining_bundles{_BROKER}": "7x120"},
        quiet={f"ballast_drain_remaining_bundles{_BROKER}": "400-2x120"},
        at="30m",
    ),
    "BallastImbalance": _constant('ballast_floor_adjusted_imbalance{cluster="c"}', 1.9, 1.2),
    "BallastClusterFull": _constant('ballast_alarm{cluster="c",alarm="full"}', 1, 0),
    "BallastBrokerBlocked": _constant(
        'ballast_broker_blocked_seconds{cluster="c",broker="b1",reason="recently_unloaded"}', 240, 0
    ),
    "BallastStrategyFailed": Case(  # the alarm lasts for the batch of a cycle, no scrape long
        fires={
            _SKIPS % "StrategyFailed": "0+1x120",
            'ballast_alarm{cluster="c",alarm="strategy"}': "0x120",
        },
        quiet={_SKIPS % "HitCount": "0+1x120"},
    ),
    "BallastUnsplittable": _constant('ballast_unsplittable_bundles{cluster="c"}', 1, 0),
    "BallastThrash": Case(
        fires={
            'ballast_returns_total{cluster="c"}': "0+1x120",
            'ballast_moves_total{cluster="c",cause="shed"}': "0+2x120",
        },
        quiet={
            'ballast_returns_total{cluster="c"}': "0+1x120",
            'ballast_moves_total{cluster="c",cause="shed"}': "0+20x120",
        },
    ),
    "BallastMovesDontHelp": Case(
        fires={_EFFECTS % "ineffective": "0+2x120", _EFFECTS % "helped": "0+1x120"},
        quiet={_EFFECTS % "ineffective": "0+2x120", _EFFECTS % "helped": "0+5x120"},
    ),
    "BallastPaused": _for_long('ballast_paused{cluster="c"}', steps=400, at="70m"),
    "BallastLookupNotReady": _constant('ballast_snapshot_ready{instance="l"}', 0, 1),
    "BallastLookupStale": _constant('ballast_snapshot_age_seconds{instance="l"}', 40, 0.3),
    "BallastTablesUnreadable": _constant('ballast_tables_unreadable{instance="l"}', 1, 0),
    "BallastLookupLag": Case(
        fires={
            'ballast_table_version{table="ownership_events"}': "100x120",
            'ballast_snapshot_table_version{instance="l"}': "70x120",
        },
        quiet={
            'ballast_table_version{table="ownership_events"}': "100x120",
            'ballast_snapshot_table_version{instance="l"}': "99x120",
        },
    ),
    "BallastLookupsFail": Case(
        fires={_LOOKUPS % "found": "0+100x120", _LOOKUPS % "no_owner": "0+5x120"},
        quiet={_LOOKUPS % "found": "0+1000x120", _LOOKUPS % "no_owner": "0+5x120"},
    ),
    "BallastLookupsSlow": Case(fires=_lookup_times(90, 10), quiet=_lookup_times(1_000, 1)),
    "BallastAuthFailures": Case(fires={_REFUSED: "0+5x120"}, quiet={_REFUSED: "0+0.5x120"}),
    "BallastConnectionsClosed": _counted(
        'ballast_connections_closed_total{instance="l",reason="malformed"}', 10, 1
    ),
    "BallastReadersFail": _counted('ballast_reader_failures_total{instance="l"}', 1),
    "BallastAuditDropped": _counted('ballast_audit_dropped_total{instance="l"}', 1),
}  # fmt: skip


def as_promtool(cases: Mapping[str, Case]) -> dict[str, Any]:
    tests = [
        test
        for name, case in cases.items()
        for test in (
            _test(name, case.fires, case.at, is_firing=True),
            _test(name, case.quiet, case.at, is_firing=False),
        )
    ]
    return {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests}


def _test(name: str, series: Series, at: str, *, is_firing: bool) -> dict[str, Any]:
    """Asks whether ALERTS says that it fires: promtool would compare every label and text."""
    (alert,) = [one for one in ALERTS if one.name == name.partition(",")[0]]
    expr = f'count(ALERTS{{alertname="{alert.name}", alertstate="firing"}})'
    return {
        "name": f"{name} {'fires' if is_firing else 'is quiet'}",
        "interval": _INTERVAL,
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": at,
                "exp_samples": [{"labels": "{}", "value": 1}] if is_firing else [],
            }
        ],
    }


_STRINGS = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\{[^}]*\}")
_LISTS = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_WORDS = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")
_KEYWORDS = frozenset({"and", "or", "unless", "by", "on", "without", "bool", "offset"})


def names_in(query: str) -> set[str]:
    text = _LABELS.sub("", _STRINGS.sub('""', query))
    text = re.sub(r"\[[^\]]*\]", "", _LISTS.sub("", text))
    text = re.sub(r"\boffset\s+\w+", "", text)
    words = {word for word in _WORDS.findall(text) if not re.fullmatch(r"e\d+", word)}
    return words - _KEYWORDS


def labels_in(query: str) -> set[tuple[str, str]]:
    """(metric, label) of each matcher in braces."""
    found = set()
    for metric, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", query):
        found |= {(metric, label) for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)}
    return found
