"""Looking a bundle's owner up: by which topic, and where that is asked.

Decides, for a bundle of which no topic is known, a name that nobody uses and whose hash lies in the
bundle's range: looking it up makes Pulsar's modular manager give the bundle an owner, and makes no
topic. The path is Pulsar 4.0.8's and 5.0.0-M1's, TopicLookup.
"""

from urllib.parse import quote

from lbcore.model.hashing import crc32
from lbcore.model.names import parse_bundle

_SCALABLE = ("topic", "segment")
_TRIES_MAX = 200_000


def topic_within(bundle: str) -> str:
    """Return the name of a topic in the range. O(full range / its width).

    "" when the range is so narrow that none was found.
    """
    namespace, lower, upper = parse_bundle(bundle)
    for number in range(_TRIES_MAX):
        topic = f"persistent://{namespace}/ballast-asks-for-an-owner-{number}"
        if lower <= crc32(topic) < upper:
            return topic
    return ""


def lookup_path(topic: str) -> str:
    """Return the path at which a broker answers a lookup of a topic's full name.

    A segment's local name has a "/" (segment://t/ns/orders/0000-7fff-0), which does not separate
    steps of the path: unquoted, Pulsar answers 404.
    """
    domain, _, rest = topic.partition("://")
    parts = rest.split("/", 2) if domain in _SCALABLE else rest.split("/")
    return "/lookup/v2/topic/" + "/".join(quote(part, safe="") for part in (domain, *parts))
