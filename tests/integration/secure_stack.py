"""The real stack with Kafka over TLS, passwords and ACLs: each process logs in as its role."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from jobs.adapters.kafka.clients import PASSWORD, KafkaAddress
from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from jobs.adapters.kafka.topics import (
    ROLES,
    TOPIC,
    TRANSACTION,
    ensure_topics,
    rights_of,
    wanted_topics,
)
from jobs.adapters.processes.settings import load_settings
from tests.integration.stack import Cluster, Stack
from tests.support.processes.kafka_cluster import QUICK_JAVA, KafkaNode

MECHANISM = "SCRAM-SHA-512"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = ("admin", *sorted(ROLES))
RESOURCES = {
    TOPIC: ResourceType.TOPIC,
    TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}


def secret_of(user: str) -> str:
    return f"{user}-hush-hush"


@dataclass
class SecureStack(Stack):
    """A stack whose processes log in, each as its role."""

    def words(self, role: str) -> list[str]:
        """What tells a process how to be let in; its password is in the environment."""
        settings = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_username": role,
            "ca_file": str(self.folder / "ca.pem"),
        }
        return [w for key, value in settings.items() for w in ("--set", f"kafka.{key}={value}")]

    def environment(self, role: str) -> dict[str, str]:
        path = self.folder / f"{role}.password"
        path.write_text(secret_of(role))
        path.chmod(0o600)
        return {f"{PASSWORD}_FILE": str(path)}

    def address(self, role: str, password: str = "") -> KafkaAddress:
        """Where Kafka is for this process's own clients."""
        changes = [word for word in self.words(role) if word != "--set"]
        config = load_settings(["test"], changes)
        given = {PASSWORD: password or secret_of(role)}
        return kafka_address(config, self.kafka.bootstrap, given)


def secure_kafka(folder: Path) -> KafkaNode:
    """A broker that lets in who knows a password, over TLS, to what the ACLs allow."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(server.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    chain = [pem.bytes() for pem in server.cert_chain_pems]
    (folder / "server.pem").write_bytes(b"".join([key, *chain]))
    users = [
        word
        for user in USERS
        for word in ("--add-scram", f"{MECHANISM}=[name={user},password={secret_of(user)}]")
    ]
    kafka = KafkaNode(
        folder / "kafka",
        KafkaOptions(
            security_protocol="SASL_SSL",
            java_options=QUICK_JAVA,
            format_arguments=tuple(users),
            properties={
                "sasl.enabled.mechanisms": MECHANISM,
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                f"listener.name.client.{MECHANISM.lower()}.sasl.jaas.config": (
                    f'{LOGIN} required username="admin" password="{secret_of("admin")}";'
                ),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(folder / "server.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(folder / "ca.pem"),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin;User:ANONYMOUS",
                "allow.everyone.if.no.acl.found": "false",
            },
        ),
    )
    kafka.start()
    return kafka


def give_rights(address: KafkaAddress) -> None:
    """Make the ACLs of every role, for a principal of its name."""
    admin = KafkaAdminClient(**address.client_options("test-acls"))
    admin.create_acls(
        [
            ACL(
                principal=f"User:{role}",
                host="*",
                operation=ACLOperation[operation.upper()],
                permission_type=ACLPermissionType.ALLOW,
                resource_pattern=ResourcePattern(
                    RESOURCES[right.resource],
                    right.name,
                    ACLResourcePatternType.LITERAL,
                ),
            )
            for role in ROLES
            for right in rights_of(role, "")
            for operation in right.operations
        ]
    )
    admin.close()


@contextmanager
def running_secure_stack(folder: Path, cluster: Cluster) -> Iterator[SecureStack]:
    """The whole stack, every bundle served; all of it is gone at the end."""
    stack = SecureStack(folder=folder, kafka=secure_kafka(folder), cluster=cluster)
    try:
        ensure_topics(stack.address("admin"), wanted_topics(load_settings(["test"])))
        give_rights(stack.address("admin"))
        stack.begin()
        yield stack
    finally:
        stack.stop_all()
