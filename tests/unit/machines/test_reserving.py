"""Rows for namespaces that one batch creates: made once, taken back when they got no record."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.state.batch_context import BalancerState
from lbcore.balancer.state.ledger import Ledger
from lbcore.config.tree import Config
from lbcore.scorer.group_update import Arrivals, GroupUpdate, Placed
from lbcore.wire.messages import Command, Position


def after(state: BalancerState | None, *asked: Mapping[str, Any]) -> BalancerState:
    placed = tuple(
        Placed(
            position=Position(topic="commands", partition=0, offset=i, timestamp_ms=0),
            message=Command(
                cluster="c", command_id=f"{len(asked)}-{i}", kind="create_namespace", arguments=a
            ),
        )
        for i, a in enumerate(asked)
    )
    none = np.empty(0, dtype=np.int64)
    arrivals = Arrivals(partition=none, offset=none, timestamp_ms=none, broker=none)
    update = GroupUpdate(
        group=0, brokers=(), incarnations=(), arrivals=arrivals, loads=(), bundles=(), placed=placed
    )
    step = ClusterBalancer(cluster="c", config=Config()).step(state, [update], 1_000)
    assert step.state is not None
    return step.state


def spaces(count: int) -> list[dict[str, Any]]:
    return [{"namespace": f"t/n{count - i}", "bundles": 4} for i in range(count)]


@pytest.mark.parametrize("count", [2, 40])
def test_many_namespaces_of_a_batch_add_their_rows_at_once(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown: list[int] = []
    original = Ledger.add

    def counted(self: Ledger, names: Iterable[str]) -> None:
        before = len(self)
        original(self, names)
        grown.extend([len(self)] * (len(self) > before))

    monkeypatch.setattr(Ledger, "add", counted)
    state = after(None, *spaces(count))
    assert grown == [4 * count]
    assert all(state.ledger.record(name) is not None for name in state.ledger.names)


def test_namespaces_created_together_are_the_same_as_one_after_another() -> None:
    together = after(None, *spaces(3))
    alone: BalancerState | None = None
    for number, space in enumerate(spaces(3)):
        alone = after(alone, *[{"namespace": "bad"}] * (number + 4), space)
    assert alone is not None
    assert alone.ledger.names == together.ledger.names
    assert [alone.ledger.version.tolist(), alone.ledger.state.tolist()] == [
        together.ledger.version.tolist(),
        together.ledger.state.tolist(),
    ]


def test_rows_for_namespaces_that_are_refused_are_taken_back() -> None:
    before = after(None, {"namespace": "t/a", "bundles": 2})
    asked = [
        {"namespace": "t/a", "bundles": 4},
        {"namespace": "t/c", "bundles": 3},
        {"namespace": "t/c", "bundles": 5},
    ]
    names = after(before, *asked).ledger.names
    assert [name for name in names if name.startswith("t/a")] == before.ledger.names
    assert len([name for name in names if name.startswith("t/c")]) == 3
    assert len(names) == 5
