"""Settings of the lookup and admin service.

Secrets are no settings: they come from the environment or from files. Pulsar's name of
`wait_timeout_ms` is an alias.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting

AUTHENTICATIONS = ("none", "token", "certificate", "token_or_certificate")


def _check_place(text: str) -> None:
    if not {"/", "*"}.isdisjoint(text):
        raise ValueError("write host or host:port, without http://, path or *")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupConfig:
    """Address of the lookup service, its reads of the tables, and wait limits."""

    host: str = setting(
        "127.0.0.1",
        doc="Address to listen on; any other than loopback needs authentication.",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        reads=_check_place,
        doc="More names of this service, host or host:port, beside its address and those of"
        " loopback. Without authentication, requests under other names are refused. Changes sent"
        " by pages of other origins are always refused.",
    )
    advertised_address: str = setting(
        "",
        reads=_check_place,
        doc="Address (host:port) that Pulsar's tools are given for this service; none = that at"
        " which it was reached.",
    )
    port: int = setting(
        8_080,
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
    stop_delay_ms: int = setting(
        0,
        unit="ms",
        minimum=0,
        maximum=600_000,
        doc="How long a stopping service still answers, with 503 at /health: as long as a load"
        " balancer needs to notice.",
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
    # Pulsar's tools may call the cluster so: a Pulsar on one machine has this name
    cluster_aliases: tuple[str, ...] = ("standalone",)
    # lookups that wait at once in one worker; more are answered 503 at once
    max_waiting: int = 10_000
    authentication: str = setting(
        "none",
        choices=AUTHENTICATIONS,
        doc="How callers prove who they are: a bearer token (JWT), a client certificate, or either."
        " With none the service listens on loopback only, unless it is told otherwise.",
    )
    token_keys_file: str = setting(
        "",
        doc="File of the keys that tokens are checked with: a JWKS, or one PEM public key. Read"
        " again when it changes. A shared secret (HS256) is in the environment variable"
        " BALLAST_TOKEN_SECRET, or in the file that BALLAST_TOKEN_SECRET_FILE names.",
    )
    token_keys_url: str = setting(
        "",
        doc="Address (https://) of a JWKS with the public keys of tokens. Asked every five minutes,"
        " and at once for an unknown key, 10 s after the last time at the earliest.",
    )
    token_audience: str = setting(
        "",
        doc="The audience that a token must name; without one, tokens that name any are refused.",
    )
    token_issuer: str = setting("", doc="The issuer that a token must name; none = any.")
    token_leeway_ms: int = 5_000  # more than two machines with a time service differ by
    token_expiry_required: bool = setting(
        True,  # noqa: FBT003 (the default's place)
        doc="Refuse tokens that never expire.",
    )
    grants: tuple[str, ...] = setting(
        (),
        doc="Who may do what, beside the roles that a token carries in its claim `roles`:"
        " 'NAME ROLE:CLUSTER/TENANT'. NAME is a token's subject or a certificate's common name;"
        " ROLE is viewer, operator or admin; * or nothing stands for all.",
    )
    open_lookups: bool = setting(
        False,  # noqa: FBT003 (the default's place)
        doc="Answer lookups without authentication, also where everything else needs it.",
    )
    open_metrics: bool = setting(
        False,  # noqa: FBT003 (the default's place)
        doc="Answer /metrics without authentication, also where everything else needs it.",
    )
    certificate_file: str = setting(
        "", doc="PEM file of the service's certificate; with it, only TLS 1.2 and later is spoken."
    )
    key_file: str = setting("", doc="PEM file of its key; both are read again when they change.")
    client_ca_file: str = setting(
        "", doc="PEM file of the authorities that clients' certificates are from."
    )
    max_body_bytes: int = 1_048_576  # as long as the longest message that the job takes
    max_header_bytes: int = 65_536  # of the first line and the headers of a request
    # of one worker; fewer where the process may not open so many files
    max_connections: int = 20_000
    max_connections_per_peer: int = setting(
        5_000,
        unit="connections",
        minimum=0,
        maximum=1_000_000,
        doc="Most connections of one address (of IPv6: one /64) to one worker; more are answered"
        " 503. 0 = no limit of its own; behind a proxy every connection is the proxy's.",
    )
    # from the first to the last byte of a request; its headers have 15 s of it
    request_timeout_ms: int = 30_000
    # a client that takes less than 10,000 bytes/s of its answer for this long is cut off
    answer_timeout_ms: int = 20_000
    # of requests that one worker holds; beyond it, a connection that has over 8,192 gets a 503
    max_unanswered_bytes: int = 67_108_864
    # of answers that one worker holds; beyond it a client that falls behind is cut off
    max_unread_bytes: int = 268_435_456
    max_requests_per_s: int = setting(
        0,
        unit="requests/s",
        minimum=0,
        maximum=10_000_000,
        doc="Most requests a second of one principal (without authentication: of one address) to"
        " one worker; more are answered 429. 0 = no limit.",
    )
    # requests of one worker that wait for an outcome; more are answered 503
    max_commands: int = 1_000
    # changes that a worker keeps in memory; older ones are read from the table's log
    watch_history: int = 100_000
