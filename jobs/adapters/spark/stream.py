"""The one streaming query: Kafka, two chained operators, the sink.

Sets Spark up, each setting with its reason, keys the rows, and starts the query.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark import __version__ as spark_version
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 its usual name
from pyspark.sql.streaming.query import StreamingQuery

from jobs.adapters.processes.paths import CONF, private_directory
from jobs.adapters.spark.kafka_source import KafkaSource, SourceOptions
from jobs.adapters.spark.operators import INPUT_COLUMNS, balancer_operator, scorer_operator
from jobs.adapters.spark.partitioning import (
    PARTITIONS,
    ClusterKeys,
    default_partitions,
    spread_keys,
)
from jobs.adapters.spark.spark_machine import NOW_MS, MachineProcessor, Operator
from jobs.atomic_file import atomic_write
from jobs.console import CommandError
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic

INPUT_TOPICS = (
    Topic.BROKER_LOAD,
    Topic.BUNDLE_LOAD,
    Topic.TOPIC_LOAD,
    Topic.ACKS,
    Topic.COMMANDS,
    Topic.AUDIT,
)
_LOGGING = CONF / "logging" / "spark-log4j2.properties"
# two chained operators and a regular expression overflow the default stack
STACK_SIZE = "-Xss16m"
# C1 only: C2 took a core for the first minutes of a job. Without it 19 s of CPU to the first batch
# instead of 30, and 564 ms a batch instead of 891
_C1_ONLY = "-XX:TieredStopAtLevel=1"
# By default the heap begins with a 64th of the machine's memory, and may grow to three times its
# content: 240 MB instead of 100
_SMALL_HEAP = ("-Xms64m", "-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=40")
_DRIVER_OPTIONS = (
    STACK_SIZE,
    "-XX:+UseSerialGC",
    *_SMALL_HEAP,
    _C1_ONLY,
    f"-Dlog4j2.configurationFile=file:{_LOGGING}",
)
_LOCAL_DIR = "spark.local.dir"
_BMP_MAX = "\uffff"
_STREAMING = "org.apache.spark.sql.execution.streaming"
# Spark 4.1 moved it
_CHECKPOINTING = _STREAMING if spark_version.startswith("4.0.") else f"{_STREAMING}.checkpointing"
_STATE = f"{_STREAMING}.state"
_SERVLET = "org.apache.spark.metrics.sink.PrometheusServlet"
_ALWAYS: Mapping[str, str] = {
    # one task per operator, so that one Python worker caches the state; with two, reading 100,000
    # bundles again costs 0.3 s a batch. `partitioning` sets it for the balancer's query
    PARTITIONS: "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Kafka's password and key are in an option of the source, which a plan would show
    "spark.sql.redaction.options.regex": "(?i)url|jaas|ssl[.]keystore|password|secret",
    # the default one forks a process for each file: 581 ms a trigger against 166
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
    ),
    # transformWithState needs RocksDB; its changelog is 20 times as fast to commit
    "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # a field may be added to the state later
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
    # Spark 4.2.0 never closes the socket by which an operator reads its state, one a task
    # (SPARK-58932, closed in 4.2.1); by TCP that took all ports of a machine in 4.5 hours
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "true",
    "spark.ui.port": "4040",
    # anybody who can open the page could end a batch
    "spark.ui.killEnabled": "false",
    # by default Spark keeps a thousand of each
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.ui.retainedProgressUpdates": "100",
    "spark.metrics.conf.*.sink.prometheusServlet.class": _SERVLET,
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    # by default the application's id, which changes with each start
    "spark.metrics.namespace": "ballast",
    "spark.sql.streaming.metricsEnabled": "true",
}
"""Settings of Spark that are the same everywhere."""

STATE_SCHEMA = "cluster string, name string, blob binary"


def spark_session(*, master: str, local_dir: Path, settings: Mapping[str, str]) -> SparkSession:
    """Return a session for the query. settings: override all others.

    local_dir: parent of a folder for Spark's temporary files, removed with this process, unless
    `spark.local.dir` names another. The system's temporary folder replaces a name with characters
    above U+FFFF. Under spark-submit, its settings override the defaults here, and it alone sets
    master, jars, memory and the workers' Python.
    """
    local = settings.get(_LOCAL_DIR, str(local_dir))
    if max(local) > _BMP_MAX and "," not in local:  # RocksDB changes such characters
        local = str(private_directory("ballast-run"))
    elif "," not in local:  # a list of folders stays as it is
        local = str(private_directory("run", Path(local)))
    settings = {name: value for name, value in settings.items() if name != _LOCAL_DIR}
    ours = {
        "spark.app.name": "ballast balance_cluster",
        _LOCAL_DIR: local,
        "spark.sql.warehouse.dir": str(local_dir / "warehouse"),
        **_ALWAYS,
    }
    submitted = _submitted()
    if not submitted:
        ours |= {
            "spark.master": master,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": driver_options(),
            # native libraries (15 MB) are unpacked here; the paths of sockets must be short
            "spark.driver.defaultJavaOptions": (
                f"-Djava.io.tmpdir={private_directory('ballast-spark')}"
            ),
        }
        # spark.pyspark.python does not reach the workers that declare the state
        if master.startswith("local"):
            # the pages ask for no password
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ["PYSPARK_PYTHON"] = worker_python(local_dir)
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in {**ours, **submitted, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def chosen_partitions(config: Config, master: str, settings: Mapping[str, str]) -> int:
    """Return the number of state partitions: as set, else by groups, clusters, master.

    Raises CommandError.
    """
    submitted = _submitted()
    chosen = {**submitted, **settings}.get(PARTITIONS)
    if chosen is None:
        return default_partitions(config, submitted.get("spark.master", master))
    if not chosen.isdigit() or not int(chosen):
        raise CommandError(
            f"{PARTITIONS} can't be {chosen}",
            why="it is the number of tasks of each operator",
            next_step="give a whole number from 1, or leave it out",
        )
    return int(chosen)


def _submitted() -> dict[str, str]:
    """Return spark-submit's settings; none if it did not start this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    # without a session, SparkConf has the JVM's settings only once the gateway is initialised
    SparkContext._ensure_initialized()  # noqa: SLF001 (Spark has no other way to it)
    return dict(SparkConf().getAll())


def driver_options(more: Sequence[str] = ()) -> str:
    """Return the driver's Java options followed by `more`, as one text for Spark."""
    return shlex.join([*_DRIVER_OPTIONS, *more])


def worker_python(folder: Path) -> str:
    """Write a script by which local Spark starts this Python; return its path.

    Spark puts its pyspark.zip first in PYTHONPATH, and each process compiles the modules of a zip:
    half a second for each of the three that a query begins with. The script restores the path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "worker-python"
    path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    text = f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n'
    atomic_write(script, text, mode=0o700, is_durable=False)  # a standby writes it, too
    return str(script)


def jvm_id(session: SparkSession) -> int:
    """The process id of the session's JVM."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 (Spark has no other way to it)
    return int(jvm.java.lang.ProcessHandle.current().pid())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStart:
    """Start point of a query.

    connection: of `connection_text`. starting_offsets, states: used by a new checkpoint only.
    states: (cluster, chunk name, chunk) of each cluster's rebuilt state.
    """

    connection: str
    checkpoint: Path
    starting_offsets: str
    states: Sequence[tuple[str, str, bytes]]


def start_query(
    session: SparkSession,
    config: Config,
    beginning: QueryStart,
    sink: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start the query. sink: gets each batch's effects and its id."""
    keys = spread_keys(
        config.pipeline.clusters,
        config.pipeline.scorer_groups,
        int(session.conf.get(PARTITIONS) or 1),
    )
    updates = _apply(_keyed(session, config, beginning, keys), scorer_operator(config))
    states = [(keys[cluster].cluster, *chunk) for cluster, *chunk in beginning.states]
    initial = session.createDataFrame(states, STATE_SCHEMA).groupBy("cluster")
    effects = _apply(updates.groupBy("cluster"), balancer_operator(config), initial)
    return (
        effects.writeStream.queryName("balance_cluster")
        .foreachBatch(sink)
        .outputMode("update")
        .option("checkpointLocation", str(beginning.checkpoint))
        .trigger(processingTime=f"{config.pipeline.trigger_ms} milliseconds")
        .start()
    )


def _apply(grouped: Any, operator: Operator, initial: Any = None) -> DataFrame:
    frame: DataFrame = grouped.transformWithStateInPandas(
        MachineProcessor(operator), operator.schema, "update", "none", initial
    )
    return frame


def _keyed(
    session: SparkSession, config: Config, beginning: QueryStart, keys: Mapping[str, ClusterKeys]
) -> Any:
    """Return Kafka's rows by the keys of cluster and group.

    Unknown clusters count as the first. The key of a cluster is its name, maybe with blanks behind
    it, which the balancer strips.
    """
    pipeline = config.pipeline
    options = SourceOptions(
        connection=beginning.connection,
        topics=tuple(f"{pipeline.topic_prefix}{topic.value}" for topic in INPUT_TOPICS),
        starting=beginning.starting_offsets,
        records=pipeline.max_offsets_per_trigger,
        plain_bytes=pipeline.max_bytes_per_trigger,
        tasks=pipeline.scorer_groups,
        value_bytes=config.wire.max_message_bytes,
        checkpoint=str(beginning.checkpoint),
    )
    session.dataSource.register(KafkaSource)
    source = session.readStream.format(KafkaSource.name()).options(**options.as_text()).load()
    clusters = list(pipeline.clusters)
    named = F.substring_index(F.col("key").cast("string"), "/", 1)
    key_hash = F.crc32(F.coalesce(F.col("key"), F.lit(b"")))
    rows = source.select(
        F.when(named.isin(clusters), named).otherwise(F.lit(clusters[0])).alias("cluster"),
        (key_hash % pipeline.scorer_groups).cast("int").alias("group_id"),
        *INPUT_COLUMNS,
        F.unix_millis(F.current_timestamp()).alias(NOW_MS),  # in a stream, the batch's own
    )
    if keys != spread_keys(clusters, pipeline.scorer_groups, 1):  # else they are the keys already
        by_name = [(F.lit(name), one) for name, one in keys.items()]
        group_keys = F.create_map(
            *(part for name, one in by_name for part in (name, F.array(*map(F.lit, one.groups))))
        )
        cluster_keys = F.create_map(
            *(part for name, one in by_name for part in (name, F.lit(one.cluster)))
        )
        cluster = F.col("cluster")
        rows = rows.withColumns(
            {"group_id": group_keys[cluster][F.col("group_id")], "cluster": cluster_keys[cluster]}
        )
    return rows.groupBy("cluster", "group_id")
