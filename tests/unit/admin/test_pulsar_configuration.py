"""pulsar-admin changes the configuration: what goes together, and what is refused with a reason."""

import asyncio
from pathlib import Path
from time import time_ns

import pytest

from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from lbcore.config.pulsar_keys import resolve_changes
from lbcore.config.tree import Config
from lbcore.validation.check import require_suitable
from lbcore.validation.dynamic import with_dynamic
from tests.support.admin.admin_world import Balancer, make_context, write_tables
from tests.support.admin.asgi_calls import Answer, ask


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("configuration") / "tables"
    writer = write_tables(made)
    writer.now_ms = time_ns() // 1_000_000 + 3_600_000  # not silent, however slow the machine
    writer.events([])
    return made


def send(root: Path, method: str, path: str, *, balancer: Balancer) -> Answer:
    app = AdminApp(make_context(root, balancer), ROUTES)
    return asyncio.run(ask(app, path, method=method))


CONFIGURATION = "/admin/v2/brokers/configuration"
STRATEGY = f"{CONFIGURATION}/loadBalancerLoadSheddingStrategy"
IMPL = "org.apache.pulsar.broker.loadbalance.impl"


@pytest.mark.parametrize(
    ("value", "placement"),
    [
        ("ThresholdShedder", "least_long_term_message_rate"),
        (f"{IMPL}.UniformLoadShedder", "least_long_term_message_rate"),
        ("TransferShedder", "least_resource_usage_with_weight"),
        ("ballast", "ballast"),
    ],
)
def test_a_strategy_takes_along_the_placement_that_must_change_with_it(
    root: Path, value: str, placement: str
) -> None:
    balancer = Balancer()
    assert send(root, "POST", f"{STRATEGY}/{value}", balancer=balancer).status == 200
    (command,) = balancer.commands
    key = "loadBalancerLoadSheddingStrategy"
    values = {key: value, "placement.strategy": placement}
    assert command.arguments == {"values": values}
    assert require_suitable(with_dynamic(Config(), resolve_changes(values)))


def test_a_strategy_that_suits_the_placement_is_changed_alone(root: Path) -> None:
    balancer = Balancer()
    assert send(root, "POST", f"{STRATEGY}/AvgShedder", balancer=balancer).status == 200
    values = {"loadBalancerLoadSheddingStrategy": "AvgShedder"}
    assert balancer.commands[0].arguments == {"values": values}


@pytest.mark.parametrize("name", ["no.such.Class", f"{IMPL}.ModularLoadManagerImpl", "x" * 300])
def test_a_load_manager_can_not_be_changed_while_running(root: Path, name: str) -> None:
    balancer = Balancer()
    answer = send(root, "POST", f"{CONFIGURATION}/loadManagerClassName/{name}", balancer=balancer)
    assert answer.status == 412
    assert answer.json["reason"] == "Can't update non-dynamic configuration"
    assert balancer.commands == []
