"""A stack of several clusters under one job: each has a fleet and a lookup service of its own."""

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs.adapters.kafka.clients import Sender
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command
from tests.integration.stack import Stack, http_json


class SeveralClusters(Stack):
    """spaces: cluster → its namespace, as `cluster.namespaces` has it."""

    spaces: ClassVar[Mapping[str, str]] = {}

    def start_fleet(self) -> None:
        """Start the brokers of all clusters, of the same names in each."""
        for cluster in self.spaces:
            self.start_fleet_of(cluster)
        for cluster in self.spaces:
            self.wait(f"the fleet's port of {cluster}", (self.folder / f"port-{cluster}").exists)

    def start_fleet_of(self, cluster: str) -> None:
        space = self.spaces[cluster]
        function, bundles = self.cluster.namespaces[space]
        words = ["--bootstrap", self.kafka.bootstrap, "--cluster", cluster]
        words += ["--state-dir", str(self.folder / f"fleet-{cluster}")]
        words += ["--brokers", str(self.cluster.brokers)]
        words += ["--heartbeat-interval-ms", "600", "--report-interval-ms", "2000"]
        words += ["--namespace", f"{space}:{function}:{bundles}"]
        words += ["--port-file", str(self.folder / f"port-{cluster}")]
        self._start(f"fleet-{cluster}", "jobs.run_fleet", words)

    def create_namespaces(self) -> None:
        for cluster in self.spaces:
            self.create_namespace_of(cluster)

    def create_namespace_of(self, cluster: str) -> None:
        sender = Sender(self.address("operator"), "test-commands")
        command = Command(
            cluster=cluster,
            command_id=f"create-{cluster}",
            kind="create_namespace",
            arguments={
                "namespace": self.spaces[cluster],
                "bundles": self.cluster.namespaces[self.spaces[cluster]][1],
            },
            timeout_ms=600_000,
        )
        topic, key, value = format_message(command)
        sender.send(topic, key.decode(), value)
        sender.close(timeout_ms=10_000)

    def of_fleet(self, cluster: str, path: str, method: str = "GET") -> Any:
        port = (self.folder / f"port-{cluster}").read_text().strip()
        return http_json(f"http://127.0.0.1:{port}{path}", method)[1]

    def served(self) -> dict[str, list[str]]:
        """Of all clusters together: their bundles have different names."""
        truths = [self.of_fleet(cluster, "/truth") for cluster in self.spaces]
        return {
            bundle: [broker for broker, _ in by]
            for truth in truths
            for bundle, by in truth.items()
            if by
        }

    def is_settled_in(self, cluster: str) -> bool:
        """Whether every bundle of one is owned and open at its owner alone."""
        owners, served = self.owners_in(cluster), self.served()
        _, bundles = self.cluster.namespaces[self.spaces[cluster]]
        return len(owners) == bundles and all(served.get(b) == [o] for b, o in owners.items())

    def owners_in(self, cluster: str) -> dict[str, str]:
        """Bundle → broker, of one."""
        space = f"{self.spaces[cluster]}/"
        return {name: owner for name, owner in self.owners().items() if name.startswith(space)}

    def serve_lookups(self, cluster: str) -> None:
        port_file = self.folder / f"lookup-port-{cluster}"
        words = ["--tables", str(self.tables), "--cluster", cluster, "--port", "0"]
        words += ["--bootstrap", self.kafka.bootstrap, "--port-file", str(port_file)]
        self._start(f"lookup-{cluster}", "jobs.serve_lookup", words)
        self.wait_loaded(port_file)

    def found(self, cluster: str) -> tuple[int, Any]:
        """A lookup of a topic of the cluster's namespace."""
        port = (self.folder / f"lookup-port-{cluster}").read_text().strip()
        path = f"/lookup/v2/topic/persistent/{self.spaces[cluster]}/topic"
        return http_json(f"http://127.0.0.1:{port}{path}")
