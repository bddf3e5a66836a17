"""Pulsar's own Python client with an http:// service URL: it asks us, and goes where we say.

It runs as a process of its own: its calls can't be ended from outside.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lbcore.model.tables import RECORDS
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import TablesWriter, owned

TOPIC = "persistent://acme/ns1/some topic+1"
PARTITIONED = "persistent://acme/ns1/pt"
_CLIENT = """
import json, sys, pulsar
client = pulsar.Client(sys.argv[1], operation_timeout_seconds=20)
print(json.dumps([client.get_topic_partitions(topic) for topic in sys.argv[2:]]), flush=True)
client.create_producer(sys.argv[2])
"""
_CONNECT = b"\x08\x02"
"""How the first command on a connection begins in Pulsar's binary protocol: type CONNECT."""


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


@pytest.fixture
def service(broker: socket.socket, tmp_path: Path) -> Iterator[LookupService]:
    """Over a namespace of that broker's, with a partitioned topic."""
    writer = TablesWriter(tmp_path / "tables")
    writer.namespaces({"acme/ns1": "crc32"})
    writer.brokers("127.0.0.1", port=broker.getsockname()[1])
    writer.batch(owned("acme/ns1", 4, ("127.0.0.1",)))
    topic = {"record_type": "topic", "name": PARTITIONED, "value": "3", "is_deleted": False}
    writer.upsert(RECORDS, "name", [topic])
    made = LookupService(tmp_path / "tables")
    made.wait_ready()
    yield made
    made.stop()


def test_client_learns_partitions_over_http_and_connects_to_the_broker_that_is_named(
    service: LookupService, broker: socket.socket
) -> None:
    words = [sys.executable, "-c", _CLIENT, f"http://127.0.0.1:{service.port}", TOPIC, PARTITIONED]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as client:
        try:
            connection, _ = broker.accept()
            with connection:
                frame = connection.recv(65536)
        finally:
            client.kill()
        said, _ = client.communicate()
    assert frame[8 : 8 + len(_CONNECT)] == _CONNECT
    assert b"Pulsar" in frame
    partitions = [f"{PARTITIONED}-partition-{number}" for number in range(3)]
    asked = next(line for line in said.splitlines() if line.startswith(b"["))
    assert json.loads(asked) == [[TOPIC], partitions]
