"""The service of docs/agent.md under a client that never rests; it notes what happens and when.

Runs in an agent's process (`--service tests.support.processes.fenced_service:make`), with
word_store.py on its path.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from jobs.agent import Callbacks
from lbcore.model.bundles import Bundle
from tests.support.processes.fenced_notes import Hold, Notes, topic_of

word_store: Any = import_module("word_store")  # written from the page by the test
_REST_S = 0.05


class NotingStore(word_store.Store):
    """The documented store; a write that is held hangs between its permit and its transaction."""

    def __init__(self, path: str, notes: Notes, hold: Hold) -> None:
        super().__init__(path)
        self.notes = notes
        self.hold = hold

    def append(self, bundle: Bundle, token: int, topic: str, line: str) -> None:
        began_ns = time.monotonic_ns()
        if self.hold.is_on(bundle.name):
            self.notes.write("held", bundle.name, token)
            while self.hold.is_on(bundle.name):
                time.sleep(_REST_S)
        try:
            super().append(bundle, token, topic, line)
        except word_store.StaleTokenError:
            self.notes.write("refused", bundle.name, token, began_ns)
            raise
        self.notes.write("used", bundle.name, token, began_ns)


def use_for_ever(service: Any, notes: Notes, line: str) -> None:
    while True:
        for bundle in list(service.bundles.values()):
            use(service, notes, bundle, line)
        time.sleep(_REST_S)


def use(service: Any, notes: Notes, bundle: Bundle, line: str) -> None:
    try:
        service.append(topic_of(bundle), line)
    except word_store.StaleTokenError:
        return  # the store has noted it
    except word_store.NotServedError:
        notes.write("not_served", bundle.name, 0)


def noting(notes: Notes, what: str, call: Callable[[str, int], None]) -> Callable[[str, int], None]:
    """A callback that is noted when it has returned."""

    def called(bundle: str, token: int) -> None:
        call(bundle, token)
        notes.write(what, bundle, token)

    return called


def make() -> Callbacks:
    """The service; its files are named by the environment."""
    notes = Notes(Path(os.environ["FENCED_NOTES"]))
    store = NotingStore(os.environ["WORD_STORE"], notes, Hold(Path(os.environ["FENCED_HOLD"])))
    service = word_store.WordStore(store)
    words = (service, notes, os.environ["FENCED_LINE"])
    threading.Thread(target=use_for_ever, args=words, daemon=True).start()
    made = word_store.callbacks_of(service)
    return replace(
        made,
        open=noting(notes, "opened", made.open),
        close=noting(notes, "closed", made.close),
    )
