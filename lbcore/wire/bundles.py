"""A fast check of many bundle names at once.

Decides nothing of its own: it accepts what `model.names.parse_bundle` accepts, one name after the
other (a test holds them together), and asks it for the words of a refusal. `parse` calls it for
each report.
"""

import re
from collections.abc import Sequence

from lbcore.model.names import InvalidNameError, parse_bundle
from lbcore.wire.fields import FieldRefusal, first_double, shown
from lbcore.wire.messages import RejectReason

_ENTITY = r"[-=:.A-Za-z0-9_]+"
BUNDLE_PATTERN = rf"{_ENTITY}/{_ENTITY}/(?:{_ENTITY}/)?0x[0-9a-f]{{8}}_0x[0-9a-f]{{8}}"
"""tenant/namespace/range, or tenant/cluster/namespace/range; the range's order is not in it."""

_BUNDLES = re.compile(rf"(?:{BUNDLE_PATTERN}\n)*")
_LAST = "0xffffffff"


def check_bundles(names: Sequence[str]) -> None:
    """Refuse names that aren't bundle names, and a name that comes twice; O(names)."""
    lines = "\n".join([*names, ""])
    well_formed = _BUNDLES.fullmatch(lines) is not None and lines.count("\n") == len(names)
    # Eight lower-case hexadecimal digits order as text as they do as numbers.
    if not (well_formed and all([name[-21:-11] < name[-10:] for name in names])):  # noqa: C419 a third faster
        for name in names:
            _check_slowly(name)
    if len(set(names)) < len(names):
        raise FieldRefusal(
            RejectReason.DUPLICATE_BUNDLE, f"{shown(first_double(names))} comes twice"
        )


def check_bundle(name: str) -> None:
    """Refuse a text that isn't a bundle's name."""
    check_bundles((name,))


def _check_slowly(name: str) -> None:
    try:
        parse_bundle(name)
    except InvalidNameError as error:
        raise FieldRefusal(RejectReason.MALFORMED_BUNDLE, str(error)) from None
