"""A run beside a real cluster: the processes of every run, and the bridge.

What is shown meanwhile is the caller's.
"""

import threading
from collections.abc import Callable, Sequence

from jobs.console import note
from jobs.local import stack
from jobs.local.own_processes import OwnProcesses

_POLL_S = 0.2


def run_attached(
    processes: OwnProcesses,
    bridge_words: Callable[[], Sequence[str]],
    stop: threading.Event,
    show: Callable[[], None],
) -> None:
    """Start, watch until told to stop, and end it all.

    bridge_words: asked for once all else runs; what must not be done by half is done there. show:
    called again and again. Raises CommandError when the start fails.
    """
    with processes:
        processes.start("bridge", lambda: stack.bridge_spec(processes.wiring, bridge_words()))
        while not stop.wait(_POLL_S):
            for news in processes.news():
                note(news)
            show()
        note("stopping")
        processes.supervisor.begin_stop(stack.JOB, stack.BRIDGE)
