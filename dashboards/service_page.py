"""The dashboard of the lookup and admin service."""

from dashboards.panel import Page, PanelKind, PanelRow, panel, quantile

_RATE = "$__rate_interval"
_LAG = (
    'clamp_min(scalar(max(ballast_table_version{table="ownership_events"}))'
    " - ballast_snapshot_table_version, 0)"
)

LOOKUP = Page(
    slug="lookup",
    title="Ballast: lookup service",
    rows=(
        PanelRow(title="Lookups", panels=(
            panel("Lookups a second, by result", "reqps",
                  ("found, nearly all.", "no_owner: BallastLookupsFail. not_ready: it has no tables."),
                  (f"sum by (result) (rate(ballast_lookup_requests_total[{_RATE}]))", "{{result}}"),
                  kind=PanelKind.STACKED),
            panel("How long they take", "s",
                  ("99 of 100 below 10 ms.", "more: who waits for owners? Else CPU, BallastLookupsSlow."),
                  (quantile(0.5, "ballast_lookup_duration_seconds"), "half"),
                  (quantile(0.99, "ballast_lookup_duration_seconds"), "99 of 100")),
            panel("Waiting for an owner", "short",
                  ("0.", "bundles are free or opening: Ownership and failover."),
                  ("ballast_lookup_waiting", "{{instance}}")),
        )),
        PanelRow(title="How new the answers are", panels=(
            panel("Age of the answers", "s", ("below 1 s.", "above 10 s: BallastLookupStale."),
                  ("ballast_snapshot_age_seconds", "{{instance}}")),
            panel("Commits behind the job", "short", ("0 or 1.", "above 20: BallastLookupLag."),
                  (_LAG, "{{instance}}")),
            panel("Since the job's last commit", "s",
                  ("below 10 s: a heartbeat comes as often.", "above 60 s: BallastWriterSilent."),
                  ("ballast_writer_silent_seconds", "{{instance}}")),
            panel("Trouble with tables", "short",
                  ("0.", "1: /health has the error, BallastTablesUnreadable."),
                  ("ballast_tables_unreadable", "{{instance}}"),
                  ("increase(ballast_tables_errors_total[5m])", "errors in 5 minutes"),
                  ("sum(increase(ballast_snapshot_refused_total[5m])) or vector(0)", "refused")),
            panel("What it holds", "short",
                  ("as many as were created.", "none: does it read the right tables?"),
                  ("ballast_snapshot_bundles", "bundles"), ("ballast_snapshot_brokers", "brokers"),
                  ("ballast_snapshot_namespaces", "namespaces")),
        )),
        PanelRow(title="Callers", panels=(
            panel("Refused requests, by reason", "short",
                  ("none.", "BallastAuthFailures; table `audit` has addresses."),
                  ("sum by (reason) (increase(ballast_requests_refused_total[5m])) or vector(0)",
                   "{{reason}}"), kind=PanelKind.STACKED),
            panel("Connections cut, by reason", "short",
                  ("none.", "BallastConnectionsClosed: `connection_cut` in the log has addresses."),
                  ("sum by (reason) (increase(ballast_connections_closed_total[5m])) or vector(0)",
                   "{{reason}}"), kind=PanelKind.STACKED),
            panel("Other requests a second, by status", "reqps",
                  ("200 and 204.", "5xx: the service's log. 429: a caller asks too often."),
                  (f"sum by (status) (rate(ballast_admin_requests_total[{_RATE}])) or vector(0)",
                   "{{status}}"), kind=PanelKind.STACKED),
            panel("Watching clients", "short", ("steady.", "falls to 0: they were cut off."),
                  ("ballast_admin_streams", "{{instance}}")),
        )),
        PanelRow(title="The process", panels=(
            panel("Processor", "percentunit", ("below 80 % of a core.", "add workers."),
                  (f"rate(process_cpu_seconds_total[{_RATE}])", "{{job}} {{instance}}")),
            panel("Memory", "bytes", ("steady; 400 bytes a bundle.", "it grows for days: report it."),
                  ("process_resident_memory_bytes", "{{job}} {{instance}}")),
        )),
    ),
)  # fmt: skip
