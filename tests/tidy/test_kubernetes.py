"""docs/kubernetes.md: values that it names are the chart's, what it starts takes its words."""

import http.server
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from jobs import balance_cluster
from jobs.adapters.processes.settings import load_settings
from lbcore.config.tree import SETTINGS
from tests.support.processes.helm_tool import CHART
from tests.tidy.conftest import ParsedError
from tests.tidy.source_files import ROOT

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
JOB, BROKER = (yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def is_value(path: str) -> bool:
    """Whether the chart has it, such as job.words."""
    found = VALUES
    for part in path.split("."):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


def test_value_that_the_page_names_is_one_of_the_charts() -> None:
    groups = "|".join(VALUES)
    set_here = re.findall(r"--set(?:-file)? '?([\w.]+)=", PAGE)
    named = re.findall(rf"`((?:{groups})\.[\w.]+)[`=]", PAGE)
    assert len(set_here) > 4
    assert [path for path in set_here if not is_value(path)] == []
    # sections of settings are called `kafka` and `lookup`, too
    assert [path for path in named if not is_value(path) and path not in SETTINGS] == []


@pytest.mark.usefixtures("only_parsing")
def test_job_of_the_operator_takes_its_words() -> None:
    with pytest.raises(ParsedError) as parsed:
        balance_cluster.main(JOB["spec"]["arguments"])
    assert load_settings(parsed.value.args[0].config)


def test_file_that_spark_runs_is_where_the_image_has_the_source() -> None:
    path = JOB["spec"]["mainApplicationFile"].removeprefix("local:///opt/ballast/")
    assert (ROOT / path).is_file()
    assert "COPY . /opt/ballast" in PAGE


def test_what_the_operator_mounts_is_declared() -> None:
    spec = JOB["spec"]
    declared = {volume["name"] for volume in spec["volumes"]}
    users = (spec["driver"], spec["executor"])
    assert {mount["name"] for user in users for mount in user["volumeMounts"]} == declared


def run_hook(hook: str, token: Path, statuses: Sequence[int]) -> list[tuple[str, str, str, bytes]]:
    """Run a hook of the broker's pod against a service that gives these statuses; the requests."""
    asked: list[tuple[str, str, str, bytes]] = []
    left = list(statuses)

    class Service(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, self.headers["Authorization"], body))
            self.send_response(left.pop(0))
            self.end_headers()

        do_DELETE = do_PUT  # noqa: N815 the base class's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 its name there
            pass

    (container,) = BROKER["containers"]
    program, option, script = container["lifecycle"][hook]["exec"]["command"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        drain = f"http://127.0.0.1:{server.server_port}/v1/brokers/b-0:8080/drain"
        subprocess.run(
            [program, option, script.replace("/run/ballast/token", str(token))],
            check=True,
            timeout=60,
            env={**os.environ, "DRAIN": drain, "POD_UID": "u-1"},
        )
        server.shutdown()
    assert not left
    return asked


def test_broker_ends_only_after_its_drain_is_done(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    asked = run_hook("preStop", token, [503, 202, 200])
    body = b'{"command_id": "stop-u-1", "timeout_ms": 50000}'
    assert asked == [("PUT", "/v1/brokers/b-0:8080/drain", "Bearer secret", body)] * 3
    asked = run_hook("postStart", token, [503, 409])
    assert [method for method, *_ in asked] == ["DELETE", "DELETE"]
