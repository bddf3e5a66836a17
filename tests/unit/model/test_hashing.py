"""The hashes, against published check values and Java's encoding."""

import pytest

from lbcore.model.hashing import HashFunction, crc32, hash_topic, hash_topics, murmur3_32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 0xE8B7BE43),
        ("123456789", 0xCBF43926),
        ("persistent://pulsar/global/ns1/topic-1", 0x2924FAD1),
        ("persistent://tenant/namespace/topic-é", 0xD5895DA4),
    ],
)
def test_crc32_known_text_gives_published_value(text: str, expected: int) -> None:
    assert crc32(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("test", 0xBA6BD213),
        ("Hello, world!", 0xC0363E43),
        ("The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        ("123456789", 0xB4FEF382),
    ],
)
def test_murmur3_known_text_gives_published_value(text: str, expected: int) -> None:
    assert murmur3_32(text) == expected


@pytest.mark.parametrize("function", list(HashFunction))
def test_half_surrogate_hashes_as_question_mark(function: HashFunction) -> None:
    assert hash_topic(function, "t\ud800") == hash_topic(function, "t?")


def test_domain_changes_the_hash() -> None:
    stored = hash_topic(HashFunction.CRC32, "persistent://t/ns/a")
    assert stored != hash_topic(HashFunction.CRC32, "non-persistent://t/ns/a")


@pytest.mark.parametrize("function", list(HashFunction))
def test_many_topics_hash_as_one_by_one(function: HashFunction) -> None:
    topics = [f"persistent://t/ns/a-partition-{i}" for i in range(50)]
    assert hash_topics(function, topics).tolist() == [hash_topic(function, t) for t in topics]


def test_function_is_found_by_the_name_in_tables() -> None:
    assert HashFunction("murmur3_32") is HashFunction.MURMUR3_32
