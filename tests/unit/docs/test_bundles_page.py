"""docs/bundles.md says what the code does: its example blocks are computed, its table compared."""

import re
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbcore.config.setting import declared
from lbcore.config.splitting import ALGORITHMS, MEBIBYTE, Splitting
from lbcore.model.bundles import (
    BundleRange,
    NamespaceBundles,
    children_of,
    decode_boundary,
    even_boundaries,
)
from lbcore.model.hashing import HashFunction, crc32, hash_topics, murmur3_32
from lbcore.model.names import format_partition
from lbcore.plan.split.algorithms import (
    SplitAlgorithm,
    TopicLoads,
    flow_or_qps_boundaries,
    range_boundaries,
    specified_boundaries,
    topic_count_boundaries,
)
from lbcore.plan.split.decision import SplitVerdict

PAGE = (Path(__file__).parents[3] / "docs" / "bundles.md").read_text(encoding="utf-8")
Block = dict[str, list[str]]


def blocks(first_key: str) -> list[Block]:
    """The example blocks that begin with this key: each line is a key and its values."""
    found = []
    for text in re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
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


def test_page_has_an_example_of_each_algorithm() -> None:
    assert {block["algorithm"][0] for block in blocks("algorithm")} == set(ALGORITHMS)


@pytest.mark.parametrize("block", blocks("topic"), ids=lambda block: block["topic"][0])
def test_topic_example_of_the_page_is_what_the_code_computes(block: Block) -> None:
    (topic,) = block["topic"]
    bundles = NamespaceBundles("acme/shop", even_boundaries(4))
    assert block["crc32"] == hexes((crc32(topic),))
    assert block["murmur3_32"] == hexes((murmur3_32(topic),))
    assert block["bundle"] == [bundles.names()[bundles.find(bundles.hash_of(topic))]]


def test_spread_example_of_the_page_is_what_the_code_computes() -> None:
    (block,) = blocks("partitions")
    partitions, bundles = int(block["partitions"][0]), int(block["bundles"][0])
    names = [format_partition("persistent://acme/shop/orders", at) for at in range(partitions)]
    division = NamespaceBundles("acme/shop", even_boundaries(bundles))
    for function in HashFunction:
        found = [division.find(one) for one in hash_topics(function, names).tolist()]
        sizes = np.bincount(found, minlength=bundles)
        assert block[function.value] == [f"{sizes.max() / sizes.mean():.2f}"]


def test_division_example_of_the_page_is_what_the_code_computes() -> None:
    (block,) = blocks("bundles")
    assert hexes(even_boundaries(int(block["bundles"][0]))) == block["boundaries"]


def test_page_tells_every_verdict() -> None:
    table = PAGE.partition("| verdict |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`([a-z_]+)`", table))
    assert {verdict.value for verdict in SplitVerdict} <= told


DECLARED = [field for field in fields(Splitting) if field.metadata]


@pytest.mark.parametrize("field", DECLARED, ids=lambda field: field.name)
def test_settings_table_of_the_page_has_the_settings_default_and_key(field: Field[Any]) -> None:
    name, default = field.name, field.default
    about = declared(field)
    (row,) = re.findall(rf"^\| `{name}` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    shown = ", ".join(default) if isinstance(default, tuple) else str(default)
    assert row[0].replace(",", "").split()[0].lower() == shown.replace(",", "").split()[0].lower()
    assert row[1] == (f"`{about.pulsar[0]}`" if about.pulsar else "ours")
    assert about.dynamic
