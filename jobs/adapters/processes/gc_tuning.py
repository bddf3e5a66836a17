"""Keeps Python's garbage collector from holding the service and the job up.

Decides when all objects are looked through: never all at once. A full pass takes 0.1 s for 100,000
bundles, in whichever thread it comes, and lookups wait for it; by itself Python makes one whenever
its count says so. So only young objects are collected by themselves, and four times a second what
has grown old since is looked through, if that is little, and then taken out of all further passes:
what is held of the tables has no cycles and goes by its reference counts. The job only makes its
full passes rarer: a batch that repairs tens of thousands of bundles makes a million objects, and
Python looks through all there are again and again, which was up to a third of its time. Source:
ours; CPython's `gc.freeze` and its three generations.
"""

import gc
import threading

_PAUSE_S = 0.25
_RARELY = 1_000
"""Passes of the second generation before a full one: seven million objects more than have gone."""
_NEVER = 1 << 30
_PASSES_MAX = 4
"""Of the second generation; about 7,000 objects have grown old in each."""


def limit_gc_pauses(stopped: threading.Event) -> None:
    """Look after the heap until `stopped` is set, or for good; of the whole process."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    while not stopped.wait(_PAUSE_S):
        settle()


def raise_gc_thresholds() -> None:
    """Let full passes come a hundred times more rarely than by themselves, in this process."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _RARELY)


def settle() -> None:
    """Take what is there out of further passes; what it holds of garbage first, if it is little."""
    passes = gc.get_count()[2]
    if not passes:
        return
    if passes <= _PASSES_MAX:
        gc.collect()
    gc.freeze()
