"""The job's Machines in one process, fed with what the bridge reads.

Decides only the order of a batch: what brokers reported, what the mirror found, then the Machines,
in time that the caller gives. Messages stay values and nothing leaves the process. The same scorers
and balancer as the streaming job's, so the same decisions.
"""

from collections.abc import Iterable, Sequence

from lbcore.balancer.rebuild import newest_rows
from lbcore.bridge.mirror import Look, commands_of, compare
from lbcore.config.tree import Config
from lbcore.foresight.rehearse import RehearsalRows
from lbcore.model.tables import DECISIONS, LOAD_HISTORY
from lbcore.sim.engine.clock import Clock
from lbcore.sim.engine.job import REBUILT_FROM, Committed, Job
from lbcore.sim.engine.log import Log
from lbcore.sim.load.noise import RandomStream
from lbcore.wire.commands import format_arguments
from lbcore.wire.kinds.command_about import CommandArguments
from lbcore.wire.messages import Command, Message

_KEPT = REBUILT_FROM | {LOAD_HISTORY.name, DECISIONS.name}
_NEVER = 0


class Observer:
    """Scorers and balancer of one observed cluster. rows: by table, in their order."""

    def __init__(self, config: Config, cluster: str) -> None:
        """config: of the cluster; its authority is external, and it observes only."""
        self.config, self.cluster = config, cluster
        self._clock = Clock()
        self._log = Log(cluster, self._clock, RandomStream(_NEVER))
        self._job = Job(config, cluster, self._log, Committed(tables=_KEPT), lambda _: None)
        self.rows = self._job.committed.rows
        self._before: Look | None = None
        self._brokers: tuple[str, ...] = ()
        self._commands = 0

    def take(
        self,
        now_ms: int,
        messages: Iterable[Message],
        look: Look | None,
        told: Sequence[CommandArguments] = (),
    ) -> list[Command]:
        """Take one batch: the commands made of the look and of `told`, as they were read.

        now_ms: wall time of the batch, never before the last one's. look: None = nobody answered.
        """
        self._clock.now_ms = max(self._clock.now_ms, now_ms)
        for message in messages:
            broker = "" if isinstance(message, Command) else _broker_of(message)
            self._log.append(message, broker)
        commands = [self._command(one) for one in (*self._differences(look), *told)]
        for command in commands:
            self._log.append(command)
        self._job.run_batch(self._clock.now_ms)
        return commands

    def rehearsal_rows(self) -> RehearsalRows:
        """Return the rows that a forecast is based on. O(rows)."""
        committed = self._job.committed
        return RehearsalRows(
            tables=newest_rows(committed.ownership.values(), committed.rows),
            load=self.rows[LOAD_HISTORY.name],
            decisions=self.rows[DECISIONS.name],
        )

    def _differences(self, look: Look | None) -> Sequence[CommandArguments]:
        before, self._before = self._before, look
        if look is None or before is None:
            return ()
        records = self._job.committed.records
        difference = compare(records, before, look, self._brokers, frozenset())
        self._brokers = difference.brokers or self._brokers
        if not (difference.count or difference.brokers):
            return ()
        return commands_of(difference)

    def _command(self, arguments: CommandArguments) -> Command:
        self._commands += 1
        kind, given = format_arguments(arguments)
        name = f"assess-{self._commands}"
        return Command(cluster=self.cluster, command_id=name, kind=kind, arguments=given)


def _broker_of(message: Message) -> str:
    envelope = getattr(message, "envelope", None)
    return "" if envelope is None else str(envelope.broker)
