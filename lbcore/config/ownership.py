"""Settings of ownership: timeouts, and the reports of brokers' agents.

The balancer reads `OwnershipConfig`, agents read `AgentConfig`. Source: Pulsar 4.0.8's
ServiceConfiguration where a key is named.
"""

from dataclasses import dataclass

from lbcore.config.setting import correction, derived, setting
from lbcore.model.times import SECOND_MS

_TIMEOUT = ("ownership.broker_timeout_ms",)
_TRIGGER = ("pipeline.trigger_ms",)

EAGER = "eager"
ON_DEMAND = "on_demand"
FENCING_TOKEN = "token"  # noqa: S105 the name of a mode, not a secret
FENCING_LEASE = "lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipConfig:
    """Timeouts for brokers, and the fencing of a broker that is cut off."""

    assign: str = setting(
        EAGER,
        choices=(EAGER, ON_DEMAND),
        doc="When a new bundle gets an owner: in the next cycle, or at the first lookup of it. One"
        " that was unloaded gets its next owner in the next cycle either way.",
        pulsar_default=ON_DEMAND,
        dynamic=True,
    )
    broker_timeout_ms: int = setting(
        15_000,
        unit="ms",
        minimum=1_000,
        maximum=3_600_000,
        doc="A broker silent for longer, in Kafka's time, is dead and loses its bundles.",
        dynamic=True,
    )
    in_flight_timeout_ms: int = setting(
        15_000,
        unit="ms",
        minimum=1_000,
        maximum=3_600_000,
        pulsar="loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        pulsar_default=30_000,
        doc="Longest wait for a broker to open a bundle, or to say that it is still closing one.",
        dynamic=True,
    )
    unload_timeout_ms: int = setting(
        60_000,
        unit="ms",
        minimum=1_000,
        maximum=3_600_000,
        pulsar="namespaceBundleUnloadingTimeoutMs",
        doc="Longest time for a live broker to close or split a bundle; then it keeps the bundle.",
        dynamic=True,
    )
    tombstone_delay_ms: int = setting(
        3_600_000,
        unit="ms",
        minimum=30_000,
        maximum=604_800_000,
        pulsar="loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds",
        pulsar_factor=SECOND_MS,
        doc="The record of a deleted bundle is kept this long; at least in_flight_timeout_ms.",
        dynamic=True,
    )
    # a silent broker that no record names is deregistered after a week, as forget_broker does
    forget_broker_after_ms: int = 604_800_000
    # the brake is put on when at least this many brokers vanish at once; 0 = no brake
    brake_brokers: int = correction(3, pulsar=0)
    # and when they are at least this part of all brokers
    brake_percent: int = 30
    # brokers that are taken for dead within this time have vanished at once
    brake_window_ms: int = derived(
        15_000,
        sources=_TIMEOUT,
        by=lambda config: min(15_000, config.ownership.broker_timeout_ms),
    )
    # with the brake on, failover waits this long for the brokers that vanished
    brake_confirm_ms: int = derived(
        10_000,
        sources=_TIMEOUT,
        by=lambda config: min(10_000, round(config.ownership.broker_timeout_ms * 2 / 3)),
    )
    # most that one message advances a partition's clock, two ticks: a longer gap is the job's own
    clock_step_max_ms: int = derived(
        2_000,
        sources=_TRIGGER,
        by=lambda config: max(400, min(2_000, 2 * config.pipeline.trigger_ms)),
    )
    # a partition without a tick for longer raises an alarm: its brokers can't be judged
    tick_alarm_ms: int = derived(
        10_000,
        sources=_TRIGGER,
        by=lambda config: max(2_000, min(10_000, 10 * config.pipeline.trigger_ms)),
    )
    fencing: str = setting(
        FENCING_TOKEN,
        choices=(FENCING_TOKEN, FENCING_LEASE),
        doc="token: a broker that is cut off still serves, under an old token; lease: it stops.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Heartbeats, timeouts and lease of agents; for load reports: SignalsConfig."""

    heartbeat_interval_ms: int = setting(
        3_000,
        unit="ms",
        minimum=100,
        maximum=60_000,
        doc="Time between two heartbeats; a third of broker_timeout_ms or less.",
    )
    # at most max_bundles_per_message, which is higher for other programs' agents
    bundles_per_part: int = 2_000
    # an acknowledgement that no new record has followed is sent again after this time
    ack_repeat_ms: int = derived(
        3_000,
        sources=("agent.heartbeat_interval_ms",),
        by=lambda config: min(3_000, config.agent.heartbeat_interval_ms),
    )
    # a callback that has not returned after this time has failed; it keeps its thread. The balancer
    # waits no longer for a bundle to be closed.
    callback_timeout_ms: int = derived(
        60_000,
        sources=("ownership.unload_timeout_ms",),
        by=lambda config: min(60_000, config.ownership.unload_timeout_ms),
    )
    shutdown_timeout_ms: int = setting(
        60_000,
        unit="ms",
        minimum=0,
        maximum=3_600_000,
        doc="Longest time that a stopping broker waits for its bundles to be moved away.",
    )
    # after shutdown_timeout_ms a stopping broker closes what it has left, this long
    stop_grace_ms: int = derived(
        10_000,
        sources=("agent.shutdown_timeout_ms",),
        by=lambda config: min(10_000, round(config.agent.shutdown_timeout_ms / 6)),
    )
    # with fencing = lease an agent serves only this long after its last confirmed report. It must
    # be shorter than broker_timeout_ms minus a clock step and a batch: otherwise two brokers could
    # serve one bundle at once
    agent_lease_ms: int = derived(
        10_000,
        sources=(*_TIMEOUT, *_TRIGGER),
        by=lambda config: max(
            0,
            min(
                10_000,
                5
                * (
                    config.ownership.broker_timeout_ms
                    - config.ownership.clock_step_max_ms
                    - config.pipeline.trigger_ms
                )
                // 6,
            ),
        ),
    )
