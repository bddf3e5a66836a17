"""What changed between two moments of the ownership."""

from typing import Any

from lbcore.ownership.differences import find_differences, parties


def row(bundle: str, state: str = "Owned", destination: str = "b1", version_id: int = 1) -> Any:
    return {
        "bundle": bundle,
        "state": state,
        "source": "",
        "destination": destination,
        "version_id": version_id,
    }


def test_difference_is_what_came_went_or_has_another_owner_or_state() -> None:
    before = [row("a"), row("b"), row("c"), row("e")]
    after = [row("a"), row("b", destination="b2"), row("d"), row("e", "Free", "")]
    found = list(find_differences(before, after))
    assert [(one.bundle, one.before is None, one.after is None) for one in found] == [
        ("b", False, False),
        ("c", False, True),
        ("d", True, False),
        ("e", False, False),
    ]


def test_difference_of_who_gave_an_owned_bundle_up_is_none() -> None:
    assert list(find_differences([row("a")], [{**row("a"), "source": "b9"}])) == []
    moving = {**row("a", "Releasing"), "source": "b9"}
    assert parties(moving) == ("b9", "b1")
    assert len(list(find_differences([moving], [{**moving, "source": "b8"}]))) == 1


def test_difference_of_the_version_alone_is_none() -> None:
    assert list(find_differences([row("a", version_id=1)], [row("a", version_id=4)])) == []
