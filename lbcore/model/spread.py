"""Check for a topic whose partitions are on too few brokers.

Used by the planner, the bridge's guardian and the assessment. Source: apache/pulsar 386, 10143.
"""

from typing import Any


def are_on_too_few(used: Any, partitions: Any, brokers: Any) -> Any:
    """True if partitions are on less than half of the brokers they could be on.

    used: brokers that have some of them. All arguments: an int, or an array with an element per
    topic. Worked: eight partitions on one of three brokers could be on three. On two of four they
    could be on four, and two is half of that, which is enough.
    """
    return (2 * used < partitions) & (2 * used < brokers)
