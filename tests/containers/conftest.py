"""What the container tests share: the engine, with the image built once."""

from collections.abc import Iterator

import pytest

from tests.containers.engine import Engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = Engine(tmp_path_factory.mktemp("engine"))
    made.begin()
    try:
        made.build()
        yield made
    finally:
        made.end()
