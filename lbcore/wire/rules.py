"""Rules of a parser: served clusters, JSON decoder, and maximum sizes.

`parse` interprets it. The limits are declared as settings in `lbcore.config.kafka`. Only those that
a parser needs are listed here, because wire and config don't import each other.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

SCHEMA = 1
"""The schema that `format` writes; `parse` reads this one and, from 2 on, the one before it."""

OLDEST_SCHEMA = max(1, SCHEMA - 1)
"""The oldest schema that is read. Ownership records are written in it: the job is upgraded before
the agents, which must understand it until they are. So are ticks: a standby of a newer version
sends them to the job that it waits for."""

MAX_INT64 = 2**63 - 1
MAX_COUNT = 2**53
MAX_NUMBER = 1e18
MIN_TRAFFIC = 1e-9
"""Traffic below it is none: it is less than a message in 30 years, and what is divided by it
overflows."""
MIN_POSITIVE_LIMIT = 1e-9
"""Below it, usage / limit could leave single precision, in which Pulsar computes percentages."""


class Limits(Protocol):
    """The largest sizes of a message; `lbcore.config.kafka.Wire` has them as settings."""

    @property
    def max_message_bytes(self) -> int:
        """Longest value, bytes."""
        ...

    @property
    def max_bundles_per_message(self) -> int:
        """Most bundles in one part of a bundle-load, and most acks in one message."""
        ...

    @property
    def max_topics_per_message(self) -> int:
        """Most topics in one topic-load."""
        ...

    @property
    def max_parts(self) -> int:
        """Most parts of one bundle-load."""
        ...

    @property
    def max_name_chars(self) -> int:
        """Longest name of a cluster, broker, bundle, topic or command, characters."""
        ...

    @property
    def max_text_chars(self) -> int:
        """Longest other text (URLs, reasons), characters."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseRules:
    """Rules that `parse` interprets.

    loads: turns text into JSON values; its errors are ValueError (json.loads, orjson.loads).
    """

    clusters: frozenset[str]
    limits: Limits
    loads: Callable[[str], Any] = json.loads
