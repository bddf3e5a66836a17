"""When a certificate in a file ends: for words about a connection that was refused.

Decides nothing. A peer that refuses an expired certificate often only hangs up, and then the
library's error says nothing of the reason. Source: ours.
"""

from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509


def expired_words(path: Path | None, now: datetime) -> str:
    """A sentence about the first certificate of a PEM file that has ended by now; "" otherwise."""
    if path is None:
        return ""
    try:
        ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return ""
    if now < ends:
        return ""
    return f"our certificate {path} expired at {ends:%Y-%m-%d %H:%M} UTC: put its successor there"


def utc_now() -> datetime:
    """By the machine's clock, as whoever checks a certificate goes by his."""
    return datetime.now(timezone.utc)
