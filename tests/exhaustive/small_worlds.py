"""Worlds of two brokers and two bundles, and everything that can happen next in each.

A world is nine numbers: what they stand for, `cluster` knows. Nothing is drawn: the events of a
world are all that the scenario allows. Kafka keeps what it has; but what a broker says may be lost,
doubled and late before it gets there, and what is there may be read late.

Two ways to bound them. In any order: whoever can do something may be next. With a number of delays:
everybody has a turn in each instant, and whoever has it may miss it, so many times in all; that
sees less of each instant, and many more instants. Source: Emmi, Qadeer, Rakamaric, 2011.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from lbcore.ownership.records import State
from lbcore.wire.messages import Topic
from tests.exhaustive.scenarios import CRASHED, DELAYED, DOUBLED, FAILED, FROZEN, LOST, Scenario
from tests.exhaustive.small_cluster import BROKERS, NAMESPACE, Cluster, command, overlap

TURNS = ("clock", "read", "calls", "send", "hear")
BATCH = len(TURNS) * len(BROKERS)
PASS = BATCH + 1


class Broker(NamedTuple):
    """A broker. process: its number, -1 = dead. read: records read; outbox: said, not sent yet."""

    process: int
    read: int
    outbox: int
    confirmed: int
    is_frozen: int
    starts: int


class World(NamedTuple):
    """Everything there is. log: the records written. inbox: (message, instant) pairs not yet read.

    asked: how many of the scenario's commands were sent. spent: of the scenario's budgets. turn:
    whose it is, when turns are taken.
    """

    instant: int
    job: int
    log: int
    inbox: int
    asked: int
    brokers: tuple[int, int]
    spent: int
    turn: int = 0


Event = tuple[str, World]


class BrokenWorldError(AssertionError):
    """Something that must always hold does not."""


@dataclass(slots=True)
class Worlds:
    """The worlds of a scenario."""

    scenario: Scenario
    cluster: Cluster = field(init=False)
    _brokers: dict[Broker, int] = field(default_factory=dict)
    _broker_list: list[Broker] = field(default_factory=list)
    _clashes: dict[tuple[int, int, int], str] = field(default_factory=dict)
    _budgets: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._budgets = self.scenario.budgets
        self.cluster = Cluster(self.scenario.fencing)

    # -- the first world

    def first(self) -> World:
        """Two bundles, served by their owners, everything read and said; the budgets are whole."""
        cluster = self.cluster
        fresh = [
            self._broker(Broker(cluster.new_process(name, 1), 0, 0, 0, 0, 1)) for name in BROKERS
        ]
        create = command(0, "create_namespace", namespace=NAMESPACE, bundles=2)
        inbox = cluster.lists.of((cluster.say(create), 0))
        world = World(0, cluster.new_job(), 0, inbox, 0, (fresh[0], fresh[1]), 0)
        for _ in range(12):
            world = self.peace(world)
        assert not self.unsettled(world), self.unsettled(world)
        return world

    def peace(self, world: World) -> World:
        """An instant later, with everything done that there was to do, fairly and without fault."""
        world = world._replace(instant=world.instant + 1)
        for _ in range(4):
            for turn in range(2):
                if self._of(world, turn).is_frozen:
                    world = self._with(world, turn, is_frozen=0)
                if self._of(world, turn).process < 0:
                    world = self._restart(world, turn)
                world = self._step(world, turn, ())
                world = self._read(world, turn, 10**6)
                while (calls := self._calls(world, turn)) > 0:
                    world = self._step(world, turn, (("done", calls - 1, ""),))
                world = self._confirm(self._flush(world, turn, ()), turn)
            world = self._batch(world, is_whole=True)
        return world

    def unsettled(self, world: World) -> list[str]:
        """What is not as it must be at rest: owned, and open at the owner alone."""
        served: dict[str, list[str]] = {}
        for turn, name in enumerate(BROKERS):
            number = self._of(world, turn).process
            for bundle, _ in self.cluster.processes[number].open if number >= 0 else ():
                served.setdefault(bundle, []).append(name)
        records = self.cluster.records_of(world.job)
        live = {b: r for b, r in records.items() if r.state is not State.DELETED}
        found = [
            f"{r.bundle} is {r.state.value} of {r.destination}, open at {served.get(b)}"
            for b, r in sorted(live.items())
            if r.state is not State.OWNED or served.get(b) != [r.destination]
        ]
        return found + [f"{b} is open and not live" for b in sorted(served) if b not in live]

    # -- what can happen

    def events(self, world: World) -> Iterator[Event]:
        """Everything that can happen next."""
        if world.asked < len(self.scenario.commands):
            yield "a command", self._ask(world)
        for turn, name in enumerate(BROKERS):
            for what, after in self._faults(world, turn):
                yield f"{name} {what}", after
        if self.scenario.delays is None:
            yield from self._in_any_order(world)
        else:
            yield from self._in_turn(world)

    def _faults(self, world: World, turn: int) -> Iterator[Event]:
        broker = self._of(world, turn)
        if broker.process < 0:
            yield "starts anew", self._restart(world, turn)
            return
        if self._can(world, CRASHED):
            yield "crashes", self._crash(self._spend(world, CRASHED), turn)
        if broker.is_frozen:
            yield "thaws", self._with(world, turn, is_frozen=0)
        elif self._can(world, FROZEN):
            yield "freezes", self._with(self._spend(world, FROZEN), turn, is_frozen=1)

    def _in_any_order(self, world: World) -> Iterator[Event]:
        for turn in range(PASS + 1):
            yield from self._turn(world, turn)
        for turn, name in enumerate(BROKERS):
            broker = self._of(world, turn)
            is_able = broker.process >= 0 and not broker.is_frozen
            if is_able and broker.read + 1 < len(self.cluster.lists[world.log]):
                yield f"{name} reads one record", self._read(world, turn, 1)
        if world.inbox:
            yield "a batch without answers", self._batch(world, is_whole=False)

    def _in_turn(self, world: World) -> Iterator[Event]:
        following = (world.turn + 1) % (PASS + 1)
        is_idle = True
        for what, after in self._turn(world, world.turn):
            is_idle = is_idle and after == world
            yield what, after._replace(turn=following)
        if is_idle and world.turn != PASS:
            yield "nothing", world._replace(turn=following)
        elif world.turn != PASS and self._can(world, DELAYED):
            yield "late", self._spend(world, DELAYED)._replace(turn=following)

    def _turn(self, world: World, turn: int) -> Iterator[Event]:
        """What can happen when somebody has a turn."""
        if turn == PASS:
            if world.instant < self._end:
                yield "an instant passes", world._replace(instant=world.instant + 1)
            return
        if turn == BATCH:
            yield "a batch", self._batch(world, is_whole=True)
            return
        who, what = divmod(turn, len(TURNS))
        broker = self._of(world, who)
        if broker.process >= 0 and not broker.is_frozen:
            for how, after in self._broker_turn(world, who, TURNS[what]):
                yield f"{BROKERS[who]} {how}", after

    def _broker_turn(self, world: World, who: int, what: str) -> Iterator[Event]:
        broker = self._of(world, who)
        if what == "clock":
            yield "looks at its clock", self._step(world, who, ())
        elif what == "read":
            yield "reads to the end", self._read(world, who, len(self.cluster.lists[world.log]))
        elif what == "calls":
            yield from self._call_ends(world, who)
        elif what == "send" and broker.outbox:
            yield from self._sendings(world, who)
        elif what == "hear" and broker.confirmed:
            yield "hears from Kafka", self._confirm(world, who)

    def _call_ends(self, world: World, who: int) -> Iterator[Event]:
        for number in range(self._calls(world, who)):
            yield f"has done call {number}", self._step(world, who, (("done", number, ""),))
            if self._can(world, FAILED):
                failed = self._spend(world, FAILED)
                yield f"fails call {number}", self._step(failed, who, (("done", number, "no"),))

    def _sendings(self, world: World, who: int) -> Iterator[Event]:
        yield "sends", self._flush(world, who, ())
        if self._can(world, LOST):
            yield "loses a message", self._flush(self._spend(world, LOST), who, (0,))
        if self._can(world, DOUBLED):
            size = len(self.cluster.lists[self._of(world, who).outbox])
            yield "sends twice", self._flush(self._spend(world, DOUBLED), who, (2,) * size)

    def check(self, world: World) -> None:
        """Raises BrokenWorldError when two brokers use or serve one hash against the rules."""
        a, b = world.brokers
        instant = world.instant if self.scenario.fencing == "lease" else 0
        clash = self._clashes.get((a, b, instant))
        if clash is None:
            clash = self._clash(self._broker_list[a], self._broker_list[b], instant)
            self._clashes[a, b, instant] = clash
        if clash:
            raise BrokenWorldError(clash)

    def _clash(self, a: Broker, b: Broker, instant: int) -> str:
        """How two brokers clash.

        With leases no hash may be used by both; with tokens, not under one token.
        """
        is_leased = self.scenario.fencing == "lease"
        for bundle, token in self._used(a, instant, is_leased=is_leased):
            for other, other_token in self._used(b, instant, is_leased=is_leased):
                if overlap(bundle, other) and (is_leased or token == other_token):
                    return f"{bundle} under {token} and {other} under {other_token} are both used"
        return ""

    def _used(
        self, broker: Broker, instant: int, *, is_leased: bool
    ) -> tuple[tuple[str, int], ...]:
        if broker.process < 0 or (is_leased and broker.is_frozen):
            return ()
        if is_leased:
            return self.cluster.used(broker.process, instant)
        return self.cluster.processes[broker.process].open

    # -- how it happens

    @property
    def _end(self) -> int:
        return 12 + self.scenario.instants

    def _broker(self, broker: Broker) -> int:
        number = self._brokers.setdefault(broker, len(self._broker_list))
        if number == len(self._broker_list):
            self._broker_list.append(broker)
        return number

    def _of(self, world: World, turn: int) -> Broker:
        return self._broker_list[world.brokers[turn]]

    def _with(self, world: World, turn: int, **changes: int) -> World:
        number = self._broker(self._of(world, turn)._replace(**changes))
        both = (number, world.brokers[1]) if turn == 0 else (world.brokers[0], number)
        return world._replace(brokers=both)

    def _can(self, world: World, budget: int) -> bool:
        return (world.spent >> 4 * budget) & 15 < self._budgets[budget]

    @staticmethod
    def _spend(world: World, budget: int) -> World:
        return world._replace(spent=world.spent + (1 << 4 * budget))

    def _batch(self, world: World, *, is_whole: bool) -> World:
        lists = self.cluster.lists
        flat = lists[world.inbox]
        inbox = list(zip(flat[::2], flat[1::2], strict=True))
        taken = [
            pair
            for pair in inbox
            if is_whole or self.cluster.messages[pair[0]].topic != Topic.ACKS.value
        ]
        left = () if is_whole else tuple(n for p in inbox if p not in taken for n in p)
        step = self.cluster.run_batch(world.job, taken, world.instant)
        log = world.log
        if step.records:
            log = lists.of(lists[log] + step.records)
        return world._replace(job=step.job, log=log, inbox=lists.of(left))

    def _ask(self, world: World) -> World:
        kind, arguments = self.scenario.commands[world.asked]
        asked = self.cluster.say(command(world.asked + 1, kind, **arguments))
        return self._arrive(world._replace(asked=world.asked + 1), (asked,))

    def _arrive(self, world: World, messages: tuple[int, ...]) -> World:
        lists = self.cluster.lists
        arrived = tuple(n for message in messages for n in (message, world.instant))
        return world._replace(inbox=lists.of(lists[world.inbox] + arrived))

    def _calls(self, world: World, turn: int) -> int:
        return len(self.cluster.processes[self._of(world, turn).process].calls)

    def _step(self, world: World, turn: int, events: tuple[tuple[object, ...], ...]) -> World:
        broker, lists = self._of(world, turn), self.cluster.lists
        step = self.cluster.step_process(broker.process, events, world.instant)
        outbox = broker.outbox
        if step.said:
            outbox = lists.of(lists[outbox] + step.said)
        return self._with(world, turn, process=step.process, outbox=outbox)

    def _read(self, world: World, turn: int, count: int) -> World:
        broker, log = self._of(world, turn), self.cluster.lists[world.log]
        end = min(broker.read + count, len(log))
        events: list[tuple[object, ...]] = [("record", n) for n in log[broker.read : end]]
        if end == len(log):
            events.append(("end",))
        return self._with(self._step(world, turn, tuple(events)), turn, read=end)

    def _confirm(self, world: World, turn: int) -> World:
        sent = self.cluster.lists[self._of(world, turn).confirmed]
        after = self._step(world, turn, tuple(("confirmed", ms) for ms in sent))
        return self._with(after, turn, confirmed=0)

    def _flush(self, world: World, turn: int, copies: tuple[int, ...]) -> World:
        """Send the outbox; copies: of each message, one of those that have none named."""
        broker, lists = self._of(world, turn), self.cluster.lists
        outbox = lists[broker.outbox]
        times = copies + (1,) * (len(outbox) - len(copies))
        sent = tuple(n for n, often in zip(outbox, times, strict=True) for _ in range(often))
        told = [self.cluster.messages[n].sent_ms for n in dict.fromkeys(sent)]
        confirmed = tuple(sorted({*lists[broker.confirmed], *(ms for ms in told if ms)}))[-1:]
        after = self._arrive(world, sent) if sent else world
        return self._with(after, turn, outbox=0, confirmed=lists.of(confirmed))

    def _crash(self, world: World, turn: int) -> World:
        return self._with(world, turn, process=-1, read=0, outbox=0, confirmed=0, is_frozen=0)

    def _restart(self, world: World, turn: int) -> World:
        """A new start reads the newest record of each bundle, as of a compacted topic."""
        starts = self._of(world, turn).starts + 1
        process = self.cluster.new_process(BROKERS[turn], starts)
        log = self.cluster.lists[world.log]
        newest = {self.cluster.records[n].bundle: n for n in log}
        after = self._with(world, turn, process=process, starts=starts, read=len(log))
        events = (*(("record", n) for n in newest.values()), ("end",))
        return self._step(after, turn, events)
