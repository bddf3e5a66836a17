"""A checked world whose job may read late: a batch that hangs, a backlog read in pieces."""

from lbcore.config.tree import Config
from lbcore.machines.tracks import RawMessage
from tests.checked_world import CheckedWorld


class LaggingWorld(CheckedWorld):
    """A CheckedWorld. read_until_ms: the job sees nothing of the log that is later."""

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.read_until_ms: int | None = None
        super().__init__(config, brokers, seed=seed)

    def _read_log(self) -> dict[int, list[RawMessage]]:
        if self.read_until_ms is None:
            return super()._read_log()
        whole = dict(self.log)
        for place, messages in whole.items():
            seen = [m for m in messages if m.position.timestamp_ms <= self.read_until_ms]
            self.log[place] = seen
        found = super()._read_log()
        self.log.update(whole)
        return found
