"""Where Kafka is and how to be let in, from the configuration and the environment's secrets.

Decides which keys of kafka-python, and of Kafka's Java client in Spark, the settings of section
`kafka` become. Source: ours; the Java client's keys are Kafka 3.9's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, MisuseError
from lbcore.config.kafka import KafkaConfig
from lbcore.config.tree import Config

GROUP_PREFIX = "ballast"
"""Begins the id of the group that Spark's source reads in; an ACL on the group names it."""

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PEM_TEXTS = {
    "ssl_cafile": "ssl.truststore.certificates",
    "ssl_certfile": "ssl.keystore.certificate.chain",
    "ssl_keyfile": "ssl.keystore.key",
}
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


# after each fetch Spark asks for the partition's offsets, and a broker answers the requests of a
# connection one by one: in each partition that took the 500 ms for which a fetch waits for news
_PATIENCE = {"fetch.max.wait.ms": "1"}


def spark_source_options(address: KafkaAddress) -> dict[str, str]:
    """Options of Spark's Kafka source for this address.

    Certificates go as text, not as paths, so that executors on other machines need no files. The
    key must be PKCS #8 ("BEGIN PRIVATE KEY"): Kafka's Java client reads no other PEM. Raises
    CommandError when a file can't be read.
    """
    given = address.security
    options = {"bootstrap.servers": address.bootstrap, **_PATIENCE}
    protocol = given.get("security_protocol", "PLAINTEXT")
    if protocol != "PLAINTEXT":
        options["security.protocol"] = protocol
    for key, option in _PEM_TEXTS.items():
        if key in given:
            options[option] = _read_pem(given[key])
            store = option.partition(".")[2].partition(".")[0]
            options[f"ssl.{store}.type"] = "PEM"
    if protocol.startswith("SASL"):
        module = _LOGIN_MODULES[given["sasl_mechanism"]]
        user, password = (
            _quoted(given[key]) for key in ("sasl_plain_username", "sasl_plain_password")
        )
        options["sasl.mechanism"] = given["sasl_mechanism"]
        options["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    return {
        "groupIdPrefix": GROUP_PREFIX,
        **{f"kafka.{name}": value for name, value in options.items()},
    }


def _quoted(text: str) -> str:
    """A JAAS value: in double quotes, with these and backslashes escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_pem(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{path} could not be read",
            why=str(error),
            next_step="name a readable PEM file in kafka.ca_file, certificate_file or key_file",
        ) from error
    if "RSA PRIVATE KEY" in text or "EC PRIVATE KEY" in text:
        raise CommandError(
            f"the key in {path} can't be used",
            why="Kafka's Java client, which Spark reads with, takes PKCS #8 only",
            next_step=f"convert it: openssl pkcs8 -topk8 -nocrypt -in {path} -out key.pem",
        )
    return text


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
