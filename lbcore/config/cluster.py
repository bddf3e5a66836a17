"""Settings of one cluster as a whole; clusters of one job may differ."""

from dataclasses import dataclass

from lbcore.config.setting import setting
from lbcore.model.weekly import WeeklyWindow, quiet_until_ms

BALLAST = "ballast"
EXTERNAL = "external"

AUTO = "auto"
ASK = "ask"
ASK_ABOVE = "ask_above"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Authority over a cluster's ownership."""

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
        doc="ask_above: a cycle that moves more than this share of the messages of an isolation"
        " group (all, without policies) waits.",
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

    def quiet_until_ms(self, now_ms: int) -> int:
        """Return the end of the current quiet hours; 0 = not in quiet hours."""
        windows = [WeeklyWindow.parse(text) for text in self.quiet_hours]
        return quiet_until_ms(windows, self.quiet_offset_min, now_ms)
