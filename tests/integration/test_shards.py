"""Two shards of one cluster on the real stack: both served, also after a broker is killed.

The fleet runs one agent a broker, so each shard has a fleet of its own with brokers of the same
names; that an agent reports the whole broker's load is the simulator's part (`tests/sim`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from jobs.adapters.kafka.clients import Tail
from lbcore.wire.messages import ShardLoad, Topic
from lbcore.wire.parse import parse
from lbcore.wire.rules import ParseRules
from tests.integration.several_clusters import SeveralClusters
from tests.integration.stack import Cluster, running_stack

SHARDS = {"east-a": "demo/one", "east-b": "demo/two"}
BUNDLES = 20
NAMES = ",".join(SHARDS)
# twice conf/test.toml's: a crowded machine may stop a process for three seconds
SETTINGS = (
    f"pipeline.clusters={NAMES}",
    f"cluster.shards={NAMES}",
    "ownership.broker_timeout_ms=6000",
)
CLUSTER = Cluster(
    brokers=4,
    namespaces=dict.fromkeys(SHARDS.values(), ("crc32", BUNDLES)),
    settings=SETTINGS,
)


class ShardedStack(SeveralClusters):
    """A stack with a fleet and a lookup service for each shard."""

    spaces: ClassVar[Mapping[str, str]] = SHARDS

    def told(self) -> list[ShardLoad]:
        """What the shards have told each other so far."""
        rules = ParseRules(clusters=frozenset(SHARDS), limits=self.config.wire)
        tail, found = Tail(self.address("operator"), Topic.BROKER_LOAD, "test-tail"), []
        while received := tail.poll(2_000):
            for one in received:
                message = parse(Topic.BROKER_LOAD, one.key.encode(), one.value, rules)
                if isinstance(message, ShardLoad):
                    found.append(message)
            if len({message.shard for message in found if message.carried.any()}) == len(SHARDS):
                break
        tail.close()
        return found


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedStack]:
    folder: Path = tmp_path_factory.mktemp("shards")
    with running_stack(folder, CLUSTER, kind=ShardedStack) as running:
        assert isinstance(running, ShardedStack)
        yield running


@pytest.mark.long
def test_each_shard_tells_the_other_what_it_carries(stack: ShardedStack) -> None:
    def both_told() -> bool:
        told = {(one.shard, one.cluster) for one in stack.told() if one.carried.any()}
        return told == {("east-a", "east-b"), ("east-b", "east-a")}

    stack.wait("both shards to tell what they carry", both_told)
    assert stack.rows("rejected_reports") == []


@pytest.mark.long
def test_all_are_served_again_after_a_broker_is_killed(stack: ShardedStack) -> None:
    lost = min(set(stack.owners().values()))
    for shard in SHARDS:
        stack.of_fleet(shard, f"/kill/{lost}", "POST")
    stack.wait("others to own what it had", lambda: lost not in stack.owners().values())
    stack.wait_settled()
    assert {bundle.rpartition("/")[0] for bundle in stack.owners()} == set(SHARDS.values())


@pytest.mark.long
@pytest.mark.parametrize("shard", SHARDS)
def test_a_lookup_finds_the_owner_in_each_shard(stack: ShardedStack, shard: str) -> None:
    stack.serve_lookups(shard)
    stack.wait(f"an owner in {shard}", lambda: stack.found(shard)[0] == 200)
    owners = set(stack.owners_in(shard).values())
    assert stack.found(shard)[1]["httpUrl"] in {f"http://{owner}:8080" for owner in owners}
