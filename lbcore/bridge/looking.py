"""A topic's name within a bundle, for a bundle of which no topic is known.

Decides a name that nobody uses and whose hash lies in the bundle's range: looking it up makes
Pulsar's modular manager give the bundle an owner, and makes no topic. Source: ours.
"""

from lbcore.model.hashing import crc32
from lbcore.model.names import parse_bundle

_TRIES_MAX = 200_000


def topic_within(bundle: str) -> str:
    """The name; "" when the range is so narrow that none was found. O(full range / its width)."""
    namespace, lower, upper = parse_bundle(bundle)
    for number in range(_TRIES_MAX):
        topic = f"persistent://{namespace}/ballast-asks-for-an-owner-{number}"
        if lower <= crc32(topic) < upper:
            return topic
    return ""
