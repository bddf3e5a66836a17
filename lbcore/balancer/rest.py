"""Rest: how long the next batch may wait when nothing comes that can't, and what can't.

Decides when a cluster is at rest: nothing has changed, and no bundle is on its way or without an
owner that it is to have. Then batches only take heartbeats and reports in, and fewer of them do
that as well. None is put off that a timer wants: the next cycle, and the moment at which a broker
that falls silent now is taken for dead. In a large cluster one comes right before the cycle, which
then has little to read. Last phase of `balancer`. Source: ours.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lbcore.balancer.decisions.turns import cycle_due_ms
from lbcore.balancer.intake.external import is_external
from lbcore.balancer.state.ledger import CAUSE_CODE
from lbcore.balancer.state.work import Work
from lbcore.config.ownership import EAGER
from lbcore.ownership.records import Cause, State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.wire.messages import (
    BrokerLoad,
    Heartbeat,
    Message,
    Rejected,
    ShardLoad,
    Tick,
    Topic,
)

SAID_BY = (Topic.BROKER_LOAD,)
"""Topics on which brokers say who they are, again and again."""

_LARGE = 200_000
"""Bundles from which on reading what came in a rest takes longer than a cycle. With 100,000 it cost
a tenth of a core, and saved a tenth of a second in ten."""

HEARD = (*SAID_BY, Topic.ACKS, Topic.COMMANDS)
"""Topics that may bring what can't wait; the others tell how busy bundles and topics are."""


def allow_rest(work: Work) -> None:
    """Note by how many ms more than trigger_ms the next batch may follow this one; 0 = not at all.

    At most `pipeline.rest_ms`. O(bundles).
    """
    pipeline = work.config.pipeline
    allowed_ms = 0
    if pipeline.rest_ms and not _is_busy(work):
        allowed_ms = max(0, min(pipeline.rest_ms, _until_timer_ms(work)))
    work.note(rest_ms=allowed_ms)


def _until_timer_ms(work: Work) -> int:
    """How long a rest may be for the trigger after it to find a timer due, or be the one before."""
    trigger_ms = work.config.pipeline.trigger_ms
    left_ms = min(_timers_ms(work)) - trigger_ms
    return left_ms - trigger_ms if left_ms > trigger_ms and len(work.ledger) >= _LARGE else left_ms


def _is_busy(work: Work) -> bool:
    """Whether the next batch has something to do, or to look at, as soon as it can be."""
    return bool(
        work.transitions
        or work.times.read_ms < work.now_ms  # something may be unread
        or work.times.repaired_up_to
        or work.rules.brake
        or len(work.ledger.rows_in(*IN_FLIGHT))
        or _wants_owners(work)
    )


def _wants_owners(work: Work) -> bool:
    """Whether bundles are free that nobody has to ask for first."""
    free = work.ledger.rows_in(State.FREE)
    if not len(free) or is_external(work):
        return False
    is_freed = work.ledger.cause[free] != CAUSE_CODE[Cause.CREATE]
    return work.config.ownership.assign == EAGER or bool(is_freed.any())


def _timers_ms(work: Work) -> Iterator[int]:
    """In how many ms from now something is due by itself."""
    yield cycle_due_ms(work) - work.now_ms
    liveness = work.liveness
    for broker in liveness.seen:
        if broker not in liveness.dead:
            yield work.config.ownership.broker_timeout_ms - liveness.silence_ms(broker)


@dataclass(slots=True)
class Heard:
    """What ends a rest: any command and answer, and of brokers what none has said before.

    A heartbeat, a report of load or a tick is no news; a start, or that a broker drains, is.
    """

    brokers: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)

    def has_news(self, messages: Iterable[Message | Rejected]) -> bool:
        """Whether one of them can't wait. O(messages).

        All are taken in, also behind the first that can't: else each of a thousand brokers would
        end a rest of its own, and the job would not rest before it has heard them one by one.
        """
        return max([self._is_news(message) for message in messages], default=False)

    def _is_news(self, message: Message | Rejected) -> bool:
        if isinstance(message, Rejected | Tick | ShardLoad):
            return False
        if not isinstance(message, Heartbeat | BrokerLoad):
            return True
        envelope = message.envelope
        name = (envelope.cluster, envelope.broker)
        before = self.brokers.get(name, ("", False))
        drains = message.is_draining if isinstance(message, BrokerLoad) else before[1]
        self.brokers[name] = (envelope.incarnation, drains)
        return self.brokers[name] != before
