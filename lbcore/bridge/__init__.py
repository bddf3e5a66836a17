"""Pulsar as another authority: what its brokers answer, what differs from our records, what to do.

Decides what the bridge writes, takes over and asks for next; `jobs.bridge` asks and tells. Pure.
Over Pulsar 4.0.8's admin interface.
"""
