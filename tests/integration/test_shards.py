"""Two shards of one cluster on the real stack: both served, also after a broker is killed.

The fleet runs one agent a broker, so each shard has a fleet of its own with brokers of the same
names; that an agent reports the whole broker's load is the simulator's part (`tests/sim`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.clients import Sender, Tail
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command, ShardLoad, Topic
from lbcore.wire.parse import parse
from lbcore.wire.rules import ParseRules
from tests.integration.stack import Cluster, Stack, http_json, running_stack

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


class ShardedStack(Stack):
    """A stack with a fleet and a lookup service for each shard."""

    def start_fleet(self) -> None:
        """Start the brokers, as each shard has them."""
        for shard, space in SHARDS.items():
            words = ["--bootstrap", self.kafka.bootstrap, "--cluster", shard]
            words += ["--state-dir", str(self.folder / f"fleet-{shard}")]
            words += ["--brokers", str(self.cluster.brokers)]
            words += ["--heartbeat-interval-ms", "600", "--report-interval-ms", "2000"]
            words += ["--namespace", f"{space}:crc32:{BUNDLES}"]
            words += ["--port-file", str(self.folder / f"port-{shard}")]
            self._start(f"fleet-{shard}", "jobs.run_fleet", words)
        for shard in SHARDS:
            self.wait(f"the fleet's port of {shard}", (self.folder / f"port-{shard}").exists)

    def create_namespaces(self) -> None:
        """Each in its shard."""
        sender = Sender(self.address("operator"), "test-commands")
        for shard, space in SHARDS.items():
            command = Command(
                cluster=shard,
                command_id=f"create-{shard}",
                kind="create_namespace",
                arguments={"namespace": space, "bundles": BUNDLES},
                timeout_ms=600_000,
            )
            topic, key, value = format_message(command)
            sender.send(topic, key.decode(), value)
        sender.close(timeout_ms=10_000)

    def of_shards(self, path: str, method: str = "GET") -> list[Any]:
        """The answers of all fleets."""
        ports = [(self.folder / f"port-{shard}").read_text().strip() for shard in SHARDS]
        return [http_json(f"http://127.0.0.1:{port}{path}", method)[1] for port in ports]

    def served(self) -> dict[str, list[str]]:
        """Of all shards together: their bundles have different names."""
        truths = self.of_shards("/truth")
        return {
            bundle: [broker for broker, _ in by]
            for truth in truths
            for bundle, by in truth.items()
            if by
        }

    def serve_lookups(self, shard: str) -> None:
        """Start the lookup service of a shard."""
        port_file = self.folder / f"lookup-port-{shard}"
        words = ["--tables", str(self.tables), "--cluster", shard, "--port", "0"]
        words += ["--bootstrap", self.kafka.bootstrap, "--port-file", str(port_file)]
        self._start(f"lookup-{shard}", "jobs.serve_lookup", words)
        self.wait(f"the lookup service's port of {shard}", port_file.exists)

    def found(self, shard: str) -> tuple[int, Any]:
        """A lookup of a topic of the shard's namespace."""
        port = (self.folder / f"lookup-port-{shard}").read_text().strip()
        path = f"/lookup/v2/topic/persistent/{SHARDS[shard]}/topic"
        return http_json(f"http://127.0.0.1:{port}{path}")

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
    stack.of_shards(f"/kill/{lost}", "POST")
    stack.wait("others to own what it had", lambda: lost not in stack.owners().values())
    stack.wait_settled()
    assert {bundle.rpartition("/")[0] for bundle in stack.owners()} == set(SHARDS.values())


@pytest.mark.long
@pytest.mark.parametrize("shard", SHARDS)
def test_a_lookup_finds_the_owner_in_each_shard(stack: ShardedStack, shard: str) -> None:
    stack.serve_lookups(shard)
    stack.wait(f"an owner in {shard}", lambda: stack.found(shard)[0] == 200)
    owners = {
        owner for bundle, owner in stack.owners().items() if bundle.startswith(f"{SHARDS[shard]}/")
    }
    assert stack.found(shard)[1]["httpUrl"] in {f"http://{owner}:8080" for owner in owners}
