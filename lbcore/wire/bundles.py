"""A fast check of many bundle names at once.

Decides whether texts are bundle names, not whether such a bundle exists. `parse` calls it for each
report. Source: Pulsar's NamespaceBundle (4.0.8): `tenant/namespace/0x%08x_0x%08x`, lower case, not
empty; the upper end is open unless it is 0xffffffff, which is why only that range may hold one
hash alone.
"""

import re
from collections.abc import Sequence

from lbcore.wire.fields import Refusal, shown
from lbcore.wire.messages import RejectReason

BUNDLE_PATTERN = (
    r"(?:[^\s/\x00-\x1f\x7f]+/){2,3}"
    r"(?:0x[0-9a-f]{8}_0x[0-9a-f]{8})"
)
"""tenant/namespace/range, or property/cluster/namespace/range of Pulsar's first namespaces."""

_BUNDLE = re.compile(BUNDLE_PATTERN)
_BUNDLES = re.compile(rf"(?:{BUNDLE_PATTERN}\n)*")
_LAST = "0xffffffff"


def _is_bundle(name: str) -> bool:
    return _BUNDLE.fullmatch(name) is not None and _is_range(name)


def _is_range(name: str) -> bool:
    # Eight lower-case hexadecimal digits order as text as they do as numbers.
    lower, upper = name[-21:-11], name[-10:]
    return lower < upper or lower == upper == _LAST


def check_bundles(names: Sequence[str]) -> None:
    """Refuse names that aren't bundle names, and a name that comes twice; O(names)."""
    joined = "\n".join([*names, ""])
    if _BUNDLES.fullmatch(joined) is None or not all(map(_is_range, names)):
        wrong = [name for name in names if not _is_bundle(name)]
        detail = (
            "a bundle must be named tenant/namespace/0xlower_0xupper with lower < upper,"
            f" got {shown(wrong[0])}"
        )
        raise Refusal(RejectReason.MALFORMED_BUNDLE, detail)
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Refusal(RejectReason.DUPLICATE_BUNDLE, f"{shown(twice)} comes twice in one message")


def check_bundle(name: str) -> None:
    """Refuse a text that isn't a bundle's name."""
    check_bundles((name,))
