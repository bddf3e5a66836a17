"""Who asks for an owner never makes a lookup wait, and ends at once."""

import threading

from jobs.assignment_requests import AssignmentRequester
from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute


def route(number: int, state: State = State.FREE) -> BundleRoute:
    return BundleRoute(
        bundle=f"a/b/{number}", namespace="a/b", lower=0, upper=1, state=state, version_id=1
    )


def test_lookups_go_on_while_nobody_answers_and_what_waits_is_left_at_the_end() -> None:
    asked: list[str] = []
    is_asked, may_go_on, is_over = threading.Event(), threading.Event(), threading.Event()

    def ask(one: BundleRoute, _: str) -> None:
        asked.append(one.bundle)
        is_asked.set()
        (may_go_on if len(asked) == 1 else is_over).wait(60)

    ended: list[int] = []
    asker = AssignmentRequester(ask, lambda: ended.append(len(asked)))
    asker.found_free(route(0), "t")
    assert is_asked.wait(60)
    for number in range(1, 20_000):  # more than may wait
        asker.found_free(route(number), "t")
    closing = threading.Thread(target=asker.close)
    closing.start()
    may_go_on.set()
    closing.join(60)
    is_over.set()
    assert asked[:1] == ["a/b/0"]
    assert len(asked) <= 2  # the next may have begun before the end was asked for
    assert ended == [len(asked)]


def test_what_fails_is_left_and_the_next_is_asked_for() -> None:
    asked, is_done = [], threading.Event()

    def ask(one: BundleRoute, topic: str) -> None:
        asked.append((one.bundle, topic))
        if len(asked) == 1:
            raise OSError("nobody there")
        is_done.set()

    asker = AssignmentRequester(ask)
    asker.found_free(route(1, State.OWNED), "owned")
    asker.found_free(route(2), "first")
    asker.found_free(route(3), "second")
    assert is_done.wait(60)
    asker.close()
    assert asked == [("a/b/2", "first"), ("a/b/3", "second")]
