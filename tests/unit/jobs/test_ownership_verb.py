"""What `ballast ownership --diff` says of many bundles at once."""

from jobs.verbs.ownership import change_lines
from lbcore.ownership.changes import find_differences

MOST = 20


def row(namespace: str, at: int) -> dict[str, object]:
    bundle = f"{namespace}/0x{at:02x}000000_0x{at + 1:02x}000000"
    owned = {"state": "Owned", "source": None, "destination": "b1", "version_id": 1}
    return {"namespace": namespace, "bundle": bundle, **owned, "cause": "assign", "at_ms": 0}


def test_bundles_of_a_namespace_that_is_new_are_counted_instead_of_listed() -> None:
    many = [row("acme/many", at) for at in range(MOST + 1)]
    changes = list(find_differences([], [row("acme/few", 0), *many]))
    assert list(change_lines(changes, MOST)) == [
        "+ 21 bundles of acme/many are new (--namespace acme/many lists them)",
        "+ acme/few/0x00000000_0x01000000  Owned b1",
    ]
    assert len(list(change_lines(changes, len(changes)))) == len(changes)


def test_bundles_of_a_namespace_that_went_are_counted_and_those_that_moved_are_listed() -> None:
    many = [row("acme/gone", at) for at in range(MOST + 1)]
    kept = [row("acme/kept", at) for at in range(MOST + 1)]
    moved = [{**one, "destination": "b2"} for one in kept]
    lines = list(change_lines(list(find_differences([*many, *kept], moved)), MOST))
    assert lines[0] == "- 21 bundles of acme/gone are gone (--namespace acme/gone lists them)"
    assert len(lines) == 1 + len(moved)
    assert lines[1].startswith("  acme/kept/0x00000000_0x01000000  Owned b1  =>  Owned b2")
