"""The streaming job: load reports in, ownership out.

Decides nothing about load, health or placement: it starts Spark, hands rows to the Machines of
`lbcore` and their effects to the sink. Source: ours.
"""

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession

from jobs.adapters.batch_sink import BatchSink, Identity
from jobs.adapters.checkpoint import (
    Manifest,
    Resumption,
    choose_checkpoint,
    code_version,
    query_id,
    starting_offsets,
)
from jobs.adapters.jars import jar_paths
from jobs.adapters.java import find_java
from jobs.adapters.kafka_clients import KafkaAddress
from jobs.adapters.kafka_settings import kafka_address, spark_source_options
from jobs.adapters.ownership_publisher import OwnershipPublisher
from jobs.adapters.settings import load_settings
from jobs.adapters.stream import INPUT_TOPICS, Beginning, spark_session, start_query
from jobs.adapters.table_writer import FencedError, TableWriter
from jobs.adapters.ticks import Ticker
from jobs.console import CommandError, Exit, note
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.machines.balancer import ClusterBalancer
from lbcore.machines.rebuild import TableRows, rebuild_state
from lbcore.wire.messages import Topic

_POLL_S = 0.2


def main(
    argv: Sequence[str] | None = None, *, passed: Callable[[str], None] = lambda _: None
) -> int:
    """Run the job until it is told to stop. passed: is told of each point of a batch (tests)."""
    args = _arguments().parse_args(argv)
    config = load_settings(args.config or None, args.set)
    args.state_dir.mkdir(parents=True, exist_ok=True)
    try:
        with _only_job(args.state_dir):
            return _run(args, config, passed)
    except (CommandError, FencedError) as error:
        note(str(error))
        return Exit.FAILED


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="balance_cluster", description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="Kafka's address, host:port")
    parser.add_argument("--state-dir", type=Path, required=True, help="checkpoint and lock")
    parser.add_argument("--tables", type=Path, required=True, help="folder of the Delta tables")
    parser.add_argument("--config", action="append", default=[], help="overlay or file (repeat)")
    parser.add_argument("--set", action="append", default=[], help="section.name=value (repeat)")
    parser.add_argument("--log", type=Path, help="file for a JSON line a batch")
    parser.add_argument("--spark", action="append", default=[], help="Spark setting, key=value")
    parser.add_argument("--master", default="local[2,4]", help="Spark master")
    return parser


def _run(args: argparse.Namespace, config: Config, passed: Callable[[str], None]) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    address = kafka_address(config, args.bootstrap)
    writer = TableWriter(args.tables)
    present = Manifest(
        code_version=code_version(),
        config_version=digest(config),
        scorer_groups=config.pipeline.scorer_groups,
        checkpoint="",
    )
    resumption = choose_checkpoint(args.state_dir, present, writer.epoch)
    log = _logger(args.log)
    log({"event": "start", "writer_epoch": writer.epoch, "rebuilt_because": resumption.reason})
    with ExitStack() as cleanup:
        publisher = OwnershipPublisher(
            address.topic_name(Topic.OWNERSHIP), **address.client_options("balance_cluster")
        )
        cleanup.callback(publisher.close)
        sink = BatchSink(
            writer=writer,
            publisher=publisher,
            identity=Identity(
                query_id="",
                code_version=present.code_version,
                config_version=present.config_version,
            ),
            heartbeat_ms=config.pipeline.heartbeat_commit_ms,
            log=log,
            passed=passed,
        )
        session = _session(args)
        cleanup.callback(session.stop)
        beginning = _beginning(args, config, writer, resumption)
        query = start_query(session, config, beginning, _named_once(sink, resumption))
        ticker = _ticker(config, address)
        cleanup.callback(ticker.stop)
        ticker.start()
        return _wait(query, stop, log)


def _session(args: argparse.Namespace) -> SparkSession:
    os.environ.setdefault("JAVA_HOME", str(Path(find_java().command).resolve().parents[1]))
    return spark_session(
        jar_paths("spark"),
        master=args.master,
        local_dir=args.state_dir / "spark",
        settings=dict(pair.split("=", 1) for pair in args.spark),
    )


def _beginning(
    args: argparse.Namespace, config: Config, writer: TableWriter, resumption: Resumption
) -> Beginning:
    address = kafka_address(config, args.bootstrap)
    return Beginning(
        kafka=spark_source_options(address),
        checkpoint=resumption.checkpoint,
        starting_offsets=starting_offsets(writer.last_commit(), _partitions(address)),
        states=list(_states(config, writer)) if resumption.is_rebuilt else [],
    )


def _named_once(sink: BatchSink, resumption: Resumption) -> Callable[[Any, int], None]:
    """The sink, told the query's id with its first batch: only then the checkpoint has it."""

    def write(frame: Any, batch_id: int) -> None:
        if not sink.identity.query_id:
            sink.use_query(query_id(resumption.checkpoint))
        sink(frame, batch_id)

    return write


def _wait(query: Any, stop: threading.Event, log: Callable[[Mapping[str, Any]], None]) -> int:
    last = -1
    while not stop.wait(_POLL_S):
        if not query.isActive:
            error = query.exception()
            note(_explain(str(error)))
            return Exit.FAILED
        progress = query.lastProgress
        if progress is not None and progress.batchId > last:
            last = progress.batchId
            log(_progress_line(progress))
    query.stop()
    return Exit.DONE


def _progress_line(progress: Any) -> dict[str, Any]:
    """What Spark says of a batch: where its time went, in ms."""
    return {
        "event": "progress",
        "spark_batch": progress.batchId,
        "messages": progress.numInputRows,
        "spark_ms": dict(progress.durationMs),
        "operators": [
            {"updates_ms": state.allUpdatesTimeMs, "commit_ms": state.commitTimeMs}
            for state in progress.stateOperators
        ],
    }


def _explain(error: str) -> str:
    for line in error.splitlines():
        for name in ("FencedError: ", "ForkedError: ", "TableBusyError: "):
            if name in line:
                return "error: the job has ended\n  why: " + line.split(name, 1)[1]
    return f"error: the streaming query has ended\n  why: {error}"


def _states(config: Config, writer: TableWriter) -> Iterator[tuple[str, str, bytes]]:
    """Each cluster's rebuilt state, a row a chunk."""
    tables = {of.name: _rows(writer, of.name) for of in fields(TableRows)}
    for cluster in config.pipeline.clusters:
        mine = {
            name: [row for row in rows if row["cluster"] == cluster]
            for name, rows in tables.items()
        }
        if not any(mine.values()):
            continue
        balancer = ClusterBalancer(cluster=cluster, config=config.for_cluster(cluster))
        state = rebuild_state(balancer, cluster, TableRows(**mine))
        for name, blob in sorted(balancer.pack(state).items()):
            yield cluster, name, blob


def _rows(writer: TableWriter, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(writer.table(name).scan().read_all()).to_pylist()
    return found


def _partitions(address: KafkaAddress) -> Mapping[str, Mapping[int, int]]:
    """Input topic → partition → the earliest offset that Kafka has."""
    consumer = KafkaConsumer(**address.client_options("balance_cluster-offsets"))
    try:
        found: dict[str, dict[int, int]] = {}
        for topic in INPUT_TOPICS:
            name = address.topic_name(topic)
            partitions = consumer.partitions_for_topic(name)
            if not partitions:
                raise CommandError(
                    f"topic {name} is missing",
                    why="the topics of the wire have not been made in this Kafka yet",
                    next_step="run `ballast topics ensure` and start the job again",
                )
            places = [TopicPartition(name, partition) for partition in sorted(partitions)]
            earliest = consumer.beginning_offsets(places)
            found[name] = {place.partition: earliest[place] for place in places}
        return found
    finally:
        consumer.close()


def _ticker(config: Config, address: KafkaAddress) -> Ticker:
    producer = KafkaProducer(acks="all", linger_ms=0, **address.client_options("ticks"))
    return Ticker(
        producer,
        address.topic_name(Topic.BROKER_LOAD),
        config.pipeline.clusters,
        config.pipeline.tick_interval_ms,
    )


@contextmanager
def _only_job(state_dir: Path) -> Iterator[None]:
    """Hold the state folder's lock: a second job on the same folder is refused at once."""
    with (state_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(
                f"the state folder {state_dir} is in use",
                why="another balance_cluster job of this machine holds its lock",
                next_step="stop that job first, or give this one another --state-dir",
            ) from error
        yield


def _logger(path: Path | None) -> Callable[[Mapping[str, Any]], None]:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("a") if path else sys.stdout

    def log(line: Mapping[str, Any]) -> None:
        stream.write(json.dumps({"logged_at_ms": int(time.time() * 1000), **line}) + "\n")
        stream.flush()

    return log


if __name__ == "__main__":
    sys.exit(main())
