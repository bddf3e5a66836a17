"""The scorer: reports of one group of brokers, ordered and smoothed; see `scorer`."""
