"""Settings of the wire: the largest sizes that a parser accepts.

Decides nothing; `lbcore.wire.rules.Limits` says which of them a parser reads. Source: ours.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The largest sizes of one message; a larger one is rejected as too_large."""

    max_message_bytes: int = setting(
        1_048_576,
        unit="bytes",
        minimum=1_024,
        maximum=16_777_216,
        doc="Longest value of a message; at most Kafka's message.max.bytes.",
    )
    max_bundles_per_message: int = setting(
        5_000,
        unit="bundles",
        minimum=1,
        maximum=100_000,
        doc="Most bundles in one part of a bundle-load, and most acks in one message.",
    )
    max_topics_per_message: int = setting(
        10_000,
        unit="topics",
        minimum=1,
        maximum=100_000,
        doc="Most topics in one topic-load.",
    )
    max_parts: int = setting(
        1_000,
        unit="parts",
        minimum=1,
        maximum=10_000,
        doc="Most parts of one bundle-load.",
    )
    max_name_chars: int = setting(
        512,
        unit="characters",
        minimum=64,
        maximum=4_096,
        doc="Longest name of a cluster, broker, bundle, topic or command.",
    )
    max_text_chars: int = setting(
        4_096,
        unit="characters",
        minimum=256,
        maximum=65_536,
        doc="Longest other text: URLs, reasons of failure, principals.",
    )
