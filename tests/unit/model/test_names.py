"""Names of topics, namespaces and bundles: what is read, what is refused."""

import pytest

from lbcore.model.names import (
    Domain,
    InvalidNameError,
    check_namespace,
    format_bundle,
    format_partition,
    format_topic,
    locate_topic,
    namespace_of_topic,
    parse_bundle,
    parse_range,
    parse_topic,
    partition_of,
    strip_partition,
    whole_topic,
)


@pytest.mark.parametrize(
    ("name", "namespace", "local", "full"),
    [
        ("persistent://t/ns/a", "t/ns", "a", "persistent://t/ns/a"),
        ("non-persistent://t/ns/a b", "t/ns", "a b", "non-persistent://t/ns/a b"),
        ("PERSISTENT://t/ns/a", "t/ns", "a", "persistent://t/ns/a"),
        ("persistent://t/use/ns/a/b", "t/use/ns", "a/b", "persistent://t/use/ns/a/b"),
        ("a", "public/default", "a", "persistent://public/default/a"),
        ("t/ns/a", "t/ns", "a", "persistent://t/ns/a"),
    ],
)
def test_topic_name_is_read_as_pulsar_does(
    name: str, namespace: str, local: str, full: str
) -> None:
    topic = parse_topic(name)
    assert (topic.namespace, topic.local, topic.full) == (namespace, local, full)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "kafka://t/ns/a",
        "persistent://t/ns",
        "persistent://t/ns/ ",
        "persistent://t//a",
        "persistent://t é/ns/a",
        "t/a",
        "a/b/c/d",
    ],
)
def test_malformed_topic_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_topic(name)


def test_v1_topic_keeps_its_cluster() -> None:
    topic = parse_topic("persistent://t/use/ns/a")
    assert (topic.tenant, topic.cluster, topic.namespace_portion) == ("t", "use", "ns")
    assert parse_topic("persistent://t/ns/a").cluster is None


@pytest.mark.parametrize(
    "name", ["persistent://t/ns/a", "persistent://t/use/ns/a/b", "non-persistent://t/ns/测试"]
)
def test_namespace_taken_quickly_equals_the_parsed_one(name: str) -> None:
    assert namespace_of_topic(name) == parse_topic(name).namespace


def test_formatted_topic_is_read_back() -> None:
    topic = parse_topic(format_topic("t/ns", "a", Domain.NON_PERSISTENT))
    assert (topic.domain, topic.namespace, topic.local) == (Domain.NON_PERSISTENT, "t/ns", "a")


@pytest.mark.parametrize(
    ("topic", "partition", "stripped"),
    [
        ("persistent://t/ns/a-partition-0", 0, "persistent://t/ns/a"),
        ("persistent://t/ns/a-partition-17", 17, "persistent://t/ns/a"),
        ("a-partition-1-partition-2", 2, "a-partition-1"),
        ("a-partition-01", None, "a-partition-01"),
        ("a-partition-", None, "a-partition-"),
        ("a-partition-1x", None, "a-partition-1x"),
        ("a-partition-2147483648", None, "a-partition-2147483648"),
        ("a", None, "a"),
    ],
)
def test_partition_suffix_is_a_plain_number(
    topic: str, partition: int | None, stripped: str
) -> None:
    assert (partition_of(topic), strip_partition(topic)) == (partition, stripped)


@pytest.mark.parametrize(
    ("topic", "whole"),
    [
        ("segment://t/ns/a/0000-7fff-2", "topic://t/ns/a"),
        ("segment://t/ns/a/0000-7fff-13", "topic://t/ns/a"),
        ("segment://t/ns/a-partition-1/0000-ffff-0", "topic://t/ns/a-partition-1"),
        ("segment://t/ns/a/0000-7fff", "segment://t/ns/a/0000-7fff"),
        ("segment://t/ns/a/0000-7FFF-2", "segment://t/ns/a/0000-7FFF-2"),
        ("segment://t/ns/a/0000-7fff-02", "segment://t/ns/a/0000-7fff-02"),
        ("persistent://t/ns/a/0000-7fff-2", "persistent://t/ns/a/0000-7fff-2"),
        ("persistent://t/ns/a-partition-3", "persistent://t/ns/a"),
        ("topic://t/ns/a", "topic://t/ns/a"),
    ],
)
def test_part_is_of_its_whole_topic_and_a_whole_one_of_itself(topic: str, whole: str) -> None:
    assert whole_topic(topic) == whole


@pytest.mark.parametrize(
    ("topic", "located"),
    [
        ("segment://t/ns/a/0000-7fff-2", ("t/ns", "segment://t/ns/a/0000-7fff-2")),
        ("topic://t/ns/a", ("t/ns", "topic://t/ns/a")),
        ("persistent://t/use/ns/a", ("t/use/ns", "persistent://t/use/ns/a")),
        ("a", ("public/default", "persistent://public/default/a")),
    ],
)
def test_topic_is_located_by_its_namespace_and_the_name_that_is_hashed(
    topic: str, located: tuple[str, str]
) -> None:
    assert locate_topic(topic) == located
    assert namespace_of_topic(located[1]) == located[0]


@pytest.mark.parametrize(
    "topic", ["topic://t/ns", "topic://t/ns/ ", "segment://t/n s/a", "x://a/b/c"]
)
def test_what_is_no_scalable_topic_is_no_topic(topic: str) -> None:
    with pytest.raises(InvalidNameError):
        locate_topic(topic)


def test_partition_name_is_read_back() -> None:
    assert partition_of(format_partition("persistent://t/ns/a", 12)) == 12
    assert parse_topic("persistent://t/ns/a-partition-12").partition == 12


def test_bundle_name_is_read_back() -> None:
    name = format_bundle("t/ns", 0x40000000, 0xFFFFFFFF)
    assert name == "t/ns/0x40000000_0xffffffff"
    assert parse_bundle(name) == ("t/ns", 0x40000000, 0xFFFFFFFF)


@pytest.mark.parametrize("namespace", ["t/ns", "t/use/ns", "pulsar/host-1.a:8080", "a=b/c_d"])
def test_namespace_well_formed_is_accepted(namespace: str) -> None:
    assert check_namespace(namespace) == namespace


@pytest.mark.parametrize("namespace", ["t", "t/", "/ns", "t.ns", "a/b/c/d", "t/n s", "t/né", ""])
def test_namespace_malformed_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidNameError, match="namespace must be"):
        check_namespace(namespace)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x00000000",
        "0x00000000_0xFFFFFFFF",
        "0x0_0xffffffff",
        "0x00000000_0x1ffffffff",
        "0x80000000_0x40000000",
        "0x40000000_0x40000000",
        " 0x00000000_0xffffffff",
        "0x00000000_0xffffffff\n",
        "0x0000_000_0xffffffff",
    ],
)
def test_range_text_in_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_range(text)


def test_range_of_the_last_value_alone_is_accepted() -> None:
    assert parse_range("0xffffffff_0xffffffff") == (0xFFFFFFFF, 0xFFFFFFFF)


def test_bundle_name_without_namespace_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        parse_bundle("0x00000000_0xffffffff")
