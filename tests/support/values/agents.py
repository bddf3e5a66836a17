"""What an agent's state says to people and tests."""

from lbcore.agent.state import AgentState
from lbcore.ownership.holding import NO_TOKEN


def served(state: AgentState) -> dict[str, int]:
    """The bundles open here, by name, with their tokens; a bundle closing is still open."""
    return {
        name: holding.token
        for name, holding in sorted(state.holdings.items())
        if holding.token != NO_TOKEN and not holding.split_into
    }
