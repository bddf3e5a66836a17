"""Settings of the lookup and admin service.

Decides nothing. Read by `jobs.serve_lookup`. Source: ours, with Pulsar's waiting time as an alias.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupConfig:
    """Where the service listens, how it follows the tables, and how long it lets callers wait."""

    host: str = setting(
        "127.0.0.1",
        doc="Address to listen on; any other than loopback needs authentication.",
    )
    port: int = setting(
        8_090,
        unit="port",
        minimum=0,
        maximum=65_535,
        doc="Port to listen on; 0 takes a free one and says which.",
    )
    workers: int = setting(
        1,
        unit="processes",
        minimum=1,
        maximum=256,
        doc="Processes that answer; each holds the whole snapshot.",
    )
    poll_interval_ms: int = setting(
        200,
        unit="ms",
        minimum=10,
        maximum=60_000,
        doc="Time between two looks for a new version of ownership_events.",
    )
    wait_timeout_ms: int = setting(
        30_000,
        unit="ms",
        minimum=0,
        maximum=600_000,
        pulsar="loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        doc="Longest wait of a lookup for a bundle that has no owner yet; then 503.",
    )
    cluster_aliases: tuple[str, ...] = setting(
        ("standalone",),
        doc="Other names that Pulsar's tools may call the cluster by; a Pulsar on one machine has "
        "the name `standalone`.",
    )
    max_waiting: int = setting(
        10_000,
        unit="requests",
        minimum=0,
        maximum=1_000_000,
        doc="Most lookups that wait at once in one worker; more are answered 503 at once.",
    )
