"""Check of a commit's subject, run by the commit-msg hook of `.pre-commit-config.yaml`."""

import sys
from pathlib import Path

SUBJECT_CHARS_MAX = 72
_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")


def fault_of(message: str) -> str:
    """Return what is wrong with the message's subject; "" if nothing is."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0].strip() if lines else ""
    if subject.startswith(_BY_GIT):
        return ""
    if not subject:
        return "the subject is empty: say in the imperative what the commit does"
    if len(subject) > SUBJECT_CHARS_MAX:
        return f"the subject has {len(subject)} characters, at most {SUBJECT_CHARS_MAX} are allowed"
    if ";" in subject:
        return "the subject has a semicolon: make two commits, or say the second thing in the body"
    if len(lines) > 1 and lines[1].strip():
        return "the second line must be empty: the body begins on the third"
    return ""


def main() -> int:
    """Check the file that git names; 1 if its subject is refused."""
    fault = fault_of(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if fault:
        sys.stderr.write(f"{fault}\n")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
