"""Versions that the brokers of a cluster run, as far as they report them.

Decides that several at once, as in the middle of an upgrade, are worth a note. Part of the status.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from lbcore.explain.explanation import Row

ADVICE = "end the upgrade; filters.prefer_later_versions keeps bundles off the older ones"


def broker_versions(brokers: Iterable[Row]) -> dict[str, int]:
    """Version → how many active brokers run it, by version; without those that tell none."""
    there = Counter(str(row.get("version") or "") for row in brokers if row["state"] == "active")
    return {version: count for version, count in sorted(there.items()) if version}


def counted_versions(versions: Mapping[str, int]) -> str:
    """Each with its number of brokers."""
    return ", ".join(f"{version} ({count})" for version, count in versions.items())


def several_versions(versions: Mapping[str, int]) -> str:
    """That they are of several; "" while they are not."""
    if len(versions) < 2:  # noqa: PLR2004 (several)
        return ""
    return f"the active brokers are of several versions: {counted_versions(versions)}"
