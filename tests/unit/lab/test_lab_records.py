"""The lab: counts, bars, planned work and its page."""

from tests.lab.bars import by_contender
from tests.lab.page import KEPT, PAGE, PICTURE, kept_records, page
from tests.lab.picture import picture


def test_page_of_the_lab_and_its_picture_are_drawn_from_the_kept_records() -> None:
    records = kept_records()
    assert KEPT.exists()
    assert PAGE.read_text() == page(records), "run `python -m tests.lab.page FOLDER`"
    assert PICTURE.read_text() == picture(by_contender(records))
