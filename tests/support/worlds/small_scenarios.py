"""The scenarios of the small world: what may happen in each, and how often.

See tests/support/worlds/small_world.py.
"""

from dataclasses import dataclass

from tests.support.worlds.small_world_state import LEFT, RIGHT, WHOLE


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What may happen at all. start: the bundles there are, each Owned by the first broker.

    crashes, deaths (a live broker taken for dead), failures (of callbacks), lives (of a namespace
    that was deleted): how many at most. version_max: requests stop there.
    """

    start: tuple[str, ...] = (WHOLE,)
    requests: frozenset[str] = frozenset({"assign", "transfer", "unload"})
    has_timeouts: bool = False
    crashes: int = 0
    deaths: int = 0
    failures: int = 0
    lives: int = 0
    version_max: int = 9


SCENARIOS = {
    "moves": Scenario(failures=1),
    "timeouts": Scenario(has_timeouts=True),
    "crashes": Scenario(crashes=2),
    "deaths": Scenario(deaths=2),
    "splits": Scenario(requests=frozenset({"split", "transfer"}), failures=1, has_timeouts=True),
    "split-crashes": Scenario(requests=frozenset({"split", "transfer"}), crashes=1, deaths=1),
    "merges": Scenario(
        start=(LEFT, RIGHT),
        requests=frozenset({"merge", "transfer"}),
        failures=1,
        has_timeouts=True,
    ),
    "merge-crashes": Scenario(
        start=(LEFT, RIGHT), requests=frozenset({"merge"}), crashes=1, deaths=1
    ),
    "merge-splits": Scenario(
        start=(LEFT, RIGHT), requests=frozenset({"merge", "split"}), crashes=1, version_max=12
    ),
    "merge-overrides": Scenario(
        start=(LEFT, RIGHT), requests=frozenset({"merge", "override", "delete"}), lives=1
    ),
    "two-bundles": Scenario(start=(LEFT, RIGHT), requests=frozenset({"transfer"}), crashes=1),
    "overrides": Scenario(requests=frozenset({"override", "transfer"}), crashes=1, failures=1),
    "namespaces": Scenario(
        requests=frozenset({"transfer", "delete"}), lives=2, crashes=1, deaths=1, failures=1
    ),
    "split-namespaces": Scenario(
        requests=frozenset({"split", "delete"}), lives=1, crashes=1, has_timeouts=True
    ),
    "everything": Scenario(
        requests=frozenset({"assign", "transfer", "unload", "split"}),
        has_timeouts=True,
        crashes=1,
        deaths=1,
        failures=1,
    ),
    "storm": Scenario(
        requests=frozenset({"transfer", "unload", "split", "merge", "override", "delete"}),
        has_timeouts=True,
        crashes=4,
        deaths=4,
        failures=4,
        lives=9,
        version_max=60,
    ),
}
