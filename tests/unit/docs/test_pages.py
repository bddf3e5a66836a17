"""Generated documents: bundles page, ownership diagrams, scoreboard; snippets that run."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lbcore.config.splitting import ALGORITHMS, MEBIBYTE, Splitting
from lbcore.config.tree import Config
from lbcore.model.bundles import (
    BundleRange,
    HashFunction,
    children_of,
    crc32,
    decode_boundary,
    even_boundaries,
    hash_topics,
    murmur3_32,
)
from lbcore.model.names import format_partition
from lbcore.model.tables import TABLES
from lbcore.ownership.holding import Callback
from lbcore.plan.split.algorithms import (
    SplitAlgorithm,
    TopicLoads,
    flow_or_qps_boundaries,
    range_boundaries,
    specified_boundaries,
    topic_count_boundaries,
)
from lbcore.plan.split.decision import SplitVerdict
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.reports.report import compared_row, render_comparison
from lbcore.sim.scenario.parse import parse_scenario, with_compared
from lbcore.wire.messages import Topic
from tests.conformance.reference.bundle_sets import BundleSet
from tests.scoreboard import PAGE, PUBLISHED, page, recorded
from tests.support.tables.lookup_tables import TablesWriter, owned

PAGE_OF_BUNDLES_PAGE = (Path(__file__).parents[3] / "docs" / "bundles.md").read_text(
    encoding="utf-8"
)
Block = dict[str, list[str]]


def blocks(first_key: str) -> list[Block]:
    """The example blocks that begin with this key: each line is a key and its values."""
    found = []
    for text in re.findall(r"^```text\n(.*?)^```", PAGE_OF_BUNDLES_PAGE, re.DOTALL | re.MULTILINE):
        lines = [line.split() for line in text.splitlines()]
        if lines[0][0] == first_key:
            found.append({key: values for key, *values in lines})
    return found


def numbers(texts: list[str]) -> list[int]:
    return [decode_boundary(text) for text in texts]


def hexes(boundaries: tuple[int, ...] | None) -> list[str]:
    return [f"0x{boundary:08x}" for boundary in boundaries or ()]


def proposed(block: Block) -> tuple[int, ...] | None:
    target = BundleRange.parse(block["bundle"][0])
    hashes = numbers(block.get("topics", []))
    parts = int(block.get("parts", ["2"])[0])
    match SplitAlgorithm(block["algorithm"][0]):
        case SplitAlgorithm.RANGE:
            return range_boundaries(target, parts)
        case SplitAlgorithm.TOPIC_COUNT:
            return topic_count_boundaries(hashes, parts)
        case SplitAlgorithm.FLOW_OR_QPS:
            return flow_or_qps_boundaries(*flow_inputs(block))
        case _:
            return specified_boundaries(target, numbers(block["positions"]), len(hashes))


def flow_inputs(block: Block) -> tuple[TopicLoads, Splitting]:
    topics = TopicLoads(
        hashes=np.array(numbers(block["topics"]), dtype=np.int64),
        msg_rate=np.array(block["msg/s"], dtype=np.float64),
        throughput=np.array(block["MiB/s"], dtype=np.float64) * MEBIBYTE,
    )
    rate, _, flow, _ = block["limits"]
    return topics, replace(
        Splitting(),
        max_msg_rate_per_s=int(rate),
        max_throughput_bytes_per_s=int(flow) * MEBIBYTE,
    )


@pytest.mark.parametrize("block", blocks("algorithm"), ids=lambda block: block["algorithm"][0])
def test_algorithm_example_of_the_page_is_what_the_code_computes(block: Block) -> None:
    boundaries = proposed(block)
    assert hexes(boundaries) == block["boundary"]
    children = children_of(BundleRange.parse(block["bundle"][0]), boundaries or ())
    assert block.get("children", [each.text for each in children]) == [
        each.text for each in children
    ]


@pytest.mark.parametrize("block", blocks("topic"), ids=lambda block: block["topic"][0])
def test_topic_example_of_the_page_is_what_the_code_computes(block: Block) -> None:
    (topic,) = block["topic"]
    bundles = BundleSet("acme/shop", even_boundaries(4))
    assert block["crc32"] == hexes((crc32(topic),))
    assert block["murmur3_32"] == hexes((murmur3_32(topic),))
    assert block["bundle"] == [bundles.names()[bundles.find(bundles.hash_of(topic))]]


def test_spread_example_of_the_page_is_what_the_code_computes() -> None:
    (block,) = blocks("partitions")
    partitions, bundles = int(block["partitions"][0]), int(block["bundles"][0])
    names = [format_partition("persistent://acme/shop/orders", at) for at in range(partitions)]
    division = BundleSet("acme/shop", even_boundaries(bundles))
    for function in HashFunction:
        found = [division.find(one) for one in hash_topics(function, names).tolist()]
        sizes = np.bincount(found, minlength=bundles)
        assert block[function.value] == [f"{sizes.max() / sizes.mean():.2f}"]


def test_page_has_an_example_of_each_algorithm_and_of_a_division() -> None:
    assert {block["algorithm"][0] for block in blocks("algorithm")} == set(ALGORITHMS)
    (block,) = blocks("bundles")
    assert hexes(even_boundaries(int(block["bundles"][0]))) == block["boundaries"]


def test_page_tells_every_verdict() -> None:
    table = PAGE_OF_BUNDLES_PAGE.partition("| verdict |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`([a-z_]+)`", table))
    assert {verdict.value for verdict in SplitVerdict} <= told


PAGE_OF_OWNERSHIP_PAGE = Path(__file__).parents[3] / "docs" / "ownership.md"
KNOWN = {
    "topic": {topic.value for topic in Topic},
    "table": {table.name for table in TABLES},
    "callback": {kind.value for kind in Callback},
    "request": {"lookup"},
}


def diagrams() -> list[str]:
    text = PAGE_OF_OWNERSHIP_PAGE.read_text(encoding="utf-8")
    return re.findall(r"```mermaid\nsequenceDiagram\n(.*?)\n```", text, re.DOTALL)


def test_page_walks_through_assignment_split_and_transfer() -> None:
    titles = re.findall(
        r"^### (.*)\n\n```mermaid\nsequence", PAGE_OF_OWNERSHIP_PAGE.read_text(), re.MULTILINE
    )
    assert titles == ["Lookup and assign", "Split", "Merge", "Unload and transfer"]


@pytest.mark.parametrize("drawn", diagrams(), ids=["assign", "split", "merge", "transfer"])
def test_walk_is_drawn_between_its_participants_by_steps_of_known_kinds(drawn: str) -> None:
    steps = [line.strip() for line in drawn.splitlines() if ">>" in line]
    assert len(steps) > 8
    for step in steps:
        found = re.fullmatch(r"\w+--?>>\w+: (topic|table|callback|request)s? ([^:]+): .+", step)
        assert found, step
        kind, names = found.groups()
        assert set(names.split(", ")) <= KNOWN[kind], step
    participants = set(re.findall(r"participant (\w) as", drawn))
    ends = re.findall(r"^\s+(\w)--?>>(\w):", drawn, re.MULTILINE)
    assert {name for pair in ends for name in pair} == participants
    assert ";" not in drawn, "Mermaid ends a statement there"
    assert drawn.count("    alt ") == drawn.count("\n    end")


UNEVEN = """\
title Uneven
brokers 2
namespace t/n bundles=10 topics=1
own t/n 0-8 b1
own t/n 9-9 b2
load t/n even 10pt each
set pipeline.trigger_ms=2000
run 5m
expect moves >= 100
expect balanced:1.2 <= 3m from 1m
"""
WORDS_MAX = 2_500


def test_page_is_drawn_from_the_recorded_tables_of_every_published_scenario() -> None:
    text = page(recorded())
    assert PAGE.read_text(encoding="utf-8") == text, "python -m tests.scoreboard"
    assert len(text.split()) <= WORDS_MAX
    assert {one.name for one in recorded() if one.folder == "conf/scenarios/asim"} == set(PUBLISHED)


def test_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = run_scenario(parse_scenario(UNEVEN), Config())
    rows = [compared_row("ballast", run), compared_row("none", run)]
    folder = tmp_path / "conf" / "scenarios"
    folder.mkdir(parents=True)
    text = with_compared(UNEVEN, render_comparison(rows))
    (folder / "uneven.scenario").write_text(text, encoding="utf-8")
    (folder / "bare.scenario").write_text(UNEVEN, encoding="utf-8")
    (found,) = recorded(tmp_path / "conf")
    assert (found.name, found.folder) == ("uneven", "conf/scenarios")
    assert [row.strategy for row in found.rows] == ["ballast", "none"]
    assert found.row("none").moves == rows[0]["moves"]
    assert found.row("none").minutes_above == round(rows[0]["above_ms"] / 60_000, 1)
    assert found.expected["moves >= 100"] == dict.fromkeys(
        ("ballast", "none"), f"{rows[0]['moves']:g}!"
    )
    assert found.by_report_moves == rows[0]["report_moves"]
    assert "uneven |" in page([found])


SNIPPETS_PAGE = Path(__file__).resolve().parents[3] / "docs" / "read-tables.md"


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", SNIPPETS_PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_snippet_for_pandas_counts_the_moves_by_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = TablesWriter(tmp_path)
    written.batch(owned("demo/one", 4, ("b1", "b2")))
    exec(snippets()[0], {"TABLES": str(tmp_path)})  # noqa: S102 (the project's own page)
    printed = capsys.readouterr().out
    assert printed.startswith("cause")
    assert printed.split()[2] == "4"
