"""Thresholds of the time to a certificate's expiry at which somebody is told.

Decides the two thresholds for the bridge, the status, the doctor and the alert rules. Expiry times
are read elsewhere.
"""

from enum import Enum

from lbcore.model.times import DAY_MS, instant

WARNED_MS = 30 * DAY_MS
"""So long before its end somebody should order its successor."""
ALERTED_MS = 7 * DAY_MS
"""So long before its end the successor should be there, today."""


class CertificateEnd(Enum):
    """Closeness of a certificate's expiry, up to expired."""

    FAR = "far"
    EXPIRING = "expiring"
    EXPIRING_SOON = "expiring_soon"


def judge_end(ends_ms: int, now_ms: int) -> CertificateEnd:
    """Of a certificate that is good until ends_ms, ms since 1970."""
    if ends_ms - now_ms < ALERTED_MS:
        return CertificateEnd.EXPIRING_SOON
    return CertificateEnd.EXPIRING if ends_ms - now_ms < WARNED_MS else CertificateEnd.FAR


def expiry_message(ends_ms: int) -> str:
    """Return the expiry time as part of a sentence.

    It stays the same as long as the certificate does.
    """
    return f"its certificate is good until {instant(ends_ms)}"
