"""The deterministic choice where Pulsar draws at random.

Decides which of equally good brokers takes a bundle; not who is equally good. Used by every
placement strategy. Pulsar 4.0.8 uses ThreadLocalRandom, but a re-run micro-batch must
choose the same broker, and another version of the same bundle may choose another one.
"""

import mmh3


def choose(count: int, bundle: str, version: int, seed: int) -> int:
    """An index in 0..count-1, uniform over bundles, the same for the same arguments.

    count: > 0. seed: 0..2^32-1, the cluster's.
    """
    return mmh3.hash(f"{bundle}@{version}", seed, signed=False) % count
