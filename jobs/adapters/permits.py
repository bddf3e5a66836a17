"""What a service asks before each use of a bundle: may it be served, and under which token.

Decides by comparing the clock with the time that the agent's Machine allows; no timer is involved,
so a process that was frozen finds out at its next use. Source: ours.
"""

from collections.abc import Mapping

from jobs.adapters.clocks import ForwardClock
from lbcore.machines.agent_lease import NEVER_MS


class Permits:
    """What may be used; any thread may ask, at any time."""

    def __init__(self, clock: ForwardClock) -> None:
        """clock: the one that the agent's Machine is stepped by."""
        self._clock = clock
        self._given: tuple[Mapping[str, int], int] = ({}, NEVER_MS)

    def token(self, bundle: str) -> int | None:
        """The fencing token to use the bundle under now; None = it must not be served now.

        Ask before every use, also of a bundle that has just been opened, and hand the token on to
        whatever is written to: a process can be frozen between the answer and the use. O(1).
        """
        tokens, until_ms = self._given
        return tokens.get(bundle) if self._clock.now_ms() <= until_ms else None

    def tokens(self) -> Mapping[str, int]:
        """Bundle → token of all that may be used now."""
        tokens, until_ms = self._given
        return tokens if self._clock.now_ms() <= until_ms else {}

    def give(self, tokens: Mapping[str, int], until_ms: int) -> None:
        """The agent's part: allow these bundles, and nothing else, until then."""
        self._given = (tokens, until_ms)
