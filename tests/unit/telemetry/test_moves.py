"""Moves as events show them: latencies by part, owners left and come back to."""

from jobs.telemetry.moves import Event, Landed, Latency, MoveTracker
from lbcore.sim.summary import HOUR_MS


def event(
    state: str, before: str, source: str, destination: str, at_ms: int, **more: object
) -> Event:
    named = {"destination_before": "", "cause": "shed", "is_forced": False, **more}
    return Event(
        cluster="c",
        bundle="t/n/1",
        state=state,
        state_before=before,
        source=source,
        destination=destination,
        at_ms=at_ms,
        **named,  # type: ignore[arg-type]
    )


def moved(moves: MoveTracker, source: str, destination: str, at_ms: int) -> list[Latency | Landed]:
    """A transfer: released after 100 ms, opened after 30 more."""
    steps = [
        event("Releasing", "Owned", source, destination, at_ms),
        event("Assigning", "Releasing", source, destination, at_ms + 100, cause="ack"),
        event("Owned", "Assigning", source, destination, at_ms + 130, cause="ack"),
    ]
    return [found for step in steps for found in moves.take(step)]


def test_transfer_has_three_latencies_and_lands_once() -> None:
    assert moved(MoveTracker(), "a", "b", 1_000) == [
        Latency(part="release", broker="a", ms=100),
        Latency(part="assign", broker="b", ms=30),
        Latency(part="unload", broker="a", ms=130),
        Landed(cause="shed", is_return=False),
    ]


def test_move_back_within_an_hour_is_a_return() -> None:
    moves = MoveTracker()
    moved(moves, "a", "b", 0)
    assert moved(moves, "b", "a", 60_000)[-1] == Landed(cause="shed", is_return=True)
    assert moved(moves, "a", "c", 90_000)[-1] == Landed(cause="shed", is_return=False)
    assert moved(moves, "c", "b", HOUR_MS + 60_130)[-1] == Landed(cause="shed", is_return=False)


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    moves = MoveTracker()
    moved(moves, "a", "b", 0)
    moves.forget(2 * HOUR_MS)
    assert moved(moves, "b", "a", 10)[-1] == Landed(cause="shed", is_return=False)


def test_failover_lands_with_its_own_cause() -> None:
    moves = MoveTracker()
    steps = [
        event("Assigning", "Owned", "", "b", 500, destination_before="a", cause="failover"),
        event("Owned", "Assigning", "", "b", 900, cause="ack"),
    ]
    found = [one for step in steps for one in moves.take(step)]
    assert found == [
        Latency(part="assign", broker="b", ms=400),
        Latency(part="unload", broker="a", ms=400),
        Landed(cause="failover", is_return=False),
    ]


def test_first_owner_and_cancelled_unload_are_no_moves() -> None:
    moves = MoveTracker()
    first = [
        event("Assigning", "Free", "", "a", 0, cause="assign"),
        event("Owned", "Assigning", "", "a", 40, cause="ack"),
        event("Releasing", "Owned", "a", "b", 100),
        event("Owned", "Releasing", "", "a", 900, cause="repair", is_forced=True),
    ]
    found = [one for step in first for one in moves.take(step)]
    assert found == [Latency(part="assign", broker="a", ms=40)]
