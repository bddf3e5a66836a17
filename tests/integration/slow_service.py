"""A service whose bundles of one namespace open too slowly, and of another not at all."""

import time
from collections.abc import Sequence

import numpy as np

from jobs.agent import Callbacks, LoadRead
from lbcore.model.resources import COUNT, complete

SLOW, FAILING = "demo/slow", "demo/failing"
_SLOW_S = 600.0


class _Service:
    def __init__(self) -> None:
        self.bundles: set[str] = set()

    def open(self, bundle: str, token: int) -> None:
        if bundle.startswith(f"{FAILING}/"):
            raise RuntimeError(f"{bundle} can't be opened with {token}: its data are damaged")
        if bundle.startswith(f"{SLOW}/"):
            time.sleep(_SLOW_S)
        self.bundles.add(bundle)

    def close(self, bundle: str, token: int) -> None:
        assert token > 0
        self.bundles.discard(bundle)

    def split(self, bundle: str, children: Sequence[str], token: int) -> None:
        assert token > 0
        self.bundles.discard(bundle)
        self.bundles.update(map(str, children))

    def load(self) -> LoadRead:
        names = tuple(sorted(self.bundles))
        return LoadRead(
            usage=np.array(complete([2.0])),
            limit=np.full(COUNT, 100.0),
            traffic=np.ones(4),
            bundles=names,
            stats=np.zeros((len(names), 8)),
        )


def make() -> Callbacks:
    service = _Service()
    return Callbacks(load=service.load, open=service.open, close=service.close, split=service.split)
