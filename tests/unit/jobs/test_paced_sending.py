"""Clients that are slow and many: what is sent on to them at once, and who waits for what."""

import asyncio
import threading
from collections.abc import Iterator

from jobs.adapters.delta.table_location import table_place
from jobs.adapters.following.view import Changes
from jobs.adapters.http.fair_scheduling import FairScheduler
from jobs.adapters.http.protocol import Flow
from jobs.service.changes import ChangeFeed
from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute

CLIENTS, AT_ONCE = 100, 8


def test_answers_go_on_a_few_at_a_time_however_many_clients_have_read_on() -> None:
    async def run() -> list[int]:
        turns, gone_on = FairScheduler(budget_s=0.0), 0
        flows = [Flow(asyncio.Transport(), turns) for _ in range(CLIENTS)]

        async def send_on(flow: Flow) -> None:
            nonlocal gone_on
            await flow.drain()
            gone_on += 1

        for flow in flows:
            flow.pause_writing()
        sending = [asyncio.ensure_future(send_on(flow)) for flow in flows]
        await asyncio.sleep(0)
        for flow in flows:
            flow.resume_writing()
        counts = []
        while not all(one.done() for one in sending):
            before = gone_on
            await asyncio.sleep(0)
            counts.append(gone_on - before)
        return counts

    counts = asyncio.run(run())
    assert sum(counts) == CLIENTS
    assert max(counts) <= AT_ONCE


class _SlowCommit:
    """Records of a commit; while they are read, somebody looks for what was there before."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self.was_answered = False

    def __iter__(self) -> Iterator[BundleRoute]:
        reader = threading.Thread(target=self._feed.after, args=((0, 0), 1), daemon=True)
        reader.start()
        reader.join(5)
        self.was_answered = not reader.is_alive()
        yield BundleRoute(
            bundle="t/n/0x00000000_0xffffffff",
            namespace="t/n",
            lower=0,
            upper=1 << 32,
            state=State.OWNED,
            version_id=1,
            source="",
            destination="a",
        )


def test_watchers_read_on_while_a_large_commit_is_taken_over() -> None:
    feed = ChangeFeed(table_place("unused"), "c1", 10)
    commit = _SlowCommit(feed)
    feed.add(Changes(version=1, commits=((1, commit),)))
    assert commit.was_answered
    assert [change.place for change in feed.after((0, 0), 9) or ()] == [(1, 0)]
