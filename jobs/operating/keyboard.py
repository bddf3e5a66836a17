"""Keys of a terminal one by one, and the terminal as it was before, whatever ends the program.

Decides the names of keys: a letter is itself, arrows are up, down, left, right; enter, escape.
Source: ECMA-48 (cursor keys as CSI A to D, or SS3 in application mode).
"""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_PLAIN = {"\r": "enter", "\n": "enter"}
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Keyboard:
    """Reads keys of a terminal that is in cbreak mode."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def keys(self, timeout_s: float) -> list[str]:
        """The keys since the last call; waits for the first at most so long."""
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return []
        text = os.read(self._descriptor, 1_024).decode("utf-8", "replace")
        if not text:  # the terminal is gone
            return ["q"]
        return list(parse_keys(text))


def parse_keys(text: str) -> Iterator[str]:
    """The names of the keys that sent these characters; unknown sequences are left out."""
    at = 0
    while at < len(text):
        if text[at] != "\x1b":
            yield _PLAIN.get(text[at], text[at])
            at += 1
        elif text[at + 1 : at + 2] in ("[", "O"):
            end = at + 2
            while end < len(text) and not "@" <= text[end] <= "~":
                end += 1
            if end == at + 2 and text[end : end + 1] in _ARROWS:
                yield _ARROWS[text[end]]
            at = end + 1
        else:
            yield "escape"
            at += 1


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """The terminal's keyboard; Ctrl-C, SIGTERM and SIGHUP end the program in order."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    handlers = {number: signal.signal(number, _end) for number in _ENDING}
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)
