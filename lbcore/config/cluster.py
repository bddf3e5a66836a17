"""Settings of one cluster as a whole; each may differ from cluster to cluster under one job.

Decides nothing. Source: ours.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting
from lbcore.model.weekly import WeeklyWindow, quiet_until_ms

BALLAST = "ballast"
EXTERNAL = "external"

AUTO = "auto"
ASK = "ask"
ASK_ABOVE = "ask_above"

SHADOWS_MAX = 4
"""Most strategies that plan beside the acting one: each takes its part of a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Who has the last word on a cluster's ownership."""

    authority: str = setting(
        BALLAST,
        choices=(BALLAST, EXTERNAL),
        doc="ballast: its records are the ownership. external: another system (a Pulsar cluster"
        " behind the bridge) decides, what it does by itself is taken over, and silence alone"
        " moves nothing.",
    )
    observe_only: bool = setting(
        default=False,
        dynamic=True,
        doc="Plans are made, explained and written down, and nothing of them is carried out; what"
        " people ask for by command still is. The bridge sets it, and takes it back when told to.",
    )
    approval: str = setting(
        AUTO,
        choices=(AUTO, ASK, ASK_ABOVE),
        dynamic=True,
        doc="auto: a cycle's moves and splits are carried out at once. ask: they wait as a plan"
        " until somebody approves it (`ballast plan`). ask_above: those of a cycle wait that moves"
        " more than approval_bundles or approval_percent. Failover, drains and pins never wait.",
    )
    approval_bundles: int = setting(
        10,
        unit="bundles",
        minimum=0,
        maximum=1_000_000,
        dynamic=True,
        doc="ask_above: a cycle that moves or splits more bundles than this waits.",
    )
    approval_percent: float = setting(
        5.0,
        unit="%",
        minimum=0.0,
        maximum=100.0,
        dynamic=True,
        doc="ask_above: a cycle that moves more than this share of all messages waits.",
    )
    approval_wait_ms: int = setting(
        3_600_000,
        unit="ms",
        minimum=1_000,
        maximum=2_592_000_000,
        dynamic=True,
        doc="A plan that nobody has answered for this long lapses, and the next cycle plans anew.",
    )
    quiet_hours: tuple[str, ...] = setting(
        (),
        dynamic=True,
        reads=WeeklyWindow.parse,
        doc="Windows of the week in which no cycle sheds or splits, each as 22:00-06:00 or mon-fri"
        " 08:00-18:00. Failover, drains, pins, commands and plans that a person approved go on.",
    )
    quiet_offset_min: int = setting(
        0,
        unit="min",
        minimum=-840,
        maximum=840,
        dynamic=True,
        doc="How far the clock of quiet_hours is ahead of UTC: 60 in Berlin in winter. It does not"
        " follow summer time.",
    )

    shards: tuple[str, ...] = setting(
        (),
        doc="Clusters that are shards of one: the same brokers, each with an agent a shard, and"
        " namespaces of their own. They plan in turn, and each counts what the others carry and"
        " have decided. For a cluster that is not named it means nothing.",
    )
    shadow: tuple[str, ...] = setting(
        (),
        dynamic=True,
        doc="Shedding strategies that plan in the job on the same reports and do nothing, up to"
        f" {SHADOWS_MAX}; what each would have done stands in `shadow_decisions`, in the metrics"
        " and under *Shadow*. Each takes up to a fifth of a cycle; none costs nothing.",
    )

    def quiet_until_ms(self, now_ms: int) -> int:
        """When the quiet hours that it is now are over; 0 = it is none."""
        windows = [WeeklyWindow.parse(text) for text in self.quiet_hours]
        return quiet_until_ms(windows, self.quiet_offset_min, now_ms)
