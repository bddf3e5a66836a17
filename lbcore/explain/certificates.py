"""Alarms and warnings about certificates that expire soon.

They are the service's own certificates, and those that a bridge reported. Decides which are an
alarm and which a warning; `lbcore.model.certificates` decides how near is near. Part of the status.
"""

from collections.abc import Iterable, Mapping

from lbcore.explain.mirrored import MirrorStatus, certificate_words, finding_words
from lbcore.model.certificates import CertificateEnd, end_words, judge_end


def certificates_ending(
    ends: Mapping[str, int], mirror: MirrorStatus | None, near: CertificateEnd, now_ms: int
) -> Iterable[str]:
    """Those that are so near their end, and what to do. ends: whose → good until, ms since 1970."""
    for whose, ends_ms in sorted(ends.items()):
        if judge_end(ends_ms, now_ms) is near:
            yield certificate_words(whose, end_words(ends_ms), near.value)
    for finding in mirror.findings if mirror is not None else ():
        if finding["trouble"] == near.value:
            yield finding_words(finding)
