"""The pods of the Helm chart in a real container engine, as the chart renders them."""

import json
import os
import signal
import time
from functools import partial
from typing import Any

import pytest

from tests.containers.engine import Engine, missing
from tests.containers.played_pods import PATIENCE_S, PlayedChart, PlayedPod
from tests.integration.stack import wait_for

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
TABLES = "--tables=/var/lib/ballast/tables"
TOPICS = [f"persistent/public/default/topic-{number}" for number in range(20)]
AT_WORK, STANDING_BY = (f'ballast_job_phase{{phase="{one}"}} 1.0' for one in
                        ("at work", "standing by"))  # fmt: skip


@pytest.fixture(scope="module")
def chart(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> PlayedChart:
    begun = PlayedChart(engine, tmp_path_factory.mktemp("chart"))
    begun.begin()
    return begun


def wait(chart: PlayedChart, what: str, condition: Any) -> None:
    """Wait until something holds, and fail with what the pods say."""
    try:
        wait_for(what, condition, PATIENCE_S)
    except AssertionError as error:
        said = [f"{pod.name}: {chart.log(pod)}" for pods in chart.pods.values() for pod in pods]
        raise AssertionError("\n".join([str(error), *said])) from None


def in_phase(chart: PlayedChart, phase: str) -> list[PlayedPod]:
    return [pod for pod in chart.pods["job"] if phase in pod.get("/metrics")]


def owners(pod: PlayedPod) -> list[Any]:
    """Who owns the topics, once all of them have somebody."""
    found = [pod.get(f"/lookup/v2/topic/{topic}") for topic in TOPICS]
    return [json.loads(one) for one in found] if all(found) else []


def test_one_pod_of_the_job_works_and_the_other_stands_by(chart: PlayedChart) -> None:
    assert {component: len(pods) for component, pods in chart.pods.items()} == {
        "job": 2,
        "lookup": 2,
    }
    for pods in chart.pods.values():
        for pod in pods:
            wait(chart, f"{pod.name} to be ready", pod.is_ready)
    wait(chart, "one to be at work", lambda: len(in_phase(chart, AT_WORK)) == 1)
    assert len(in_phase(chart, STANDING_BY)) == 1


def test_lookups_are_answered_alike_by_all_pods(chart: PlayedChart) -> None:
    fleet = ("--bootstrap=kafka:9092", "--state-dir=/var/lib/ballast/state", "--brokers=4")
    space = ("--namespace=public/default:crc32:40", "--load=zipf")
    chart.run_beside("fleet", "python", "-m", "jobs.run_fleet", *fleet, *space)
    first, second = chart.pods["lookup"]
    made = ("namespace", "create", "public/default", "--bundles=40", "--timeout=5m")
    chart.exec(first, "ballast", *made, "--cluster=local", TABLES)
    for pod in (first, second):
        wait(chart, f"{pod.name} to know every owner", partial(owners, pod))
    assert owners(first) == owners(second)
    assert len({one["httpUrl"] for one in owners(first)}) > 1
    assert "at work" in chart.exec(second, "ballast", "status", "--cluster=local", TABLES)


def test_standby_works_on_when_the_job_dies_which_then_stands_by(chart: PlayedChart) -> None:
    (worker,), (spare,) = in_phase(chart, AT_WORK), in_phase(chart, STANDING_BY)
    state = chart.engine.run("inspect", "--format", "{{.State.Pid}}", worker.container)
    killed_s = time.monotonic()
    os.kill(int(state), signal.SIGKILL)
    wait(chart, "the standby to work", lambda: in_phase(chart, AT_WORK) == [spare])
    print(json.dumps({"at_work_after_s": time.monotonic() - killed_s}))  # noqa: T201 (a measurement)
    wait(chart, "the other to stand by", lambda: in_phase(chart, STANDING_BY) == [worker])
    assert owners(chart.pods["lookup"][0])


def test_pods_end_in_order_within_their_time(chart: PlayedChart) -> None:
    for pods in chart.pods.values():
        for pod in pods:
            chart.engine.run("stop", "--time", str(pod.grace_s), pod.container, timeout_s=300)
            code = chart.engine.run("inspect", "--format", "{{.State.ExitCode}}", pod.container)
            assert int(code) == 0, chart.log(pod)
