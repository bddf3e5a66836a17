"""The dashboard that Pulsar's operators know: StreamNative's "Broker Load Balance".

Its three rows and panels, by broker where it has them by pod. What a Ballast cluster has no part of
(the cache of owned bundles) is left out. Source: StreamNative's dashboard for Pulsar 4.0.
"""

from dashboards.panel import Kind, Page, Panel, Row, growth, of, panel

_SAME = "as in a Pulsar cluster."
_USED = of("pulsar_lb_resource_usage", 'feature="max_ema"')
_AVERAGE = of("pulsar_lb_resource_usage_stats", 'stat="avg"')
_ASSIGNED = of("pulsar_lb_assign_broker_breakdown_total", 'result="Success"')
_UNASSIGNED = of("pulsar_lb_assign_broker_breakdown_total", 'result="Failure"')
_OWN = "the panels of Balance and Decisions say more."


def _usage(name: str, title: str) -> Panel:
    return panel(title, "percent", ("lines close together.", _OWN),
                 (of(f"pulsar_lb_{name}_usage"), "{{broker}}"))  # fmt: skip


def _breakdown(metric: str, title: str, result: str) -> Panel:
    expr = growth(f"pulsar_lb_{metric}_breakdown_total", "reason", f'result="{result}"')
    return panel(f"{title}: {result}", "short", (_SAME, _OWN),
                 (f"{expr} or vector(0)", "{{reason}}"), kind=Kind.STACKED)  # fmt: skip


def _channel(metric: str, title: str, by: str, *matchers: str) -> Panel:
    name = f"pulsar_sunit_state_chn_{metric}_total"
    return panel(title, "short", (_SAME, "Ownership and failover says more."),
                 (f"{growth(name, by, *matchers)} or vector(0)", f"{{{{{by}}}}}"))  # fmt: skip


PULSAR = Page(
    slug="pulsar",
    title="Ballast: Pulsar-compatible",
    rows=(
        Row(title="LoadBalance", panels=(
            _usage("bandwidth_out", "Bandwidth out usage"),
            _usage("bandwidth_in", "Bandwidth in usage"),
            _usage("memory", "Memory usage"),
            _usage("directMemory", "Direct memory usage"),
            _usage("cpu", "CPU usage"),
            panel("Bundles split", "short", (_SAME, _OWN),
                  (f"sum({of('pulsar_lb_bundles_split_total')}) or vector(0)", "total")),
            panel("Bundles unloaded", "short", (_SAME, _OWN),
                  (f"sum by (broker) ({of('pulsar_lb_unload_bundle_total')}) or vector(0)",
                   "{{broker}}")),
            panel("Brokers unloaded", "short", (_SAME, _OWN),
                  (f"sum by (broker) ({of('pulsar_lb_unload_broker_total')}) or vector(0)",
                   "{{broker}}")),
            panel("Topics of each broker", "short", (_SAME, _OWN),
                  (of("ballast_broker_topics"), "{{broker}}")),
        )),
        Row(title="Extension -- Breakdown", panels=(
            panel("Resource usage (max EMA)", "percent", ("below 85.", _OWN),
                  (f"100 * {_USED}", "{{broker}}")),
            panel("Resource usage, average", "percent", ("below 85.", _OWN),
                  (f"100 * {_AVERAGE}", "average")),
            panel("Resource usage, deviation", "none", ("below 0.25.", _OWN),
                  (of("pulsar_lb_resource_usage_stats", 'stat="std"'), "deviation")),
            panel("Assigned, by broker", "short", (_SAME, _OWN),
                  (f"sum by (broker) ({_ASSIGNED})", "{{broker}}")),
            panel("Not assigned", "short", ("0.", "BallastUnowned."),
                  (f"sum({_UNASSIGNED})", "failure")),
            *(_breakdown("unload_broker", "Unload", one) for one in ("Success", "Skip", "Failure")),
            *(_breakdown("bundles_split", "Split", one) for one in ("Success", "Failure")),
        )),
        Row(title="Extension -- ServiceUnitStateChannel", panels=(
            panel("Owner lookups, by state", "short", ("Owned, nearly all.", _OWN),
                  (growth("pulsar_sunit_state_chn_owner_lookup_total", "state", 'result="Total"'),
                   "{{state}}"), kind=Kind.STACKED),
            panel("Owner lookups without an owner, by state", "short", ("0.", "BallastLookupsFail."),
                  (growth("pulsar_sunit_state_chn_owner_lookup_total", "state", 'result="Failure"'),
                   "{{state}}"), kind=Kind.STACKED),
            _channel("event_publish_ops", "Events published", "event", 'result="Total"'),
            _channel("subscribe_ops", "Events read by agents", "event"),
            _channel("inactive_broker_cleanup_ops", "Inactive brokers cleaned up", "result"),
            _channel("su_tombstone_cleanup_ops", "Tombstones cleaned up", "broker"),
            _channel("orphan_su_cleanup_ops", "Orphans cleaned up", "broker"),
            _channel("cleanup_ops", "Clean-ups that failed", "result"),
            panel("Bundles owned", "short", (_SAME, _OWN),
                  (of("pulsar_sunit_state_chn_owned_su_total"), "{{broker}}")),
        )),
    ),
)  # fmt: skip
