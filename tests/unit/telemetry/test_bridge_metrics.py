"""What the bridge counts is what it declares, each number where it belongs."""

from prometheus_client import CollectorRegistry

from jobs.telemetry.bridge_metrics import BRIDGE_METRICS, SPLIT, UNLOAD, BridgeMetrics
from lbcore.bridge.mirror import Look
from lbcore.wire.messages import AckOutcome

LOOK = Look(
    owned={"a": frozenset({"t/n/0x00000000_0x80000000"}), "b": None}, incarnations={}, namespaces={}
)


def counted() -> BridgeMetrics:
    """A bridge that has done each thing at least once."""
    made = BridgeMetrics("local")
    made.show_acting(is_acting=True)
    made.count_look(LOOK)
    made.count_failed_look()
    made.show_mirror(differences=3, working=2)
    made.show_messages(delivered=5, not_delivered=1)
    made.show_messages(delivered=9, not_delivered=1)
    made.count_asked(UNLOAD)
    made.count_asked(SPLIT)
    made.count_not_done(is_refusal=True)
    made.count_not_done(is_refusal=False)
    made.count_answer(AckOutcome.CLOSED)
    made.count_load_error("a")
    made.count_load_error("b")
    made.show_unread(["not_allowed", "not_allowed", "html_page"])
    made.count_unreported("cpu")
    return made


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, {"cluster": "local", **labels})


def test_every_metric_that_is_declared_has_a_series() -> None:
    families = {family.name for family in counted().registry.collect() if family.samples}
    assert {metric.name.removesuffix("_total") for metric in BRIDGE_METRICS} <= families


def test_numbers_are_what_was_counted() -> None:
    registry = counted().registry
    assert value(registry, "ballast_bridge_acting") == 1
    assert value(registry, "ballast_bridge_brokers") == 2
    assert value(registry, "ballast_bridge_silent_brokers") == 1
    assert value(registry, "ballast_bridge_bundles") == 1
    assert value(registry, "ballast_bridge_differences") == 3
    assert value(registry, "ballast_bridge_unread", reason="not_allowed") == 2
    assert value(registry, "ballast_bridge_unread", reason="no_answer") == 0
    assert value(registry, "ballast_bridge_unreported_total", field="cpu") == 1
    assert value(registry, "ballast_bridge_messages_total", result="delivered") == 9
    assert value(registry, "ballast_bridge_messages_total", result="not_delivered") == 1
    assert value(registry, "ballast_bridge_polls_total", result="failed") == 1
    assert value(registry, "ballast_bridge_failed_requests_total", result="refused") == 1
    assert value(registry, "ballast_bridge_answers_total", outcome="closed") == 1
    assert value(registry, "ballast_bridge_answers_total", outcome="failed") == 0


def test_series_of_a_broker_that_is_gone_go_with_it() -> None:
    made = counted()
    made.keep_brokers(["b"])
    errors = "ballast_bridge_load_errors_total"
    assert value(made.registry, errors, broker="a") is None
    assert value(made.registry, errors, broker="b") == 1
