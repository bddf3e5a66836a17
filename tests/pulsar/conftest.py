"""What the tests on a real Pulsar need before the first of them."""

import pytest

from tests.pulsar.distribution import NotFetchedError, ensure_distribution


@pytest.fixture(scope="session", autouse=True)
def distribution() -> None:
    """Pulsar's server; without it the tests are skipped with the reason."""
    try:
        ensure_distribution()
    except NotFetchedError as error:
        pytest.skip(str(error))
