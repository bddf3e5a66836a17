"""Rule for redirects: the targets that may receive our token.

Decides by the brokers that Pulsar lists; `jobs.bridge.pulsar_admin` follows.
"""

import http.client
from collections.abc import Collection
from urllib.parse import urlsplit


def redirect_leads_to_broker(url: str, target: str, listed: Collection[str]) -> bool:
    """Return True if a token for `url` may be sent to the redirect's target.

    listed: the brokers as Pulsar names them, host:port of their web services. Over http the target
    must be one of them. Over https the host's certificate proves it, and its port may differ from
    the listed one. That is the port of http where a broker speaks both. Never from https to http.
    """
    try:
        parts = urlsplit(target)
        port = parts.port
    except ValueError:
        return False
    host = (parts.hostname or "").lower()
    if not host or parts.username is not None or parts.scheme not in ("http", "https"):
        return False
    known = {_place_of(broker) for broker in listed}
    if parts.scheme == "https":
        return host in {name for name, _ in known}
    return urlsplit(url).scheme == "http" and (host, port or http.client.HTTP_PORT) in known


def _place_of(broker: str) -> tuple[str, int]:
    """Host and port of a broker's name; ("", 0) of what is none."""
    try:
        parts = urlsplit(f"//{broker}")
        return (parts.hostname or "").lower(), parts.port or http.client.HTTP_PORT
    except ValueError:
        return "", 0
