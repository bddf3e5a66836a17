"""Whose word counts: ours, or that of another authority behind a bridge.

Decides nothing; phases ask it before they would assign, repair or judge by themselves.
Source: ours.
"""

from lbcore.balancer.state.work import Work
from lbcore.config.cluster import EXTERNAL


def is_external(work: Work) -> bool:
    """Whether another authority owns this cluster's ownership, and a bridge tells of it."""
    return work.config.cluster.authority == EXTERNAL
