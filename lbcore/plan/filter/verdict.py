"""Verdicts of filters: reasons a broker may not take a bundle, or it may not move.

The closed set of a filter's results. Every filter writes these; dry runs, the table of losing
candidates and metrics read them. The rules are Pulsar 4.0.8's where a filter names one.
"""

from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Verdicts: TypeAlias = NDArray[np.int8]


class FilterVerdict(IntEnum):
    """A filter's answer; small numbers, so that rows of brokers are arrays of bytes."""

    OK = 0
    # of a broker, for one bundle
    DRAINING = 1
    FLAPPING = 2
    CURRENT_OWNER = 3
    PINNED_ELSEWHERE = 4
    NOT_IN_POLICY = 5
    SECONDARY_NOT_NEEDED = 6
    RESERVED_BY_POLICY = 7
    LOAD_MANAGER_CLASS = 8
    TOO_MANY_TOPICS = 9
    OLDER_VERSION = 10
    FAILURE_DOMAIN = 11
    ANTI_AFFINITY = 12
    UNEVEN = 13
    # of a bundle, for shedding
    EXCLUDED_NAMESPACE = 14
    RECENTLY_UNLOADED = 15
    PINNED = 16
    NO_OTHER_BROKER = 17
    IN_FLIGHT = 18
    SYSTEM_NAMESPACE = 19
    PAUSED = 20
    # of a broker again
    SUSPECTED = 21
    # of a bundle
    MERGING = 22

    @property
    def label(self) -> str:
        """The text of metrics and tables."""
        return self.name.lower()
