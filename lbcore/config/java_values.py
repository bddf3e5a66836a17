"""Texts as Java and Pulsar read them: numbers, booleans, and a file of properties.

A broker.conf is read by java.util.Properties from bytes in ISO-8859-1, and each value by Pulsar's
FieldParser, which trims it and hands it to Integer.valueOf and its like. A test holds every
function here against a table that a JVM printed (tests/broker_conf/java_parsing.json).
Source: Pulsar 4.2.4, PulsarConfigurationLoader and FieldParser; OpenJDK 17.
"""

import re
import unicodedata
from collections.abc import Iterator

BOOLEAN, DOUBLE, INT, LONG = "boolean", "double", "int", "long"
ENCODING = "iso-8859-1"
_BITS = {INT: 32, LONG: 64}
_DIGITS_MAX = 19
_BMP_MAX = "\uffff"
_TRIMMED = "".join(map(chr, range(0x21)))
_BLANK = "\t\n\x0b\f\r\x1c\x1d\x1e\x1f "
_INTEGER = re.compile(r"([+-]?)(\d+)")
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def trim(text: str) -> str:
    """String.trim: without what is no greater than a blank at both ends."""
    return text.strip(_TRIMMED)


def is_blank(text: str) -> bool:
    """StringUtils.isBlank: FieldParser leaves such a key at its default."""
    return not text.strip(_BLANK)


def parse_integer(text: str, kind: str = INT) -> int | None:
    """Parse as Integer.valueOf or (LONG) Long.valueOf, trimmed; None where it refuses."""
    found = _INTEGER.fullmatch(trim(text))
    if found is None or max(found[2]) > _BMP_MAX:
        return None
    digits = "".join(str(unicodedata.decimal(one)) for one in found[2]).lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX:
        return None
    value = -int(digits) if found[1] == "-" else int(digits)
    most = 1 << (_BITS[kind] - 1)
    return value if -most <= value < most else None


def parse_double(text: str) -> float | None:
    """Double.valueOf of the trimmed text; None where it refuses."""
    trimmed = trim(text)
    if _DECIMAL.fullmatch(trimmed):
        is_number = trimmed[-1] not in "Ny"
        return float(trimmed.rstrip("fFdD") if is_number else trimmed)
    found = _HEXADECIMAL.fullmatch(trimmed)
    if found is None:
        return None
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf") if found[1].startswith("-") else float("inf")


def parse_boolean(text: str) -> bool:
    """Boolean.valueOf of the trimmed text: all but true, in any case, is false."""
    return trim(text).lower() == "true"


def parse_number(text: str, kind: str) -> float | int | None:
    """A number of one of Java's kinds."""
    return parse_double(text) if kind == DOUBLE else parse_integer(text, kind)


def parse_properties(text: str) -> dict[str, str]:
    """Parse a Java properties text, such as broker.conf; the last of equals wins.

    Comments (#, !), continued lines, =, : and blanks as separators, and escapes are read as
    java.util.Properties reads them. Raises ValueError for a u-escape without its four digits.
    """
    pairs = (_KEY.fullmatch(line) for line in _logical_lines(text))
    return {_unescape(pair[1]): _unescape(pair[2]) for pair in pairs if pair is not None}


def _logical_lines(text: str) -> Iterator[str]:
    pending: list[str] = []
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not any(pending) and (not line or line[0] in "#!"):
            continue
        # an even number of backslashes may end what is pending: it changes no parity
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending.append(line[:-1] if is_continued else line)
        if not is_continued:
            yield "".join(pending)
            pending = []
    if any(pending):
        yield "".join(pending)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    if found[2] == "u":
        raise ValueError("a \\u that no four hexadecimal digits follow: Java refuses the file")
    return _ESCAPES.get(found[2], found[2])
