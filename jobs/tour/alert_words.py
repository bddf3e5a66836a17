"""What Prometheus says of alerts, as lines that people read.

Decides nothing. Source: ours; states are those of Prometheus.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any


def state_of(alerts: Collection[Mapping[str, Any]], name: str, about: str = "") -> str:
    """firing, pending or "" = neither. about: a label's value that it must have, "" = any."""
    found = {
        alert["state"]
        for alert in alerts
        if alert["labels"]["alertname"] == name and (not about or about in alert["labels"].values())
    }
    return "firing" if "firing" in found else "pending" if found else ""


def alert_lines(alerts: Collection[Mapping[str, Any]]) -> Iterator[str]:
    """One alert a line, those that fire first, each with where the runbook has it."""
    if not alerts:
        yield "no alert"
    order = sorted(alerts, key=lambda one: (one["state"], one["labels"]["alertname"]))
    for alert in order:
        labels, about = alert["labels"], alert["annotations"]
        yield f"{alert['state']:<7}  {labels['severity']:<8}  {labels['alertname']}"
        yield f"         {about['summary']}  {about['runbook_url']}"
