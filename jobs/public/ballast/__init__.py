"""Ballast's public interface: the agent of a sharded service, and lookups inside a Python process.

What is named here keeps its meaning within a major version: fields are added with defaults, nothing
is renamed or taken away without a release that warns of it (docs/api.md). `jobs` and `lbcore` are
what is behind it, and may change with each release. Source: ours.
"""

from jobs import VERSION as __version__
from jobs.adapters.following.watch_follower import WatchAddress
from jobs.agent import (
    Agent,
    Callbacks,
    Identity,
    KafkaAddress,
    LoadRead,
    Options,
    Permits,
    TopicsRead,
    new_incarnation,
)
from jobs.lookup_client import Freshness, LookupClient, LookupResult, NotReadyError

__all__ = [
    "Agent",
    "Callbacks",
    "Freshness",
    "Identity",
    "KafkaAddress",
    "LoadRead",
    "LookupClient",
    "LookupResult",
    "NotReadyError",
    "Options",
    "Permits",
    "TopicsRead",
    "WatchAddress",
    "__version__",
    "new_incarnation",
]
