"""Permission check of a service before each use of a bundle.

Tells whether the bundle may be served, and under which token. Decides by comparing the clock with
the time that the agent's Machine allows. No timer is involved, so a process that was frozen finds
out at its next use.
"""

from collections.abc import Mapping

from jobs.adapters.processes.clocks import ForwardClock
from lbcore.agent.lease import NEVER_MS


class Permits:
    """Bundles that may be used; any thread may ask, at any time."""

    def __init__(self, clock: ForwardClock) -> None:
        """clock: the one that the agent's Machine is stepped by."""
        self._clock = clock
        self._given: tuple[Mapping[str, int], int] = ({}, NEVER_MS)
        self._is_withdrawn = False

    def token(self, bundle: str) -> int | None:
        """The fencing token to use the bundle under now; None = it must not be served now.

        Ask before every use, also of a bundle that has just been opened, and hand the token on to
        whatever is written to: a process can be frozen between the answer and the use. O(1).
        """
        return self.tokens().get(bundle)

    def tokens(self) -> Mapping[str, int]:
        """Bundle → token of all that may be used now."""
        tokens, until_ms = self._given
        is_over = self._is_withdrawn or self._clock.now_ms() > until_ms
        return {} if is_over else tokens

    def give(self, tokens: Mapping[str, int], until_ms: int) -> None:
        """The agent's part: allow these bundles, and nothing else, until then."""
        self._given = (tokens, until_ms)

    def withdraw(self) -> None:
        """The agent's part at its end: nothing may be used any more, whatever is given later."""
        self._is_withdrawn = True
