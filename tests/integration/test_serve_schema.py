"""A running service keeps to its own OpenAPI document, whatever is asked within it or beside it."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, BaseSchema, Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tests.support.admin.admin_world import BROKERS, write_tables
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import bundles_of

pytestmark = pytest.mark.long

EXAMPLES = 6
"""Of each kind (as the document says, and not so) for each operation."""
WITHOUT_END = ["/v1/watch"]
BUNDLE = bundles_of("acme/ns1", 4)[0]
KNOWN = {
    "tenant": "acme",
    "namespace": "ns1",
    "range": BUNDLE.rpartition("/")[2],
    "broker": BROKERS[0],
    "kind": "unload_bundle",
}
load_all_checks()
HELD = [
    *CHECKS.get_by_names(
        [
            "status_code_conformance",
            "content_type_conformance",
            "response_headers_conformance",
            "response_schema_conformance",
        ]
    )
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    """Without Kafka's address: what would be a command is refused once it is understood."""
    tables = tmp_path_factory.mktemp("schema") / "tables"
    write_tables(tables)
    running = LookupService(tables, "--poll-ms", "20", "--wait-ms", "0")
    running.wait_ready()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def document(service: LookupService) -> dict[str, Any]:
    return dict(service.get("/v1/openapi.json").json)


def schema_of(document: dict[str, Any]) -> BaseSchema:
    return (
        schemathesis.openapi.from_dict(document)
        .include(path_regex="^/v1/")
        .exclude(path=WITHOUT_END)
    )


def operations(document: dict[str, Any]) -> list[APIOperation]:
    return [found.ok() for found in schema_of(document).get_all_operations()]


def ask_all(operation: APIOperation, base_url: str) -> Counter[int]:
    """The statuses of many requests, every other one about names that exist; all are checked."""
    statuses: Counter[int] = Counter()
    numbers = itertools.count()

    def ask(case: Case) -> None:
        if next(numbers) % 2:
            known = {name: KNOWN.get(name, value) for name, value in case.path_parameters.items()}
            case.path_parameters = known
        response = case.call(base_url=base_url, timeout=20)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=HELD)

    for mode in GenerationMode:  # type: ignore[attr-defined]
        bounded = settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        bounded(given(case=operation.as_strategy(generation_mode=mode))(ask))()
    return statuses


def test_service_answers_as_its_document_says(
    service: LookupService, document: dict[str, Any]
) -> None:
    found = {
        one.label: ask_all(one, f"http://127.0.0.1:{service.port}") for one in operations(document)
    }
    own = [said for path, said in document["paths"].items() if path.startswith("/v1/")]
    assert len(found) == sum(map(len, own)) - len(WITHOUT_END)
    assert sum(map(Counter.total, found.values())) >= EXAMPLES * len(found)
    everything = sum(found.values(), Counter[int]())
    assert everything.keys() >= {200, 400, 404, 503}
    assert everything.keys() <= {200, 400, 404, 409, 415, 503}
    for label in ("GET /v1/plan", "GET /v1/ownership", "POST /v1/lookups", "GET /v1/status"):
        assert found[label][200], (label, found[label])
    commands = "POST /v1/commands/{kind}"
    assert found[commands][503], found[commands]
    assert service.get("/health").status == 200
