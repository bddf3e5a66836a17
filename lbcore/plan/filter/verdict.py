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
    DOMAIN_NOT_SUPPORTED = 8
    LOAD_MANAGER_CLASS = 9
    TOO_MANY_TOPICS = 10
    OLDER_VERSION = 11
    FAILURE_DOMAIN = 12
    ANTI_AFFINITY = 13
    UNEVEN = 14
    # of a bundle, for shedding
    EXCLUDED_NAMESPACE = 15
    RECENTLY_UNLOADED = 16
    PINNED = 17
    NO_OTHER_BROKER = 18
    IN_FLIGHT = 19
    SYSTEM_NAMESPACE = 20
    PAUSED = 21
    # of a broker again
    SUSPECTED = 22

    @property
    def label(self) -> str:
        """The text of metrics and tables."""
        return self.name.lower()
