"""Pulsar as another authority: its answers, differences from our records, actions.

Decides what the bridge writes, takes over and asks for next; `jobs.bridge` asks and tells. Pure.
Over Pulsar 4.0.8's admin interface.
"""
