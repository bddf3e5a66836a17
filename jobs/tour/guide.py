"""What the stops of the tour share: asking a verb aloud, metrics, waiting, and what must be true.

Decides how much of an answer is shown. Whatever is shown is what the verb said; whatever the tour
itself states is looked up first, and a statement that does not hold ends it. Source: ours.
"""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jobs.adapters.processes.prometheus import Prometheus
from jobs.console import CommandError, Exit, say
from jobs.local.layout import Layout
from jobs.local.stack import ROOT
from jobs.sql.engine import SqlEngine, plain_rows
from jobs.tour.alert_words import alert_lines, state_of

_LINES_SHOWN = 40
_POLL_S = 1.0
_VERB_TIMEOUT_S = 300
_HTTP_TIMEOUT_S = 20


class Guide:
    """The tour's way of asking. patience_s: how long it waits for anything to happen.

    prometheus: who evaluates the alert rules, from when it is there; None = nobody.
    """

    def __init__(self, layout: Layout, is_running: Callable[[], bool], patience_s: float) -> None:
        self.layout = layout
        self.prometheus: Prometheus | None = None
        self._is_running = is_running
        self._patience_s = patience_s

    def title(self, text: str) -> None:
        """Begin a stop."""
        say("", f"=== {text} ===", "")

    def ask(self, *words: str, shown: int = _LINES_SHOWN, codes: Collection[int] = (0,)) -> str:
        """Carry a verb out on the run, as a user would, and show what it says.

        codes: with which it may end; raises CommandError for another.
        """
        text = self._verb(*words, codes=codes)
        _show(words, text, shown)
        return text

    def hold_soon(self, statement: str, pattern: str, *words: str) -> None:
        """Ask until the answer has the pattern, show that answer, and state it."""

        def answer() -> str:
            text = self._verb(*words)
            return text if re.search(pattern, text) else ""

        _show(words, self.wait(statement, answer), _LINES_SHOWN)
        say(f"✓ {statement}", "")

    def asked_json(self, *words: str) -> Any:
        """What a verb says to programs; not shown."""
        return json.loads(self._verb(*words, "--json"))

    def rows(self, text: str) -> list[dict[str, Any]]:
        """Rows of the tables; not shown."""
        return plain_rows(SqlEngine(self.layout.tables).query(text))

    def metrics(self, *names: str) -> str:
        """Show the job's metrics of these names; of counters those that are not 0."""
        port = self.layout.metrics_port.read_text().strip()
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=_HTTP_TIMEOUT_S
        ) as reply:
            lines = reply.read().decode().splitlines()
        wanted = tuple(f"{name}{end}" for name in names for end in ("{", " "))
        found = [x for x in lines if x.startswith(wanted) and not _is_idle(x)]
        say(f"$ curl -s 127.0.0.1:{port}/metrics | grep -E '{'|'.join(names)}'")
        for line in found[:_LINES_SHOWN]:
            say(f"  {line}")
        say("")
        return "\n".join(found)

    def alerts(self) -> None:
        """Show which alerts fire, and which would if it lasted."""
        if self.prometheus is None:
            return
        say(f"$ curl -s {self.prometheus.url}/api/v1/alerts")
        for line in alert_lines(self.prometheus.alerts()):
            say(f"  {line}")
        say("")

    def hold_alert(self, statement: str, name: str, state: str, *, about: str = "") -> None:
        """Wait until an alert is in a state, show all, and state that; nothing without Prometheus.

        state: firing, pending, or "" for neither; about: the value of one of its labels.
        """
        prometheus = self.prometheus
        if prometheus is None:
            say(f"(left out, because no Prometheus is here: {statement})", "")
            return
        what = f"{name} to be {state or 'over'}"
        self.wait(what, lambda: state_of(prometheus.alerts(), name, about) == state)
        self.alerts()
        say(f"✓ {statement}", "")

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        """What the condition gives once it is true; raises CommandError when it never is."""
        deadline_s = time.monotonic() + self._patience_s
        while not (found := condition()):
            if not self._is_running():
                raise CommandError(
                    f"the run ended while the tour waited for {what}",
                    why=f"its output is in {self.layout.root / 'run.log'}",
                    next_step="read it, then start the tour again",
                )
            if time.monotonic() > deadline_s:
                raise CommandError(
                    f"the tour waited {self._patience_s:.0f} s in vain for {what}",
                    why="this machine may be too busy, or something does not work",
                    next_step=f"look with `ballast status --state-dir {self.layout.root}` while a "
                    "run is there, or give the tour a larger --patience",
                )
            time.sleep(_POLL_S)
        return found

    def hold(self, statement: str, text: str, pattern: str) -> None:
        """State something that an answer has just said; raises CommandError when it has not."""
        if not re.search(pattern, text):
            raise CommandError(
                f"this was to be true, and is not: {statement}",
                why=f"{pattern!r} is not in the answer above",
                next_step="that is a fault of Ballast or of the tour: please tell",
            )
        say(f"✓ {statement}", "")

    def _verb(self, *words: str, codes: Collection[int] = (0,)) -> str:
        command: Sequence[str] = (sys.executable, "-m", "jobs.cli", *words)
        ended = subprocess.run(  # noqa: S603 (our own verb)
            [*command, "--state-dir", str(self.layout.root)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERB_TIMEOUT_S,
        )
        is_stalled = words[0] == "status" and ended.returncode == Exit.FAILED and ended.stdout
        if ended.returncode not in codes and not is_stalled:
            raise CommandError(
                f"ballast {' '.join(words)} ended with {ended.returncode}",
                why=(ended.stderr or ended.stdout).strip()[:500],
                next_step=f"read the logs in {self.layout.logs}",
            )
        return ended.stdout


def _show(words: Sequence[str], text: str, shown: int) -> None:
    """A verb as one would write it, and the first lines of its answer."""
    say(f"$ ballast {' '.join(repr(word) if ' ' in word else word for word in words)}")
    lines = text.rstrip().splitlines()
    for line in lines[:shown]:
        say(f"  {line}")
    if len(lines) > shown:
        say(f"  ... and {len(lines) - shown} lines more")
    say("")


def _is_idle(line: str) -> bool:
    """Whether it is a counter that has counted nothing: there are many of them."""
    name, _, value = line.rpartition(" ")
    return name.partition("{")[0].endswith("_total") and float(value) == 0.0
