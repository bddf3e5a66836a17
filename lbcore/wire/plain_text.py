"""Text from anywhere as every parser takes it: short, printable, and such that UTF-8 can hold it.

Decides what of a foreign text is left out: an exception's words, a server's answer. `format` sends
each reason through it, so that no sender's words cost the message that they stand in.
"""

REASON_CHARS_MAX = 256
"""Longest reason that is sent: the least that wire.max_text_chars can be set to."""

_CUT = "..."
_LONE_SURROGATES = range(0xD800, 0xE000)


def plain_text(text: str, max_chars: int = REASON_CHARS_MAX) -> str:
    """At most max_chars of the text: line breaks and blanks in a row as one blank, without ends.

    Control characters become blanks, lone surrogates question marks. What is cut ends in "...".
    A text that needs nothing stays the same. O(max_chars), however long the text is.
    """
    head = str(text[: 4 * max_chars])
    if len(text) <= max_chars and head.isascii() and head.isprintable() and "  " not in head:
        return head.strip()
    words = " ".join("".join(map(_printable, head)).split())
    is_cut = len(words) > max_chars or len(head) < len(text)
    return words[: max_chars - len(_CUT)].rstrip() + _CUT if is_cut else words


def _printable(char: str) -> str:
    if ord(char) in _LONE_SURROGATES:
        return "?"
    return char if char.isprintable() else " "
