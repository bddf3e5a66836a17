"""The guardian over random histories: moves are no findings, faults are found in time, once."""

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lbcore.bridge.anomalies import ProbeRound, Trouble
from lbcore.bridge.guardian import GuardianTimeouts, GuardState, Judged, judge

BROKERS = ("a:8080", "b:8080", "c:8080")
BUNDLES = tuple(f"acme/ns{number}/0x00000000_0xffffffff" for number in range(4))
PATIENCE = GuardianTimeouts()
LOOK_MS = 5_000

claims = st.fixed_dictionaries(
    {one: st.none() | st.frozensets(st.sampled_from(BUNDLES)) for one in BROKERS}
)
rounds = st.builds(
    ProbeRound,
    listed=st.frozensets(st.sampled_from(BROKERS)),
    owned=claims,
    closing=st.frozensets(st.sampled_from(BUNDLES)),
    asked_for=st.frozensets(st.sampled_from(BUNDLES)),
)
histories = st.lists(st.tuples(rounds, st.integers(0, 6_000)), max_size=12)


def lived(history: list[tuple[ProbeRound, int]], *, acts: bool = True) -> list[tuple[int, Judged]]:
    state, now_ms, found = GuardState(), 0, []
    for seen, later_ms in history:
        now_ms += later_ms
        found.append((now_ms, judge(state, seen, now_ms, PATIENCE, acts=acts)))
        state = found[-1][1].state
    return found


def turned(seen: ProbeRound) -> ProbeRound:
    """The same in another order."""
    owned: Mapping[str, frozenset[str] | None] = dict(reversed(list(seen.owned.items())))
    return ProbeRound(
        listed=seen.listed, owned=owned, closing=seen.closing, asked_for=seen.asked_for
    )


@given(histories)
def test_order_in_which_brokers_answered_changes_nothing(
    history: list[tuple[ProbeRound, int]],
) -> None:
    once, again = lived(history), lived([(turned(seen), at) for seen, at in history])
    assert [(one.findings, one.mends) for _, one in once] == [
        (one.findings, one.mends) for _, one in again
    ]


@given(histories)
def test_whatever_happens_findings_have_lasted_and_mends_are_few(
    history: list[tuple[ProbeRound, int]],
) -> None:
    found = lived(history)
    for now_ms, judged in found:
        for one in judged.findings:
            assert now_ms - one.since_ms >= PATIENCE.of(one.trouble)
        assert judged.look_in_ms is None or 0 <= judged.look_in_ms <= PATIENCE.confirm_ms
        asked = sum(len(one.mends) for at_ms, one in found if now_ms - 60_000 < at_ms <= now_ms)
        assert asked <= PATIENCE.mends_per_minute
    asked_of = [
        (one.trouble, one.subject, one.since_ms) for _, judged in found for one in judged.mends
    ]
    assert len(asked_of) == len(set(asked_of))


@given(st.lists(st.tuples(st.sampled_from(BUNDLES), st.sampled_from(BROKERS)), max_size=30))
def test_moves_that_are_seen_at_both_places_or_at_none_are_no_findings(
    moves: list[tuple[str, str]],
) -> None:
    """A bundle's move shows in one look, as in the worst order of questions; looks go on after."""
    where = dict.fromkeys(BUNDLES, BROKERS[0])
    looks = [where]
    for bundle, broker in moves:
        looks.append({**looks[-1], bundle: broker})
    history = [(settled(looks[0]), 0)]
    for number, (before, after) in enumerate(pairwise(looks)):
        both = dict.fromkeys(BROKERS, frozenset[str]())
        for each in (before, after) if number % 2 else ():
            both = {one: both[one] | settled(each).owned[one] for one in BROKERS}  # type: ignore[operator]
        mixed = ProbeRound(listed=frozenset(BROKERS), owned=both, asked_for=frozenset(BUNDLES))
        history += [(mixed, LOOK_MS), (settled(after), LOOK_MS)]
    assert not any(judged.findings for _, judged in lived(history))


def settled(where: Mapping[str, str]) -> ProbeRound:
    owned: dict[str, frozenset[str] | None] = {
        broker: frozenset(bundle for bundle, owner in where.items() if owner == broker)
        for broker in BROKERS
    }
    return ProbeRound(listed=frozenset(BROKERS), owned=owned, asked_for=frozenset(BUNDLES))


@given(st.integers(0, LOOK_MS - 1), st.sampled_from(BUNDLES))
def test_second_owner_is_found_within_ten_seconds_at_the_default_looks(
    fault_ms: int, bundle: str
) -> None:
    sound = settled(dict.fromkeys(BUNDLES, BROKERS[0]))
    hurt = ProbeRound(listed=sound.listed, owned={**sound.owned, BROKERS[1]: frozenset((bundle,))})
    state, now_ms = GuardState(), 0
    while True:
        judged = judge(state, hurt if now_ms >= fault_ms else sound, now_ms, PATIENCE, acts=False)
        state = judged.state
        if judged.findings:
            break
        now_ms += LOOK_MS if judged.look_in_ms is None else min(LOOK_MS, judged.look_in_ms)
    assert [(one.trouble, one.subject) for one in judged.findings] == [(Trouble.DOUBLED, bundle)]
    assert now_ms - fault_ms <= 10_000
