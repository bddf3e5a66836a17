"""A run in which what operators fear happens, one after the other, watched by a real Prometheus.

A hotspot that balancing relieves, a split, a callback that hangs, one that fails, a message that
is none, an override, a crash, a drain. Each step waits until the tables show that it happened.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.rules import render_rules
from jobs.adapters.kafka.clients import Sender
from lbcore.wire.messages import Topic
from tests.integration.slow_service import FAILING, SLOW
from tests.integration.stack import Cluster, Stack, running_stack
from tests.support.processes import prometheus
from tests.support.processes.prometheus import tool

STEP_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusServer(prometheus.Prometheus):
    """One whose past is asked for, too."""

    def between(self, expr: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        words = {"query": expr, "start": start_s, "end": end_s, "step": STEP_S}
        found: list[dict[str, Any]] = self.get("query_range", **words)["result"]
        return found

    def fired(self, start_s: float, end_s: float) -> set[str]:
        found = self.between('ALERTS{alertstate="firing"}', start_s, end_s)
        return {series["metric"]["alertname"] for series in found}


@contextmanager
def running_prometheus(folder: Path, ports: Mapping[str, int]) -> Iterator[PrometheusServer]:
    """Scrape what listens on the loopback. ports: job's name → port."""
    rules = render_rules(for_max_s=1)
    with prometheus.running_prometheus(tool("prometheus"), folder, rules, ports) as server:
        yield PrometheusServer(url=server.url)


AGENT = "slow-1"
CRASHED, DRAINED = "broker-4", "broker-2"
CLUSTER = Cluster(
    brokers=4,
    namespaces={"demo/one": ("crc32", 24), "demo/two": ("murmur3_32", 16)},
    # twice conf/test.toml's: a crowded machine may stop a process for three seconds
    settings=(
        "ownership.broker_timeout_ms=6000",
        "shedding.avg_low_threshold=5",
        "shedding.avg_low_hits=2",
        "shedding.avg_high_threshold=20",
        "shedding.avg_high_hits=1",
        "shedding.cool_down_ms=5000",
        "shedding.is_shedding=false",
        "splitting.enabled=false",
    ),
    fleet=("--load", "moving-hotspot", "--hotspot-period-ms", "0", "--utilisation", "0.5"),
)
WHOLE = "0x00000000_0xffffffff"
_BEFORE_S, _AFTER_S = 4.0, 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventfulRun:
    """What happened, and who watched. Times in seconds since 1970."""

    stack: Stack
    prometheus: PrometheusServer
    started_s: float
    ended_s: float


@contextmanager
def eventful_run(folder: Path) -> Iterator[EventfulRun]:
    """The whole run; stack and Prometheus stand until it is left."""
    with running_stack(folder / "stack", CLUSTER) as stack:
        stack.start_lookup("--config", "test")
        stack.start_agent(AGENT, "tests.integration.slow_service:make")
        ports = {
            "job": stack.port(stack.metrics_file("job")),
            "lookup": stack.port(stack.folder / "lookup-port"),
            "agent": stack.port(stack.metrics_file(AGENT)),
        }
        with running_prometheus(folder / "prometheus", ports) as prometheus:
            time.sleep(_BEFORE_S)  # before its first scrapes everything is absent
            started_s = time.time()
            _play(stack)
            time.sleep(_AFTER_S)  # what happened last is scraped, and its rules are evaluated
            yield EventfulRun(
                stack=stack, prometheus=prometheus, started_s=started_s, ended_s=time.time()
            )


def _play(stack: Stack) -> None:
    topics = [f"persistent://demo/one/topic-{number}" for number in range(20)]
    stack.wait("the service to answer lookups", lambda: stack.lookup(topics[0])[0] == 200)
    for topic in topics:
        assert stack.lookup(topic)[0] == 200
    _wait_for_effect(stack)
    _do(stack, "split", "split_bundle", {"namespace": "demo/one", "which": "LARGEST", "parts": 2})
    _send_nonsense(stack)
    _hang_and_fail(stack)
    owners = stack.owners()
    bundle = min(name for name, owner in owners.items() if name.startswith("demo/two/"))
    other = next(b for b in ("broker-1", "broker-3") if b != owners[bundle])
    _do(stack, "force", "override_bundle", {"bundle": bundle, "destination": other})
    stack.fleet(f"/kill/{CRASHED}", "POST")
    stack.wait("the crash to be repaired", lambda: CRASHED not in stack.owners().values())
    for topic in topics:
        stack.lookup(topic)
    stack.command("drain", "drain_broker", {"broker": DRAINED})
    stack.wait("a drain to begin", lambda: stack.outcome("drain") in ("accepted", "done"))


def _wait_for_effect(stack: Stack) -> None:
    """Let bundles be moved off the hotspot, until what became of one is known."""
    for switch in (True, False):
        values = {"shedding.is_shedding": switch}
        _do(stack, f"sheds {switch}", "set_config", {"values": values})
        stack.wait("the effect of a move", lambda: stack.rows("decision_effects"))


def _hang_and_fail(stack: Stack) -> None:
    """Give the slow service a bundle that it opens too slowly, and one that it can't open."""
    for name in (SLOW, FAILING):
        _do(stack, f"create {name}", "create_namespace", {"namespace": name, "bundles": 1})
    for name in (SLOW, FAILING):
        bundle = f"{name}/{WHOLE}"
        stack.wait(f"{bundle} to be owned", lambda bundle=bundle: bundle in stack.owners())
        arguments = {"bundle": bundle, "destination": AGENT}
        stack.command(f"unload {name}", "unload_bundle", arguments)
    stack.wait("a repair", lambda: _repairs(stack) >= {"never_opened", "cannot_serve"})


def _repairs(stack: Stack) -> set[str]:
    return {str(row["reason"]) for row in stack.rows("decisions") if row["kind"] == "repair"}


def _do(stack: Stack, command_id: str, kind: str, arguments: dict[str, object]) -> None:
    stack.command(command_id, kind, arguments)
    stack.wait(f"{kind} to be done", lambda: stack.outcome(command_id) == "done")


def _send_nonsense(stack: Stack) -> None:
    sender = Sender(stack.address("agent"), "nonsense")
    sender.send(Topic.BROKER_LOAD, "local/nobody", b"no JSON at all")
    sender.close(timeout_ms=10_000)
    stack.wait("the refusal of a message", lambda: stack.rows("rejected_reports"))
