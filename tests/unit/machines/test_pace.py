"""The share of long work: as large as a batch bears, on quick machines and on slow ones."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from lbcore.balancer.state.batch_context import Times
from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.tasks.creations import keep_pace
from lbcore.config.tree import Config
from lbcore.ownership.records import State

MOST = Config().limits.bundles_made_max


@dataclass
class Opened:
    """Bundles that have been open for so long."""

    open_ms: list[int]
    state: Any = field(init=False)
    at_ms: Any = field(init=False)

    def __post_init__(self) -> None:
        self.state = np.full(len(self.open_ms), STATE_CODE[State.OWNED], dtype="u1")
        self.at_ms = -np.array(self.open_ms, dtype="<i8")


SERVED, NEW = 600_001, 600_000
"""For how long the oldest bundle of a cluster has been open."""


@dataclass
class Paced:
    """What `keep_pace` knows of a batch."""

    oldest_ms: int = SERVED
    now_ms: int = 0
    config: Config = field(default_factory=Config)
    times: Times = field(default_factory=lambda: Times(stepped_ms=1))
    wall_ms: int = 1

    @property
    def ledger(self) -> Opened:
        return Opened([0, self.oldest_ms])

    @property
    def share_made(self) -> int:
        return self.times.share or MOST

    def note(self, **times: Any) -> None:
        self.times = replace(self.times, **times)

    def follow(self, took_ms: float) -> None:
        """The next batch, so long after the last."""
        self.times = replace(self.times, stepped_ms=self.wall_ms)
        self.wall_ms += round(took_ms)
        keep_pace(self)  # type: ignore[arg-type]


def shares(base_ms: float, bundle_ms: float, oldest_ms: int = SERVED) -> list[tuple[int, float]]:
    """Each batch's share, and how long it took, where one takes so long and each bundle as much."""
    paced, found = Paced(oldest_ms=oldest_ms), []
    for _ in range(60):
        took_ms = max(1_000.0, base_ms + bundle_ms * paced.share_made)
        found.append((paced.share_made, took_ms))
        paced.follow(took_ms)
    return found


@pytest.mark.parametrize("base_ms", [300, 900, 1_300, 2_500, 8_000])
@pytest.mark.parametrize("bundle_ms", [0.05, 0.25, 1.0, 4.0])
def test_share_is_what_a_batch_bears_beside_what_it_takes_anyway(
    base_ms: float, bundle_ms: float
) -> None:
    later = shares(base_ms, bundle_ms)[20:]
    usual_ms = max(1_000.0, base_ms)
    assert all(took_ms - usual_ms <= 1_400 or share <= MOST // 16 for share, took_ms in later)
    fits = min(MOST, max(500.0 / bundle_ms, MOST / 32))
    assert sum(share for share, _ in later) / len(later) >= fits / 3


def test_one_jump_of_the_clock_costs_a_few_batches() -> None:
    paced = Paced(times=Times(stepped_ms=1, share=MOST, usual_ms=900))
    paced.follow(3_600_000)
    assert paced.share_made == MOST // 2
    for _ in range(3):
        paced.follow(1_000)
    assert paced.share_made == MOST


@pytest.mark.parametrize("base_ms", [300, 900, 1_300, 2_500, 8_000])
@pytest.mark.parametrize("bundle_ms", [0.05, 0.25, 0.5, 1.0, 4.0])
def test_new_cluster_is_made_in_longer_batches_and_sooner(base_ms: float, bundle_ms: float) -> None:
    later = shares(base_ms, bundle_ms, NEW)[20:]
    usual_ms = max(4_000.0, base_ms)
    assert all(took_ms - usual_ms <= 5_600 or share <= MOST // 16 for share, took_ms in later)
    fits = min(4 * MOST, max(2_000.0 / bundle_ms, MOST / 32))
    assert sum(share for share, _ in later) / len(later) >= fits / 3


def test_cluster_that_serves_makes_no_more_than_its_limit() -> None:
    paced = Paced(oldest_ms=NEW, times=Times(stepped_ms=1, share=4 * MOST))
    paced.oldest_ms = SERVED
    paced.follow(1_000)
    assert paced.share_made == MOST
