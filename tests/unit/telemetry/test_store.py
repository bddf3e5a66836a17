"""The store of numbers: labels as declared, series replaced whole, histograms that add up."""

import pytest
from prometheus_client import generate_latest

from jobs.telemetry.declared import counter, gauge, histogram
from jobs.telemetry.store import MetricStore
from tests.support.worlds.measured_world import samples_of, total


def store() -> MetricStore:
    return MetricStore(
        [
            counter("x_total", "X.", "cluster", "broker"),
            gauge("y", "Y.", "cluster", "broker"),
            histogram("z", "Z.", (1.0, 5.0), "cluster", "broker"),
        ]
    )


def read(found: MetricStore) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return samples_of(generate_latest(found.registry()).decode())


def test_counter_adds_up_by_labels() -> None:
    made = store()
    made.add("x_total", "c", "b1")
    made.add("x_total", "c", "b1", by=2)
    made.add("x_total", "c", "b2")
    assert total(read(made), "x_total", broker="b1") == 3
    assert total(read(made), "x_total", cluster="c") == 4


class _Counted(str):
    """A label that counts how often it is looked at."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        _Counted.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        _Counted.looks += 1
        return super().__eq__(other)


def test_series_of_other_clusters_cost_one_cluster_nothing() -> None:
    """Else fifty clusters cost 2,500 times what one does, in each batch."""
    made = store()
    for number in range(50):
        made.replace("y", {(_Counted("b1"),): 1.0}, _Counted(f"c{number}"))
    _Counted.looks = 0
    made.replace("y", {("b1",): 2.0}, "d")
    assert _Counted.looks == 0


def test_replaced_series_are_gone_for_their_cluster_alone() -> None:
    made = store()
    made.replace("y", {("b1",): 1.0, ("b2",): 2.0}, "c")
    made.replace("y", {("b1",): 5.0}, "other")
    made.replace("y", {("b2",): 3.0}, "c")
    assert {tuple(dict(k).values()): v for k, v in read(made)["y"].items()} == {
        ("b2", "c"): 3.0,
        ("b1", "other"): 5.0,
    }


def test_histogram_is_cumulative() -> None:
    made = store()
    for value in (0.5, 1.0, 3.0, 9.0):
        made.observe("z", value, "c", "b")
    found = read(made)
    assert [total(found, "z_bucket", le=le) for le in ("1.0", "5.0", "+Inf")] == [2, 3, 4]
    assert (total(found, "z_sum"), total(found, "z_count")) == (13.5, 4)


def test_broker_that_is_gone_loses_all_its_series() -> None:
    made = store()
    for broker in ("b1", "b2", "balancer"):
        made.add("x_total", "c", broker)
        made.observe("z", 1, "c", broker)
    made.keep_brokers("c", ["b1"])
    found = read(made)
    for name in ("x_total", "z_count"):
        assert {dict(key)["broker"] for key in found[name]} == {"b1", "balancer"}


def test_labels_that_are_not_the_declared_ones_are_a_bug() -> None:
    with pytest.raises(ValueError, match="labels of x_total must be"):
        store().add("x_total", "c")


def test_metric_that_is_declared_twice_is_a_bug() -> None:
    with pytest.raises(ValueError, match="must be declared once"):
        MetricStore([gauge("y", "Y."), gauge("y", "Y.")])
