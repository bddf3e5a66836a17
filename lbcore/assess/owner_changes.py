"""Moves during an observation, and who made them, as far as that is known.

A bundle has moved when a later look finds it at another broker. The cause is its broker's end, or
Pulsar's shedder by its own counter, else a person or a tool. The counters say how many, not which:
where both were at work, the report says so. Source: Pulsar 4.0.8's pulsar_lb_unload_bundle_total
and pulsar_lb_unload_broker_breakdown_total.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lbcore.balancer.rebuild import newest_rows
from lbcore.bridge.answers import samples
from lbcore.bridge.mirror import Look, commands_of, compare
from lbcore.config.tree import Config
from lbcore.foresight.rehearse import RehearsalRows
from lbcore.model.tables import DECISIONS, LOAD_HISTORY
from lbcore.sim.engine.job import REBUILT_FROM, Committed, Job
from lbcore.sim.engine.log import Clock, Log
from lbcore.sim.load.load import RandomStream
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import format_arguments
from lbcore.wire.fields import MAX_NUMBER
from lbcore.wire.messages import Command, Message

STUCK_LOOKS = 3
"""Looks in a row with two owners, or none after it had one, that make a bundle stuck."""
GONE, SHEDDER, PERSON, EITHER = "broker ended", "Pulsar's shedder", "a person or a tool", "unclear"
_COUNTER = "pulsar_lb_unload_bundle_total"
_BY_REASON = "pulsar_lb_unload_broker_breakdown_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """Change of a bundle's owner between two looks.

    who: the mover. GONE = its source ended or restarted; "" = not judged yet, see `who_moved`.
    """

    at_ms: int
    bundle: str
    source: str
    destination: str
    who: str = ""


@dataclass(slots=True)
class OwnerChanges:
    """Changes over many looks. doubled, lost: bundle → looks in a row."""

    moves: list[OwnerChange] = field(default_factory=list)
    doubled: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)
    _incarnations: dict[str, str] = field(default_factory=dict)

    def take(self, now_ms: int, look: Look) -> None:
        """Add one look. O(bundles)."""
        owners = look.owners()
        for bundle, owner in sorted(owners.items()):
            if owner is None:
                continue
            before = self._owners.get(bundle, owner)
            self._owners[bundle] = owner
            if before == owner:
                continue
            incarnation = look.incarnations.get(before, "")
            known = self._incarnations.get(before, incarnation)
            is_new = bool(incarnation) and incarnation != known
            who = GONE if before not in look.owned or is_new else ""
            self.moves.append(
                OwnerChange(at_ms=now_ms, bundle=bundle, source=before, destination=owner, who=who)
            )
        self.doubled = _counted(self.doubled, [name for name, one in owners.items() if one is None])
        all_answered = look.unclaimed() == ""
        gone = [name for name in self._owners if all_answered and name not in owners]
        self.lost = _counted(self.lost, [name for name in gone if _exists(name, look)])
        self._incarnations |= {name: one for name, one in look.incarnations.items() if one}


def sheds_of(page: str) -> float:
    """Return the bundles that a broker's load manager shed since its start.

    page: its Prometheus page; 0 where it has no such counter. The extensible manager counts what
    admins ask for among its unloads, the modular one does not.
    """
    total = by_admin = 0.0
    for name, labels, value in samples(page, (_COUNTER, _BY_REASON)):
        if not 0.0 <= value <= MAX_NUMBER:
            continue
        if name == _COUNTER:
            total += value
        elif labels.get("reason") == "Admin":
            by_admin += value
    return max(0.0, total - by_admin)


def who_moved(
    moves: int,
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    is_shedding: bool | None,
) -> str:
    """Return who made moves between living brokers, by each broker's counters.

    before, after: sheds by broker, without those that could not be read. A counter that fell says
    nothing. is_shedding: whether any broker sheds by itself, None = not known.
    """
    grown = [after[one] - before[one] for one in before.keys() & after.keys()]
    shed = math.fsum(max(0.0, step) for step in grown)
    is_whole = before.keys() == after.keys() and min(grown, default=-1.0) >= 0.0
    if is_shedding is False or (shed <= 0.0 and is_shedding is not None and is_whole):
        return PERSON
    if shed >= moves:
        return SHEDDER
    return EITHER


def _counted(before: Mapping[str, int], names: list[str]) -> dict[str, int]:
    return {name: before.get(name, 0) + 1 for name in sorted(names)}


def _exists(bundle: str, look: Look) -> bool:
    """True if the bundle's range still exists.

    A bundle that was split has no owner, and is not lost.
    """
    namespace, _, key = bundle.rpartition("/")
    edges = look.namespaces.get(namespace, ())
    try:
        lower, upper = (int(part, 16) for part in key.split("_"))
        return edges[edges.index(lower) + 1] == upper
    except (ValueError, IndexError):
        return False


_KEPT = REBUILT_FROM | {LOAD_HISTORY.name, DECISIONS.name}


class Observer:
    """The job's Machines in one process, fed with what the bridge reads.

    The streaming job's scorers and balancer in the caller's time, so they decide the same; nothing
    is sent. rows: table → its rows, in order.
    """

    def __init__(self, config: Config, cluster: str) -> None:
        """config: of the cluster; its authority is external, and it observes only."""
        self.config, self.cluster = config, cluster
        self._clock = Clock()
        self._log = Log(cluster, self._clock, RandomStream(0))
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
        policies: Sequence[CommandArguments] = (),
    ) -> list[Command]:
        """Run one batch; return its commands: the look's differences and `policies`.

        now_ms: wall time of the batch, never before the last one's. look: None = nobody answered.
        """
        self._clock.now_ms = max(self._clock.now_ms, now_ms)
        for message in messages:
            envelope = getattr(message, "envelope", None)
            self._log.append(message, envelope.broker if envelope else "")
        commands = [self._command(one) for one in (*self._differences(look), *policies)]
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
        difference = compare(self._job.committed.records, before, look, self._brokers, frozenset())
        self._brokers = difference.brokers or self._brokers
        if not (difference.count or difference.brokers):
            return ()
        return commands_of(difference)

    def _command(self, arguments: CommandArguments) -> Command:
        self._commands += 1
        kind, given = format_arguments(arguments)
        name = f"assess-{self._commands}"
        return Command(cluster=self.cluster, command_id=name, kind=kind, arguments=given)
