"""What planned work in the lab came to: its bars, and its section of the page."""

from dataclasses import replace

from tests.lab.planned_page import (
    PlannedRecord,
    bar_lines,
    from_json,
    kept_planned,
    planned_bars,
    section,
    to_json,
)

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
    assert from_json(to_json(OURS)) == OURS


def test_section_of_the_page_has_both_ways_and_is_there_only_with_records() -> None:
    text = "\n".join(section([THEIRS, OURS]))
    assert "4,000" in text
    assert "**met**" in text
    assert section([]) == []
    assert all(one.way in ("pulsar", "ballast") for one in kept_planned())
