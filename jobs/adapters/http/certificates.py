"""When certificates end: one in a file, and one that a server has shown.

Decides nothing. A peer that refuses an expired certificate often only hangs up, and then the
library's error says nothing of the reason. Source: ours.
"""

import ssl
from pathlib import Path

from cryptography import x509

from lbcore.model.times import instant


def ends_in_file(path: Path | str | None) -> int:
    """When the first certificate of a PEM file ends, ms since 1970; 0 = there is none to read."""
    if not path:
        return 0
    try:
        ends = x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return 0
    return round(ends.timestamp()) * 1_000


def ends_as_shown(wire: object) -> int:
    """When the verified certificate of a connection's other end ends; 0 = it has shown none."""
    shown = wire.getpeercert() if isinstance(wire, ssl.SSLSocket) else None
    return round(ssl.cert_time_to_seconds(str(shown["notAfter"]))) * 1_000 if shown else 0


def expired_words(path: Path | None, now_ms: int) -> str:
    """A sentence about a file's certificate that has ended by now; "" otherwise."""
    ends_ms = ends_in_file(path)
    if not ends_ms or now_ms < ends_ms:
        return ""
    return f"our certificate {path} expired at {instant(ends_ms)}: put its successor there"
