"""The lab: counts, bars, planned work and its page."""

from dataclasses import replace

from tests.lab.bars import by_contender
from tests.lab.page import KEPT, PAGE, PICTURE, kept_records, page
from tests.lab.picture import picture
from tests.lab.planned_page import PlannedRecord, kept_planned, section


def test_page_of_the_lab_and_its_picture_are_drawn_from_the_kept_records() -> None:
    records = kept_records()
    assert KEPT.exists()
    assert PAGE.read_text() == page(records), "run `python -m tests.lab.page FOLDER`"
    assert PICTURE.read_text() == picture(by_contender(records))


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


def test_section_of_the_page_has_both_ways_and_is_there_only_with_records() -> None:
    text = "\n".join(section([THEIRS, OURS]))
    assert "4,000" in text
    assert "**met**" in text
    assert section([]) == []
    assert all(one.way in ("pulsar", "ballast") for one in kept_planned())
