"""Each number that `explain` prints belongs to the name beside it: all brokers differ here."""

import json
import re
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from lbcore.explain.broker import explain_broker
from lbcore.explain.cluster import explain_cluster, explain_decision
from lbcore.signals.usage import weighted_usage
from tests.support.worlds.checked_world import decided, outcome, owners, running
from tests.support.worlds.explained_world import rows_of
from tests.support.worlds.world import World

RESERVED = "broker-4:8080"
"""The coldest: the partner of the hottest, which may never take its bundles."""
NAME = r"(broker-\d:8080)"


def usages(world: World) -> dict[str, float]:
    """Broker → its usage in percent, as the balancer has it."""
    assert world.state is not None
    entries = sorted(world.state.brokers.items())
    percent = np.array([entry.percent for _, entry in entries], dtype=np.float64)
    found = 100.0 * weighted_usage(percent, world.config.signals)
    return dict(zip((name for name, _ in entries), found.tolist(), strict=True))


def uneven() -> World:
    """Five brokers with numbers that nobody could mistake, the coldest reserved for others."""
    world = running(5, 25, shedding={"by_group": False})
    world.command(
        "set_isolation_policy", policy="p", namespaces=["words/.*"], primary=["broker-4.*"]
    )
    world.run(2_000)
    for bundle, broker in owners(world).items():
        if broker == RESERVED:
            world.command("unload_bundle", bundle=bundle)
    world.run(20_000)
    counts = Counter(owners(world).values())
    loads = dict(zip(sorted(counts), (11_000.0, 3_100.0, 2_300.0, 1_700.0), strict=True))
    world.rates = {b: loads[owner] / counts[owner] for b, owner in owners(world).items()}
    return world


@pytest.fixture(scope="module")
def seen() -> tuple[World, Mapping[str, float], list[str]]:
    """The world after its first moves, usages as these had them, and what was told before."""
    world = uneven()
    before: dict[str, float] = {}
    told: list[str] = []
    while not decided(world, "transfer", "Overloaded"):
        before = usages(world)
        hot = max(before, key=before.__getitem__)
        found = explain_broker(rows_of(world), hot)
        assert found is not None
        told += found.changes
        world.run(500)
        assert len(told) < 2_000, "nothing was moved"
    world.run(60_000)
    return world, before, told


def test_numbers_of_a_decision_stand_beside_their_names(
    seen: tuple[World, Mapping[str, float], list[str]],
) -> None:
    world, before, _ = seen
    first = decided(world, "transfer", "Overloaded")[0]["at_ms"]
    moves = [row for row in decided(world, "transfer") if row["at_ms"] == first]
    for move in moves:
        assert move["destination"] != RESERVED
        found = explain_decision(rows_of(world), str(move["decision_id"]))
        assert found is not None
        text = " ".join(found.why)
        (used,) = re.findall(rf"{NAME} used ([\d.]+) % and {NAME} ([\d.]+) %", text)
        assert (used[0], used[2]) == (move["source"], RESERVED)
        for name, shown in (used[:2], used[2:]):
            assert float(shown) == pytest.approx(before[name], rel=0.06)
        (expected,) = [line for line in found.why if "expected of all moves" in line]
        froms = re.findall(rf"{NAME} from (\d+) % to \d+ %", expected)
        assert [name for name, _ in froms] == [move["source"], move["destination"]]
        for name, shown in froms:
            assert float(shown) == pytest.approx(before[name], abs=0.51)
        chose = rf"{RESERVED} may not take this bundle, or not now: placement chose {NAME}"
        ((chosen, own),) = re.findall(rf"{chose}, which used (\d+) %", text)
        assert (chosen, float(own)) == (
            move["destination"],
            pytest.approx(before[chosen], abs=0.51),
        )
        assert abs(before[chosen] - before[RESERVED]) > 3.0
        inputs = json.loads(str(move["inputs"]))
        assert inputs["partner"] == RESERVED
        assert "score_of_destination" not in inputs


def test_hits_are_not_promised_to_a_partner_that_may_take_nothing(
    seen: tuple[World, Mapping[str, float], list[str]],
) -> None:
    _, _, told = seen
    needing = [text for text in told if "needs" in text and f"({RESERVED})" in text]
    assert needing
    for text in needing:
        assert f"but {RESERVED} may take none of its bundles (is reserved for other" in text
        assert "so they would go to one of 3 other brokers, if to any" in text


def test_broker_counts_its_own_moves_and_placements_and_no_others(
    seen: tuple[World, Mapping[str, float], list[str]],
) -> None:
    world, _, _ = seen
    placed = 0
    for broker in sorted(world.brokers):
        found = explain_broker(rows_of(world), broker)
        assert found is not None
        serves = sum(owner == broker for owner in owners(world).values())
        assert f"serves {serves} bundle" in found.headline
        usage = float(re.findall(r"its usage is (\d+) %", found.headline)[0])
        assert usage == pytest.approx(usages(world)[broker], abs=0.51)
        moves = [row for row in world.decisions if row["kind"] in ("transfer", "unload")]
        for column, way in (("source", "from it"), ("destination", "to it")):
            count = sum(row[column] == broker for row in moves)
            assert any(f"moved {count} bundle" in text and way in text for text in found.why)
        (put,) = [
            int(re.findall(r"placement put (\d+) there", text)[0])
            for text in found.why
            if "placement put" in text
        ] or [0]
        assert put <= serves
        placed += put
    shed = {row["bundle"] for row in decided(world, "transfer")}
    assert placed == len(set(owners(world)) - shed)


def test_cluster_names_the_hottest_with_its_own_usage(
    seen: tuple[World, Mapping[str, float], list[str]],
) -> None:
    world, _, _ = seen
    found = explain_cluster(rows_of(world))
    ((name, shown),) = re.findall(rf"{NAME} has the highest usage, (\d+) %", found.headline)
    now = usages(world)
    assert name == max(now, key=now.__getitem__)
    assert float(shown) == pytest.approx(now[name], abs=0.51)
    listed = found.numbers["usage"]
    assert {name: f"{now[name]:.0f} %" for name in now} == listed


def test_bundles_kept_by_constraints_add_up_to_all_of_the_broker() -> None:
    world = running(4, 24)
    hot = "broker-0:8080"
    mine = sorted(bundle for bundle, owner in owners(world).items() if owner == hot)
    for bundle in mine[:2]:
        world.command("pin_bundle", bundle=bundle, broker=hot)
    world.command("exclude_namespace", namespace="t/n")
    world.rates = {b: 3_000.0 if b in mine else 1.0 for b in owners(world)}
    world.run(240_000)
    inputs = json.loads(str(decided(world, "blocked")[-1]["inputs"]))
    assert sum(inputs["counts"].values()) == inputs["bundles"] == len(mine)
    found = explain_broker(rows_of(world), hot)
    assert found is not None
    text = " ".join(found.changes)
    assert f"{len(mine)} of its {len(mine)} bundles are in namespaces excluded" in text
    assert not any("larger than what is to be moved" in line for line in found.lines())


def test_decisions_that_are_only_observed_are_not_counted_as_moves() -> None:
    world = uneven()
    command = world.command("set_config", values={"cluster.observe_only": True})
    world.run(240_000)
    assert outcome(world, command)["status"] == "done"
    moves = decided(world, "transfer", "Overloaded")
    assert moves
    for name in sorted({str(row["source"]) for row in moves}):
        found = explain_broker(rows_of(world), name)
        assert found is not None
        assert found.why[0].startswith("decisions moved 0 bundles from it")
    cluster = " ".join(explain_cluster(rows_of(world)).candidates)
    assert f"{len(moves)} transfer ({len(moves)} of them not carried out)" in cluster


def test_decisions_that_are_only_observed_count_as_no_load_on_its_way() -> None:
    world = uneven()
    world.command("set_config", values={"cluster.observe_only": True})
    world.run(240_000)
    moves = decided(world, "transfer", "Overloaded")
    assert len({row["at_ms"] for row in moves}) > 1
    for row in moves:
        inputs = json.loads(str(row["inputs"]))
        for role in ("source", "destination"):
            reported = usages(world)[str(row[role])] / 100.0
            assert inputs[f"{role}_usage"] == pytest.approx(reported)
