"""Records what Java loads when Kafka and the job start, so that later starts find it ready.

Decides what is rehearsed: an embedded Kafka with the wire's topics, and Spark with the job's own
query, for one batch without effect. A start of the job then takes some four seconds of CPU less,
one of Kafka one. Set-up for tests and the container image run this; anybody may, after an
installation and after each change of Java or of the jars. Source: ours.

    python -m jobs.class_archives
"""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka, KafkaOptions
from jobs.adapters.kafka.raw_fetch import connection_text
from jobs.adapters.kafka.ticks import Ticker
from jobs.adapters.kafka.topics import ensure_topics, wanted_topics
from jobs.adapters.processes.class_archive import (
    KAFKA,
    PROGRAMS,
    SPARK,
    archive_path,
    recording_words,
)
from jobs.adapters.processes.jars_at_need import have_jars
from jobs.adapters.processes.java import use_java_home
from jobs.adapters.processes.own_folder import own_folder
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.spark.standby_query import StandbyQuery
from jobs.adapters.spark.stream import driver_options, spark_session
from jobs.console import CommandError, Exit, complain, note
from jobs.parser import Parser
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic

_ENOUGH_S = (
    180.0  # for the first batch, and for Java's end; some 15 s each where nothing else works
)


def main(argv: Sequence[str] | None = None) -> int:
    """Record both archives anew; returns the exit code."""
    parser = Parser(prog="class_archives", description=__doc__.splitlines()[0])
    parser.parse_args(argv)
    try:
        record()
    except CommandError as error:
        complain(error, as_json=False)
        return error.exit_code
    for program in PROGRAMS:
        path = archive_path(program)
        note(f"{program}: {path} ({path.stat().st_size // 1_000_000} MB)")
    return Exit.DONE


def record() -> None:
    """Start Kafka and the job's query as they always start, and keep what they loaded.

    What was recorded before is replaced when all is done, and goes first: a Java that uses one
    archive writes no other. Raises CommandError when one of them does not start or writes nothing.
    """
    for program in PROGRAMS:
        archive_path(program).unlink(missing_ok=True)
        archive_path(program).parent.mkdir(parents=True, exist_ok=True)
    use_java_home()
    # where an image is made, nobody knows this machine by its name
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    config = load_settings(None, ())
    folder = own_folder("ballast-classes")
    with (
        _recorded(KAFKA) as kafka_words,
        EmbeddedKafka(folder / "kafka", KafkaOptions(java_options=kafka_words)) as kafka,
        _recorded(SPARK) as spark_words,
    ):
        address = KafkaAddress(bootstrap=kafka.bootstrap)
        ensure_topics(address, wanted_topics(config))
        _rehearse(config, address, folder / "spark", spark_words)


@contextmanager
def _recorded(program: str) -> Iterator[tuple[str, ...]]:
    """The words for a Java that ends within; the archive is there afterwards."""
    path = archive_path(program)
    made = path.with_suffix(".new")
    yield tuple(recording_words(made))
    if not made.exists():
        raise CommandError(
            f"Java has recorded no classes of {program}",
            why=f"it ended without writing {made}; OpenJDK 17 and newer can, others may not",
            next_step="go on without: nothing but a start takes longer; or set BALLAST_JAVA to an"
            " OpenJDK, then run python -m jobs.class_archives again",
        )
    made.replace(path)


class _Undrilled(StandbyQuery):
    """What Java loads, it loads at the first beginning."""

    drills = 0


def _rehearse(config: Config, address: KafkaAddress, folder: Path, words: Sequence[str]) -> None:
    """One batch of the job's query, without effect, in a Java that ends in order."""
    producer = KafkaProducer(linger_ms=0, **address.producer_options("class_archives"))
    topic, pipeline = address.topic_name(Topic.BROKER_LOAD), config.pipeline
    ticker = Ticker(
        producer, topic, dict.fromkeys(pipeline.clusters, ()), pipeline.tick_interval_ms
    )
    session = spark_session(
        have_jars("spark"),
        master="local[2,4]",
        local_dir=folder,
        settings={"spark.driver.extraJavaOptions": driver_options(words)},
    )
    ticker.start()
    failures: list[str] = []
    query = _Undrilled(
        session,
        config,
        connection_text(address),
        folder=folder,
        log=lambda line: failures.append(str(line)),
    )
    late = threading.Timer(_ENOUGH_S, (until := threading.Event()).set)
    late.daemon = True
    late.start()
    is_warm = query.wait(until)
    late.cancel()
    query.stop(wait_s=_ENOUGH_S)
    ticker.stop()
    _end_java(session)
    if not is_warm:
        raise CommandError(
            "the job's query has come to no batch",
            why="; ".join(failures) or f"none came in {_ENOUGH_S:.0f} s",
            next_step="run python -m jobs.class_archives again when this machine has less to do",
        )


def _end_java(session: SparkSession) -> None:
    """Let the session's Java end in order: at its end it writes the archive."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 (Spark has no other way to it)
    process = gateway.proc
    session.stop()
    process.stdin.close()  # it reads there whether we live
    process.wait(_ENOUGH_S)


if __name__ == "__main__":
    sys.exit(main())
