"""Explanations of a cluster in virtual time: what they say is true of it."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from jobs.cli import main
from lbcore.explain.broker import explain_broker, newest_cycle, newest_trigger
from lbcore.explain.bundle import explain_bundle
from lbcore.explain.cluster import explain_cluster, explain_decision
from lbcore.explain.explanation import Explanation, number
from lbcore.explain.reasons import REPAIRS, trigger_message
from lbcore.explain.status import last_decisions
from lbcore.model.times import duration
from lbcore.ownership.changes import IntentReason
from lbcore.plan.decision import PLACEMENTS_NAMED
from tests.support.values.clusters import few
from tests.support.worlds.checked_world import decided, owners, running, skewed
from tests.support.worlds.explained_world import about, rows_of, write_tables
from tests.support.worlds.world import World


@pytest.fixture(scope="module")
def world() -> World:
    """One of four brokers was hot; bundles have moved, and one is pinned."""
    found = running(4, 24)
    skewed(found)
    found.run(120_000)
    bundle, broker = min(owners(found).items())
    found.command("pin_bundle", bundle=bundle, broker=broker, reason="release day")
    found.run(3_000)
    return found


def of_bundle(world: World, bundle: str) -> Explanation:
    found = explain_bundle(about(world, bundle), bundle)
    assert found is not None
    return found


def test_moved_bundle_is_explained_by_the_decision_that_moved_it(world: World) -> None:
    move = decided(world, "transfer")[-1]
    found = of_bundle(world, str(move["bundle"]))
    why = " ".join(found.why)
    assert f"is owned by {move['destination']}" in found.headline
    assert found.why[0] == "balancing moved it"
    assert str(move["decision_id"]) in why
    assert "points apart; it takes 8 hits from 15" in why
    assert "it helped" in why
    assert any(text.startswith("cool-down until") for text in found.blocks)
    assert found.candidates[0].startswith("chosen 1 time in ")
    assert found.candidates[0].endswith("transfer (Overloaded)")


@pytest.mark.parametrize(("strategy", "rests"), [("avg", True), ("ballast", False)])
def test_rest_of_a_shed_bundle_is_told_as_the_strategy_keeps_it(
    world: World, strategy: str, *, rests: bool
) -> None:
    move = decided(world, "transfer")[-1]
    shedding = replace(world.config.shedding, strategy=strategy)
    rows = replace(
        about(world, str(move["bundle"])),
        config=replace(world.config, shedding=shedding),
        at_ms=int(move["at_ms"]) + 300_000,
    )
    found = explain_bundle(rows, str(move["bundle"]))
    assert found is not None
    assert any(text.startswith("cool-down until") for text in found.blocks) == rests


def test_cool_down_that_never_ends_is_told(world: World) -> None:
    move = decided(world, "transfer")[-1]
    shedding = replace(world.config.shedding, cool_down_ms=10**16)
    rows = about(world, str(move["bundle"]))
    rows = replace(rows, config=replace(world.config, shedding=shedding))
    found = explain_bundle(rows, str(move["bundle"]))
    assert found is not None
    assert any(text.startswith("cool-down until 9999-12-31 23:59:59") for text in found.blocks)


def test_hot_broker_stays_explained_while_another_drains_between_two_rounds(world: World) -> None:
    move = decided(world, "transfer")[-1]
    rows = rows_of(world)
    candidates = [row for row in rows.candidates if row["at_ms"] <= move["at_ms"]]
    rows = replace(rows, candidates=candidates)
    until = [row for row in rows.decisions if row["at_ms"] <= move["at_ms"]]
    now_ms, cycle = move["at_ms"] + 10_000, move["cycle"] + 1
    drain = {**move, "kind": "drain", "reason": "Draining", "at_ms": now_ms, "cycle": cycle}
    pipeline = replace(rows.config.pipeline, shed_interval_ms=60_000)
    config = replace(rows.config, pipeline=pipeline)
    before = newest_trigger(replace(rows, decisions=until), move["source"])
    assert before is not None
    later = replace(rows, decisions=[*until, drain], at_ms=now_ms, config=config)
    assert newest_trigger(later, move["source"]) == before


def placed(found: Explanation) -> list[str]:
    return [text for text in found.candidates if text.startswith("assign, in ")]


def test_bundle_of_a_crashed_broker_says_who_was_considered_for_it() -> None:
    world = running(4, 24)
    lost = sorted(name for name, broker in owners(world).items() if broker == "broker-2:8080")
    world.kill("broker-2:8080")
    world.run(40_000)
    failovers = {row["decision_id"] for row in decided(world, "failover")}
    rows = [r for r in world.other_rows["decision_candidates"] if r["decision_id"] in failovers]
    assert {row["subject"] for row in rows} == set(lost)
    assert "runner_up" in {row["verdict"] for row in rows}
    for bundle in lost:
        found = of_bundle(world, bundle)
        assert found.why[0] == "its owner was found dead"
        assert "failover" in found.why[1]
        assert found.why[1].endswith("from broker-2:8080")
        assert f"was chosen ({owners(world)[bundle]}" in " ".join(placed(found))


def test_child_of_a_split_says_that_and_who_was_considered_for_it() -> None:
    world = running(4, 24)
    parent = min(owners(world))
    before = set(owners(world))
    world.command("split_bundle", bundle=parent, unload=True, force=True)
    world.run(20_000)
    children = set(owners(world)) - before
    assert len(children) == 2
    for child in children:
        assert len(placed(of_bundle(world, child))) > 1
        assert any(f"of {parent}" in text for text in of_bundle(world, child).why)


def test_crash_of_many_bundles_names_the_heaviest_and_counts_the_others() -> None:
    world = running(4, 300)
    lost = {name for name, broker in owners(world).items() if broker == "broker-2:8080"}
    world.kill("broker-2:8080")
    world.run(40_000)
    ids = {row["decision_id"] for row in decided(world, "failover")}
    rows = [r for r in world.other_rows["decision_candidates"] if r["decision_id"] in ids]
    named = {row["subject"] for row in rows if row["subject"]}
    assert len(lost) > len(named) == PLACEMENTS_NAMED
    assert sum(row["count"] for row in rows if not row["subject"]) == len(lost) - len(named)
    unnamed = min(lost - named)
    assert "ballast explain decision" in " ".join(of_bundle(world, unnamed).candidates)


def test_pinned_bundle_says_where_and_why_and_one_that_never_moved_is_free(world: World) -> None:
    bundle, broker = min(owners(world).items())
    assert f"pinned to {broker} until unpinned (release day)" in of_bundle(world, bundle).blocks
    moved = {event["bundle"] for event in world.events if event["cause"] == "shed"}
    calm = next(name for name in sorted(owners(world), reverse=True) if name not in moved)
    found = of_bundle(world, calm)
    assert found.why[0] == "it had no owner, and placement chose one"
    assert found.blocks == ("nothing: it may be moved",)


def test_bundle_that_was_just_placed_for_the_first_time_does_not_cool_down() -> None:
    world = running(3, 6)
    assert world.now_ms - min(row["at_ms"] for row in world.newest()) < 60_000
    bundle, broker = min(owners(world).items())
    assert of_bundle(world, bundle).blocks == ("nothing: it may be moved",)
    found = explain_broker(rows_of(world), broker)
    assert found is not None
    assert found.blocks == ()


def test_broker_counts_what_commands_and_crashes_moved() -> None:
    world = running(4, 24)
    world.command("unload_namespace", namespace="t/n", destination="broker-1:8080")
    world.run(8_000)
    found = explain_broker(rows_of(world), "broker-1:8080")
    assert found is not None
    count = sum(row["state"] == "Releasing" for row in world.events)
    assert (
        f"moved {count} bundles to it in the last 1 h: {count} by transfer (an operator's command)"
        in found.why[1]
    )
    own = 24 - count
    assert found.why[2] == (
        f"of the bundles that it has now, placement put {own} there in the last 1 h: "
        f"{own} by assign (it had no owner)"
    )
    assert f"{count} bundles came less than 1 min ago and stay" in found.blocks
    world.kill("broker-1:8080")
    world.run(30_000)
    found = explain_broker(rows_of(world), "broker-1:8080")
    assert found is not None
    assert (
        "moved 24 bundles from it in the last 1 h: 24 by failover (its owner was silent for "
        "ownership.broker_timeout_ms)" in found.why[0]
    )
    assert found.changes == ("it must report again: start it, or `ballast broker forget` it",)
    assert list(found.numbers) == ["bundles"]


@pytest.mark.parametrize(
    ("hanging", "words"),
    [
        (1, "broker-1:8080 is to open it; if it has not by "),
        (0, "broker-0:8080 is to close it; it keeps it if it says nothing of that for 15 s, or is"),
    ],
)
def test_bundle_in_flight_says_who_is_waited_for_and_until_when(hanging: int, words: str) -> None:
    world = running(2, 4)
    bundle = next(name for name, broker in owners(world).items() if broker == "broker-0:8080")
    world.brokers[f"broker-{hanging}:8080"].is_hanging = True
    world.command("unload_bundle", bundle=bundle, destination="broker-1:8080")
    world.run(6_000)
    assert any(text.startswith(words) for text in of_bundle(world, bundle).blocks)
    world.run(70_000)
    found = of_bundle(world, bundle)
    assert found.numbers["state"] == "Owned"
    assert "broker-0:8080" in found.headline  # of two, the one that does not hang, or the old owner


def test_hot_broker_and_cluster_say_what_is_missing_for_a_move(world: World) -> None:
    row = max(
        (r for r in world.other_rows["decision_candidates"] if r["verdict"] == "too_few_hits"),
        key=lambda r: (r["at_ms"], r["number"]),
    )
    found = explain_broker(rows_of(world), str(row["subject"]))
    assert found is not None
    level = json.loads(str(row["detail"]))["levels"][0]
    missing = level["needed"] - level["hits"]
    assert any(f"needs {missing} more hits at or above 15" in text for text in found.changes)
    assert any("a hit needs a report newer" in text for text in found.changes)
    cluster = explain_cluster(rows_of(world))
    assert "imbalance" in cluster.headline
    assert any("for enough reports in a row yet" in text for text in cluster.why)
    assert json.loads(json.dumps(cluster.to_json(), allow_nan=False))["kind"] == "cluster"


def test_command_after_a_cycle_is_not_taken_for_the_cycle() -> None:
    world = running(4, 24)
    skewed(world)
    world.run(30_000)
    cycle = decided(world, "skip")[-1]["cycle"]
    while decided(world, "skip")[-1]["cycle"] == cycle:
        world.run(500)
    world.command("drain_broker", broker="broker-3:8080")
    world.run(2_000)
    assert world.decisions[-1]["kind"] == "drain"
    (newest,) = newest_cycle(rows_of(world))
    assert newest == decided(world, "skip")[-1]


def test_decision_names_its_losers_and_a_skip_what_was_needed_then(world: World) -> None:
    move = decided(world, "transfer")[0]
    found = explain_decision(rows_of(world), str(move["decision_id"]))
    assert found is not None
    lost = [text for text in found.candidates if "did not fit" in text]
    assert lost
    assert not any(str(move["bundle"]) in text for text in lost)
    assert explain_decision(rows_of(world), "nobody-1") is None
    skip = decided(world, "skip", "HitCount")[0]
    found = explain_decision(rows_of(world), str(skip["decision_id"]))
    assert found is not None
    assert "then; needed 7 more hits" in found.changes[0]


def test_paused_cluster_says_so_of_each_bundle() -> None:
    world = running(3, 6)
    world.command("pause", reason="upgrade")
    world.run(12_000)
    found = of_bundle(world, min(owners(world)))
    assert "balancing is paused for the whole cluster (upgrade)" in found.blocks
    assert any("Paused" in text for text in found.changes)


def test_policies_that_bind_a_bundle_are_told_with_their_patterns() -> None:
    world = running(3, 6)
    world.command(
        "set_isolation_policy", policy="own", namespaces=["t/.*"], primary=["broker-[01]"],
        secondary=["broker-2"],
    )  # fmt: skip
    world.command("set_isolation_policy", policy="other", namespaces=["u/.*"], primary=["x"])
    world.command("set_anti_affinity_group", namespace="t/n", group="pair")
    world.run(12_000)
    blocks = of_bundle(world, min(owners(world))).blocks
    own = "isolation policy own: only brokers like broker-[01]"
    own += ", or broker-2 with fewer than 1 of these"
    assert own in blocks
    assert not any("policy other" in text for text in blocks)
    assert "anti-affinity group pair: kept apart from its other namespaces" in blocks


def test_child_of_a_split_says_that_its_parent_was_split() -> None:
    world = running(2, 2)
    parent = min(owners(world))
    world.command("split_bundle", bundle=parent, force=True)
    world.run(5_000)
    child = min(owners(world).keys() - {parent})
    assert child.startswith(parent.rpartition("_")[0])
    why = of_bundle(world, child).why
    assert why[0] == "its parent was split"
    assert any(f"of {parent}" in text for text in why)


@pytest.mark.parametrize(
    ("now", "levels", "words"),
    [
        (31.0, [(40, 0, 3)], "31 points now; needs 3 hits in a row at or above 40"),
        (44.0, [(40, 1, 3)], "44 points now; needs 2 more hits at or above 40 (1 of 3 so far)"),
        (31.0, [(85, 0, 1)], "31 points now; needs 1 hit at or above 85"),
        (14.97, [(15, 0, 1)], "14.97 points now; needs 1 hit at or above 15"),
        (14.99996, [(15, 0, 1)], "14.99996 points now; needs 1 hit at or above 15"),
        (15.0, [(15, 1, 2)], "15 points now; needs 1 more hit at or above 15 (1 of 2 so far)"),
    ],
)
def test_gauge_says_how_many_hits_are_missing(
    now: float, levels: list[tuple[int, int, int]], words: str
) -> None:
    shown = [{"threshold": t, "hits": h, "needed": n} for t, h, n in levels]
    assert trigger_message({"measure": "points", "number": now, "levels": shown}) == words


def test_numbers_and_durations_read_well() -> None:
    assert [number(x) for x in (0.0, 12.34, 1234.5, 0.051, float("nan"))] == [
        "0", "12.3", "1,234", "0.051", "-",
    ]  # fmt: skip
    assert [duration(x) for x in (850, 12_000, 245_000, 7_800_000)] == [
        "850 ms", "12 s", "4 min 5 s", "2 h 10 min",
    ]  # fmt: skip


def test_numbers_are_words_and_not_json_for_people(world: World) -> None:
    rows = rows_of(world)
    texts = [*explain_cluster(rows).lines()]
    for broker in sorted(world.brokers):
        found = explain_broker(rows, broker)
        assert found is not None
        texts += found.lines()
    for decision in rows.decisions[-40:]:
        told = explain_decision(rows, str(decision["decision_id"]))
        assert told is not None
        texts += told.lines()
    assert not [text for text in texts if any(sign in text for sign in '{}[]"')]
    assert not [text for text in texts if ": 0 by " in text or ", 0 by " in text]


@pytest.fixture
def tables(world: World, tmp_path: Path) -> Iterator[Path]:
    write_tables(world, tmp_path)
    with mock.patch("jobs.verbs.reading.wall_ms", return_value=world.now_ms):
        yield tmp_path


def test_verb_answers_from_the_tables(
    world: World, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    move = decided(world, "transfer")[-1]
    where = ["--tables", str(tables), "--json"]
    for words in (
        ["bundle", str(move["bundle"])],
        ["broker", str(move["source"])],
        ["cluster"],
        ["decision", str(move["decision_id"])],
    ):
        assert main(["explain", *words, *where]) == 0
        assert json.loads(capsys.readouterr().out)["headline"]
    assert main(["explain", "bundle", str(move["bundle"]), "--tables", str(tables)]) == 0
    text = capsys.readouterr().out
    assert "what prevents a move:" in text
    assert "it helped" in text
    earlier = ["--at", "2023-11-14T22:14:00Z", "--tables", str(tables)]
    assert main(["explain", "bundle", str(move["bundle"]), *earlier]) == 0
    text = capsys.readouterr().out
    assert f"is owned by {move['source']}" in text
    assert str(move["decision_id"]) not in text
    assert main(["explain", "broker", "nobody", "--tables", str(tables)]) == 1
    assert main(["explain", "broker", "--tables", str(tables)]) == 2


def test_decision_says_who_asked_what_it_became_and_what_was_not_done_in_time() -> None:
    world = running(3, 6)
    bundle = min(owners(world))
    world.command("split_bundle", bundle=bundle, force=True)
    world.run(5_000)
    split = decided(world, "split")[-1]
    found = explain_decision(rows_of(world), str(split["decision_id"]))
    assert found is not None
    assert found.why[0] == "command command-2 asked for it; the table `commands` has whose"
    lower, upper = bundle.split("_")
    halves = [name for name in owners(world) if name.startswith(lower) or name.endswith(upper)]
    assert found.why[1] == f"it became {', '.join(sorted(set(halves) - {bundle}))}"
    assert found.candidates == ()
    elsewhere = ("broker-0:8080", "broker-2:8080")
    moved = next(name for name, broker in sorted(owners(world).items()) if broker in elsewhere)
    world.brokers["broker-1:8080"].is_hanging = True
    world.command("unload_bundle", bundle=moved, destination="broker-1:8080")
    world.run(30_000)
    repair = decided(world, "repair", "never_opened")[-1]
    found = explain_decision(rows_of(world), str(repair["decision_id"]))
    assert found is not None
    assert "did not open it within ownership.in_flight_timeout_ms" in found.why[0]


def test_reason_of_every_repair_has_words() -> None:
    assert {reason.value for reason in IntentReason} == REPAIRS.keys()


@pytest.mark.parametrize("seed", few(range(8), 3))
def test_explanations_do_not_depend_on_the_order_of_rows(world: World, seed: int) -> None:
    rows = rows_of(world)
    random = Random(seed)
    tables = {
        one.name: random.sample(list(getattr(rows, one.name)), len(getattr(rows, one.name)))
        for one in fields(rows)
        if isinstance(getattr(rows, one.name), tuple)
    }
    assert {"candidates", "decisions", "effects", "load"} <= set(tables)
    mixed = replace(rows, **tables)
    assert explain_cluster(mixed) == explain_cluster(rows)
    for broker in {row["broker"] for row in rows.brokers}:
        assert explain_broker(mixed, broker) == explain_broker(rows, broker)
    bundle = str(decided(world, "transfer")[-1]["bundle"])
    assert explain_bundle(mixed, bundle) == explain_bundle(rows, bundle)
    assert last_decisions(mixed) == last_decisions(rows)
    for decision in rows.decisions[-5:]:
        name = str(decision["decision_id"])
        assert explain_decision(mixed, name) == explain_decision(rows, name)


def test_of_a_drain_one_decision_is_shown_which_stands_for_all() -> None:
    world = running(3, 12)
    skewed(world)
    world.run(60_000)
    rows = rows_of(world)
    pattern = dict(rows.decisions[-1])
    drain = {**pattern, "kind": "drain", "reason": "Draining", "source": "broker-1:8080"}
    at_ms = int(pattern["at_ms"])
    many = [
        {**drain, "decision_id": f"d-{number}", "at_ms": at_ms + number, "bundle": f"t/n/{number}"}
        for number in range(60)
    ]
    other = {**many[-1], "decision_id": "d-99", "source": "broker-2:8080"}
    found = last_decisions(replace(rows, decisions=(*rows.decisions, *many, other)))
    drains = [(one.source, one.bundle, one.more) for one in found if one.kind == "drain"]
    assert ("broker-1:8080", "t/n/59", 59) in drains
    assert ("broker-2:8080", "t/n/59", 0) in drains
    before = [one for one in last_decisions(rows) if one.kind not in {"skip", "drain"}]
    assert {one.decision_id for one in before[:15]} <= {one.decision_id for one in found}
