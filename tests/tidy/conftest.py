"""What tests of documents share: a program's command line is read, and nothing started."""

import argparse
from collections.abc import Sequence

import pytest

from jobs.parser import Parser


class ParsedError(Exception):
    """The words were understood; its argument is what they came to."""


@pytest.fixture
def only_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every program end with ParsedError once it has read its words."""
    parse = Parser.parse_args

    def parse_and_stop(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
        raise ParsedError(parse(parser, words))

    monkeypatch.setattr(Parser, "parse_args", parse_and_stop)
