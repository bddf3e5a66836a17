"""The streaming job on the real stack: where a batch's time goes, and how fast a backlog drains.

Kafka, the simulated brokers and the lookup service run on the same machine and take their share.
Usage: python -m tests.bench.bench_pipeline [--brokers 100] [--bundles 10000] [--seconds 60]
[--output pipeline.json]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jobs.adapters.embedded_kafka import EmbeddedKafka
from jobs.adapters.kafka_clients import KafkaAddress, Sender
from jobs.adapters.processes import Child, ProcessSpec
from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.wire.format import bundle_load_parts, format_message
from lbcore.wire.messages import BrokerLoad, Command, Envelope, Message
from tests.bench.machine import machine
from tests.kafka_cluster import make_topics

ROOT = Path(__file__).resolve().parents[2]
PER_BROKER = 100
WARM_UP = 5
_START_S = 180


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--bundles", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--backlog-rounds", type=int, default=50)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(argv)
    result = {
        "machine": machine(),
        "brokers": args.brokers,
        "bundles": args.bundles,
        "steady": measure_steady(args),
        "backlog": measure_backlog(args),
    }
    print(json.dumps(result, indent=1))  # noqa: T201 (this is what it is for)
    if args.output:
        args.output.write_text(json.dumps(result, indent=1))
    return 0


def measure_steady(args: argparse.Namespace) -> dict[str, Any]:
    """A run with everybody reporting every 10 s: medians of a batch's parts, and the summary."""
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        words = ["--brokers", args.brokers, "--bundles", args.bundles, "--for", args.seconds]
        words += ["--namespaces", max(2, args.bundles // PER_BROKER), "--headless"]
        words += ["--state-dir", folder, "--summary", summary, "--load", "zipf"]
        command = [sys.executable, "-m", "jobs.cli", "run-local", *map(str, words)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (log,) = Path(folder).rglob("*batches*.jsonl")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        found = json.loads(summary.read_text())
    kept = ("batch_ms", "cycle_ms", "decision_to_lookup_ms", "lookups", "imbalance")
    return {"parts_ms": parts_of(lines), **{name: found[name] for name in kept if name in found}}


def parts_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians over batches after the first few, in ms."""
    batches = [line for line in lines if line.get("event") == "batch"][WARM_UP:]
    progress = [line for line in lines if line.get("event") == "progress"][WARM_UP:]
    parts = {
        "operators (fetch, parse, score, balance, state)": [
            b["parts"]["operators_ms"] for b in batches
        ],
        "delta": [b["parts"]["delta_ms"] for b in batches],
        "kafka out": [b["parts"]["kafka_ms"] for b in batches],
        "whole batch (trigger)": [p["spark_ms"]["triggerExecution"] for p in progress],
        "spark: latest offsets": [p["spark_ms"].get("latestOffset", 0) for p in progress],
        "spark: planning": [p["spark_ms"].get("queryPlanning", 0) for p in progress],
        "spark: write-ahead log": [p["spark_ms"].get("walCommit", 0) for p in progress],
        "spark: commit": [p["spark_ms"].get("commitOffsets", 0) for p in progress],
        # Spark lists the operator that is nearest to the sink first
        "balancer: updates, all tasks": [p["operators"][0]["updates_ms"] for p in progress],
        "balancer: state commit": [p["operators"][0]["commit_ms"] for p in progress],
        "scorers: updates, all tasks": [p["operators"][1]["updates_ms"] for p in progress],
        "scorers: state commit": [p["operators"][1]["commit_ms"] for p in progress],
        "messages": [p["messages"] for p in progress],
    }
    return {name: statistics.median(values) for name, values in parts.items() if values}


def measure_backlog(args: argparse.Namespace) -> dict[str, Any]:
    """Bundle reports a second through both operators, while a backlog is drained."""
    rounds = args.backlog_rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka") as kafka:
            address = KafkaAddress(bootstrap=kafka.bootstrap)
            make_topics(kafka, address)
            sender = Sender(address, "backlog")
            for message in backlog(args.brokers, rounds):
                topic, key, value = format_message(message)
                sender.send(topic, key.decode(), value)
            sender.close(timeout_ms=60_000)
            lines = drained(folder, kafka, args.brokers * rounds)
    most = max(line["counts"].get("accepted", 0) for line in lines[1:])
    full = [line for line in lines[1:] if line["counts"].get("accepted", 0) > most / 2]
    took_ms = sum(line["duration_ms"] for line in full)
    reports = sum(line["counts"]["accepted"] for line in full) // 2  # one of load, one of bundles
    return {
        "bundle_rows": reports * PER_BROKER,
        "batch_ms": [line["duration_ms"] for line in full],
        "rows_per_s": round(reports * PER_BROKER / took_ms * 1_000),
        "left out": "the first batch, which starts Spark's workers, and those less than half full",
    }


def backlog(brokers: int, rounds: int) -> Iterator[Message]:
    """A namespace a broker, then each broker's load and bundles, round by round."""
    random = np.random.default_rng(1)
    owned = {}
    for number in range(brokers):
        namespace = f"bench/ns-{number}"
        arguments = {"namespace": namespace, "bundles": PER_BROKER}
        yield Command(
            cluster="local",
            command_id=namespace,
            kind="create_namespace",
            arguments=arguments,
            timeout_ms=0,
        )
        boundaries = even_boundaries(PER_BROKER)
        owned[number] = NamespaceBundles(namespace=namespace, boundaries=boundaries).names()
    for seq in range(1, rounds + 1):
        for number in range(brokers):
            envelope = Envelope(
                cluster="local",
                broker=f"broker-{number}",
                incarnation="one",
                seq=seq,
                reported_at_ms=0,
            )
            yield BrokerLoad(
                envelope=envelope,
                usage=np.full(5, 50.0),
                limit=np.full(5, 100.0),
                traffic=np.full(4, 1e4),
            )
            stats = np.round(random.random((PER_BROKER, 8)) * 1_000)
            yield from bundle_load_parts(envelope, owned[number], stats, PER_BROKER)


def drained(folder: Path, kafka: EmbeddedKafka, reports: int) -> list[dict[str, Any]]:
    """Run the job until it has read that many bundle reports; its lines without the first."""
    log = folder / "batches.jsonl"
    words = ["--bootstrap", kafka.bootstrap, "--state-dir", str(folder / "job")]
    words += ["--tables", str(folder / "tables"), "--log", str(log)]
    words += ["--set", f"pipeline.max_offsets_per_trigger={max(200, reports // 2)}"]
    spec = ProcessSpec(
        name="job",
        command=(sys.executable, "-m", "jobs.balance_cluster", *words),
        log_path=folder / "job.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    job = Child(spec)
    deadline = time.monotonic() + _START_S
    try:
        while time.monotonic() < deadline and job.exit_code() is None:
            lines = (
                [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
            )
            batches = [line for line in lines if line.get("event") == "batch"]
            if sum(line["counts"].get("accepted", 0) for line in batches) >= 2 * reports:
                return batches
            time.sleep(0.5)
    finally:
        job.kill()
    message = f"the job did not drain {reports} reports in {_START_S} s: read {folder / 'job.log'}"
    raise RuntimeError(message)


if __name__ == "__main__":
    sys.exit(main())
