"""pulsar-admin changes the configuration: what goes together, and what is refused with a reason."""

import asyncio
from pathlib import Path
from time import time_ns

import pytest

from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from lbcore.config.pulsar_keys import named_by, resolve_changes
from lbcore.config.tree import SETTINGS, Config, changed, value_of
from lbcore.config.values import ConfigError
from lbcore.pulsar.dynamic_config import (
    changes_of,
    check_dynamic,
    dynamic_names,
    overrides,
    resets_of,
)
from lbcore.validation.check import require_suitable, with_dynamic
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
        (f"{IMPL}.UniformLoadShedder", {"placement.strategy": "least_long_term_message_rate"}),
        ("AvgShedder", {"placement.strategy": "avg"}),
        ("ballast", {}),  # it suits the placement
    ],
)
def test_a_strategy_takes_along_the_placement_that_must_change_with_it(
    root: Path, value: str, placement: dict[str, str]
) -> None:
    balancer = Balancer()
    assert send(root, "POST", f"{STRATEGY}/{value}", balancer=balancer).status == 200
    (command,) = balancer.commands
    values = {"loadBalancerLoadSheddingStrategy": value, **placement}
    assert command.arguments == {"values": values}
    assert require_suitable(with_dynamic(Config(), resolve_changes(values)))


def test_a_class_that_pulsars_manager_cannot_load_is_refused(root: Path) -> None:
    balancer = Balancer()
    answer = send(root, "POST", f"{STRATEGY}/TransferShedder", balancer=balancer)
    assert answer.status == 412
    assert answer.json["reason"].count("none of the modular manager's") == 1
    assert balancer.commands == []
    extensible = changed(Config(), {"filters.pipeline": "extensible"})
    key = "loadBalancerLoadSheddingStrategy"
    values = changes_of(key, "TransferShedder", extensible)
    assert values == {
        key: "TransferShedder",
        "placement.strategy": "least_resource_usage_with_weight",
    }
    both = changed(extensible, resolve_changes(values))
    with pytest.raises(ConfigError, match="none of the modular manager's"):
        changes_of("filters.pipeline", "modular", both)


def test_names_that_are_listed_accepted_and_deleted_are_the_same() -> None:
    names = dynamic_names()
    assert "filters.pipeline" in names
    assert "loadManagerClassName" not in names
    for name, entry in SETTINGS.items():
        if entry.setting.dynamic:
            (listed,) = overrides({name: value_of(Config(), entry)})
            assert check_dynamic(listed, "delete") in names
            assert name in named_by(listed)
            assert resets_of(listed, Config(), {name: value_of(Config(), entry)})[0] == listed
    assert overrides({"filters.pipeline": "extensible"}) == {"filters.pipeline": "extensible"}
    assert overrides({"of.tomorrow": 3}) == {"of.tomorrow": "3"}


@pytest.mark.parametrize("value", ["abc", "-1", "1e999", "nan", ""])
def test_a_refused_value_is_told_once_whatever_its_key_means(value: str) -> None:
    def refusal(key: str) -> str:
        try:
            with_dynamic(Config(), resolve_changes({key: value}))
        except ConfigError as error:
            return str(error)
        return ""

    refusals = [told for told in map(refusal, dynamic_names()) if told]
    assert refusals
    assert not [told for told in refusals if "<object" in told]
    sentences = [told.split("; ") for told in refusals]
    assert not [parts for parts in sentences if len(parts) != len(set(parts))]


@pytest.mark.parametrize("name", ["no.such.Class", f"{IMPL}.ModularLoadManagerImpl", "x" * 300])
def test_a_load_manager_can_not_be_changed_while_running(root: Path, name: str) -> None:
    balancer = Balancer()
    answer = send(root, "POST", f"{CONFIGURATION}/loadManagerClassName/{name}", balancer=balancer)
    assert answer.status == 412
    assert answer.json["reason"] == "Can't update non-dynamic configuration"
    assert balancer.commands == []
