"""Deployments without an engine: docker-compose.yml, systemd units, docs/kubernetes.md."""

import configparser
import http.server
import importlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import balance_cluster
from jobs.adapters.processes.settings import load_settings
from jobs.cli import main
from lbcore.config.tree import SETTINGS
from tests.support.processes.helm_tool import CHART
from tests.tidy.conftest import ParsedError
from tests.tidy.source_files import ROOT

COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "conf" / "container" / "Dockerfile").read_text()
OURS = [name for name, service in SERVICES.items() if "build" in service]
MADE_BY_USER = "./secrets/"
_SPARK = "org.apache.spark.deploy."


@pytest.mark.parametrize("name", OURS)
@pytest.mark.usefixtures("only_parsing")
def test_process_takes_its_words(name: str) -> None:
    command = [str(word) for word in SERVICES[name]["command"]]
    if command[0] == "spark-class":
        assert command[1].removeprefix(_SPARK) in {"master.Master", "worker.Worker"}
        assert [word for word in command if re.match("--.+=", word)] == []  # it knows no such form
        return
    module = "jobs.cli" if command[0] == "ballast" else command[2]
    assert command[:2] == ["python", "-m"] or command[0] == "ballast"
    with pytest.raises(ParsedError):
        importlib.import_module(module).main(command[1 if command[0] == "ballast" else 3 :])


def test_settings_of_the_overlay_suit() -> None:
    assert load_settings(["container"]).lookup.authentication == "token"


def test_every_file_of_this_source_that_is_mounted_or_read_is_there() -> None:
    found = list(paths())
    assert len(found) > len(OURS)
    assert [path for path in found if not (ROOT / path).exists()] == []


def paths() -> Iterator[str]:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            if volume.startswith("."):
                yield volume.split(":")[0]
        if "build" in service:
            yield service["build"]["dockerfile"]
    for secret in COMPOSE["secrets"].values():
        if not secret["file"].startswith(MADE_BY_USER):
            yield secret["file"]


def test_everything_that_services_share_is_declared_and_everything_declared_is_used() -> None:
    named: dict[str, set[str]] = {"volumes": set(), "networks": set(), "secrets": set()}
    for service in SERVICES.values():
        mounted = (volume.split(":")[0] for volume in service.get("volumes", ()))
        named["volumes"] |= {volume for volume in mounted if not volume.startswith(".")}
        named["networks"] |= set(service["networks"])
        named["secrets"] |= set(service.get("secrets", ()))
        assert set(service.get("depends_on", ())) <= set(SERVICES)
    assert {kind: set(COMPOSE[kind]) for kind in named} == named


def test_who_waits_for_health_waits_for_somebody_who_tells_it() -> None:
    for service in SERVICES.values():
        for name, wish in service.get("depends_on", {}).items():
            if wish["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[name]
            if wish["condition"] == "service_completed_successfully":
                assert SERVICES[name]["restart"] == "no"


def test_images_have_versions_and_ports_are_published_to_this_machine_alone() -> None:
    images = [service["image"] for service in SERVICES.values()]
    images += re.findall(r"^ARG BASE=(\S+)", DOCKERFILE, re.MULTILINE)
    assert "FROM ${BASE}\n" in DOCKERFILE
    assert [image for image in images if not re.search(r":v?\d+\.\d+\.\d+", image)] == []
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_hosts_that_are_scraped_are_services() -> None:
    scraped = yaml.safe_load((ROOT / "conf" / "container" / "prometheus.yml").read_text())
    hosts = {
        target.split(":")[0]
        for job in scraped["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert hosts
    assert hosts <= set(SERVICES)
    assert "/var/lib/ballast/state /var/lib/ballast/tables" in DOCKERFILE  # owned by its user


def test_grafana_is_provisioned_with_a_source_and_every_dashboard() -> None:
    here = {source: target for source, target, _ in mounts("grafana")}
    folder = ROOT / "conf" / "container" / "grafana"
    assert here["./conf/container/grafana"] == "/etc/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    host, port = source["url"].removeprefix("http://").split(":")
    assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "ballast.yml").read_text())["providers"]
    assert provider["options"]["path"] == here["./dashboards"]
    pages = [json.loads(path.read_text()) for path in (ROOT / "dashboards").glob("*.json")]
    assert pages
    assert len({page["uid"] for page in pages}) == len(pages)
    for page in pages:
        chosen = {one["name"]: one["query"] for one in page["templating"]["list"]}
        used = {panel["datasource"]["uid"] for panel in page["panels"] if panel.get("datasource")}
        assert used == {"${datasource}"}
        assert chosen["datasource"] == source["type"]
    assert source["isDefault"]


def test_prometheus_reads_the_rules_that_are_mounted_beside_its_file() -> None:
    files = {target: source for source, target, _ in mounts("prometheus")}
    folder = "/etc/prometheus"
    read = yaml.safe_load((ROOT / files[f"{folder}/prometheus.yml"]).read_text())["rule_files"]
    assert [files[f"{folder}/{name}"] for name in read] == ["./dashboards/alerts.yml"]


def mounts(name: str) -> list[tuple[str, str, str]]:
    """A service's files of this source: path here, path there, how."""
    found = (volume.split(":") for volume in SERVICES[name]["volumes"])
    return [(parts[0], parts[1], parts[2]) for parts in found if parts[0].startswith(".")]


UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
SYSTEMD = shutil.which("systemd-analyze")


def name_of(path: Path) -> str:
    return path.stem


def service_of(path: Path) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(path)
    return unit["Service"]


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
@pytest.mark.usefixtures("only_parsing")
def test_process_takes_the_words_of_its_unit(unit: Path) -> None:
    command, *words = service_of(unit)["ExecStart"].split()
    assert command == "/opt/ballast/bin/ballast"
    with pytest.raises(ParsedError):
        main(words)


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_unit_gives_the_process_the_time_to_end_and_no_rights_beyond_its_folder(unit: Path) -> None:
    service = service_of(unit)
    assert int(service["TimeoutStopSec"]) >= 20
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["User"] == service["StateDirectory"] == "ballast"


@pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8").replace("/opt/ballast/bin/ballast", "/bin/true")
    here = tmp_path / unit.name
    here.write_text(text.replace("User=ballast", "User=root"), encoding="utf-8")
    ended = subprocess.run(
        [str(SYSTEMD), "verify", "--man=no", str(here)], check=False, capture_output=True, text=True
    )
    told = [line for line in ended.stderr.splitlines() if unit.name in line]
    assert (ended.returncode, told) == (0, [])


PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
JOB, BROKER = (yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def is_value(path: str) -> bool:
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
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, self.headers["Authorization"], body))
            self.send_response(left.pop(0))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 its name there
            pass

    (container,) = BROKER["containers"]
    program, option, script = container["lifecycle"][hook]["exec"]["command"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        commands = f"http://127.0.0.1:{server.server_port}/v1/commands"
        subprocess.run(
            [program, option, script.replace("/run/ballast/token", str(token))],
            check=True,
            timeout=60,
            env={**os.environ, "COMMANDS": commands, "BROKER": "b-0:8080", "POD_UID": "u-1"},
        )
        server.shutdown()
    assert not left
    return asked


def test_broker_ends_only_after_its_drain_is_done(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    asked = run_hook("preStop", token, [503, 202, 200])
    drain, body = "/v1/commands/drain_broker", b'{"broker": "b-0:8080"}'
    query = "?command_id=stop-u-1&timeout_ms=50000"
    assert asked == [("POST", f"{drain}{query}", "Bearer secret", body)] * 3
    asked = run_hook("postStart", token, [503, 409])
    assert asked == [("POST", "/v1/commands/cancel_drain", "Bearer secret", body)] * 2
