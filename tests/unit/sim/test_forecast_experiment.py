"""The experiment of docs/forecast.md measures what it says: brokers report what is foretold."""

from dataclasses import replace
from functools import partial

import numpy as np

from jobs.operating.simulations import config_of
from lbcore.sim.engine.rehearsal import run_scenario
from lbcore.sim.engine.traffic import Traffic
from tests.experiments.forecast import (
    DAY_MS,
    MINUTE_MS,
    SETTINGS,
    ForetoldTraffic,
    drawn,
    oracle,
    plain,
    run_foretold,
    seasonal,
    with_day_before,
)

DAYS = 2


def columns_of(traffic: Traffic | ForetoldTraffic, at_ms: int, topics: int) -> list[list[float]]:
    rows = np.arange(topics)
    found: list[list[float]] = (
        traffic.at(at_ms).located(np.stack((rows, rows + 1), axis=1)).tolist()
    )
    return found


def test_plain_report_makes_the_run_that_there_is_without_the_experiment() -> None:
    short = replace(drawn("jobs", DAYS), run_ms=10 * MINUTE_MS)
    usual = run_scenario(short, config_of(short, "ballast", SETTINGS))
    assert run_foretold(short, plain).recorder.hash() == usual.recorder.hash()


def test_oracle_reports_what_will_be_and_judged_is_what_is() -> None:
    short = replace(drawn("jobs", DAYS), run_ms=10 * MINUTE_MS)
    truth = Traffic(short)
    length_ms = DAYS * DAY_MS
    told = ForetoldTraffic(truth, partial(oracle, 5 * MINUTE_MS), length_ms)
    now = columns_of(told, 3 * MINUTE_MS, truth.topics)
    assert now == columns_of(truth, 8 * MINUTE_MS, truth.topics)
    assert now != columns_of(truth, 3 * MINUTE_MS, truth.topics)
    before, after = run_foretold(short, plain), run_foretold(short, partial(oracle, 5 * MINUTE_MS))
    rates = [[one.rate for one in run.recorder.samples] for run in (before, after)]
    assert rates[0] == rates[1]


def test_day_before_is_the_one_that_was_recorded_before_the_first() -> None:
    whole = drawn("waves", DAYS)
    later = with_day_before(whole)
    truth = Traffic(later)
    told = ForetoldTraffic(truth, partial(seasonal, 5 * MINUTE_MS), DAYS * DAY_MS)
    now, then = (columns_of(Traffic(one), 5 * MINUTE_MS, truth.topics) for one in (later, whole))
    found = np.array(columns_of(told, 0, truth.topics))[:, :2]
    wanted = 0.5 * np.array(columns_of(truth, 0, truth.topics)) + 0.5 * np.array(then)
    assert np.allclose(found, wanted[:, :2])
    assert not np.allclose(np.array(now), np.array(then))
