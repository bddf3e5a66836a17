"""pytest as something that runs beside what matters more: `python -m tests.beside ARGUMENTS`.

Linux shares its cores among sessions before it looks at who is nice, so this is a session of its
own, and a nice one. Source: sched(7), "The autogroup feature".
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

NICE = 19


def main() -> None:
    """Become pytest, of the least priority; ends as pytest does."""
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    with suppress(OSError):  # another system, or one without autogroups
        Path("/proc/self/autogroup").write_text(str(NICE), encoding="ascii")
    os.nice(NICE)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])  # noqa: S606 it is pytest from here on


if __name__ == "__main__":
    main()
