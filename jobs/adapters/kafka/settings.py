"""Kafka's address and credentials, from the configuration and the environment's secrets."""

from collections.abc import Mapping
from typing import Any

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, MisuseError
from lbcore.config.kafka import KafkaConfig
from lbcore.config.tree import Config

PASSWORD = "BALLAST_KAFKA_PASSWORD"  # noqa: S105 a variable's name, not a secret


def kafka_address(
    config: Config, bootstrap: str = "", environment: Mapping[str, str] | None = None
) -> KafkaAddress:
    """The address that clients are made with; bootstrap wins over kafka.bootstrap_servers.

    Raises MisuseError without either, CommandError without a password that is needed.
    """
    servers = bootstrap or ",".join(config.kafka.bootstrap_servers)
    if not servers:
        raise MisuseError(
            "Kafka's address is not known",
            why="neither --bootstrap nor kafka.bootstrap_servers names a broker",
            next_step="add --bootstrap host:port, or kafka.bootstrap_servers to an overlay",
        )
    return KafkaAddress(
        bootstrap=servers,
        topic_prefix=config.pipeline.topic_prefix,
        security=_security(config.kafka, environment),
    )


def _security(kafka: KafkaConfig, environment: Mapping[str, str] | None) -> Mapping[str, Any]:
    options: dict[str, Any] = {"security_protocol": kafka.security_protocol}
    files = {
        "ssl_cafile": kafka.ca_file,
        "ssl_certfile": kafka.certificate_file,
        "ssl_keyfile": kafka.key_file,
    }
    if kafka.security_protocol.endswith("SSL"):
        options.update({key: path for key, path in files.items() if path})
    if not kafka.security_protocol.startswith("SASL"):
        return options
    password = read_secret(PASSWORD, environment)
    if not password:
        raise CommandError(
            "Kafka's password is missing",
            why=f"kafka.security_protocol is {kafka.security_protocol} and {PASSWORD} is not set",
            next_step=f"set {PASSWORD}, or {PASSWORD}_FILE to a file that holds it",
        )
    return {
        **options,
        "sasl_mechanism": kafka.sasl_mechanism,
        "sasl_plain_username": kafka.sasl_username,
        "sasl_plain_password": password,
    }
