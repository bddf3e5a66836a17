"""Check, while the job runs, that the topics are still the same.

Decides when one is lost: two looks in a row must find it gone or made anew, so that a node of Kafka
that has only just started is not taken at its word; a Kafka that doesn't answer says nothing. Spark
alone would notice late (a task that waits for a message of a topic that is gone waits for minutes,
and is tried again) or, where the topic was made anew meanwhile, not at all.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.console import CommandError

_LOOK_S = 2.0
_LOOKS = 2


class TopicWatch:
    """Holds topics against the ids that they had at the start, in a thread of its own.

    ids: name → Kafka's id. Use as a context manager.
    """

    def __init__(
        self, address: KafkaAddress, ids: Mapping[str, str], *, look_s: float = _LOOK_S
    ) -> None:
        self._address = address
        self._ids = ids
        self._look_s = look_s
        self._suspects: Mapping[str, str] = {}
        self._times = 0
        self._admin: Any = None
        self._asking = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic-watch", daemon=True)

    def __enter__(self) -> "TopicWatch":  # noqa: PYI034 (Self is 3.11's)
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._stopped.set()
        self._thread.join(timeout=5)

    def loss(self) -> CommandError | None:
        """Return the error of lost topics, to end the job with; None = all exist."""
        suspects, times = self._suspects, self._times
        return _loss(suspects) if times >= _LOOKS and suspects else None

    def look(self) -> CommandError | None:
        """The same by one look, for a query that has ended: its end is the other sign."""
        lost = self._lost()
        return _loss(lost) if lost else None

    def _run(self) -> None:
        while not self._stopped.wait(self._look_s):
            lost = self._lost()
            self._times = self._times + 1 if lost else 0
            self._suspects = lost
        with self._asking:
            if self._admin is not None:
                self._admin.close()

    def _lost(self) -> Mapping[str, str]:
        with self._asking:
            try:
                options = self._address.client_options("topic-watch")
                self._admin = self._admin or KafkaAdminClient(**options)
                return lost_topics(self._admin.describe_topics, self._ids)
            except KafkaError:
                return {}


def lost_topics(
    describe: Callable[[list[str]], list[dict[str, Any]]], ids: Mapping[str, str]
) -> dict[str, str]:
    """Return topic → "deleted" or "made anew", for topics that changed.

    describe: KafkaAdminClient's. A topic that Kafka can't describe for another reason is left out.
    """
    lost = {}
    for found in describe(sorted(ids)):
        if found["error_code"] == UnknownTopicOrPartitionError.errno:
            lost[found["name"]] = "deleted"
        elif not found["error_code"] and str(found["topic_id"]) != ids[found["name"]]:
            lost[found["name"]] = "made anew"
    return lost


def _loss(lost: Mapping[str, str]) -> CommandError:
    said = ", ".join(f"{name} was {what}" for name, what in sorted(lost.items()))
    return CommandError(
        "the job has ended, because it has lost topics",
        why=f"{said} in Kafka while the job was at work, so what it has read and told is gone; "
        "owners are safe in the tables",
        next_step="run `ballast topics ensure` and start the job again: it rebuilds its state from "
        "the tables and sends every record anew",
    )
