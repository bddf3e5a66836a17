"""From a topic's name to the broker that answers for it."""
