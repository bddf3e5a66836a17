"""Cases of hashes, ranges and bundle sets: NamespaceBundle, NamespaceBundles, PoliciesUtil."""

from typing import Any

from lbcore.model.bundles import (
    Bundle,
    BundleRange,
    InvalidRangeError,
    crc32,
    decode_boundary,
    even_boundaries,
    parse_range_leniently,
)
from lbcore.model.names import (
    FULL_UPPER,
    InvalidNameError,
    check_namespace,
    parse_topic,
    split_bundle_name,
)
from tests.conformance.reference.bundle_sets import BundleSet, UncoveredHashError
from tests.conformance.runner import Case, Handler, JavaError


def hex_text(boundary: int) -> str:
    """A boundary as the cases write it."""
    return f"0x{boundary:08x}"


def java_long(given: str | int) -> int:
    """A number of a case: as it is, or a text that Long.decode reads."""
    if isinstance(given, int):
        return given
    try:
        return decode_boundary(given)
    except InvalidRangeError as error:
        raise JavaError("NumberFormatException") from error


def java_range(text: str) -> BundleRange:
    """NamespaceBundleFactory.getBundle's reading of a range."""
    if "_" not in text:
        raise JavaError("IllegalArgumentException")
    parts = text.split("_")
    if not parts[1]:
        raise JavaError("ArrayIndexOutOfBoundsException")
    for part in parts[:2]:
        java_long(part)
    try:
        return parse_range_leniently("_".join(parts[:2]))
    except InvalidRangeError as error:
        raise JavaError("IllegalArgumentException") from error


def java_namespace(text: str | None) -> str:
    """NamespaceName.get."""
    if text is None:
        raise JavaError("NullPointerException")
    try:
        return check_namespace(text)
    except InvalidNameError as error:
        raise JavaError("IllegalArgumentException") from error


def java_bundle(name: str) -> Bundle:
    """NamespaceBundleFactory.getBundle of a full name, in any case."""
    namespace, text = split_bundle_name(name)
    return Bundle(java_namespace(namespace), java_range(text))


def java_bundles(namespace: str | None, texts: list[str | int], version: int = -1) -> BundleSet:
    """NamespaceBundles of boundary texts."""
    boundaries = tuple(java_long(text) for text in texts)
    try:
        return BundleSet(java_namespace(namespace), boundaries, version=version)
    except InvalidRangeError as error:
        raise JavaError("IllegalArgumentException") from error


def hash_(case: Case) -> dict[str, Any]:
    """NamespaceBundleFactory.getLongHashCode."""
    value = crc32(case["string"])
    return {"hash": value, "hex": hex_text(value)}


def even_bundles(case: Case) -> dict[str, Any]:
    """PoliciesUtil.getBundles."""
    try:
        boundaries = even_boundaries(case["numBundles"])
    except InvalidRangeError as error:
        raise JavaError("RestException") from error
    return {"boundaries": [hex_text(b) for b in boundaries], "numBundles": len(boundaries) - 1}


def find_bundle(case: Case) -> dict[str, Any]:
    """NamespaceBundles.findBundle for a topic, getBundle for a hash, getBundles for neither."""
    bundles = java_bundles(case["namespace"], case["boundaries"])
    if case.get("topic") is not None:
        return _find_topic(bundles, case["topic"])
    if case.get("hash") is not None:
        return _found(bundles, java_long(case["hash"]))
    return {"bundles": [each.text for each in bundles.ranges()]}


def _find_topic(bundles: BundleSet, topic: str) -> dict[str, Any]:
    try:
        full_name = parse_topic(topic).full
        topic_hash = bundles.hash_of(full_name)
    except (InvalidNameError, InvalidRangeError) as error:
        raise JavaError("IllegalArgumentException") from error
    answer = _found(bundles, topic_hash)
    bundle = Bundle(bundles.namespace, bundles.ranges()[answer["bundleIndex"]])
    return {"hash": hex_text(topic_hash), **answer, "includes": bundle.includes_topic(full_name)}


def _found(bundles: BundleSet, topic_hash: int) -> dict[str, Any]:
    try:
        index = bundles.find_as_pulsar(topic_hash)
    except UncoveredHashError as error:
        raise JavaError("IndexOutOfBoundsException") from error
    return {"bundle": bundles.ranges()[index].text, "bundleIndex": index}


def bundle(case: Case) -> dict[str, Any]:
    """NamespaceBundle: its text and what it includes, two compared, or its constructor."""
    if "bundle" in case:
        return _describe(java_bundle(case["bundle"]), case.get("topic"))
    if "left" in case:
        return _compare(java_bundle(case["left"]), java_bundle(case["right"]))
    return _construct(case)


def _describe(found: Bundle, topic: str | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"string": found.name, "canSplit": found.range.can_split}
    if topic is not None:
        answer["includes"] = found.includes_topic(parse_topic(topic).full)
    return answer


def _compare(left: Bundle, right: Bundle) -> dict[str, Any]:
    try:
        order: int | str = left.compare(right)
    except InvalidRangeError:
        order = "IllegalArgumentException"
    return {"equal": left == right, "compare": order}


def _construct(case: Case) -> dict[str, Any]:
    namespace = java_namespace(case.get("namespace"))
    if case.get("lower") is None or case.get("upper") is None:
        raise JavaError("NullPointerException")
    lower, upper = java_long(case["lower"]), java_long(case["upper"])
    legal_type = "closed" if upper == FULL_UPPER else "open"
    if (case["lowerType"], case["upperType"]) != ("closed", legal_type):
        raise JavaError("IllegalArgumentException")
    try:
        return {"string": Bundle(namespace, BundleRange(lower, upper)).name}
    except InvalidRangeError as error:
        raise JavaError("IllegalArgumentException") from error


HANDLERS: dict[str, Handler] = {
    "hash": hash_,
    "even_bundles": even_bundles,
    "find_bundle": find_bundle,
    "bundle": bundle,
}
