"""A test that is of one version of Pulsar: it gets that one, or is skipped with a sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.pulsar.distribution import (
    VARIABLE,
    NotFetchedError,
    chosen_version,
    ensure_distribution,
)


@contextmanager
def on_version(version: str) -> Iterator[None]:
    """What is started meanwhile is of this version, whatever was chosen."""
    try:
        ensure_distribution(version)
    except NotFetchedError as error:
        pytest.skip(f"Pulsar {version} can't be had: {error}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(VARIABLE, version)
        yield


def require_version(version: str) -> None:
    if chosen_version() != version:
        pytest.skip(f"it is of Pulsar {version}: {VARIABLE}={version} make test-pulsar runs it")
