"""Callbacks that a service offers its agent, and the permits that it gets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jobs.adapters.processes.clocks import ForwardClock
from lbcore.agent.reporting import LoadRead, TopicsRead
from lbcore.agent.state import NEVER_MS


class Permits:
    """Bundles that may be used now; any thread may ask, at any time.

    It compares clocks. There is no timer: a frozen process finds out at its next use.
    """

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
        """End the agent's part: nothing may be used any more, whatever is given later."""
        self._is_withdrawn = True


def _no_topics() -> Sequence[TopicsRead]:
    return ()


def _no_merge(bundle: str, merged: str, token: int) -> None:
    message = f"this service can't merge bundles, {merged} is not made (token {token})"
    raise NotImplementedError(f"{message}: {bundle} stays as it is")


def _no_permits(_: Permits) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that the agent calls; each fails by raising anything.

    open(bundle, token): serve the range as one bundle, whatever of it was open before. token is the
    fencing token: it grows with each owner, so a store can refuse an older one. close(bundle,
    token): serve nothing of the range. split(bundle, children, token): serve the range as these
    bundles. merge(bundle, merged, token): serve on as before, and be ready to open the bundle and
    its upper neighbour as the merged one; a service that leaves it out refuses. Each may be called
    again for what is done already.

    These four run in threads, one at a time for a bundle, `Options.threads` at once. One that has
    not returned after a minute has failed. load(): what the service carries now;
    topics(): of the bundles whose topics have changed, the topics. Both must be quick.
    attach(permits): called once, before anything else; permits tells at each use whether a bundle
    may be served.
    """

    load: Callable[[], LoadRead]
    open: Callable[[str, int], None]
    close: Callable[[str, int], None]
    split: Callable[[str, Sequence[str], int], None]
    merge: Callable[[str, str, int], None] = _no_merge
    topics: Callable[[], Sequence[TopicsRead]] = _no_topics
    attach: Callable[[Permits], None] = _no_permits
