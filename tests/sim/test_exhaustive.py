"""Every world of a small cluster, over the production Machines: no rule is ever broken.

See tests/exhaustive: two brokers, two bundles, messages that are lost, doubled and late, a split, a
crash, a freeze. A failure tells the shortest way to it.
"""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from lbcore.agent.lease import Lease
from lbcore.ownership import holding
from tests.exhaustive.scenarios import MOST_WORLDS, SCENARIOS
from tests.exhaustive.search import Search
from tests.exhaustive.small_worlds import BrokenWorldError

FEW = 3_000
TEN_MILLION = 10_000_000


def search(name: str, most: int) -> Search:
    found = Search(SCENARIOS[name])
    for _ in found.run(most):
        pass
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_small_cluster_in_each_of_many_worlds_breaks_no_rule(name: str) -> None:
    found = search(name, FEW)
    assert found.is_complete or found.worlds >= FEW


@pytest.mark.parametrize(
    ("name", "owner", "part", "broken"),
    [
        ("frozen-lease", Lease, "until_ms", lambda *_: 2**62),
        ("answers-token", holding, "_is_served", lambda _: True),
    ],
)
def test_small_cluster_with_a_broken_part_is_caught(
    name: str,
    owner: type | ModuleType,
    part: str,
    broken: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, part, broken)
    with pytest.raises((BrokenWorldError, AssertionError)):
        search(name, TEN_MILLION)


@pytest.mark.long
def test_small_cluster_in_ten_million_worlds_breaks_no_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    total = 0
    for name, most in MOST_WORLDS.items():
        found = search(name, most)
        total += found.worlds
        with capsys.disabled():
            sys.stderr.write(f"{name}: {found.worlds} worlds, complete: {found.is_complete}\n")
    with capsys.disabled():
        sys.stderr.write(f"{total} different worlds in all\n")
    assert total >= TEN_MILLION
