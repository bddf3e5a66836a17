"""Settings of the wire: the largest sizes that a parser accepts.

`lbcore.wire.rules.Limits` says which of them a parser reads.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The largest sizes of one message; a larger one is rejected as too_large."""

    max_message_bytes: int = 1_048_576  # of a message's value: Kafka's own default for a batch
    max_bundles_per_message: int = 5_000  # of one part of a bundle-load, and acks of one message
    max_topics_per_message: int = 10_000  # of one topic-load; max_message_bytes bounds it, too
    max_parts: int = 1_000  # of one bundle-load: with 2,000 bundles each, two million a broker
    max_name_chars: int = 512  # of a cluster, broker, bundle, topic or command
    max_text_chars: int = 4_096  # of other texts: URLs, reasons of failure, principals
