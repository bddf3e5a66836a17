"""Dashboards and panels as plain values, before they are Grafana's.

`pages` declares, `grafana` makes JSON of it, tests and the pictures read the same values.
"""

from dataclasses import dataclass
from enum import Enum

CLUSTER = "$cluster"
RATE = "$__rate_interval"


class PanelKind(str, Enum):
    """Drawing style of a panel."""

    LINES = "lines"
    STACKED = "stacked"
    NUMBER = "number"
    HEAT = "heat"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelQuery:
    """expr: PromQL with Grafana's variables. legend: of each series, with {{labels}}."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    unit: Grafana's id of it. normal: what it looks like on a good day; otherwise: what to do.
    """

    title: str
    unit: str
    normal: str
    otherwise: str
    queries: tuple[PanelQuery, ...]
    kind: PanelKind = PanelKind.LINES

    @property
    def description(self) -> str:
        """Text that Grafana shows at the panel's corner."""
        return f"Normal: {self.normal}\n\nOtherwise: {self.otherwise}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelRow:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One dashboard.

    slug: its file and its id in Grafana. marks: queries of annotations.
    """

    slug: str
    title: str
    rows: tuple[PanelRow, ...]
    marks: tuple[PanelQuery, ...] = ()

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them."""
        return tuple(panel for row in self.rows for panel in row.panels)


def panel(
    title: str,
    unit: str,
    says: tuple[str, str],
    *queries: tuple[str, str],
    kind: PanelKind = PanelKind.LINES,
) -> Panel:
    """says: what is normal, and what to do otherwise. queries: (expr, legend)."""
    return Panel(
        title=title,
        unit=unit,
        normal=says[0],
        otherwise=says[1],
        queries=tuple(PanelQuery(expr=expr, legend=legend) for expr, legend in queries),
        kind=kind,
    )


def of(metric: str, *matchers: str) -> str:
    """A metric of the chosen cluster."""
    inside = ", ".join((f'cluster="{CLUSTER}"', *matchers))
    return f"{metric}{{{inside}}}"


def rate(metric: str, by: str, *matchers: str) -> str:
    """Of the chosen cluster, per second, summed by a label."""
    return f"sum by ({by}) (rate({of(metric, *matchers)}[{RATE}]))"


def growth(metric: str, by: str, *matchers: str) -> str:
    """Of the chosen cluster, how many within a minute, summed by a label."""
    return f"sum by ({by}) (increase({of(metric, *matchers)}[1m]))"


def quantile(q: float, histogram: str, by: str = "", *matchers: str) -> str:
    """A quantile of a histogram; by: labels to keep beside the bound."""
    labels = f"{by}, le" if by else "le"
    inside = f"{{{', '.join(matchers)}}}" if matchers else ""
    return f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket{inside}[{RATE}])))"
