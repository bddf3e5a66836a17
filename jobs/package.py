"""Build of a wheel to install, and of what a Spark cluster needs of Ballast.

That is the project, its locked packages except those that Spark brings or that need Spark, the
arguments for spark-submit, and a bill of materials. Runs in the project's own environment, after
set-up.

python -m jobs.package [--output dist/spark]
"""

import fcntl
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from jobs import VERSION
from jobs.adapters.processes.jars import LOCK_PATH, parse_lock
from jobs.adapters.processes.paths import CONF
from jobs.adapters.processes.preflight import check_disk
from jobs.adapters.spark.stream import STACK_SIZE
from jobs.console import CommandError, Exit, complain, note
from jobs.extras import DISTRIBUTION
from jobs.parser import Parser
from jobs.prepare import LOCKS, ROOT

SPARKS_OWN = ("pyspark", "py4j")
_CONTENT = {"python", "python.tar.gz", "requirements.lock", "submit", "bom.cdx.json"}
_BYTES = 1_000_000_000
_SUBMIT = """\
#!/usr/bin/env bash
# Submit the job to a Spark cluster:
#   {folder}/submit --master spark://HOST:7077 [more words of spark-submit] -- [words of the job]
# The driver runs here, in {python}; executors need python3 of its minor
# version (PYSPARK_PYTHON names another one) and get packages and code from this folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
spark=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do spark+=("$1"); shift; done
[ $# -gt 0 ] && shift
export SPARK_HOME=${{SPARK_HOME:-{spark_home}}}
export PYSPARK_DRIVER_PYTHON=${{PYSPARK_DRIVER_PYTHON:-{python}}}
export PYSPARK_PYTHON=${{PYSPARK_PYTHON:-python3}}
export PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}}
exec "$SPARK_HOME/bin/spark-submit" \\
  --archives "$here/python.tar.gz#ballast" \\
  --conf "spark.executorEnv.PYTHONPATH=ballast:$here/python" \\
  --conf "spark.executor.extraJavaOptions={stack_size}" \\
  --driver-java-options "{stack_size} -Dlog4j2.configurationFile=file:{logging}" \\
  "${{spark[@]}}" "{job}" "$@"
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Make the folder anew; returns the exit code."""
    parser = Parser(prog="package", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "spark")
    parser.add_argument("--wheel-dir", type=Path, default=ROOT / "dist")
    args = parser.parse_args(argv)
    output = args.output.absolute()
    try:
        wheel = make_wheel(args.wheel_dir.absolute())
        note(f"wheel: {wheel}; next: pip install {wheel}, then ballast --help")
        make_package(output)
    except CommandError as error:
        complain(error, as_json=False)
        return error.exit_code
    note(f"package: {output}; next: {output}/submit --master spark://HOST:7077 -- --help")
    return Exit.DONE


def make_wheel(folder: Path) -> Path:
    """Build the wheel of this source into `folder`. Raises CommandError."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would trip over each other's files
        shutil.rmtree(build / "lib", ignore_errors=True)  # has what was there before, too
        _pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    return folder / f"{DISTRIBUTION.replace('-', '_')}-{VERSION}-py3-none-any.whl"


def make_package(output: Path) -> None:
    """Fill `output`: python/, python.tar.gz, requirements.lock, submit, bom.cdx.json.

    Raises CommandError when the disk is too full, the folder has other files, or a package can't be
    had.
    """
    check_disk(output, _BYTES)
    foreign = sorted({path.name for path in output.glob("*")} - _CONTENT)
    if foreign:
        raise CommandError(
            f"{output} is no package of Ballast",
            why=f"it has {foreign[0]}, and all that is in it would be deleted",
            next_step="name a new or empty folder with --output",
        )
    shutil.rmtree(output, ignore_errors=True)
    packages = output / "python"
    packages.mkdir(parents=True)
    lock = output / "requirements.lock"
    packages_text = (ROOT / LOCKS["run"]).read_text(encoding="ascii")
    lock.write_text(lock_beside_spark(packages_text))
    install = ("install", "--target", str(packages))
    _pip(*install, "--require-hashes", "--requirement", str(lock))
    _pip(*install, "--no-build-isolation", str(ROOT))
    with tarfile.open(output / "python.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(packages, arcname=".")
    bill = bill_of_materials(packages_text, LOCK_PATH.read_text(encoding="ascii"), VERSION)
    (output / "bom.cdx.json").write_text(bill, encoding="ascii")
    submit = output / "submit"
    submit.write_text(submit_script(output))
    submit.chmod(0o755)


def lock_beside_spark(text: str) -> str:
    """The lock without SPARKS_OWN. text: pip's format, with hashes."""
    kept, is_kept = [], True
    for line in text.splitlines():
        if not line.startswith((" ", "#")):
            is_kept = line.partition("==")[0] not in SPARKS_OWN
        if is_kept:
            kept.append(line)
    return "\n".join(kept) + "\n"


def submit_script(folder: Path) -> str:
    """The script that submits the job with what is in `folder`."""
    (spark_home,) = Path(sys.prefix).glob("lib/python*/site-packages/pyspark")
    return _SUBMIT.format(
        folder=folder,
        root=ROOT,
        python=sys.executable,
        spark_home=spark_home,
        stack_size=STACK_SIZE,
        logging=CONF / "logging" / "spark-log4j2.properties",
        job=ROOT / "jobs" / "balance_cluster.py",
    )


def _pip(verb: str, *words: str) -> None:
    command = [
        *(sys.executable, "-m", "pip", verb, "--quiet", "--no-deps"),
        *("--disable-pip-version-check", "--no-input", *words),
    ]
    found = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 (our own words)
    if found.returncode:
        raise CommandError(
            "what travels could not be put together",
            why=found.stderr.strip()[-500:] or f"pip ended with code {found.returncode}",
            next_step="check the network (PIP_INDEX_URL names a mirror) and run it again",
        )


_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+))?")
_HASH = re.compile(r"--hash=(?P<digest>\w+:[0-9a-f]+)")
_JARS_LICENCE = "Apache-2.0"
_OTHER_LICENCES = {
    "HdrHistogram": "BSD-2-Clause OR CC0-1.0",
    "argparse4j": "MIT",
    "jopt-simple": "MIT",
    "pcollections": "MIT",
    "re2j": "BSD-3-Clause",
    "slf4j-api": "MIT",
    "zstd-jni": "BSD-2-Clause",
}
"""Jars whose licence is not that of Kafka, Spark, Delta and the rest."""
Component = dict[str, Any]


def bill_of_materials(packages: str, jars: str, version: str) -> str:
    """Return a CycloneDX 1.6 document of all locked packages and jars, as JSON.

    packages: text of a pip lock; jars: text of conf/jars.lock. A package's digests in a lock are
    those of all its files (a wheel for each platform), of which one is installed, so they stand as
    properties. A jar has the one digest that it is checked against. Licences are those of installed
    packages' metadata and of the jars' projects. No time and no random serial number: the same
    locks and packages give the same text. After https://cyclonedx.org/docs/1.6/json.
    """
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/ballast@{version}",
                "name": "ballast",
                "version": version,
                "purl": f"pkg:pypi/ballast@{version}",
            }
        },
        "components": sorted(
            [*_packages(packages), *_jars(jars)], key=lambda one: str(one["bom-ref"])
        ),
    }
    return json.dumps(document, indent=1) + "\n"


def _packages(text: str) -> Iterator[Component]:
    for block in re.split(r"\n(?=\S)", text):
        found = _PACKAGE.match(block)
        if found is None:
            continue
        name = re.sub(r"[-_.]+", "-", found["name"]).lower()
        properties = [
            {"name": "ballast:accepted-digest", "value": digest}
            for digest in sorted(match["digest"] for match in _HASH.finditer(block))
        ]
        if found["marker"]:
            properties.append({"name": "ballast:only-if", "value": found["marker"].strip()})
        purl = f"pkg:pypi/{name}@{found['version']}"
        library = _library(purl, name, found["version"])
        yield library | {"properties": properties} | _licences(name)


def _jars(text: str) -> Iterator[Component]:
    for jar in parse_lock(text):
        purl = f"pkg:maven/{jar.group}/{jar.artifact}@{jar.revision}?type=jar"
        yield _library(purl, jar.artifact, jar.revision) | {
            "group": jar.group,
            "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
            "licenses": [{"expression": _OTHER_LICENCES.get(jar.artifact, _JARS_LICENCE)}],
        }


def _licences(name: str) -> Component:
    """Return the field with a package's licences, none if it is not installed here."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return {}
    if "License-Expression" in found:
        return {"licenses": [{"expression": found["License-Expression"]}]}
    classifiers = (one.split(" :: ") for one in found.get_all("Classifier") or ())
    names = [parts[-1] for parts in classifiers if parts[0] == "License"]
    names = names or found.get_all("License", ["unknown"])
    return {"licenses": [{"license": {"name": one}} for one in names]}


def _library(purl: str, name: str, version: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    sys.exit(main())
