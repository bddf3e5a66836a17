"""A follower under test: what it serves, how to drive it; one namespace of four bundles."""

import threading
from collections.abc import Callable
from pathlib import Path

from jobs.adapters.delta.table_tail import ReloadReason
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.processes.clocks import boot_ms
from lbcore.model.tables import OWNERSHIP_EVENTS
from lbcore.route.snapshot import LookupSnapshot
from tests.support.tables.lookup_tables import CLUSTER, Row, bundles_of

NAMESPACE = "acme/orders"
BUNDLES = bundles_of(NAMESPACE, 4)
BROKERS = ("b1", "b2", "b3")
TOPIC = f"persistent://{NAMESPACE}/t1"
EVENTS = OWNERSHIP_EVENTS.name


def served(follower: DeltaFollower) -> LookupSnapshot:
    """The snapshot that lookups are answered from."""
    assert follower.view is not None
    return follower.view.snapshot


def content(follower: DeltaFollower) -> list[tuple[str, int, str]]:
    """Bundle, version and broker of every live bundle."""
    found = served(follower).namespaces
    return [
        (route.bundle, route.version_id, route.broker)
        for name in sorted(found)
        for route in found[name].live
    ]


def fresh(root: Path) -> DeltaFollower:
    """A follower that has just loaded the tables."""
    made = DeltaFollower(root, CLUSTER)
    made.poll()
    return made


def move(bundle: str, version: int, to: str) -> Row:
    """A version of a bundle that another broker owns."""
    return Row(bundle=bundle, version=version, source="b1", destination=to)


def poll_until(follower: DeltaFollower, is_reached: Callable[[], bool]) -> None:
    """Poll, as the thread does, at most 60 s."""
    pause = threading.Event()
    deadline_ms = boot_ms() + 60_000
    while not is_reached():
        assert boot_ms() < deadline_ms, follower.counts
        follower.poll()
        pause.wait(0.02)


def poll_until_reloaded(follower: DeltaFollower, reason: ReloadReason) -> None:
    """Poll until a load for this reason has been tried."""
    poll_until(follower, lambda: bool(follower.counts.reloads[reason]))
