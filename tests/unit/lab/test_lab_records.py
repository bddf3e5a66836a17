"""What the lab counts, what its bars say, and that its page is drawn from the records."""

from dataclasses import replace

import pytest

from tests.lab.bars import bars, by_contender
from tests.lab.page import KEPT, PAGE, PICTURE, kept_records, page
from tests.lab.picture import picture
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
