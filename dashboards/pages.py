"""The dashboards, in reading order.

Each panel says what is normal and what to do otherwise.
"""

from dashboards.panel import (
    RATE,
    Page,
    Panel,
    PanelKind,
    PanelQuery,
    PanelRow,
    growth,
    of,
    panel,
    quantile,
    rate,
)
from lbcore.model.resources import RESOURCES, Resource

_MOVES = PanelQuery(expr=f"{growth('ballast_moves_total', 'cause')} > 0", legend="moves")
_FAILOVERS = PanelQuery(
    expr=growth("ballast_decisions_total", "kind", 'kind=~"failover|repair"') + " > 0",
    legend="failovers and repairs",
)
_THRASH = (
    f"sum(increase({of('ballast_returns_total')}[1h])) / "
    f"clamp_min(sum(increase({of('ballast_moves_total')}[1h])), 1)"
)

_IMBALANCE = panel(
    "Imbalance", "none",
    ("floor-adjusted below 1.3; the other is higher when one bundle is hotter than a broker's share.",
     "when floor-adjusted stays above 1.6, see BallastImbalance: what do the skips on Decisions say?"),
    (of("ballast_imbalance"), "max / mean"),
    (of("ballast_floor_adjusted_imbalance"), "floor-adjusted"),
)  # fmt: skip
_IN_FLIGHT = panel(
    "Bundles in flight", "short",
    ("0, and small hills that last seconds while bundles move.",
     "a hill that stays: `ballast status` lists the bundles, see BallastStuckBundles."),
    (of("ballast_bundles", 'state=~"Assigning|Releasing|Splitting|Merging"'), "{{state}}"),
    kind=PanelKind.STACKED,
)  # fmt: skip
_MOVED = panel(
    "Moves a minute, by cause", "short",
    ("few; after a crash or a new broker many, then few again.",
     "moves all day: look at thrash on Decisions."),
    (growth("ballast_moves_total", "cause"), "{{cause}}"), kind=PanelKind.STACKED,
)  # fmt: skip

OVERVIEW = Page(
    slug="overview",
    title="Ballast: overview",
    marks=(_FAILOVERS,),
    rows=(
        PanelRow(title="Now", panels=(
            panel("Since the last batch", "s", ("1 to 3 s.", "more than 60 s: BallastJobSilent."),
                  (f"time() - {of('ballast_batch_timestamp_seconds')}", "{{cluster}}"), kind=PanelKind.NUMBER),
            panel("The job", "short",
                  ("at work: 1; beside it spares that are standing by.", "none: BallastJobDown; stalled: BallastJobSilent; rebuilding for minutes:"
                   " its log; set aside: BallastSettingIgnored."),
                  ("ballast_job_phase == 1", "{{phase}}"),
                  ("sum(time() - ballast_batch_timestamp_seconds > bool 60) > 0", "stalled"),
                  ("ballast_ignored_settings > 0", "settings set aside"), kind=PanelKind.NUMBER),
            panel("Brokers", "short", ("all of them active.", "silent ones: BallastBrokerDown."),
                  (of("ballast_brokers"), "{{state}}"), kind=PanelKind.NUMBER),
            panel("Stuck bundles", "short", ("0.", "anything else: BallastStuckBundles."),
                  (of("ballast_stuck_bundles"), "stuck"), kind=PanelKind.NUMBER),
            panel("Alarms", "short", ("0 for each.", "1: the section of that alarm in the runbook."),
                  (of("ballast_alarm"), "{{alarm}}"), kind=PanelKind.NUMBER),
        )),
        PanelRow(title="Balance and ownership", panels=(
            _IMBALANCE,
            _MOVED,
            _IN_FLIGHT,
            panel("Bundles without an owner", "short",
                  ("0, but for a moment after they are created.",
                   "`ballast explain bundle NAME` says which filter refuses which broker."),
                  (of("ballast_bundles", 'state="Free"'), "free")),
        )),
        PanelRow(title="Lookups", panels=(
            panel("Lookups a second, by result", "reqps",
                  ("found, nearly all.", "no_owner or not_ready: BallastLookupsFail."),
                  ("sum by (result) (rate(ballast_lookup_requests_total[$__rate_interval]))",
                   "{{result}}"), kind=PanelKind.STACKED),
            panel("Age of the answers", "s", ("below 1 s.", "above 10 s: BallastLookupStale."),
                  ("ballast_snapshot_age_seconds", "{{instance}}")),
        )),
    ),
)  # fmt: skip

BALANCE = Page(
    slug="balance",
    title="Ballast: balance",
    marks=(_MOVES,),
    rows=(
        PanelRow(title="Load of each broker", panels=(
            panel("Messages a second", "cps",
                  ("lines close together; a step where a move is marked.",
                   "one line far above: `ballast explain broker NAME`."),
                  (of("ballast_broker_messages_per_second"), "{{broker}}")),
            panel("Smoothed score", "percentunit",
                  ("lines close together, below 80 %.",
                   "all of them high: the cluster is too small. One: `ballast explain broker NAME`."),
                  (of("pulsar_lb_resource_usage", 'feature="max_ema"'), "{{broker}}")),
            panel("Bytes a second", "Bps",
                  ("as messages.", "one line apart, and messages even: few, large messages there."),
                  (of("ballast_broker_bytes_per_second"), "{{broker}}")),
            panel("Scores, all brokers", "percentunit",
                  ("one narrow band.", "two bands: part of the brokers is shut out, by policies, "
                   "versions or failure domains."),
                  (of("pulsar_lb_resource_usage", 'feature="max_ema"'), "{{broker}}"), kind=PanelKind.HEAT),
        )),
        PanelRow(title="How even", panels=(
            _IMBALANCE,
            panel("Mean and deviation of scores", "percentunit",
                  ("a deviation of a tenth of the mean.", "it grows: as for imbalance."),
                  (of("pulsar_lb_resource_usage_stats", 'stat="avg"'), "mean"),
                  (of("pulsar_lb_resource_usage_stats", 'stat="std"'), "deviation")),
            panel("Bundles of each broker", "short",
                  ("not even: load is evened out, not numbers.", "0 on an active broker: is it "
                   "draining, flapping, or shut out by a policy?"),
                  (of("pulsar_sunit_state_chn_owned_su_total"), "{{broker}}")),
        )),
        PanelRow(title="On the way to a move", panels=(
            panel("Hits of each broker", "short",
                  ("0; a line that climbs to *needed* ends in a move.",
                   "it stays at *needed* without a move: Decisions says what holds it."),
                  (of("ballast_broker_hits") + " > 0", "{{broker}} {{level}}"),
                  (of("ballast_hits_needed"), "needed: {{level}}")),
            panel("Bundles given, by broker", "short",
                  ("hot brokers give.", "a broker that gives again and again: are its topics skewed?"),
                  (growth("pulsar_lb_unload_bundle_total", "broker"), "{{broker}}"), kind=PanelKind.STACKED),
        )),
    ),
)  # fmt: skip

DECISIONS = Page(
    slug="decisions",
    title="Ballast: decisions",
    marks=(_MOVES,),
    rows=(
        PanelRow(title="What was decided", panels=(
            panel("Decisions a minute, by kind", "short",
                  ("6 a minute, mostly skips.", "none: BallastJobSilent, or a pause."),
                  (growth("ballast_decisions_total", "kind"), "{{kind}}"), kind=PanelKind.STACKED),
            panel("Why cycles did nothing", "short",
                  ("NoOverloadedBroker, and HitCount before a move.",
                   "NoBundles or NoDestination while a broker is hot: `ballast explain broker NAME`."),
                  (growth("ballast_decisions_total", "reason", 'kind="skip"'), "{{reason}}"),
                  kind=PanelKind.STACKED),
            panel("What keeps cycles from moving", "short",
                  ("0, but in quiet hours.", "1: a pause, quiet hours or the brake; failover goes on. "
                   "Paused for an hour: BallastPaused."),
                  (of("ballast_paused"), "paused"), (of("ballast_quiet"), "quiet hours"),
                  (of("ballast_alarm", 'alarm="brake"'), "brake")),
            panel("What moved, and why", "short",
                  ("few.", "table `decisions` has the numbers behind each."),
                  (growth("ballast_decisions_total", "kind, reason", 'kind!="skip"'),
                   "{{kind}} {{reason}}"), kind=PanelKind.STACKED),
            panel("Candidates, by verdict", "short",
                  ("too_few_hits, not_needed.", "a filter's name while a broker is hot: that filter "
                   "leaves it no way out."),
                  (growth("ballast_candidates_total", "verdict"), "{{verdict}}"), kind=PanelKind.STACKED),
        )),
        PanelRow(title="Whether it helped", panels=(
            panel("Effects of moves", "short",
                  ("helped, mostly.", "ineffective, mostly: BallastMovesDontHelp."),
                  (growth("ballast_decision_effects_total", "outcome"), "{{outcome}}"),
                  kind=PanelKind.STACKED),
            panel("Thrash within the hour", "percentunit",
                  ("below 2 %.", "above 10 %: BallastThrash."), (_THRASH, "returns / moves")),
        )),
        PanelRow(title="Splits and commands", panels=(
            panel("Splits a minute", "short",
                  ("none, but while load grows.", "all day: limits of `splitting` are too low."),
                  (growth("pulsar_lb_bundles_split_total", "broker"), "{{broker}}"), kind=PanelKind.STACKED),
            panel("Bundles over a split limit", "short",
                  ("0.", "no boundary divides them: BallastUnsplittable."),
                  (of("ballast_split_hits"), "collecting hits"),
                  (of("ballast_unsplittable_bundles"), "cannot be split")),
            panel("Commands a minute", "short",
                  ("done.", "refused or failed: table `commands` has the reason."),
                  (growth("ballast_commands_total", "status"), "{{status}}"), kind=PanelKind.STACKED),
        )),
    ),
)  # fmt: skip

OWNERSHIP = Page(
    slug="ownership",
    title="Ballast: ownership and failover",
    marks=(_FAILOVERS,),
    rows=(
        PanelRow(title="Brokers", panels=(
            panel("Live brokers", "short",
                  ("1 for each.", "0: taken for dead, BallastBrokerDown."),
                  (of("ballast_broker_up"), "{{broker}}")),
            panel("Failover a minute", "short",
                  ("0.", "Schedule: brokers died; Success: bundles given to others; Skip: held by the "
                   "brake."),
                  (growth("pulsar_sunit_state_chn_inactive_broker_cleanup_ops_total", "result"),
                   "{{result}}")),
            panel("Left to drain", "short",
                  ("nothing, or falling.", "it stands: BallastDrainStalled."),
                  (of("ballast_drain_remaining_bundles") + " or vector(0)", "{{broker}}")),
        )),
        PanelRow(title="Transitions", panels=(
            panel("Records a second, by cause", "cps",
                  ("ack, and what began it.", "repair or restart: brokers don't answer."),
                  (rate("ballast_transitions_total", "cause"), "{{cause}}"), kind=PanelKind.STACKED),
            _IN_FLIGHT,
            panel("Oldest in flight", "s",
                  ("seconds.", "above the timeouts of `ownership`: BallastStuckBundles."),
                  (of("ballast_oldest_record_seconds"), "{{state}}")),
            panel("Records against the rules", "short",
                  ("0, but in a failover.", "admin: somebody overrides by hand."),
                  (growth("ballast_overrides_total", "cause"), "{{cause}}")),
        )),
        PanelRow(title="How long it takes", panels=(
            panel("Opening (95 of 100)", "ms",
                  ("as long as the service needs to open, and a batch.",
                   "one broker high: its open callback."),
                  (quantile(0.95, "brk_lb_assign_latency_ms", "broker"), "{{broker}}")),
            panel("Closing (95 of 100)", "ms",
                  ("as long as the service needs to close, and a batch.",
                   "near `ownership.unload_timeout_ms`: BallastRepairs follows."),
                  (quantile(0.95, "brk_lb_release_latency_ms", "broker"), "{{broker}}")),
            panel("Whole moves", "ms",
                  ("closing and opening.", "as those."),
                  (quantile(0.5, "brk_lb_unload_latency_ms"), "half"),
                  (quantile(0.95, "brk_lb_unload_latency_ms"), "95 of 100")),
        )),
        PanelRow(title="Agreement", panels=(
            panel("Reported otherwise than owned", "short",
                  ("small, for a moment after moves.", "lasting: BallastDisagreement."),
                  (of("ballast_disagreements"), "{{kind}}")),
            panel("Acks that changed nothing", "short",
                  ("few: agents repeat them.", "many: an agent that lags behind."),
                  (growth("pulsar_lb_ignored_ack_total", "broker"), "ignored")),
        )),
    ),
)  # fmt: skip

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
                  (f"sum by (result) (rate(ballast_lookup_requests_total[{RATE}]))", "{{result}}"),
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
            panel("Connections closed, by reason", "short",
                  ("none.", "BallastConnectionsClosed: `connection_cut` in the log has addresses."),
                  ("sum by (reason) (increase(ballast_connections_closed_total[5m])) or vector(0)",
                   "{{reason}}"), kind=PanelKind.STACKED),
            panel("Other requests a second, by status", "reqps",
                  ("200 and 204.", "5xx: the service's log. 429: a caller asks too often."),
                  (f"sum by (status) (rate(ballast_admin_requests_total[{RATE}])) or vector(0)",
                   "{{status}}"), kind=PanelKind.STACKED),
            panel("Watching clients", "short", ("steady.", "falls to 0: they were cut off."),
                  ("ballast_admin_streams", "{{instance}}")),
        )),
        PanelRow(title="The process", panels=(
            panel("Processor", "percentunit", ("below 80 % of a core.", "add workers."),
                  (f"rate(process_cpu_seconds_total[{RATE}])", "{{job}} {{instance}}")),
            panel("Memory", "bytes", ("steady; 400 bytes a bundle.", "it grows for days: report it."),
                  ("process_resident_memory_bytes", "{{job}} {{instance}}")),
        )),
    ),
)  # fmt: skip

PIPELINE = Page(
    slug="pipeline",
    title="Ballast: pipeline",
    rows=(
        PanelRow(title="Batches", panels=(
            panel("Parts of a batch (95 of 100)", "s",
                  ("operators below 1 s, delta 0.5 s, kafka 0.1 s.",
                   "the one that grew is what is short: CPU, storage, or Kafka."),
                  (quantile(0.95, "ballast_batch_duration_seconds", "part"), "{{part}}")),
            panel("Batches with a decision cycle", "s",
                  ("1 to 2 s.", "longer: bundles have grown in number, or CPU is short."),
                  (quantile(0.5, "ballast_cycle_duration_seconds"), "half"),
                  (quantile(0.95, "ballast_cycle_duration_seconds"), "95 of 100")),
            panel("Spark's last trigger, by phase", "s",
                  ("addBatch has nearly all of it.", "walCommit or latestOffset: slow disk, slow Kafka."),
                  ('ballast_spark_phase_seconds{phase!="triggerExecution"}', "{{phase}}"),
                  kind=PanelKind.STACKED),
            panel("Batches a minute", "short",
                  ("up to 60.", "fewer than 10: BallastSlowBatches."),
                  (growth("ballast_batches_total", "cluster"), "{{cluster}}")),
        )),
        PanelRow(title="Kafka", panels=(
            panel("Lag", "short", ("0, or what comes in a second.", "it grows: BallastKafkaLag."),
                  ("ballast_kafka_lag_messages", "messages")),
            panel("Messages read a second", "cps",
                  ("steady; ticks and heartbeats are most of broker-load.",
                   "a topic that jumped: who sends?"),
                  (f"rate(ballast_kafka_read_total[{RATE}])", "{{topic}}"), kind=PanelKind.STACKED),
            panel("Reports a second, by result", "cps",
                  ("accepted.", "late or duplicate after a restart; always: clocks or clients."),
                  (f"sum by (result) (rate({of('ballast_reports_total')}[{RATE}]))", "{{result}}"),
                  kind=PanelKind.STACKED),
            panel("Refused messages, by reason", "short",
                  ("none.", "BallastRejectedReports; table `rejected_reports` has them whole."),
                  (growth("ballast_rejected_total", "topic, reason") + " or vector(0)",
                   "{{topic}} {{reason}}"), kind=PanelKind.STACKED),
            panel("Age of reports", "s",
                  ("up to `signals.report_max_interval_ms`.", "one far above: BallastStaleReports."),
                  (of("ballast_report_age_seconds"), "{{broker}}")),
            panel("Catching up", "short", ("0.", "1 for minutes: BallastBehind."),
                  (of("ballast_catching_up"), "{{cluster}}")),
        )),
        PanelRow(title="Delta", panels=(
            panel("Commits a minute, by table", "short",
                  ("events: 6 heartbeats and what changes.", "many small ones: brokers come and go?"),
                  ("sum by (table) (increase(ballast_table_commits_total[1m]))", "{{table}}"),
                  kind=PanelKind.STACKED),
            panel("Rows a minute, by table", "short",
                  ("load_history once a minute, few others.", "a table that jumped: its rows say why."),
                  ("sum by (table) (increase(ballast_table_rows_total[1m]))", "{{table}}"),
                  kind=PanelKind.STACKED),
            panel("Version of ownership_events", "short",
                  ("climbs.", "it stands: BallastWriterSilent."),
                  ('ballast_table_version{table="ownership_events"}', "version")),
        )),
        PanelRow(title="State and process", panels=(
            panel("State's memory, by operator", "bytes",
                  ("steady.", "above 2 GB: BallastStateLarge."),
                  ("ballast_state_bytes", "{{operator}}")),
            panel("State's rows, by operator", "short",
                  ("steady: chunks, not bundles.", "it grows without end: report it."),
                  ("ballast_state_rows", "{{operator}}")),
            panel("Memory of Python's driver", "bytes", ("steady.", "it grows for days: report it."),
                  ("process_resident_memory_bytes and on (instance) ballast_job_info", "driver")),
        )),
    ),
)  # fmt: skip

BRIDGE = Page(
    slug="bridge",
    title="Ballast: bridge and agents",
    rows=(
        PanelRow(title="The bridge", panels=(
            panel("Acts", "short", ("1 where it was started with --act.", "0: its log says `observing`, and why."),
                  (of("ballast_bridge_acting"), "acting"), kind=PanelKind.NUMBER),
            panel("Findings", "short", ("none.", "the section of that trouble in the runbook, BallastPulsarUnserved first."),
                  (of("ballast_bridge_findings") + " > 0", "{{trouble}}"),
                  (of("ballast_bridge_quarantined") + " > 0", "quarantined"), kind=PanelKind.NUMBER),
            panel("Brokers of Pulsar", "short", ("none silent.", "BallastPulsarUnresponsive."),
                  (of("ballast_bridge_brokers"), "listed"), (of("ballast_bridge_silent_brokers"), "silent")),
            panel("Bundles", "short", ("as many as Pulsar has.", "they fall: brokers do not answer, see Findings."),
                  (of("ballast_bridge_bundles"), "owned")),
            panel("Polls a minute", "short", ("12, none failed.", "failed: Pulsar can't be asked, see the bridge's log."),
                  (growth("ballast_bridge_polls_total", "result"), "{{result}}"), kind=PanelKind.STACKED),
            panel("What can't be read of Pulsar", "short", ("0.", "BallastPulsarUnread names it."),
                  (of("ballast_bridge_unread"), "{{reason}}"), kind=PanelKind.STACKED),
            panel("Loads that can't be read", "short", ("none.", "BallastPulsarMisreporting, or the broker is away."),
                  (growth("ballast_bridge_load_errors_total", "broker"), "{{broker}}"),
                  (growth("ballast_bridge_unreported_total", "field"), "{{field}} not reported")),
        )),
        PanelRow(title="What the bridge does", panels=(
            panel("Differences", "short", ("small hills while bundles move.", "a plateau: `ballast status` lists the bundles."),
                  (of("ballast_bridge_differences"), "to our records"),
                  (of("ballast_bridge_pending_actions"), "being worked on")),
            panel("Requests to Pulsar a minute", "short", ("below 60.", "at 60: --max-per-minute holds moves back."),
                  (growth("ballast_bridge_requests_total", "action"), "{{action}}"),
                  (growth("ballast_bridge_failed_requests_total", "result"), "{{result}}"), kind=PanelKind.STACKED),
            panel("Answers a minute", "short", ("done, nearly all.", "refused: table `ownership_events` has the reason."),
                  (growth("ballast_bridge_answers_total", "outcome"), "{{outcome}}"), kind=PanelKind.STACKED),
            panel("Messages to Kafka", "cps", ("delivered.", "not_delivered: Kafka does not take them."),
                  (rate("ballast_bridge_messages_total", "result"), "{{result}}"), kind=PanelKind.STACKED),
        )),
        PanelRow(title="Agents", panels=(
            panel("Bundles open", "short", ("as the table has them.", "0 at an active broker: BallastLeaseLost, or its callbacks hang."),
                  (of("ballast_agent_open_bundles"), "{{broker}}")),
            panel("Until leases run out", "s", ("near the lease; absent without one.", "0: BallastLeaseLost."),
                  (of("ballast_agent_lease_seconds"), "{{broker}}")),
            panel("Since Kafka confirmed a message", "s", ("below two heartbeats.", "it grows: the broker is cut off from Kafka."),
                  (f"time() - {of('ballast_agent_confirmed_timestamp_seconds')}", "{{broker}}")),
            panel("Messages of agents", "cps", ("delivered.", "not_delivered: Kafka does not take them."),
                  (rate("ballast_agent_messages_total", "result"), "{{result}}"), kind=PanelKind.STACKED),
            panel("Callbacks a minute", "short", ("done.", "failed or overdue: BallastCallbacksFail."),
                  (growth("ballast_agent_callbacks_total", "callback, result"), "{{callback}} {{result}}"), kind=PanelKind.STACKED),
            panel("Callbacks that hang", "short", ("0.", "BallastCallbacksHang."),
                  (of("ballast_agent_hanging_callbacks") + " > 0", "{{broker}} {{callback}}")),
            panel("Loads that agents can't read", "short", ("none.", "BallastLoadUnreadable."),
                  (growth("ballast_agent_load_errors_total", "broker"), "{{broker}}")),
            panel("Records that name a broker", "cps", ("as bundles move.", "none while bundles move: the agent does not read its topic."),
                  (rate("pulsar_sunit_state_chn_subscribe_ops_total", "event"), "{{event}}"), kind=PanelKind.STACKED),
        )),
    ),
)  # fmt: skip

# "Broker Load Balance", the dashboard that Pulsar's operators know, which is StreamNative's (Pulsar
# 4.0): its three rows and panels, by broker where it has them by pod. What a Ballast cluster has no
# part of (the cache of owned bundles) is left out.
_USED = of("pulsar_lb_resource_usage", 'feature="max_ema"')
_AVERAGE = of("pulsar_lb_resource_usage_stats", 'stat="avg"')
_ASSIGNED = of("pulsar_lb_assign_broker_breakdown_total", 'result="Success"')
_UNASSIGNED = of("pulsar_lb_assign_broker_breakdown_total", 'result="Failure"')
_OWN = "the panels of Balance and Decisions say more."


_FIRST = ("bandwidth_out", "bandwidth_in", "memory", "direct_memory", "cpu")
"""The order of Pulsar's dashboard; what it doesn't have comes after."""


def _usage(resource: Resource) -> Panel:
    words = {"cpu": "CPU"}.get(resource.name, resource.name.replace("_", " ").capitalize())
    return panel(f"{words} usage", "percent", ("lines close together.", _OWN),
                 (of(f"pulsar_lb_{resource.metric}_usage"), "{{broker}}"))  # fmt: skip


_UNLOADS = {
    "Success": "Overloaded, in hills; Underloaded after brokers joined; Admin by commands.",
    "Skip": "one a cycle in which nothing had to move; HitCount before a move.",
    "Failure": "0: a refused move is one that something else came before.",
}
_SPLITS = {
    "Success": "few: the limit that was passed, or Admin.",
    "Failure": "0: the bundle was changing hands, or gone.",
}


def _breakdown(metric: str, title: str, result: str, normal: str) -> Panel:
    expr = growth(f"pulsar_lb_{metric}_breakdown_total", "reason", f'result="{result}"')
    return panel(f"{title}: {result}", "short", (normal, _OWN),
                 (f"{expr} or vector(0)", "{{reason}}"), kind=PanelKind.STACKED)  # fmt: skip


def _channel(metric: str, title: str, by: str, normal: str, *matchers: str) -> Panel:
    name = f"pulsar_sunit_state_chn_{metric}_total"
    return panel(title, "short", (normal, "Ownership and failover says more."),
                 (f"{growth(name, by, *matchers)} or vector(0)", f"{{{{{by}}}}}"))  # fmt: skip


PULSAR = Page(
    slug="pulsar",
    title="Ballast: Pulsar-compatible",
    rows=(
        PanelRow(title="LoadBalance", panels=(
            *map(_usage, sorted(RESOURCES, key=lambda one: (*_FIRST, one.name).index(one.name))),
            panel("Bundles split", "short", ("a step for each split since the job began; flat.", _OWN),
                  (f"sum({of('pulsar_lb_bundles_split_total')}) or vector(0)", "total")),
            panel("Bundles unloaded", "short",
                  ("flat; hot brokers climb while they give. Since the job began.", _OWN),
                  (f"sum by (broker) ({of('pulsar_lb_unload_bundle_total')}) or vector(0)",
                   "{{broker}}")),
            panel("Brokers unloaded", "short",
                  ("flat; a step for each cycle in which a broker gave. Since the job began.", _OWN),
                  (f"sum by (broker) ({of('pulsar_lb_unload_broker_total')}) or vector(0)",
                   "{{broker}}")),
            panel("Topics of each broker", "short",
                  ("not even: load is evened out, not numbers.", _OWN),
                  (of("ballast_broker_topics"), "{{broker}}")),
        )),
        PanelRow(title="Extension -- Breakdown", panels=(
            panel("Resource usage (max EMA)", "percent", ("below 85.", _OWN),
                  (f"100 * {_USED}", "{{broker}}")),
            panel("Resource usage, average", "percent", ("below 85.", _OWN),
                  (f"100 * {_AVERAGE}", "average")),
            panel("Resource usage, deviation", "none", ("below 0.25.", _OWN),
                  (of("pulsar_lb_resource_usage_stats", 'stat="std"'), "deviation")),
            panel("Assigned, by broker", "short",
                  ("a step where bundles were created or freed; all brokers take.", _OWN),
                  (f"sum by (broker) ({_ASSIGNED})", "{{broker}}")),
            panel("Not assigned", "short", ("0.", "BallastUnowned."),
                  (f"sum({_UNASSIGNED})", "failure")),
            *(_breakdown("unload_broker", "Unload", *one) for one in _UNLOADS.items()),
            *(_breakdown("bundles_split", "Split", *one) for one in _SPLITS.items()),
        )),
        PanelRow(title="Extension -- ServiceUnitStateChannel", panels=(
            panel("Owner lookups, by state", "short", ("Owned, nearly all.", _OWN),
                  (growth("pulsar_sunit_state_chn_owner_lookup_total", "state", 'result="Total"'),
                   "{{state}}"), kind=PanelKind.STACKED),
            panel("Owner lookups without an owner, by state", "short", ("0.", "BallastLookupsFail."),
                  (growth("pulsar_sunit_state_chn_owner_lookup_total", "state", 'result="Failure"'),
                   "{{state}}"), kind=PanelKind.STACKED),
            _channel("event_publish_ops", "Events published", "event",
                     "Assign and Unload while bundles move; Override in a failover.",
                     'result="Total"'),
            _channel("subscribe_ops", "Events read by agents", "event",
                     "follows the events published."),
            _channel("inactive_broker_cleanup_ops", "Inactive brokers cleaned up", "result",
                     "0; after a crash Schedule, then Success for each bundle."),
            _channel("su_tombstone_cleanup_ops", "Tombstones cleaned up", "broker",
                     "0; an hour after splits and deletions what they left."),
            _channel("orphan_su_cleanup_ops", "Orphans cleaned up", "broker",
                     "0: each is a transition that was stuck, BallastRepairs."),
            _channel("cleanup_ops", "Clean-ups that failed", "result",
                     "0: no broker could take a bundle."),
            panel("Bundles owned", "short",
                  ("not even; 0 only where a broker drains, or has just come.", _OWN),
                  (of("pulsar_sunit_state_chn_owned_su_total"), "{{broker}}")),
        )),
    ),
)  # fmt: skip


PAGES = (OVERVIEW, BALANCE, DECISIONS, OWNERSHIP, LOOKUP, PIPELINE, PULSAR, BRIDGE)
