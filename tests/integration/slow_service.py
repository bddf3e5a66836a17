"""A service whose bundles of one namespace open too slowly, and of another not at all."""

import tempfile
import time
from pathlib import Path

from jobs.agent import Callbacks
from tests.soak.service import FileService

SLOW, FAILING = "demo/slow", "demo/failing"
_SLOW_S = 600.0


class _Service(FileService):
    usage = 2.0

    def open(self, bundle: str, token: int) -> None:
        if bundle.startswith(f"{FAILING}/"):
            raise RuntimeError(f"{bundle} can't be opened with {token}: its data are damaged")
        if bundle.startswith(f"{SLOW}/"):
            time.sleep(_SLOW_S)
        super().open(bundle, token)


_FOLDER = tempfile.TemporaryDirectory()  # removed with the process


def make() -> Callbacks:
    return _Service(Path(_FOLDER.name)).callbacks()
