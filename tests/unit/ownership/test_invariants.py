"""What must hold of a cluster's records: each violation is found, and nothing else is."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.ownership import protocol
from lbcore.ownership.changes import Change
from lbcore.ownership.invariants import (
    Invariant,
    Violation,
    of_bundles,
    violations_of_changes,
)
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.messages import AckOutcome
from tests.support.values.invariants import violations
from tests.support.values.ownership_records import (
    BUNDLE,
    CLUSTER,
    LEFT,
    MAKERS,
    NAMESPACE,
    ORIGIN,
    RIGHT,
    A,
    B,
    deleted,
    free,
    owned,
    record_of,
    releasing,
    say,
    splitting,
)


def records(*found: OwnershipRecord) -> dict[str, OwnershipRecord]:
    return {record.bundle: record for record in found}


def named(record: OwnershipRecord, bundle: str) -> OwnershipRecord:
    return replace(record, bundle=bundle)


def kinds(found: list[Violation]) -> list[tuple[Invariant, str]]:
    return [(violation.invariant, violation.where) for violation in found]


@pytest.mark.parametrize("state", MAKERS)
def test_one_bundle_in_any_state_violates_nothing(state: State) -> None:
    assert violations(records(MAKERS[state]())) == []


def test_split_namespace_beside_its_deleted_parent_violates_nothing() -> None:
    made = say(splitting(), AckOutcome.SPLIT, A)
    after = records(*(change.after for change in made.changes))
    assert violations(after, records(splitting())) == []


@pytest.mark.parametrize("count", [1, 2, 3, 7, 128])
def test_even_bundles_of_two_namespaces_violate_nothing(count: int) -> None:
    names = [
        name
        for namespace in ("t/a", "t/b")
        for name in NamespaceBundles(namespace, even_boundaries(count)).names()
    ]
    assert violations(records(*(named(free(), name) for name in names))) == []


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (["0x00000000_0x80000000"], [(Invariant.COVER, NAMESPACE)]),
        (["0x80000000_0xffffffff"], [(Invariant.COVER, NAMESPACE)]),
        (["0x00000000_0x40000000", "0x80000000_0xffffffff"], [(Invariant.COVER, NAMESPACE)]),
        (
            ["0x00000000_0x80000000", "0x70000000_0xffffffff"],
            [(Invariant.DISJOINT, f"{NAMESPACE}/0x70000000_0xffffffff")],
        ),
        (
            ["0x00000000_0xffffffff", "0x80000000_0xffffffff"],
            [(Invariant.DISJOINT, f"{NAMESPACE}/0x80000000_0xffffffff")],
        ),
        (
            ["0x00000000_0xffffffff", "0xffffffff_0xffffffff"],
            [(Invariant.DISJOINT, f"{NAMESPACE}/0xffffffff_0xffffffff")],
        ),
        (["0x0_0xffffffff"], [(Invariant.NAME, f"{NAMESPACE}/0x0_0xffffffff")]),
    ],
)
def test_bundles_that_do_not_tile_the_hash_space_are_found(
    ranges: list[str], expected: list[tuple[Invariant, str]]
) -> None:
    names = [f"{NAMESPACE}/{text}" for text in ranges]
    assert kinds(of_bundles(NAMESPACE, names)) == expected
    assert kinds(violations(records(*(named(free(), name) for name in names)))) == expected


def test_namespace_with_only_deleted_bundles_needs_no_cover() -> None:
    assert violations(records(named(deleted(), LEFT))) == []


@pytest.mark.parametrize(
    "broken",
    [
        replace(owned(), destination="", destination_incarnation=""),
        replace(owned(), destination_incarnation=""),
        replace(releasing(A, B), source="", source_incarnation=""),
        replace(releasing(A, B), source="broker-b"),
        replace(splitting(), children={LEFT: ""}),
        replace(free(), destination="broker-a", destination_incarnation="a1"),
        replace(owned(), version_id=0),
    ],
)
def test_record_whose_state_and_brokers_disagree_is_found(broken: OwnershipRecord) -> None:
    assert kinds(violations(records(broken))) == [(Invariant.STATE_AND_BROKERS, BUNDLE)]


def test_record_under_another_name_is_found() -> None:
    found = violations({BUNDLE: named(free(), LEFT)})
    assert (Invariant.NAME, BUNDLE) in kinds(found)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (owned(), free(), [(Invariant.VERSION, BUNDLE)]),
        (owned(A), owned(B), [(Invariant.VERSION, BUNDLE)]),
        (owned(), owned(), []),
        (owned(), replace(owned(), writer_epoch=99), []),
        (owned(), releasing(), []),
        (deleted(), None, []),
        (owned(), None, [(Invariant.LOST, BUNDLE)]),
    ],
)
def test_record_against_an_earlier_one_may_only_go_forward(
    before: OwnershipRecord,
    after: OwnershipRecord | None,
    expected: list[tuple[Invariant, str]],
) -> None:
    present = {} if after is None else records(after)
    assert kinds(violations(present, records(before))) == expected


def test_sentence_of_a_violation_names_both_bundles_and_what_it_means() -> None:
    (found,) = violations(records(free(), named(free(), RIGHT)))
    assert (
        found.sentence == f"{BUNDLE} and {RIGHT} are both live and overlap: a hash has two owners"
    )


def live_bundles(
    after: Mapping[str, OwnershipRecord], asked: list[str]
) -> Callable[[str], list[str]]:
    def of_namespace(namespace: str) -> list[str]:
        asked.append(namespace)
        return [name for name, record in after.items() if record.state is not State.DELETED]

    return of_namespace


def test_changes_that_move_bundles_do_not_look_at_the_namespace() -> None:
    moved = protocol.unload(owned(), ORIGIN, B).changes
    asked: list[str] = []
    assert violations_of_changes(moved, live_bundles(records(releasing()), asked)) == []
    assert asked == []


def test_changes_of_a_split_look_at_the_namespace_once() -> None:
    made = say(splitting(), AckOutcome.SPLIT, A)
    asked: list[str] = []
    after = records(*(change.after for change in made.changes))
    assert violations_of_changes(made.changes, live_bundles(after, asked)) == []
    assert asked == [NAMESPACE]


def test_changes_that_lose_a_child_are_found() -> None:
    made = say(splitting(), AckOutcome.SPLIT, A)
    left, _, parent = made.changes
    after = records(left.after, parent.after)
    found = violations_of_changes([left, parent], live_bundles(after, []))
    assert kinds(found) == [(Invariant.COVER, NAMESPACE)]


def test_changes_that_go_back_in_version_are_found() -> None:
    back = Change(before=owned(), after=replace(owned(), version_id=2))
    found = violations_of_changes([back], live_bundles({}, []))
    assert kinds(found) == [(Invariant.VERSION, BUNDLE)]


def test_create_of_half_a_namespace_is_found() -> None:
    made = record_of(protocol.create(CLUSTER, LEFT, ORIGIN))
    change = Change(before=None, after=made)
    found = violations_of_changes([change], live_bundles(records(made), []))
    assert kinds(found) == [(Invariant.COVER, NAMESPACE)]
