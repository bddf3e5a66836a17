"""Effects of moves where usages are a mean of the past minute, as a Pulsar broker's are."""

from dataclasses import replace

from lbcore.config.signals import SignalsConfig
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import MINUTE_MS, decided, long_hot

OF_THE_MOMENT = SignalsConfig(report_max_interval_ms=10_000)
OF_THE_MINUTE = replace(OF_THE_MOMENT, usage_window_ms=MINUTE_MS)


def effects_with(signals: SignalsConfig) -> list[dict[str, object]]:
    """The effects of the first plan's moves away from a broker that has long been hot."""
    world = long_hot(replace(Config(), signals=signals))
    world.command("resume")
    world.run(5 * MINUTE_MS)
    first = decided(world, "transfer")[0]["at_ms"]
    return [dict(r) for r in world.other_rows["decision_effects"] if r["decided_ms"] == first]


def test_effect_is_judged_when_usages_are_all_of_the_time_since() -> None:
    found = effects_with(OF_THE_MINUTE)
    assert {effect["outcome"] for effect in found} == {"helped"}
    assert all(int(str(e["at_ms"])) > int(str(e["moved_ms"])) + 2 * MINUTE_MS for e in found)


def test_effect_judged_by_the_reports_alone_is_judged_too_early() -> None:
    assert "ineffective" in {effect["outcome"] for effect in effects_with(OF_THE_MOMENT)}
