"""Findings of `ballast doctor`: subject, verdict, meaning and advice.

Decides the wording of findings and the exit code.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from jobs.console import CommandError


class FindingVerdict(str, Enum):
    """Verdict of a finding: fine, to be looked at some day, or an obstacle to work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One line. next_step: "" where nothing is to be done."""

    subject: str
    verdict: FindingVerdict
    what: str
    next_step: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON-able values."""
        return {**asdict(self), "verdict": self.verdict.value}


def ok(subject: str, what: str) -> DoctorFinding:
    """Nothing to do."""
    return DoctorFinding(subject=subject, verdict=FindingVerdict.OK, what=what)


def warn(subject: str, what: str, next_step: str) -> DoctorFinding:
    """Works, but."""
    return DoctorFinding(
        subject=subject, verdict=FindingVerdict.WARN, what=what, next_step=next_step
    )


def fail(subject: str, what: str, next_step: str) -> DoctorFinding:
    """Does not work."""
    return DoctorFinding(
        subject=subject, verdict=FindingVerdict.FAIL, what=what, next_step=next_step
    )


def looked(subject: str, look: Callable[[], Iterable[DoctorFinding]]) -> list[DoctorFinding]:
    """Return the findings of a look; a failure to look is a finding, too."""
    found: list[DoctorFinding] = []
    try:
        found.extend(look())
    except CommandError as error:
        found.append(fail(subject, f"{error.what}: {error.why}", error.next_step))
    return found


def worst(findings: Iterable[DoctorFinding]) -> FindingVerdict:
    """The worst verdict of all."""
    order = list(FindingVerdict)
    return max((one.verdict for one in findings), key=order.index, default=FindingVerdict.OK)
