"""Names of metrics in a PromQL query, as far as the project's queries go."""

import re

_STRINGS = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\{[^}]*\}")
_LISTS = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_WORDS = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")
_KEYWORDS = frozenset({"and", "or", "unless", "by", "on", "without", "bool", "offset"})


def names_in(query: str) -> set[str]:
    """The metrics that a query names."""
    text = _LABELS.sub("", _STRINGS.sub('""', query))
    text = re.sub(r"\[[^\]]*\]", "", _LISTS.sub("", text))
    text = re.sub(r"\boffset\s+\w+", "", text)
    words = {word for word in _WORDS.findall(text) if not re.fullmatch(r"e\d+", word)}
    return words - _KEYWORDS


def labels_in(query: str) -> set[tuple[str, str]]:
    """(metric, label) of each matcher in braces."""
    found = set()
    for metric, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", query):
        found |= {(metric, label) for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)}
    return found
