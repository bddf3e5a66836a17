"""The scorer: one group of brokers' reports, ordered and smoothed; begin with `scorer`."""
