"""Callbacks that a service offers its agent.

Services import them from `jobs.agent`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.agent_host.permits import Permits
from lbcore.agent.reporting import LoadRead, TopicsRead


def _no_topics() -> Sequence[TopicsRead]:
    return ()


def _no_permits(_: Permits) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that the agent calls; each fails by raising anything.

    open(bundle, token): serve the range as one bundle, whatever of it was open before. token is the
    fencing token: it grows with each owner, so a store can refuse an older one. close(bundle,
    token): serve nothing of the range. split(bundle, children, token): serve the range as these
    bundles. Each may be called again for what is done already.

    These three run in threads, one at a time for a bundle, `Options.threads` at once. One that has
    not returned after `agent.callback_timeout_ms` has failed. load(): what the service carries now;
    topics(): of the bundles whose topics have changed, the topics. Both must be quick.
    attach(permits): called once, before anything else; permits tells at each use whether a bundle
    may be served.
    """

    load: Callable[[], LoadRead]
    open: Callable[[str, int], None]
    close: Callable[[str, int], None]
    split: Callable[[str, Sequence[str], int], None]
    topics: Callable[[], Sequence[TopicsRead]] = _no_topics
    attach: Callable[[Permits], None] = _no_permits
