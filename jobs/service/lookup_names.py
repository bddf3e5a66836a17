"""The metrics of the lookup and admin service, declared.

Decides nothing. Source: ours, with Pulsar 4.0.8's name for lookups by the state of the bundle.
"""

from jobs.adapters.delta.table_tail import ReloadReason
from jobs.adapters.http.bounds import Cut
from jobs.service.gates import OTHER_REFUSALS
from jobs.service.lookup_replies import OTHER_RESULTS
from jobs.service.origins import FOREIGN
from jobs.service.tokens import TokenFault
from jobs.telemetry.declared import DeclaredMetric, counter, gauge, histogram
from lbcore.ownership.records import State
from lbcore.route.bundles import Unsound
from lbcore.route.snapshot import LookupOutcome

BUCKETS_S = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5, 10.0)
OWNER_LOOKUPS = "pulsar_sunit_state_chn_owner_lookup_total"

_REFUSALS = (*OTHER_REFUSALS, *FOREIGN, *(one.value for one in TokenFault))

LOOKUP_METRICS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_lookup_info", "1; the service's version.", "version"),
    counter(
        "ballast_lookup_requests_total", "Lookups by what they came to.", "result",
        result=(*(one.value for one in LookupOutcome), *OTHER_RESULTS),
    ),
    counter(
        OWNER_LOOKUPS, "Lookups of owners by the state of the bundle; Failure: no owner was named.",
        "cluster", "broker", "metric", "result", "state",
        result=("Total", "Failure"), state=tuple(state.value for state in State),
    ),
    histogram(
        "ballast_lookup_duration_seconds",
        "From a lookup's arrival to its answer, waiting included.", BUCKETS_S,
    ),
    gauge("ballast_lookup_certificate_end_seconds",
          "When the service's certificate ends, in seconds since 1970; without TLS there is none."),
    gauge("ballast_lookup_waiting", "Lookups that wait for their bundle's owner."),
    gauge("ballast_snapshot_ready", "1 when lookups are answered."),
    gauge("ballast_snapshot_age_seconds", "Since the answers were last known to be the newest."),
    gauge("ballast_snapshot_table_version", "Version of ownership_events that answers come from."),
    gauge("ballast_snapshot_batch_id", "Batch of the job's last commit seen."),
    gauge("ballast_snapshot_bundles", "Bundles that can be looked up."),
    gauge("ballast_snapshot_namespaces", "Namespaces that exist."),
    gauge("ballast_snapshot_brokers", "Brokers whose addresses are known."),
    counter(
        "ballast_snapshot_refused_total",
        "Unsound snapshots that were not served, by what was wrong.", "reason",
        reason=tuple(one.value for one in Unsound),
    ),
    gauge("ballast_writer_silent_seconds", "Since the job's last commit; absent before the first."),
    gauge("ballast_service_clock_ahead_seconds",
          "How far the clock of the service's machine is ahead of the job's; 0 = by no doubt;"
          " absent while no commit is known."),
    counter(
        "ballast_tables_reloads_total", "Loads of the whole tables, by reason.", "reason",
        reason=tuple(one.value for one in ReloadReason),
    ),
    gauge("ballast_tables_trouble",
          "1 while the newest tables are refused or unreadable: answers age."),
    counter("ballast_tables_errors_total", "Times the tables could not be read."),
    counter("ballast_tables_commits_total", "Commits of ownership_events applied."),
    counter("ballast_tables_rows_total", "Ownership records applied from commits."),
    counter(
        "ballast_requests_refused_total", "Requests that were not let in, by reason.", "reason",
        reason=_REFUSALS,
    ),
    counter(
        "ballast_connections_cut_total", "Connections ended before their time, by reason.",
        "reason", reason=tuple(one.value for one in Cut),
    ),
    gauge("ballast_requests_unanswered_bytes", "Received of requests that are not answered yet."),
    gauge("ballast_answers_unread_bytes", "Of answers that clients are slow to take."),
    counter("ballast_admin_requests_total",
            "Requests beside lookups, by the status they were answered with.", "status"),
    gauge("ballast_admin_streams", "Answers that go on: clients that watch."),
    gauge("ballast_reader_processes", "Processes beside the service that read tables now."),
    gauge("ballast_reader_memory_bytes", "What these hold, code that they share included."),
    counter("ballast_reader_starts_total", "Such processes started; each ends by itself."),
    counter("ballast_reader_failures_total", "Such processes that ended while they were wanted."),
    counter("ballast_audit_dropped_total",
            "Audit entries that did not get to Kafka; the service's log has them."),
    counter("ballast_audit_unrecorded_total",
            "Refusals left out of the audit because there were too many."),
)  # fmt: skip
