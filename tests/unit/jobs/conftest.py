"""What tests of agents beside misbehaving services share."""

from collections.abc import Iterator

import pytest

from tests.support.processes.misbehaving_service import Beside


@pytest.fixture
def made() -> Iterator[list[Beside]]:
    """Where a test puts its agents, so that their threads end."""
    agents: list[Beside] = []
    yield agents
    for agent in agents:
        agent.service.end.set()
        agent.calls.close()
