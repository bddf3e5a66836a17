"""Messages of the job when its JVM or Kafka is gone, or Java raises."""

import subprocess
import sys

import pytest
from kafka.errors import KafkaTimeoutError
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from jobs.adapters.spark import fatal_errors
from jobs.adapters.spark.fatal_errors import (
    error_messages,
    java_failure,
    own_error_message,
    root_cause,
)
from jobs.console import CommandError


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "lost its JVM"),
        (ConnectionRefusedError(111, "Connection refused"), "lost its JVM"),
        (Py4JError("An error occurred while calling o50.sc"), "lost its JVM"),
        (KafkaTimeoutError("Unable to bootstrap"), "can't go on without Kafka"),
        (Py4JError("java.lang.System.nosuch does not exist in the JVM"), "jars do not match"),
        (TypeError("'JavaPackage' object is not callable"), "jars do not match"),
        (PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
         "Java has ended"),
    ],
)  # fmt: skip
def test_part_that_is_lost_is_told_in_words(found: Exception, said: str) -> None:
    with pytest.raises(CommandError) as raised, error_messages():
        raise found
    assert said in str(raised.value)
    assert raised.value.next_step


@pytest.mark.parametrize("error", [ZeroDivisionError(), TypeError("3 + 'a'")])
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)), error_messages():
        raise error


@pytest.mark.parametrize(
    ("code", "kills", "said"),
    [
        ("sys.exit(52)", 0, "OutOfMemoryError, exit code 52"),
        ("sys.exit(3)", 0, "exit code 3"),
        ("os.kill(os.getpid(), 9)", 0, "by somebody or for want of memory"),
        ("os.kill(os.getpid(), 9)", 1, "the kernel has killed for want of memory"),
        ("os.kill(os.getpid(), 15)", 0, "SIGTERM"),
    ],
)
def test_end_of_the_jvm_is_told_by_its_exit_code(
    code: str, kills: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os, sys; {code}"])
    gateway = type("Gateway", (), {"proc": process})
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    counts = iter((7, 7 + kills))
    monkeypatch.setattr(fatal_errors, "_oom_kills", lambda: next(counts))
    monkeypatch.setattr(fatal_errors, "_EXIT_WAIT_S", 60)
    with pytest.raises(CommandError) as raised, error_messages():
        raise ConnectionResetError
    assert said in raised.value.why


JAVA = """An error occurred while calling o57.start.
: org.apache.spark.SparkException: [STREAM] outer
\tat org.apache.spark.A.b(A.scala:1)
Caused by: java.lang.IllegalStateException: middle
\tat org.apache.spark.A.b(A.scala:1)
Caused by: {}
\tat java.base/java.lang.C.d(C.java:2)
"""
PYTHON = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the
Python Proxy. Return Message: Traceback (most recent call last):
  File "x.py", line 1, in call
    raise e
{}

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy.
\t... 34 more
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (JAVA.format("java.lang.NoClassDefFoundError: org/x/Y"),
         "java.lang.NoClassDefFoundError: org/x/Y"),
        (JAVA.format("java.io.EOFException"),
         "java.io.EOFException, of java.lang.IllegalStateException: middle"),
        (": java.lang.OutOfMemoryError: Java heap space\n\tat a.B.c(B.java)",
         "java.lang.OutOfMemoryError: Java heap space"),
        (PYTHON.format("ValueError: boom"), "ValueError: boom"),
        (PYTHON.format("py4j.protocol.Py4JJavaError: An error occurred.\n: a.b.CError: deep"),
         "a.b.CError: deep"),
        ("plain words\nmore", "plain words"),
        ("", "nothing is known of it"),
    ],
)  # fmt: skip
def test_cause_is_the_first_line_of_the_innermost_exception(text: str, cause: str) -> None:
    assert root_cause(text) == cause
    assert java_failure(text).why == cause


@pytest.mark.parametrize(
    ("cause", "what", "step"),
    [
        ("java.lang.NoClassDefFoundError: org/x/Y", "jars do not match", "make setup"),
        ("java.lang.NoSuchMethodError: 'void a.B.c()'", "jars do not match", "make setup"),
        ("java.lang.ClassNotFoundException: a.B", "jars do not match", "make setup"),
        ("java.lang.UnsupportedClassVersionError: a/B has been compiled by a more recent version",
         "too old", "BALLAST_JAVA"),
        ("java.lang.UnsatisfiedLinkError: /tmp/librocksdbjni.so: failed to map segment",
         "native library", "noexec"),
        ("java.lang.OutOfMemoryError: GC overhead limit exceeded",
         "out of memory", "spark.driver.memory"),
        ("java.io.IOException: No space left on device", "disk is full", "free some space"),
        ("java.lang.IllegalStateException: odd", "has ended", "event spark"),
    ],
)  # fmt: skip
def test_known_causes_are_told_apart_with_what_to_do(cause: str, what: str, step: str) -> None:
    error = java_failure(JAVA.format(cause), "the streaming query has ended")
    assert what in error.what
    assert step in error.next_step
    assert error.why == cause


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("java.X\npy4j: TableBusyError: error: busy\n  why: w\n next: n\n  at ...",
         "error: busy\n  why: w\n next: n"),
        ("StoreError: no such bucket", "error: the job has ended\n  why: no such bucket"),
        (PYTHON.format("jobs.a.DamagedTableError: error: damaged\n  why: a file\n next: restore"),
         "error: damaged\n  why: a file\n next: restore"),
        (PYTHON.format("jobs.console.CommandError: error: no secret\n  why: w\n next: n"),
         "error: no secret\n  why: w\n next: n"),
        ("java.lang.NullPointerException", ""),
    ],
)  # fmt: skip
def test_error_of_ours_in_sparks_text_is_told_in_its_own_words(error: str, said: str) -> None:
    assert own_error_message(error) == said
