"""The last batch of a job that ends: none after it is written. Source: ours."""

import math


class LeftError(RuntimeError):
    """A batch that begins while the job ends: nothing of it is written, the next job does it."""


class LastBatch:
    """Of two threads: one writes batches, the other one lets that end."""

    def __init__(self) -> None:
        self._begun, self._last = -1, math.inf

    def begin(self, batch_id: int) -> None:
        """Begin to write a batch; raises LeftError where the last one was before it."""
        self._begun = batch_id  # before it looks: the other thread sees this, or this one its word
        if batch_id > self._last:
            message = f"the job ends after batch {self._last} and leaves {batch_id} to the next one"
            raise LeftError(message)

    def end_with(self, batch_id: int) -> int:
        """Let no batch after this one be written; the last: a newer one that has begun to be."""
        self._last = batch_id
        return max(batch_id, self._begun)
