"""What works without the distribution's extras, and what is said where one is missing."""

import subprocess
import sys

SCRIPT = """
import sys
from jobs.cli import main, verb_parser
from jobs.console import CommandError
from jobs.extras import EXTRAS
from jobs.verbs import VERBS

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Blocker())
import jobs.agent, jobs.lookup_client
for name, verb in VERBS.items():
    try:
        verb_parser(name, verb)
    except CommandError as error:
        print(name, main([name]))
"""


def test_only_the_job_and_the_service_need_an_extra_and_name_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["run-job 1", "serve 1"]
    assert "`ballast run-job` needs pyspark" in done.stderr
    assert "ballast-balancer[job]" in done.stderr
    assert "`ballast serve` needs uvicorn" in done.stderr
    assert "ballast-balancer[service]" in done.stderr
