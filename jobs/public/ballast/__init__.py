"""Ballast's public interface: agents, lookups in a process, custom strategies.

These names keep their meaning within a major version (docs/api.md). `jobs` and `lbcore` behind them
may change with each release.
"""

from jobs import VERSION
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
from jobs.console import CommandError
from jobs.lookup_client import Freshness, LookupClient, LookupResult, NotReadyError
from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle, HashFunction, InvalidRangeError, crc32
from lbcore.model.names import InvalidNameError
from lbcore.plan.snapshot import Proposal, ProposedMove, Snapshot
from lbcore.route.snapshot import LookupOutcome

__version__ = VERSION

__all__ = [
    "Agent",
    "Bundle",
    "Callbacks",
    "CommandError",
    "Config",
    "Freshness",
    "HashFunction",
    "Identity",
    "InvalidNameError",
    "InvalidRangeError",
    "KafkaAddress",
    "LoadRead",
    "LookupClient",
    "LookupOutcome",
    "LookupResult",
    "NotReadyError",
    "Options",
    "Permits",
    "Proposal",
    "ProposedMove",
    "Snapshot",
    "TopicsRead",
    "WatchAddress",
    "__version__",
    "crc32",
    "new_incarnation",
]
