"""What a report says in words, on the terminal and on the page."""

from jobs.assess.page import page
from jobs.assess.text import lines
from lbcore.assess.loads import Loads
from lbcore.assess.report import Report


def report(*strategies: str) -> Report:
    """Of two brokers, one of which has all load, and what strategies would have made of it."""
    loads = Loads(
        times_ms=(1_000,),
        brokers=("a:8080", "b:8080"),
        percent={"a:8080": (90.0,), "b:8080": (80.0,)},
        msg_rates={"a:8080": (100.0,), "b:8080": (0.0,)},
        bundles={"a:8080": 2, "b:8080": 0},
        imbalance=(2.0,),
        floor=(1.0,),
    )
    return Report(
        cluster="c", url="http://a:8080", from_ms=0, to_ms=60_000, loads=loads, bundles=(),
        topics=(), moves=(), harms=(), risks=(), decisions=0, foresight=None, versions={},
        bundle_count=2,
        strategies=[{"strategy": name, "imbalance.p50": 1.1} for name in strategies],
    )  # fmt: skip


def test_imbalance_of_strategies_is_told_from_that_of_message_rates() -> None:
    told = report("recorded", "ballast")
    for text in ("\n".join(lines(told)), page(told)):
        assert "of msg/s" in text
        assert "imbalance here is of usage, with what brokers use without load" in text
    for text in ("\n".join(lines(report())), page(report())):
        assert "of usage" not in text
