"""How near the end of a certificate may come before somebody is told.

Decides the two distances, for whoever looks at one: the bridge, the status, the doctor, the alert
rules. When one ends is read elsewhere. Source: ours.
"""

from enum import Enum

from lbcore.model.times import DAY_MS, instant

WARNED_MS = 30 * DAY_MS
"""So long before its end somebody should order its successor."""
ALERTED_MS = 7 * DAY_MS
"""So long before its end the successor should be there, today."""


class CertificateEnd(Enum):
    """How near the end of a certificate is; over is the nearest."""

    FAR = "far"
    EXPIRING = "expiring"
    EXPIRING_SOON = "expiring_soon"


def judge_end(ends_ms: int, now_ms: int) -> CertificateEnd:
    """Of a certificate that is good until ends_ms, ms since 1970."""
    if ends_ms - now_ms < ALERTED_MS:
        return CertificateEnd.EXPIRING_SOON
    return CertificateEnd.EXPIRING if ends_ms - now_ms < WARNED_MS else CertificateEnd.FAR


def end_words(ends_ms: int) -> str:
    """When it ends, for a sentence; the same as long as the certificate is."""
    return f"its certificate is good until {instant(ends_ms)}"
