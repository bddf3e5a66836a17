"""Seeds of which `make test` takes the first few, and `make test-long` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[int], count: int) -> list[Any]:
    """The values as parameters; those after the first `count` are `long`."""
    return [
        value if at < count else pytest.param(value, marks=pytest.mark.long)
        for at, value in enumerate(values)
    ]
