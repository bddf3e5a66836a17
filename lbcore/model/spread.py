"""Whether the partitions of a topic are on too few brokers.

Decides the one meaning of that: of the planner, the bridge's guardian and the assessment. Source:
ours; apache/pulsar 386, 10143 (partitions of a topic that end on few brokers).
"""

from typing import Any


def are_on_too_few(used: Any, partitions: Any, brokers: int) -> Any:
    """Whether they are on less than half of the brokers that they could be on.

    used: brokers that have some of them; each an int, or an array of a topic each. Worked: eight
    partitions on one of three brokers could be on three; on two of four they could be on four, and
    two is half of that, which is enough.
    """
    return (2 * used < partitions) & (2 * used < brokers)
