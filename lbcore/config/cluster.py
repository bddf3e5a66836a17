"""Settings of one cluster as a whole; each may differ from cluster to cluster under one job.

Decides nothing. Source: ours.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting

BALLAST = "ballast"
EXTERNAL = "external"


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
