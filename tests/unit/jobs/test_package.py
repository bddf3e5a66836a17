"""What a Spark cluster gets of Ballast."""

import subprocess
from pathlib import Path

from jobs.package import SPARKS_OWN, lock_beside_spark, submit_script
from jobs.prepare import LOCKS, ROOT

_LOCK = """\
numpy==2.2.6 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
pyspark==4.2.0 \\
    --hash=sha256:cc
mmh3==5.3.1 \\
    --hash=sha256:dd
"""


def test_every_package_but_sparks_own_is_taken_with_its_hashes() -> None:
    assert lock_beside_spark(_LOCK) == _LOCK.replace(
        "pyspark==4.2.0 \\\n    --hash=sha256:cc\n", ""
    )


def test_what_is_left_out_is_in_the_lock() -> None:
    text = (ROOT / LOCKS["run"]).read_text()
    assert all(f"\n{name}==" in f"\n{text}" for name in SPARKS_OWN)


def test_words_before_the_dashes_are_sparks_and_those_behind_them_the_jobs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    told = home / "bin" / "spark-submit"
    told.write_text('#!/bin/bash\nprintf "%s\\n" "$@" "$PYSPARK_PYTHON"\n')
    told.chmod(0o755)
    script = tmp_path / "submit"
    script.write_text(submit_script(tmp_path))
    found = subprocess.run(
        ["/bin/bash", script, "--master", "spark://h:1", "--", "--bootstrap", "k:9092"],
        env={"SPARK_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = found.stdout.splitlines()
    assert "--jars" not in words
    assert words[-6:-3] == ["--master", "spark://h:1", str(ROOT / "jobs" / "balance_cluster.py")]
    assert words[-3:] == ["--bootstrap", "k:9092", "python3"]
