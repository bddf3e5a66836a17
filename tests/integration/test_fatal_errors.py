"""Errors of a real JVM: a missing class, no memory, a Python error in a batch, a kill."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, os, sys
from pathlib import Path
from jobs.adapters.processes.preflight import use_java_home
from jobs.adapters.spark.fatal_errors import error_messages, java_failure, java_text
from jobs.adapters.spark.stream import jvm_id, spark_session
from jobs.console import CommandError
use_java_home()
folder = Path(sys.argv[1])
any_port = {"spark.ui.port": "0"}
session = spark_session(master="local[1]", local_dir=folder / "spark", settings=any_port)
jvm = session.sparkContext._jvm
def ended(sink):
    query = session.readStream.format("rate").load().writeStream.foreachBatch(sink)
    query = query.option("checkpointLocation", str(folder / sink.__name__)).start()
    while query.isActive: pass
    raise java_failure(java_text(query.exception()))
def heap(*_): jvm.java.util.ArrayList(2**31 - 1)
def python(*_): raise ValueError("boom")
def killed(): os.kill(jvm_id(session), 9); session.range(3).collect()
cases = {
    "missing class": lambda: jvm.java.lang.Class.forName("no.such.Thing"),
    "missing format": lambda: session.readStream.format("none").load(),
    "missing method": lambda: jvm.java.lang.System.nosuch(),
    "missing package": lambda: jvm.no.such.Thing(),
    "memory": lambda: ended(heap),
    "python": lambda: ended(python),
    "plan": lambda: session.table("none").collect(),
    "killed": killed,
}
told = {}
for name, case in cases.items():
    try:
        with error_messages(): case()
    except CommandError as error:
        told[name] = [error.what, error.why]
print(json.dumps(told))
"""


def test_errors_of_a_real_jvm_are_told_apart(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    told = json.loads(done.stdout)
    wanted = {
        "missing class": ("jars do not match", "ClassNotFoundException: no.such.Thing"),
        "missing format": ("jars do not match", "ClassNotFoundException: none.DefaultSource"),
        "missing method": ("jars do not match", "nosuch does not exist in the JVM"),
        "missing package": ("jars do not match", "'JavaPackage' object is not callable"),
        "memory": ("out of memory", "java.lang.OutOfMemoryError: Requested array size"),
        "python": ("ends by an error", "ValueError: boom"),
        "plan": ("ends by an error", "TABLE_OR_VIEW_NOT_FOUND"),
        "killed": ("lost its JVM", "SIGKILL"),
    }
    assert told.keys() == wanted.keys()
    for name, (what, why) in wanted.items():
        assert what in told[name][0], (name, told[name])
        assert why in told[name][1], (name, told[name])
        assert "\n" not in told[name][1]
