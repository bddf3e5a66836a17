"""State of a mirrored Pulsar cluster, as part of the status.

The bridge's last report, the differences that remain, when the bridge counts as away, and which
expiring certificates are an alarm.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lbcore.config.cluster import EXTERNAL
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation, Row
from lbcore.model.times import CertificateEnd, expiry_message, instant, judge_end

NEVER_MS = -1
_AWAY_MS = 180_000
"""Silence after which a bridge counts as away: it reports at least once a minute."""
_SHOWN = 10
_CERTIFICATES = (CertificateEnd.EXPIRING.value, CertificateEnd.EXPIRING_SOON.value)
_STAGES = {
    "mending": "; the bridge has asked Pulsar to mend it",
    "quarantined": "; quarantined: nothing of Ballast's touches it till it is over",
}
ALERTS: Mapping[str, str] = {
    "circling": "BallastPulsarCircling",
    "doubled": "BallastPulsarDoubled",
    "expiring": "BallastCertificateExpires",
    "expiring_soon": "BallastCertificateExpiresSoon",
    "misreporting": "BallastPulsarMisreporting",
    "narrow": "BallastPulsarNarrow",
    "poison": "BallastPulsarPoison",
    "stuck": "BallastPulsarStuck",
    "unlisted": "BallastPulsarUnlisted",
    "unread": "BallastPulsarUnread",
    "unresponsive": "BallastPulsarUnresponsive",
    "unserved": "BallastPulsarUnserved",
}
ADVICE: Mapping[str, str] = {
    "circling": "unload the bundle; if that is refused, restart the brokers of the circle in turn",
    "doubled": "unload the bundle, then restart the broker that lookups do not name",
    "expiring": "put its successor in the same file",
    "expiring_soon": "put its successor in the same file today; nobody accepts it afterwards",
    "misreporting": "these fields count as not reported; see this broker's log for what is wrong",
    "narrow": "split the bundle that has most of them, and unload the parts",
    "poison": "find the topic that kills its owners before anybody gets the bundle again",
    "stuck": "unload the bundle; if that is refused, restart its owner",
    "unread": "give the bridge a super user's token, or mend what Pulsar answers",
    "unlisted": "restart this broker, unless it is just being stopped",
    "unresponsive": "take a thread dump of this broker, then restart it",
    "unserved": "look one of its topics up; if that fails, unload the bundle",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """Summary of the bridge's recent reports.

    heard_ago_ms: age of the last report, NEVER_MS = there was none. differences: bundles and
    namespaces that differ, in the last report. taken_over: owners that the last report changed in
    the records; taken_over_lately: all reports of the last ten minutes. findings: the guardian's in
    the last report: trouble, subject, since_ms, evidence, stage.
    """

    heard_ago_ms: int
    differences: int
    taken_over: int
    taken_over_lately: int
    observe_only: bool
    findings: tuple[Row, ...] = ()

    @property
    def troubles(self) -> tuple[Row, ...]:
        """Findings without those about certificates, which `certificates_ending` has."""
        return tuple(one for one in self.findings if one["trouble"] not in _CERTIFICATES)


def mirror_status(rows: Sequence[Row], config: Config, now_ms: int) -> MirrorStatus | None:
    """Return the mirror's status; None where Ballast is the authority.

    rows: the `observe_ownership` commands.
    """
    if config.cluster.authority != EXTERNAL:
        return None
    reports = sorted((row for row in rows if row["status"] == "done"), key=lambda row: row["at_ms"])
    results = [json.loads(row["result"]) for row in reports]
    last = results[-1] if results else {}
    return MirrorStatus(
        heard_ago_ms=max(0, now_ms - int(reports[-1]["at_ms"])) if reports else NEVER_MS,
        differences=int(last.get("differences", 0)),
        taken_over=int(last.get("owners", 0)),
        taken_over_lately=sum(int(result.get("owners", 0)) for result in results),
        findings=tuple(last.get("findings", ())),
        observe_only=bool(last.get("observe_only", config.cluster.observe_only)),
    )


def mirror_alarms(mirror: MirrorStatus | None, wrote_ago_ms: int = 0) -> Iterable[str]:
    """Yield alarms about the mirror: what is wrong, then what to do.

    `certificates_ending` covers certificates. wrote_ago_ms: time since the job's last commit,
    NEVER_MS = there was none. A bridge's reports are seen only through the job's commits, so the
    bridge's silence is not reported while the job is away.
    """
    if mirror is None or wrote_ago_ms == NEVER_MS:
        return
    silent_ms = mirror.heard_ago_ms - wrote_ago_ms
    if mirror.heard_ago_ms == NEVER_MS and wrote_ago_ms <= _AWAY_MS:
        yield "the bridge tells nothing: start `ballast bridge pulsar`, or read its log"
    elif silent_ms > _AWAY_MS:
        silent_s = silent_ms // 1_000
        yield f"the bridge has told nothing for {silent_s} s: start it again, or read its log"
    yield from map(finding_message, mirror.troubles[:_SHOWN])
    if len(mirror.troubles) > _SHOWN:
        yield f"and {len(mirror.troubles) - _SHOWN} more of the guardian's (--json has all)"


def troubles_found(mirror: MirrorStatus | None) -> str:
    """Return the guardian's troubles with counts, "7 unserved, 1 stuck"; "" = none."""
    counts = Counter(str(one["trouble"]) for one in (mirror.troubles if mirror else ()))
    most = sorted(counts, key=lambda trouble: (-counts[trouble], trouble))
    return ", ".join(f"{counts[trouble]} {trouble}" for trouble in most)


def finding_message(finding: Row) -> str:
    """Return a sentence on a finding of the guardian, its start, and the remedy."""
    trouble, since = str(finding["trouble"]), instant(int(finding["since_ms"]))
    if trouble in _CERTIFICATES:
        return f"{finding['subject']} {finding['evidence']}: {_advice(trouble)}"
    stage = _STAGES.get(str(finding["stage"]), "")
    words = f"{finding['subject']} is {trouble} since {since}: {finding['evidence']}{stage}"
    return f"{words}; {_advice(trouble)}"


def _advice(trouble: str) -> str:
    alert = f"section {ALERTS[trouble]} of docs/runbook.md" if trouble in ALERTS else "see its log"
    return f"{ADVICE.get(trouble, 'read the log of the bridge')} ({alert})"


def with_findings(found: Explanation, commands: Sequence[Row], config: Config) -> Explanation:
    """Return the explanation with the guardian's findings on its subject put first.

    That of a cluster gets all findings. commands: of `observe_ownership`, up to the moment that is
    asked about.
    """
    mirror = mirror_status(commands, config, found.at_ms)
    findings = mirror.findings if mirror is not None else ()
    own = [
        one
        for one in findings
        if found.kind == "cluster"
        or found.subject == one["subject"]
        or found.subject in (word.strip(",;") for word in str(one["evidence"]).split())
    ]
    return replace(found, why=(*map(finding_message, own[:_SHOWN]), *found.why))


def certificates_ending(
    ends: Mapping[str, int], mirror: MirrorStatus | None, near: CertificateEnd, now_ms: int
) -> Iterable[str]:
    """Yield a sentence for each certificate that is `near` its end, with the remedy.

    ends: holder → end of validity, ms since 1970.
    """
    for whose, ends_ms in sorted(ends.items()):
        if judge_end(ends_ms, now_ms) is near:
            yield f"{whose} {expiry_message(ends_ms)}: {_advice(near.value)}"
    for finding in mirror.findings if mirror is not None else ():
        if finding["trouble"] == near.value:
            yield finding_message(finding)
