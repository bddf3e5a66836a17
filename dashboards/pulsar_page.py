"""The dashboard that Pulsar's operators know: "Broker Load Balance".

It is StreamNative's. Its three rows and panels, by broker where it has them by pod. What a Ballast
cluster has no part of (the cache of owned bundles) is left out. Source: StreamNative's dashboard
for Pulsar 4.0.
"""

from dashboards.panel import Page, Panel, PanelKind, PanelRow, growth, of, panel
from lbcore.model.resources import RESOURCES, Resource

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
