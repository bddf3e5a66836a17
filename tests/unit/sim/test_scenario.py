"""Scenarios and recorded traffic: text format, series, folding, recordings, traffic."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S
from lbcore.sim.load.recording import (
    COLUMNS,
    KEPT_INTERVALS,
    Folded,
    Gaps,
    Grid,
    RecordingError,
    Series,
    TraceColumn,
    flaws_of,
    fold,
    history_rows,
    make_recording,
    on_grid,
    positions_of,
    spread_over,
    step_of,
)
from lbcore.sim.scenario.metrics import METRICS
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.sim.scenario.tokens import (
    ScenarioError,
    broker_names,
    share,
)

HEAD = "brokers 3\nnamespace t/n bundles=10\n"
END = "run 30m\n"


def test_ranges_of_brokers_are_named_in_order_and_parts_read_with_or_without_percent() -> None:
    assert broker_names("b2,b5-b7") == ("b2", "b5", "b6", "b7")
    assert broker_names("all") == ("all",)
    assert share("5%") == share("0.05") == 0.05


def test_prose_is_left_out_and_what_is_recorded_kept() -> None:
    scenario = parse_scenario(f"# nothing\n{HEAD}run 5m  # not long\n----\nout\nput\n")
    assert scenario.run_ms == 300_000
    assert scenario.expected_output == "out\nput\n"


@pytest.mark.parametrize("name", sorted(METRICS))
def test_metric_without_what_it_needs_is_refused_and_with_it_taken(name: str) -> None:
    metric = METRICS[name]
    known = {
        "": "",
        "percent": ":80",
        "ratio": ":1.2",
        "cause": ":shed",
        "status": ":done",
        "kind": ":skip/HitCount",
        "alarm": ":flapping:b1",
    }
    argument = known.get(metric.argument, ":b1")
    value = "1m" if metric.unit == "time" else "1"
    text = f"{HEAD}{END}expect {name}{argument} <= {value}"
    assert parse_scenario(text).expectations[0].metric == name
    if metric.argument and not metric.is_optional:
        with pytest.raises(ScenarioError, match=f"{name}:"):
            parse_scenario(f"{HEAD}{END}expect {name} <= {value}")


@pytest.mark.parametrize(
    ("line", "number", "expected"),
    [
        ("borkers 3", 3, "did you mean brokers"),
        ("run", 3, "a time such as"),
        ("run 5", 3, "a time such as"),
        ("load t/m even 5%", 3, "one of t/n"),
        ("load t/n evn 5%", 3, "did you mean even"),
        ("load t/n even 5", 3, "45%"),
        ("load t/n even 5% bundles=3-10", 3, "bundles 0-9"),
        ("own t/n 0-20 b1", 3, "bundles 0-9"),
        ("own t/n all b7", 3, "one of b1"),
        ("at 5m pase b1 for 3s", 3, "did you mean pause"),
        ("at 5m pause b1", 3, "for T"),
        ("at 5m messages all lost=2 for 1m", 3, "between 0 and 1"),
        ("at 5m command split_bundl x=1", 3, "did you mean split_bundle"),
        ("at 5m command drain_broker brokr=b1", 3, "broker"),
        ("expect imbalance.p96 < 2", 3, "imbalance with one of"),
        ("expect imbalance = 2", 3, "<="),
        ("broker b1 capacity=0", 3, "above 0"),
        ("at 5m add brokers=1 capacity=0", 3, "above 0"),
        ("broker b5-b9000000000 absent", 3, "10000 brokers at most"),
        ("at 5m add brokers=20000", 3, "10000 at most"),
        ("noise cpu=1 every=0s", 3, "above 0s"),
        ("namespace nonsense", 3, "tenant/namespace"),
        ("seed 1 2", 3, "the end of the line"),
        ("at 5m crash b7", 3, "a broker of this scenario"),
        ("at 5m restart b2-b4", 3, "there is no b4"),
        ("set shedding.avg_low_hit=3", 3, "avg_low_hits"),
        ("set shedding.avg_low_hits=many", 3, "can't be set"),
        ("set ownership.fencing=lease", 3, "not modelled"),
        ("namespace t/n", 3, "another name"),
        ("namespace t/big bundles=5000000000", 3, "at most"),
        ("run 1h sample=0s", 3, "above 0s"),
        ("run 1d sample=1ms", 3, "at most"),
        ("load t/n hotspot 5% width=0%", 3, "above 0"),
        ("load t/n even 5% from 5m to 2m", 3, "is empty"),
        ("load t/n replay recorded", 3, "file="),
        ("load t/n even recorded", 3, "45%"),
        ("load t/n replay 5% file=x bundles=0-1", 3, "bundles"),
        ("full 5pt", 3, "above 0msg/s"),
        ("expect moves:shedd == 0", 3, "did you mean shed"),
        ("expect commands:don == 0", 3, "did you mean done"),
        ("expect above:much <= 1m", 3, "a number"),
        ("expect balanced:x <= 1m", 3, "a number"),
        ("expect load:b1-b2 <= 5", 3, "one broker"),
        ("expect moves == 0 from 5m to 5m", 3, "is empty"),
        ("expect moves == 0 from 1h", 3, "before 1h"),
        ("expect load:b7 <= 5", 3, "there is no b7"),
        ("expect alarms:braek == 0", 3, "did you mean brake"),
        ("expect alarms:flapping == 0", 3, "one broker"),
        ("expect decisions:shed/HitCount == 0", 3, "one of assign"),
        ("at 30m crash b1", 3, "before 30m"),
        ("at 5m set shedding.avg_low_hits=many", 3, "can't be set"),
        ("load t/n even 5% from 40m", 3, "ends at 30m"),
        ("load t/n even 5% jump=5m", 3, "hotspot"),
        ("load t/n zipf 5% alpha=2", 3, "pareto"),
        ("load t/n even 5% every 5m", 3, "without 'for'"),
        ("load t/n even 5% depth=50%", 3, "without 'wave'"),
        ("preset pulsar\npreset pulsar", 4, "line 3 says"),
    ],
)
def test_error_names_the_line_and_what_was_expected(line: str, number: int, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"{HEAD}{line}\n{END}")
    assert caught.value.line == number
    assert expected in str(caught.value)


def test_scenario_without_brokers_or_end_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no brokers"):
        parse_scenario(END)
    with pytest.raises(ScenarioError, match="how long"):
        parse_scenario(HEAD)


NAN = float("nan")


def series(samples: list[tuple[str, int, float]], *, covers: list[int] | None = None) -> Series:
    """Samples (entity, second, value), one a line from line 2; covers: seconds."""
    names = list(dict.fromkeys(name for name, _, _ in samples))
    count = len(samples)
    return Series(
        entities=tuple(names),
        of=np.array([names.index(name) for name, _, _ in samples], dtype=np.int64),
        at_ms=np.array([at * 1_000 for _, at, _ in samples], dtype=np.int64),
        values=np.array([[value] for _, _, value in samples]),
        covers_ms=np.array(covers or [0] * count, dtype=np.int64) * 1_000,
        lines=np.arange(2, count + 2, dtype=np.int64),
        columns=np.zeros(count, dtype=np.int64),
    )


def told(found: Series, gaps: Gaps = Gaps.REFUSE) -> list[str]:
    return [str(flaw) for flaw in flaws_of(found, 300_000, gaps)]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([("a", 0, 1), ("a", 300, 1), ("b", 0, 1), ("b", 300, 1)], []),
        ([("a", 0, 1), ("b", 0, 1), ("a", 300, 1), ("b", 300, 1)], []),
        ([("a", 0, -1)], ["line 2: negative value of a"]),
        ([("a", 0, NAN)], ["line 2: missing value of a"]),
        ([("a", 0, float("inf"))], ["line 2: infinite value of a"]),
        (
            [("a", 0, 1), ("b", 0, 1), ("a", 0, 1)],
            ["line 4: duplicate: a has the same time in line 2"],
        ),
        (
            [("a", 300, 1), ("a", 0, 1)],
            ["line 3: unordered: a has a later time in line 2"],
        ),
        ([("a", 0, 1), ("a", 900, 1)], ["line 3: gap: a has nothing for 600 s before"]),
        ([("a", 0, 1), ("a", 301, 1), ("a", 599, 1)], []),
    ],
)
def test_flaw_is_told_with_its_line(
    samples: list[tuple[str, int, float]], words: list[str]
) -> None:
    assert told(series(samples)) == words


def test_all_flaws_are_told_at_once_in_the_order_of_lines() -> None:
    found = told(series([("a", 0, -1), ("b", 0, NAN), ("a", 300, 1), ("a", 300, 2)]))
    assert [words.partition(":")[0] for words in found] == ["line 2", "line 3", "line 5"]


def test_missing_value_is_a_gap_where_gaps_are_filled() -> None:
    samples = [("a", 0, 6.0), ("a", 300, NAN), ("a", 600, 2.0)]
    assert told(series(samples), Gaps.HOLD) == []
    assert on_grid(series(samples), 300_000, Gaps.HOLD).values[:, 0, 0].tolist() == [6, 6, 2]
    assert on_grid(series(samples), 300_000, Gaps.ZERO).values[:, 0, 0].tolist() == [6, 0, 2]


def test_missing_value_takes_none_of_the_others_away() -> None:
    found = series([("a", 0, 6.0), ("a", 300, 4.0), ("a", 600, 2.0), ("b", 0, 1.0)])
    found = replace(found, values=np.array([[6.0, 1.0], [4.0, NAN], [NAN, 3.0], [1.0, NAN]]))
    held = on_grid(found, 300_000, Gaps.HOLD).values
    assert held.tolist() == [[[6, 1], [1, 0]], [[4, 1], [0, 0]], [[4, 3], [0, 0]]]
    zeros = on_grid(found, 300_000, Gaps.ZERO).values
    assert zeros.tolist() == [[[6, 1], [1, 0]], [[4, 0], [0, 0]], [[0, 3], [0, 0]]]


def test_sample_that_covers_the_time_before_it_leaves_no_gap() -> None:
    samples = [("a", 300, 6.0), ("a", 900, 2.0)]
    assert told(series(samples, covers=[300, 600])) == []
    grid = on_grid(series(samples, covers=[300, 600]), 300_000, Gaps.REFUSE)
    assert grid.values[:, 0, 0].tolist() == [6, 2, 2]
    assert told(series([*samples, ("a", 1800, 1.0)], covers=[300, 600, 300])) == [
        "line 4: gap: a has nothing for 600 s before"
    ]


def test_entity_that_comes_later_carries_nothing_before_and_is_counted() -> None:
    samples = [("a", at, 1.0) for at in range(0, 1200, 300)] + [("b", 900, 4.0)]
    grid = on_grid(series(samples), 300_000, Gaps.REFUSE)
    assert grid.values[:, 1, 0].tolist() == [0, 0, 0, 4]
    assert grid.partly == 1


def test_step_is_the_commonest_time_between_two_samples() -> None:
    samples = [("a", at, 1.0) for at in (0, 300, 600, 1200, 1500)]
    assert step_of(series(samples)) == 300_000
    assert step_of(series([("a", 0, 1.0), ("b", 300, 1.0)])) == 0


NAMES = [f"vm-{number}" for number in range(40)]


def folded(kinds: dict[str, float], bundles: int = 4, names: list[str] = NAMES) -> Folded:
    """One interval in which every entity has so much of each resource, KIND:UNIT."""
    values = np.array([[list(kinds.values())] * len(names)])
    grid = Grid(start_ms=0, step_ms=60_000, values=values, partly=0)
    resources = [TraceColumn(column=word, kind=word.partition(":")[0], unit=word.partition(":")[2])
                 for word in kinds]  # fmt: skip
    return fold(grid, names, resources, ("t/n", bundles))


def totals(kinds: dict[str, float]) -> list[float]:
    return folded(kinds).rates.sum(axis=(0, 1)).tolist()


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({"cpu:percent": 1.0}, [8_000, 8_000, 8_192_000, 8_192_000]),
        ({"cpu:cores": 0.01}, [8_000, 8_000, 8_192_000, 8_192_000]),
        ({"cpu:mhz": 25.0}, [8_000, 8_000, 8_192_000, 8_192_000]),
        ({"msg_in:msg/s": 1.0, "bytes_in:kb/s": 2.0}, [40, 0, 80_000, 0]),
        ({"bytes:mib/s": 2.0}, [40_960, 40_960, 41_943_040, 41_943_040]),
    ],
)
def test_units_become_messages_and_bytes(kinds: dict[str, float], expected: list[float]) -> None:
    assert totals(kinds) == pytest.approx(expected)


def test_bundles_are_dealt_in_turn_and_brokers_tell_their_part_of_the_mean() -> None:
    rows = list(history_rows(folded({"msg:msg/s": 1.0}), 2, 45.0))
    assert [row["broker"] for row in rows] == ["b1", "b2"]
    assert [len(row["bundles"]) for row in rows] == [2, 2]
    assert sum(row["percent"][0] for row in rows) == pytest.approx(90.0, abs=0.01)


MINUTE_MS = 60_000
WHOLE, LOWER, UPPER = (
    "t/n/0x00000000_0xffffffff",
    "t/n/0x00000000_0x80000000",
    "t/n/0x80000000_0xffffffff",
)


def row(minute: int, broker: str = "b1", **rates: float) -> dict[str, Any]:
    bundles = {"whole": WHOLE, "lower": LOWER, "upper": UPPER}
    values = list(rates.values())
    return {
        "minute_ms": minute * MINUTE_MS,
        "broker": broker,
        "bundles": [bundles[name] for name in rates],
        "topics": [4.0] * len(values),
        **dict.fromkeys(COLUMNS, values),
    }


def totals_recording(*rows: dict[str, Any]) -> list[list[float]]:
    """Rate in of each cell, interval after interval."""
    space = make_recording(rows).namespaces["t/n"]
    return np.round(space.rates[:, :, 0], 6).tolist()


def test_bundle_without_a_row_keeps_its_load_for_a_while_only() -> None:
    gap = [row(minute, upper=1) for minute in range(2, 10)]
    found = totals_recording(row(1, lower=10, upper=1), *gap)
    kept = [minute for minute, (low, _) in enumerate(found) if low == 10]
    assert kept == list(range(KEPT_INTERVALS + 1))
    assert found[-1] == [0, 1]


def test_bundle_that_is_seen_later_has_carried_as_much_shortly_before() -> None:
    assert totals_recording(row(1, upper=1), row(2, lower=7, upper=1)) == [[7, 1], [7, 1]]


def test_recording_begins_again_when_it_is_over() -> None:
    recording = make_recording([row(minute, whole=1) for minute in (10, 11, 12)])
    assert recording.length_ms == 3 * MINUTE_MS
    assert [recording.interval_at(at * MINUTE_MS) for at in range(5)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("positions", [[5], [1 << 30, 3 << 30], list(range(0, 1 << 32, 1 << 28))])
def test_no_load_is_lost_on_its_way_to_topics(positions: list[int]) -> None:
    space = make_recording([row(1, lower=30, upper=12)]).namespaces["t/n"]
    spread = spread_over(space, np.array(positions))
    over = spread.over(space.rates[0], len(positions))
    assert over.sum(axis=0) == pytest.approx([42.0] * 4)


def test_topics_lie_evenly_in_their_cells() -> None:
    space = make_recording([row(1, lower=1, upper=1)]).namespaces["t/n"]
    assert positions_of(space).tolist() == [(2 * at + 1) << 28 for at in range(8)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"bundles": ["nonsense"]}, "no bundle"),
        ({"bundles": []}, "differ in length"),
        ({"bundles": [], "topics": [], **{name: [] for name in COLUMNS}}, "no row names"),
    ],
)
def test_rows_that_say_nothing_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RecordingError, match=told):
        make_recording([{**row(1, whole=1), **changes}])
    with pytest.raises(RecordingError, match="not one row"):
        make_recording([])


def traffic_of(*loads: str, bundles: int = 10, extra: str = "") -> Traffic:
    lines = "\n".join(f"load t/n {load}" for load in loads)
    return Traffic(
        parse_scenario(
            f"brokers 2\nnamespace t/n bundles={bundles} topics=4 {extra}\n{lines}\nrun 2h\n"
        )
    )


def points(traffic: Traffic, at_ms: int = 0) -> float:
    return float(traffic.rates_at(at_ms).sum()) / (FULL_RATE_MSG_PER_S / 100.0)


@pytest.mark.parametrize("spread", ["even", "zipf", "pareto", "topic", "hotspot"])
def test_every_spread_carries_what_is_asked(spread: str) -> None:
    assert points(traffic_of(f"{spread} 40%")) == pytest.approx(80.0, abs=0.01)
    assert points(traffic_of(f"{spread} 3pt each")) == pytest.approx(30.0, abs=0.01)
    assert points(traffic_of(f"{spread} 4000msg/s")) == pytest.approx(10.0, abs=0.01)


def test_pareto_of_smaller_alpha_has_the_heavier_head() -> None:
    shares = []
    for alpha in ("1", "4/3", "2", "4"):
        rates = traffic_of(f"pareto 40% alpha={alpha}", bundles=500).rates_at(0)
        shares.append(rates.max() / rates.sum())
    assert shares == sorted(shares, reverse=True)


def test_wave_swings_by_its_depth() -> None:
    traffic = traffic_of("even 40pt wave=4h depth=50%")
    assert points(traffic, 60 * MINUTE_MS) == pytest.approx(60.0, abs=0.1)
    assert points(traffic, 180 * MINUTE_MS) == pytest.approx(20.0, abs=0.1)


def test_hotspot_jumps_and_keeps_its_amount() -> None:
    traffic = traffic_of("hotspot 40pt width=10% jump=10m", bundles=100)
    before, after = traffic.rates_at(0), traffic.rates_at(10 * MINUTE_MS)
    assert np.count_nonzero(before) == pytest.approx(40, abs=1)
    assert not np.array_equal(before, after)
    assert after.sum() == pytest.approx(before.sum(), abs=1.0)


def test_children_carry_what_their_parent_did() -> None:
    field = traffic_of("pareto 40%", extra="hashed").at(0)
    ends = np.array([0, 1 << 30, 1 << 31, 0xFFFFFFFF])
    parts = field.bundles("t/n", ends[:-1], ends[1:])
    whole = field.bundles("t/n", ends[:1], ends[-1:])
    assert np.array_equal(parts.sum(axis=0), whole[0])


def test_preset_of_pulsar_is_off_until_it_is_asked_for() -> None:
    text = "brokers 1\nnamespace t/n bundles=1 topics=1\nrun 1m\n"
    assert not parse_scenario(text).is_pulsar
    assert parse_scenario(f"preset pulsar\n{text}").is_pulsar
