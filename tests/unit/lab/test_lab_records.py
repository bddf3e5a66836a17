"""The lab: counts, bars, planned work and its page."""

from dataclasses import replace

import pytest

from tests.lab.bars import bars, by_contender
from tests.lab.page import KEPT, PAGE, PICTURE, kept_records, page
from tests.lab.picture import picture
from tests.lab.planned_page import PlannedRecord, bar_lines, kept_planned, planned_bars, section
from tests.lab.planned_page import from_json as from_json_planned
from tests.lab.planned_page import to_json as to_json_planned
from tests.lab.records import (
    ADDED,
    SKEW,
    Latencies,
    Move,
    Phase,
    Record,
    Sample,
    from_json,
    to_json,
)


def _move(at_s: float, bundle: str, *, is_failover: bool = False) -> Move:
    return Move(at_s=at_s, bundle=bundle, source=2, target=1, rate=10.0, is_failover=is_failover)


RECORD = Record(
    contender="avg",
    run=1,
    began="2026-11-24 20:00",
    cores=2,
    load=(1.0, 2.0, 3.0),
    phases=(
        Phase(name="even", began_s=0.0, ended_s=10.0),
        Phase(name=SKEW, began_s=10.0, ended_s=110.0),
        Phase(name=ADDED, began_s=110.0, ended_s=235.0),
    ),
    samples=(
        Sample(at_s=0.0, ratio=1.02, unowned=0),
        Sample(at_s=10.0, ratio=2.0, unowned=0),
        Sample(at_s=70.0, ratio=1.5, unowned=1),
        Sample(at_s=72.0, ratio=1.2, unowned=0),
    ),
    moves=(_move(70.0, "a"), _move(120.0, "a"), _move(130.0, "b", is_failover=True)),
    new_broker_s=10.0,
    latencies=Latencies(
        publish_moves=1.0, publish_else=1.0, end_to_end_moves=1.0, end_to_end_else=1.0
    ),
    acknowledged=100,
    lost=0,
    errors=0,
)


def test_record_counts_time_above_the_bound_by_what_held_until_the_next_sample() -> None:
    assert RECORD.above_s() == pytest.approx(62.0)
    assert RECORD.above_s("even") == 0.0
    assert RECORD.above_s(ADDED) == 0.0
    assert RECORD.unowned_s == pytest.approx(2.0)
    assert RECORD.mean_ratio(SKEW) == pytest.approx((60 * 2.0 + 2 * 1.5 + 38 * 1.2) / 100)
    assert RECORD.last_ratio(SKEW) == 1.2


def test_record_leaves_out_of_its_moves_what_a_dead_broker_made_necessary() -> None:
    assert [move.bundle for move in RECORD.own_moves] == ["a", "a"]
    assert RECORD.repeated == 1
    assert RECORD.first_move_s == 60.0


def test_record_comes_back_from_json_as_it_was() -> None:
    assert from_json(to_json(RECORD)) == RECORD


@pytest.mark.parametrize(
    ("above_s", "moves", "used_s", "verdicts"),
    [
        (31.0, 2, 120.0, ["met", "met", "met"]),
        (31.5, 3, 120.5, ["missed", "missed", "missed"]),
        (0.0, 0, -1.0, ["met", "met", "missed"]),
    ],
)
def test_bars_hold_ballast_to_the_best_of_pulsars(
    above_s: float, moves: int, used_s: float, verdicts: list[str]
) -> None:
    worse = replace(RECORD, contender="threshold", moves=(), samples=RECORD.samples[:2])
    ours = replace(
        RECORD,
        contender="ballast",
        moves=tuple(_move(20.0 + number, "c") for number in range(moves)),
        samples=(
            Sample(at_s=0.0, ratio=2.0, unowned=0),
            Sample(at_s=above_s, ratio=1.0, unowned=0),
        ),
        new_broker_s=used_s,
    )
    assert [bar.verdict for bar in bars([worse, RECORD, ours])] == verdicts


def test_bar_of_a_new_broker_is_not_judged_where_it_was_watched_for_too_short() -> None:
    short = (*RECORD.phases[:2], Phase(name=ADDED, began_s=110.0, ended_s=200.0))
    ours = replace(RECORD, contender="ballast", phases=short, new_broker_s=-1.0)
    assert [bar.verdict for bar in bars([ours])] == ["not judged"] * 3


def test_page_of_the_lab_and_its_picture_are_drawn_from_the_kept_records() -> None:
    records = kept_records()
    assert KEPT.exists()
    assert PAGE.read_text() == page(records), "run `python -m tests.lab.page FOLDER`"
    assert PICTURE.read_text() == picture(by_contender(records))


def test_record_and_page_say_which_pulsar_it_was_4_0_8_where_nobody_wrote_it_down() -> None:
    newer = replace(RECORD, pulsar="4.2.4")
    assert from_json(to_json(newer)) == newer
    before = {key: value for key, value in to_json(newer).items() if key != "pulsar"}
    assert from_json(before).pulsar == "4.0.8"
    assert "Pulsar 4.2.4 broker a host of its own" in page([newer])


OURS = PlannedRecord(
    way="ballast",
    run=1,
    began="2026-11-26 17:00",
    cores=2,
    load=(1.0, 2.0, 3.0),
    seconds=600.0,
    publish_p99=120.0,
    publish_most=900.0,
    publish_p99_moves=480.0,
    end_to_end_p99=130.0,
    end_to_end_most=950.0,
    sent=90_000,
    slow=12,
    lost=0,
    errors=0,
    unowned_s=3.0,
    unowned_bundle_s=4.0,
    moves=48,
    before=1.02,
    after=1.02,
)
THEIRS = replace(OURS, way="pulsar", publish_p99=4_000.0, errors=3)


def test_bars_are_met_by_what_is_at_most_half_a_second_without_error_or_loss() -> None:
    assert [is_met for _, is_met, _ in planned_bars([OURS, THEIRS])] == [True] * 4
    wrong = replace(OURS, publish_p99=501.0, publish_p99_moves=501.0, errors=1, lost=1)
    assert [is_met for _, is_met, _ in planned_bars([wrong])] == [False] * 4
    assert planned_bars([THEIRS]) == []


def test_bars_are_told_beside_pulsars_own() -> None:
    first = bar_lines([OURS, THEIRS])[0]
    assert (
        first == "met: planned work: publish p99 is at most 500 ms: 120 ms, Pulsar's own 4,000 ms"
    )


def test_nothing_sent_is_no_bar_met() -> None:
    silent = replace(OURS, publish_p99=-1.0)
    assert planned_bars([silent])[0][1] is False


def test_record_is_as_it_was_after_json() -> None:
    assert from_json_planned(to_json_planned(OURS)) == OURS


def test_section_of_the_page_has_both_ways_and_is_there_only_with_records() -> None:
    text = "\n".join(section([THEIRS, OURS]))
    assert "4,000" in text
    assert "**met**" in text
    assert section([]) == []
    assert all(one.way in ("pulsar", "ballast") for one in kept_planned())
