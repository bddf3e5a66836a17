"""Seeds and cases of which `make test` takes the first few, and `make test-long` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], count: int) -> list[Any]:
    """The values as parameters, one or a tuple each; those after the first `count` are `long`."""
    return [value if at < count else _long(value) for at, value in enumerate(values)]


def _long(value: Any) -> Any:
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.long)
