"""Messages for fatal job errors: of the JVM, of Java, of Kafka, of Ballast.

The job ends in each case, and a supervisor starts it again. The message names the cause (the
innermost Java or Python exception), and what to do where starting again is not enough.
"""

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from jobs.console import CommandError, note

_OUR_ERROR = re.compile(
    r"(?:CommandError|DamagedTableError|FencedError|StoreError|ForkedError|TableBusyError"
    r"|UnknownStateSchemaError|MalformedBlobError|OffsetsLostError): (.*)"
)
_CAUSES_MAX = 20
_CAUSE_LENGTH_MAX = 600
_EXIT_WAIT_S = 3.0  # the socket closes a moment before the process has ended
_AGAIN = "start the job again, where nothing does so by itself: nothing is lost"
_UNANSWERED = re.compile(r"An error occurred while calling \S+")
_TRACEBACK = "Traceback (most recent call last):"
_JAVA_LINE = re.compile(r"(?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?::.*)?")

_JARS_UNFIT = (
    "starting again does not help. `ballast doctor` looks at the jars and packages, `make setup`"
    " fetches those of this version; with spark-submit take dist/spark (`make package`) and no"
    " other jars (--jars, --packages, SPARK_HOME of another version)"
)
_MORE_MEMORY = (
    "give it more: --spark spark.driver.memory=2g, on a cluster --spark spark.executor.memory=2g"
    " too (with spark-submit --conf); then start the job again: nothing is lost"
)
_NO_NATIVE = (
    "it is unpacked into the folder for temporary files: that must not be mounted noexec (set"
    " TMPDIR to another), and the machine must be one that the jar has a library for"
)
_NEWER_JAVA = (
    "`ballast doctor` says which Java is found; name a Java 17 or later with BALLAST_JAVA (with"
    " spark-submit JAVA_HOME), on each machine of the cluster"
)
_MORE_DISK = (
    "free some space at --state-dir, --tables and the folder for temporary files; then start the"
    " job again: nothing is lost"
)
_LOOK_AT_JAVA = (
    "what Java said stands above; `ballast doctor` looks at it. Most often Java is too old, or it"
    " can't have as much memory as spark.driver.memory says"
)
_UNFIT = (
    r"java\.lang\.(NoClassDefFoundError|ClassNotFoundException|NoSuch(Method|Field)Error"
    r"|AbstractMethodError|IncompatibleClassChangeError|IllegalAccessError|VerifyError"
    r"|LinkageError)|SparkClassNotFoundException|java\.util\.ServiceConfigurationError"
    r"|'JavaPackage' object|(Method|Constructor|Field) \S+ does not exist"
    r"|does not exist in the JVM"
)
_KNOWN: Sequence[tuple[re.Pattern[str], str, str]] = tuple(
    (re.compile(pattern), what, next_step)
    for pattern, what, next_step in (
        (r"java\.lang\.OutOfMemoryError", "Java has run out of memory", _MORE_MEMORY),
        (r"java\.lang\.UnsatisfiedLinkError", "Java can't load a native library", _NO_NATIVE),
        (
            r"java\.lang\.UnsupportedClassVersionError",
            "this Java is too old for Spark's jars",
            _NEWER_JAVA,
        ),
        (
            _UNFIT,
            "Spark's jars do not match its version: a class or a member of one is missing",
            _JARS_UNFIT,
        ),
        (r"No space left on device|Disk quota exceeded", "the disk is full", _MORE_DISK),
        (r"JAVA_GATEWAY_EXITED", "Java has ended before Spark began", _LOOK_AT_JAVA),
    )
)
"""Causes that a new start does not mend: pattern, what happened, what to do."""


@contextmanager
def error_messages() -> Iterator[None]:
    """Raise a CommandError in place of errors of py4j, Spark and Kafka."""
    killed_before = _oom_kills()
    try:
        yield
    except (Py4JError, PySparkException, ConnectionError) as error:
        # a call without an answer, which py4j raises in one of three forms
        is_unanswered = type(error) is Py4JError and _UNANSWERED.fullmatch(str(error)) is not None
        if is_unanswered or isinstance(error, Py4JNetworkError | ConnectionError):
            raise CommandError(
                "the job has lost its JVM, in which Spark runs, and ends",
                why=f"it answers no more ({type(error).__name__}): {_jvm_ending(killed_before)}",
                next_step=f"{_AGAIN}. If it comes again, look for hs_err_pid*.log and into the"
                " kernel's log (dmesg)",
            ) from error
        raise java_failure(java_text(error)) from error
    except TypeError as error:  # py4j takes a class that is not there for a package
        if "'JavaPackage' object" not in str(error):
            raise
        raise java_failure(java_text(error)) from error
    except KafkaError as error:
        raise CommandError(
            "the streaming job can't go on without Kafka and ends",
            why=f"{type(error).__name__}: {error}",
            next_step="start Kafka, then the job again, where nothing does so by itself",
        ) from error


def java_failure(text: str, what: str = "the job ends by an error in Spark") -> CommandError:
    """A CommandError for an error of Java or Spark. text: as `java_text` has it."""
    cause = root_cause(text)
    for pattern, known, next_step in _KNOWN:
        if pattern.search(text):
            return CommandError(f"{what}: {known}", why=cause, next_step=next_step)
    return CommandError(
        what,
        why=cause,
        next_step=f"{_AGAIN}. If it comes again, the whole stack stands in the job's log (event"
        " spark): report it",
    )


def java_text(error: object) -> str:
    """Return the text of a py4j or PySpark error with causes.

    The JVM may be gone meanwhile.
    """
    return "\n".join(_text_of(one) for one in _causes(error))


def java_stack(error: object) -> str:
    """The JVM's stacks of an error of PySpark and of its causes."""
    return "\n".join(str(getattr(one, "_stackTrace", "")) for one in _causes(error))


def _causes(error: object) -> Iterator[object]:
    """Yield the error and what caused it, as far as PySpark has it."""
    for _ in range(_CAUSES_MAX):
        if error is None:
            return
        yield error
        error = getattr(error, "_cause", None)


def root_cause(text: str) -> str:
    """The first line of the innermost exception in a stack trace of Java or Python.

    If it has no message, the nearest outer exception with one follows it.
    """
    lines = [line.strip("\r") for line in text.splitlines() if line.strip()]
    heads = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    heads = heads or [found for line in lines if (found := _java_head(line))][:1]
    cause = _python_cause(lines)
    if not cause and heads:
        around = next((head for head in reversed(heads) if ": " in head), "")
        cause = heads[-1] if ": " in heads[-1] or not around else f"{heads[-1]}, of {around}"
    cause = cause or next(iter(lines), "nothing is known of it")
    return cause if len(cause) <= _CAUSE_LENGTH_MAX else f"{cause[:_CAUSE_LENGTH_MAX]}..."


def own_error_message(error: str) -> str:
    """Return the message of a Ballast error inside Spark's text; "" = none."""
    lines = error.splitlines()
    for number, line in enumerate(lines, start=1):
        if found := _OUR_ERROR.search(line):
            if not found[1].startswith("error: "):
                return f"error: the job has ended\n  why: {found[1]}"
            rest = lines[number : number + 2]
            return "\n".join([found[1], *(w for w in rest if w.startswith(("  why: ", " next: ")))])
    return ""


def _text_of(error: object) -> str:
    if isinstance(error, Py4JJavaError):
        # `str` asks the JVM for its text, and this error may have ended the JVM
        with suppress(Exception):
            return str(error)
        return str(error.args[0]) if error.args else type(error).__name__
    return str(error)


def _java_head(line: str) -> str:
    """The exception that a line of Java's begins with, "" when there is none."""
    found = line.removeprefix(": ").removeprefix('Exception in thread "main" ')
    return found if _JAVA_LINE.fullmatch(found) else ""


def _python_cause(lines: Sequence[str]) -> str:
    """The last line of the last Python traceback, or the Java exception that it wraps."""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    for number, line in enumerate(lines[starts[-1] + 1 :] if starts else ()):
        if not line.startswith((" ", "\t")):
            after = lines[starts[-1] + number + 2 :]
            return (_java_head(after[0]) if after and after[0].startswith(": ") else "") or line
    return ""


def _jvm_ending(killed_before: int) -> str:
    """Return why the JVM ended, by its exit code and the kernel's counter."""
    # None where spark-submit has started the JVM
    process: Any = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 (no other way)
    code: int | None = None
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(_EXIT_WAIT_S) if process else None
    if code == -9:  # noqa: PLR2004 (SIGKILL)
        if _oom_kills() > killed_before:
            return "it was killed (SIGKILL), and the kernel has killed for want of memory meanwhile"
        return "it was killed (SIGKILL), by somebody or for want of memory"
    return _ENDINGS.get(code, f"it ended with exit code {code}")


_ENDINGS = {
    None: "it was killed, by the kernel for want of memory or by somebody, or it crashed",
    50: "an exception that nothing caught has ended it (exit code 50); its log has it",
    51: "an exception that nothing caught has ended it (exit code 51); its log has it",
    52: "Java had no memory left (OutOfMemoryError, exit code 52): --spark spark.driver.memory=2g"
    " gives it more",
    -6: "it crashed (SIGABRT)",
    -11: "it crashed (SIGSEGV)",
    -15: "somebody ended it (SIGTERM)",
    143: "somebody ended it (SIGTERM)",
}
"""Exit code of a JVM, Spark's own among them (`SparkExitCode`), to its meaning."""


def _oom_kills() -> int:
    """Return the kernel's number of out-of-memory kills; 0 if not counted."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


STARTS_MAX = 6
WORKER_LATE = "Python worker failed to connect back"
"""Spark's error for a worker that took longer than ten seconds to start."""


class WorkerStartupError(Exception):
    """A Python worker started too late, and the query ended before its first batch."""


def retry_late_workers(attempt: Callable[[], int]) -> int:
    """Return an attempt's result; repeat it when it raises WorkerStartupError.

    STARTS_MAX attempts in all. Raises CommandError when the last one was late, too.
    """
    for number in range(1, STARTS_MAX + 1):
        try:
            return attempt()
        except WorkerStartupError:  # noqa: PERF203 (six at most)
            note(
                f"Spark's Python worker did not start within 10 s ({number} of {STARTS_MAX} tries):"
                " the machine is busy"
            )
    raise CommandError(
        "the streaming query could not begin",
        why=f"Spark waits 10 s for a Python worker, and none of {STARTS_MAX} started so quickly",
        next_step="start the job again when the machine is less busy, or give it more cores",
    )
