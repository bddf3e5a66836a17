"""A service for `ballast run-agent` whose open bundles are files, for a judge to see."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np

from jobs.agent import Callbacks, LoadRead
from lbcore.model.resources import COUNT, complete

FOLDER_VARIABLE = "BALLAST_SOAK_OPEN"
"""The folder in which an agent says what it has open: a file a bundle, with the token in it."""


def open_in(folder: Path) -> list[str]:
    """The bundles that the agent of this folder has open."""
    return sorted(unquote(path.name) for path in folder.glob("*"))


class FileService:
    """Its open bundles are files in the folder. usage: of the CPU without any, in percent."""

    usage = 10.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*"):  # of a life before this one
            path.unlink()

    def open(self, bundle: str, token: int) -> None:
        self._file(bundle).write_text(str(token))

    def close(self, bundle: str, token: int) -> None:
        assert token > 0
        self._file(bundle).unlink(missing_ok=True)

    def split(self, bundle: str, children: Sequence[str], token: int) -> None:
        for child in map(str, children):
            self.open(child, token)
        self.close(bundle, token)

    def load(self) -> LoadRead:
        names = tuple(open_in(self.folder))
        return LoadRead(
            usage=np.array(complete([self.usage + len(names)])),
            limit=np.full(COUNT, 100.0),
            traffic=np.ones(4),
            bundles=names,
            stats=np.ones((len(names), 8)),
        )

    def callbacks(self) -> Callbacks:
        return Callbacks(load=self.load, open=self.open, close=self.close, split=self.split)

    def _file(self, bundle: str) -> Path:
        return self.folder / quote(bundle, safe="")


def make() -> Callbacks:
    """What `ballast run-agent` asks for."""
    return FileService(Path(os.environ[FOLDER_VARIABLE])).callbacks()
