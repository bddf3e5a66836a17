"""Pages as Grafana's JSON, by grafana-foundation-sdk (Grafana 11.2 and later).

Decides sizes and looks; what is shown is `pages`'. Needs Python 3.11.
"""

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as models
from grafana_foundation_sdk.models import dashboard as dashboard_models

from dashboards.panel import Page, Panel, PanelKind

_SOURCE = dashboard_models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG = "ballast"
_SCHEMA = 39
"""The schema of Grafana 11; later ones bring a page of it up to date when they load it."""
_WIDE, _NARROW, _HIGH, _LOW = 8, 6, 8, 5


def to_json(page: Page) -> str:
    """The dashboard's file."""
    made = (
        dashboard.Dashboard(page.title)
        .uid(f"ballast-{page.slug}")
        .tags([_TAG])
        .editable()
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(dashboard_models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("cluster")
            .label("cluster")
            .datasource(_SOURCE)
            .query("label_values(ballast_batches_total, cluster)")
            .refresh(dashboard_models.VariableRefresh.ON_DASHBOARD_LOAD)
        )
        .link(  # to every page, with the chosen cluster and time
            dashboard.DashboardLink("Ballast")
            .type(dashboard_models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .keep_time(keep_time=True)
            .include_vars(include_vars=True)
        )
    )
    for mark in page.marks:
        made = made.annotation(
            dashboard.AnnotationQuery()
            .name(mark.legend)
            .datasource(_SOURCE)
            .enable(enable=True)
            .icon_color("orange")
            .expr(mark.expr)
        )
    for row in page.rows:
        made = made.with_row(dashboard.Row(row.title))
        for shown in row.panels:
            made = made.with_panel(_panel(shown))
    built = made.build()
    built.schema_version = _SCHEMA
    for number, panel in enumerate(built.panels or (), start=1):
        panel.id_val = number  # links to a panel, and its alerts, name it
    return JSONEncoder(sort_keys=True, indent=2).encode(built) + "\n"


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel | heatmap.Panel:
    made = _LOOKS[panel.kind]()
    made = (
        made.title(panel.title).description(panel.description).unit(panel.unit).datasource(_SOURCE)
    )
    for number, query in enumerate(panel.queries):
        made = made.with_target(
            prometheus.Dataquery()
            .expr(query.expr)
            .legend_format(query.legend)
            .ref_id(chr(ord("A") + number))
        )
    return made


def _lines() -> timeseries.Panel:
    return (
        timeseries.Panel()
        .span(_WIDE)
        .height(_HIGH)
        .line_width(1)
        .min(0)
        .legend(
            common.VizLegendOptions()
            .display_mode(models.LegendDisplayMode.LIST)
            .placement(models.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
            .calcs([])
        )
        .tooltip(common.VizTooltipOptions().mode(models.TooltipDisplayMode.MULTI))
    )


def _stacked() -> timeseries.Panel:
    normal = common.StackingConfig().mode(models.StackingMode.NORMAL)
    return _lines().fill_opacity(40).stacking(normal)


def _number() -> stat.Panel:
    newest = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().span(_NARROW).height(_LOW).reduce_options(newest)


def _heat() -> heatmap.Panel:
    return heatmap.Panel().span(_WIDE).height(_HIGH).calculate(calculate=True)


_LOOKS = {
    PanelKind.LINES: _lines,
    PanelKind.STACKED: _stacked,
    PanelKind.NUMBER: _number,
    PanelKind.HEAT: _heat,
}
