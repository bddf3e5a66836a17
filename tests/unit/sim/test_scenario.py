"""Scenarios as text: what a line means, and what an error says."""

import pytest

from lbcore.sim.scenario.metrics import METRICS
from lbcore.sim.scenario.parse import parse_scenario, with_recorded
from lbcore.sim.scenario.tokens import (
    Rate,
    ScenarioError,
    broker_names,
    duration_ms,
    format_ms,
    share,
    span,
)

HEAD = "brokers 3\nnamespace t/n bundles=10\n"
END = "run 30m\n"


@pytest.mark.parametrize(
    ("word", "expected"), [("500ms", 500), ("30s", 30_000), ("1.5h", 5_400_000), ("1d", 86_400_000)]
)
def test_duration_of_each_unit_is_milliseconds(word: str, expected: int) -> None:
    assert duration_ms(word) == expected


@pytest.mark.parametrize("value", [0, 1, 999, 90_000, 120_000, 86_400_000])
def test_time_that_is_written_is_read_as_it_was(value: int) -> None:
    assert duration_ms(format_ms(value)) == value


def test_brokers_of_several_ranges_are_all_named_in_order() -> None:
    assert broker_names("b2,b5-b7") == ("b2", "b5", "b6", "b7")
    assert broker_names("all") == ("all",)


def test_part_is_read_with_and_without_a_percent_sign() -> None:
    assert share("5%") == share("0.05") == 0.05


def test_span_of_one_number_begins_and_ends_with_it() -> None:
    assert span("7") == (7, 7)


def test_prose_is_left_out_and_what_is_recorded_kept() -> None:
    scenario = parse_scenario(f"# nothing\n{HEAD}run 5m  # not long\n----\nout\nput\n")
    assert scenario.run_ms == 300_000
    assert scenario.recorded == "out\nput\n"


def test_output_that_is_recorded_replaces_what_was() -> None:
    once = with_recorded(HEAD + END, "first\n")
    again = with_recorded(once, "second\n")
    assert parse_scenario(once).recorded == "first\n"
    assert parse_scenario(again).recorded == "second\n"
    assert again.count("----") == 1


def test_load_line_says_rate_form_and_bundles() -> None:
    scenario = parse_scenario(
        f"{HEAD}load t/n hotspot 30pt each bundles=2-4 from 5m for 1m every 10m width=5%\n{END}"
    )
    (spec,) = scenario.loads
    assert spec.rate == Rate(value=30.0, unit="pt", is_each=True)
    assert (spec.first, spec.last) == (2, 4)
    assert (spec.from_ms, spec.length_ms, spec.every_ms) == (300_000, 60_000, 600_000)
    assert spec.width == 0.05


def test_broker_line_changes_one_and_adds_those_that_are_new() -> None:
    scenario = parse_scenario(f"{HEAD}broker b2 capacity=2\nbroker b4 absent\n{END}")
    assert [(b.name, b.capacity, b.is_absent) for b in scenario.brokers] == [
        ("b1", 1.0, False),
        ("b2", 2.0, False),
        ("b3", 1.0, False),
        ("b4", 1.0, True),
    ]


def test_brokers_that_are_counted_leave_those_that_are_named() -> None:
    scenario = parse_scenario("broker b2 capacity=2\nbrokers 2\nrun 1m\n")
    assert [(b.name, b.capacity) for b in scenario.brokers] == [
        ("b2", 2.0),
        ("b1", 1.0),
        ("b3", 1.0),
    ]


def test_what_happens_may_concern_brokers_that_are_added() -> None:
    scenario = parse_scenario(f"{HEAD}at 1m add brokers=2\nat 2m crash b4-b5\n{END}")
    assert scenario.scenario_events[-1].brokers == ("b4", "b5")


def test_happenings_come_in_the_order_of_time() -> None:
    scenario = parse_scenario(f"{HEAD}at 3m crash b1\nat 1m pause b2 for 5s\n{END}")
    assert [(one.verb, one.brokers) for one in scenario.scenario_events] == [
        ("pause", ("b2",)),
        ("crash", ("b1",)),
    ]


@pytest.mark.parametrize("written", ["load:b1.max", "load.max:b1"])
def test_stat_stands_behind_the_name_or_the_argument(written: str) -> None:
    (found,) = parse_scenario(f"{HEAD}{END}expect {written} <= 80 from 1m").expectations
    assert (found.metric, found.argument, found.from_ms) == ("load.max", "b1", 60_000)


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
    if metric.argument and not metric.is_open:
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


def test_namespace_that_is_owned_in_part_is_refused() -> None:
    with pytest.raises(ScenarioError, match="bundle 5 of t/n has no owner"):
        parse_scenario(f"{HEAD}own t/n 0-4 b1\n{END}")
