"""The streaming job: load reports in, ownership out.

It starts Spark, hands rows to the state machines of `lbcore` and their effects to the sink. All
decisions about load, health and placement are in `lbcore`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from jobs.adapters.delta.table_location import store_errors, table_place, usable_path
from jobs.adapters.delta.table_upkeep import HistoryUpkeep, TableUpkeep
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.kafka.connection import (
    KafkaPlace,
    KafkaWatch,
    TopicWatch,
    find_kafka,
    kafka_address,
)
from jobs.adapters.kafka.ownership_publisher import OwnershipPublisher, Ticker
from jobs.adapters.kafka.raw_fetch import OffsetsLostError, connection_text
from jobs.adapters.processes.clocks import ClockSteps, wall_ms
from jobs.adapters.processes.json_log import log_json_lines
from jobs.adapters.processes.preflight import use_java_home
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.processes.signals import Shutdown
from jobs.adapters.spark.batch_sink import BatchSink, EachBatch
from jobs.adapters.spark.checkpoint import (
    DamagedCheckpointError,
    DamagedStateError,
    Manifest,
    Resumption,
    check_standby,
    choose_checkpoint,
    hold_folder,
    is_ended,
    new_checkpoint,
    newest_begun,
    read_manifest,
    remove_old_checkpoints,
    restored_mark,
    unfinished_batch,
    write_manifest,
)
from jobs.adapters.spark.checkpoint_damage import is_damage
from jobs.adapters.spark.fatal_errors import (
    WORKER_LATE,
    WorkerStartupError,
    error_messages,
    java_failure,
    java_stack,
    java_text,
    own_error_message,
    retry_late_workers,
    root_cause,
)
from jobs.adapters.spark.partitioning import PARTITIONS, ExecutorWatch, progress_line, read_progress
from jobs.adapters.spark.recovery import (
    STATE_SCHEMA,
    claimed_tables,
    complete_last_batch,
    present_manifest,
    raise_versions,
    rebuilt_states,
    send_all_records,
)
from jobs.adapters.spark.spark_machine import raise_gc_thresholds
from jobs.adapters.spark.stream import (
    INPUT_TOPICS,
    QueryStart,
    chosen_partitions,
    jvm_id,
    spark_session,
    start_query,
)
from jobs.console import CommandError, Exit, json_line, note
from jobs.parser import (
    Parser,
    add_settings_options,
    add_spark_option,
    argument,
    arguments,
    run_process,
)
from jobs.telemetry import exposition
from jobs.telemetry.job_metrics import JobMetrics, standing_by
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic

_POLL_S = 0.2
_COMMIT_POLL_S = 0.002  # Spark begins the next batch some 20 ms after a commit
_LAST_BATCH_S = 60
_END_S = 90  # the last batch, and Spark's own end on a busy machine
_ENDED = "the streaming query has ended"
_STEP_BACK_MAX_MS = 10_000  # of the clock; a restart takes about as long


def main(
    argv: Sequence[str] | None = None, *, passed: Callable[[str], None] = lambda _: None
) -> int:
    """Run the verb `run-job`. passed: called after each step of a batch (tests)."""
    parser = Parser(prog="balance_cluster", description=__doc__)
    add_arguments(parser)
    return run_process(parser, partial(run, passed=passed), argv)


add_arguments = arguments(
    argument("--bootstrap", required=True, help="Kafka's address, host:port"),
    argument("--state-dir", type=usable_path, required=True, help="its checkpoint"),
    argument(
        "--tables",
        type=table_place,
        required=True,
        help="folder of the Delta tables, or a URI: s3://, abfss://, gs:// or hdfs://",
    ),
    add_settings_options,
    argument("--log", type=Path, help="file for a JSON line a batch"),
    exposition.add_arguments,
    add_spark_option,
    argument("--master", default="local[2,4]", help="Spark master (spark-submit's wins)"),
    argument(
        "--standby",
        action="store_true",
        help="prepare, wait until the job that holds the state folder ends, then go on from it",
    ),
)


def run(args: argparse.Namespace, *, passed: Callable[[str], None] = lambda _: None) -> int:
    """Run the job until a signal stops it; raises CommandError."""
    log_json_lines()
    raise_gc_thresholds()
    last = None
    with suppress(DamagedStateError):  # choose_checkpoint handles it, under the lock
        last = read_manifest(args.state_dir)
    config = load_settings(args.config or None, args.set, known=last.own if last else ())
    log_json_lines(is_otel=config.telemetry.otel_logs)
    for own in config.own.values():
        note(f"strategy {own.name}: {own.problem or own.code}")
    end = Shutdown(limit_s=_END_S).listen()
    try:
        with error_messages(), ExitStack() as cleanup, end.with_work():
            metrics_port = exposition.MetricsPort(config.telemetry.host, args)
            cleanup.callback(metrics_port.stop)
            job = _Job(
                args=args,
                config=config,
                end=end,
                passed=passed,
                cleanup=cleanup,
                metrics_port=metrics_port,
                partitions=chosen_partitions(config, args.master, dict(args.spark)),
            )
            if args.standby:
                job.stand_by()
            cleanup.enter_context(store_errors(args.tables))
            with hold_folder(args.state_dir, until=end.asked if args.standby else None) as is_held:
                return job.run() if is_held else Exit.DONE
    except CommandError as error:
        if not end.is_done:
            raise
        note(*error.lines())
        return Exit.DONE


@dataclass(slots=True, kw_only=True)
class _Job:
    """One run of the job: its arguments, and resources to release at its end."""

    args: argparse.Namespace
    config: Config
    end: Shutdown
    passed: Callable[[str], None]
    cleanup: ExitStack
    metrics_port: exposition.MetricsPort
    partitions: int
    session: SparkSession | None = None

    def warm_up(self) -> SparkSession:
        """Start Spark and the ticks, which may run beside another job."""
        if self.session is None:
            use_java_home()
            self.session = spark_session(
                master=self.args.master,
                local_dir=self.args.state_dir / "spark",
                settings={**dict(self.args.spark), PARTITIONS: str(self.partitions)},
            )
            self.cleanup.callback(self.session.stop)
            self.end.children.append(jvm_id(self.session))
            address = kafka_address(self.config, self.args.bootstrap)
            ticker = Ticker(
                KafkaProducer(linger_ms=0, **address.producer_options("ticks")),
                address.topic_name(Topic.BROKER_LOAD),
                self.config.pipeline.clusters,
                self.config.pipeline.tick_interval_ms,
            )
            self.cleanup.callback(KafkaWatch(address, "streaming job").start().close)
            self.cleanup.callback(ticker.stop)
            ticker.start()
        return self.session

    def stand_by(self) -> None:
        """Start Spark while another job works.

        Its start takes most of the time of a takeover.
        """
        check_standby(self.args.state_dir, tuple(self.config.pipeline.clusters), STATE_SCHEMA)
        self.warm_up()
        with suppress(CommandError):  # on one machine the job that it waits for may have the port
            self.metrics_port.show(standing_by())
        _logger(self.args.log)({"event": "standby"})

    def run(self) -> int:
        """Take over the tables and work until told to stop or the query ends."""
        address = kafka_address(self.config, self.args.bootstrap)
        inputs = [address.topic_name(topic) for topic in INPUT_TOPICS]
        find = partial(find_kafka, address, inputs, [address.topic_name(Topic.OWNERSHIP)])
        place = find()
        if self.end.asked.is_set():
            return Exit.DONE
        writer = TableWriter(self.args.tables)
        current = present_manifest(self.config, place, writer.epoch + 1, self.partitions)
        state_dir = self.args.state_dir
        resumption = choose_checkpoint(state_dir, current, claimed_tables(writer))
        # Spark takes seconds to start: in the background, after the checks that may refuse
        session = self.cleanup.enter_context(ThreadPoolExecutor(1)).submit(self.warm_up)
        write_manifest(state_dir, current, resumption)
        claimed = replace(current, epoch=writer.claim(current.claim), claim="")
        write_manifest(state_dir, claimed, resumption)
        log = _logger(self.args.log)
        is_by_bundle = self.config.telemetry.bundle_metrics
        metrics = JobMetrics(bundle_metrics=is_by_bundle, epoch=writer.epoch, topics=inputs)
        metrics.see_start(is_rebuilt=resumption.is_rebuilt, is_damaged=resumption.is_damaged)
        self.metrics_port.show(metrics.store.registry)
        with ExitStack() as query_end:  # the query stops before the folder's lock is released
            watch = self.cleanup.enter_context(TopicWatch(address, place.topics))
            publisher = OwnershipPublisher(
                address.topic_name(Topic.OWNERSHIP),
                writer.is_ours,
                lambda: watch.loss() is not None,
                **address.client_options("balance_cluster"),
            )
            self.cleanup.callback(publisher.close)
            start = _Start(
                job=self,
                place=place,
                writer=writer,
                claimed=claimed,
                log=log,
                metrics=metrics,
                publisher=publisher,
                watch=watch,
            )
            with self.end.with_work():
                try:
                    return start.work(resumption, session, query_end)
                except DamagedCheckpointError as damage:  # the second one ends the job
                    metrics.see_start(is_rebuilt=True, is_damaged=True)
                    new = new_checkpoint(state_dir, writer.epoch, damage.why, is_damaged=True)
                    write_manifest(state_dir, claimed, new)
                    # the job may have run for days: with its first offsets it would read all again
                    return replace(start, place=find()).work(new, session, query_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """Resources that a query starts with. claimed: manifest after the claim."""

    job: _Job
    place: KafkaPlace
    writer: TableWriter
    claimed: Manifest
    log: Callable[[Mapping[str, Any]], None]
    metrics: JobMetrics
    publisher: OwnershipPublisher
    watch: TopicWatch

    def work(
        self, resumption: Resumption, session: "Future[SparkSession]", query_end: ExitStack
    ) -> int:
        """Run the query until told to stop or the query ends.

        Raises DamagedCheckpointError when Spark can't read the checkpoint.
        """
        config, writer, log = self.job.config, self.writer, self.log
        self._log_resumption(resumption)
        beginning = self._beginning(resumption)
        if resumption.is_rebuilt:
            log({"event": "records_sent", "records": send_all_records(writer, self.publisher)})
        sink = BatchSink(
            writer=writer,
            publisher=self.publisher,
            claimed=self.claimed,
            heartbeat_ms=config.pipeline.heartbeat_commit_ms,
            log=log,
            passed=self.job.passed,
            watch=self.metrics.see_batch,
            ends=self.place.ends_after(writer.last_commit()),
        )
        upkeep = TableUpkeep(
            writer,
            config.pipeline.upkeep_interval_ms,
            config.pipeline.upkeep_files_max,
            HistoryUpkeep(kind=config.pipeline.history, days=config.pipeline.history_days),
        )
        each = EachBatch(sink, resumption, upkeep, self.job.args.state_dir)
        spark = session.result()
        if spark.sparkContext.uiWebUrl:
            log({"event": "spark_ui", "url": spark.sparkContext.uiWebUrl})
        executors = ExecutorWatch(spark, config)

        def attempt() -> int:
            query = start_query(spark, config, beginning, each)
            query_end.callback(query.stop)
            return self._wait(query, each, executors)

        self.job.end.has_begun = True
        return retry_late_workers(attempt)

    def _log_resumption(self, resumption: Resumption) -> None:
        """Log where the query resumes, and remove checkpoints that nothing needs."""
        line = {"event": "start", "writer_epoch": self.writer.epoch}
        self.log({**line, "rebuilt_because": resumption.reason})
        if resumption.is_damaged:
            note(
                f"{resumption.reason}; the state is rebuilt from the tables into"
                f" {resumption.checkpoint}, what is damaged is kept"
            )
        if resumption.is_rebuilt:
            gone = remove_old_checkpoints(self.job.args.state_dir, resumption.checkpoint)
            if gone:
                self.log({"event": "checkpoints_removed", "names": gone})

    def _beginning(self, resumption: Resumption) -> QueryStart:
        """Complete the tables, and return where the query starts."""
        args, writer, place = self.job.args, self.writer, self.place
        if resumption.is_rebuilt:
            complete_last_batch(writer)
        elif writer.is_repaired or unfinished_batch(resumption.checkpoint) is None:
            writer.write_pending_rows()
        address = kafka_address(self.job.config, args.bootstrap)
        if resumption.is_rebuilt and restored_mark(args.state_dir).exists():
            # commands since the backup are not carried out again
            ends = place.ends_beyond(address.topic_name(Topic.COMMANDS), writer.last_commit())
            read = {"offsets": ends, "topics": dict(place.topics)}
            count = raise_versions(writer, wall_ms(), read)
            note(
                f"the tables were restored: {count} records have new versions, older commands are"
                " skipped"
            )
            restored_mark(args.state_dir).unlink()
        return QueryStart(
            connection=connection_text(address),
            checkpoint=resumption.checkpoint,
            starting_offsets=json.dumps(place.ends_after(writer.last_commit())),
            states=list(rebuilt_states(self.job.config, writer)) if resumption.is_rebuilt else [],
        )

    def _wait(self, query: Any, each: EachBatch, executors: ExecutorWatch) -> int:
        """Wait until told to stop or the query ends; return the exit code."""
        end, last, steps = self.job.end, -1, ClockSteps()
        checkpoint = each.resumption.checkpoint
        while not end.asked.wait(_POLL_S):
            loss = self.watch.loss()
            if loss is not None:
                raise loss
            try:
                steps.refuse_back(_STEP_BACK_MAX_MS)
            except CommandError:
                _let_batch_end(query, checkpoint, each.sink)
                raise
            if not query.isActive:
                return self._ended(query, each)
            # read only after a new batch: Spark writes it all as JSON, some 10 ms each time
            progress = read_progress(query) if each.ended > last else None
            if progress is not None and progress["batchId"] > last:
                last = progress["batchId"]
                self.log(progress_line(progress))
                self.metrics.see_progress(progress)
                self.metrics.see_tasks(executors.poll())
        _let_batch_end(query, checkpoint, each.sink)
        query.stop()
        self.log({"event": "stop", "unfinished_batch": unfinished_batch(checkpoint)})
        end.is_done = True
        return Exit.DONE

    def _ended(self, query: Any, each: EachBatch) -> int:
        """Show why the query has ended, or raise if the job can start it again."""
        exception = query.exception()
        error = java_text(exception)
        if each.ended < 0 and WORKER_LATE in error:
            raise WorkerStartupError(error)
        if is_damage(error, java_stack(exception)):
            raise DamagedCheckpointError(each.resumption.checkpoint, root_cause(error))
        own_message = own_error_message(error)
        # a recreated topic also loses offsets; ask the topic which of the two it was
        lost = self.watch.check() if not own_message or OffsetsLostError.__name__ in error else None
        note(*str(lost or own_message or java_failure(error, _ENDED)).split("\n"))
        return Exit.FAILED


def _let_batch_end(query: Any, checkpoint: Path, sink: BatchSink) -> None:
    """Wait until Spark has committed the current batch, and let no later one write.

    So the next start finds no half-written batch.
    """
    deadline_s = time.monotonic() + _LAST_BATCH_S
    last = sink.end_with(newest_begun(checkpoint))
    while last >= 0 and not is_ended(checkpoint, last) and query.isActive:
        if time.monotonic() > deadline_s:
            return
        time.sleep(_COMMIT_POLL_S)


def _logger(path: Path | None) -> Callable[[Mapping[str, Any]], None]:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("a") if path else sys.stdout

    def log(line: Mapping[str, Any]) -> None:
        stream.write(json_line({"logged_at_ms": wall_ms(), **line}, sort_keys=False) + "\n")
        stream.flush()

    return log


if __name__ == "__main__":
    sys.exit(main())
