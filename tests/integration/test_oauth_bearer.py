"""Kafka that lets in by a bearer token (SASL OAUTHBEARER), checked against the issuer's keys."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from kafka import TopicPartition
from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import PASSWORD, KafkaAddress, Sender
from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from jobs.adapters.kafka.raw_fetch import RawFetcher, connection_text
from jobs.adapters.kafka.topics import ensure_topics, wanted_topics
from jobs.adapters.processes.settings import load_settings
from lbcore.wire.messages import Topic
from tests.support.processes.kafka_cluster import QUICK_JAVA, KafkaNode

CLASSES = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
SETTINGS = ("kafka.security_protocol=SASL_PLAINTEXT", "kafka.sasl_mechanism=OAUTHBEARER")


@dataclass(frozen=True)
class Issuer:
    """An issuer of tokens whose keys the broker reads from a file."""

    folder: Path
    key: rsa.RSAPrivateKey

    def token(self, lifetime_s: int) -> str:
        now = int(time.time())
        claims = {"sub": "job", "aud": "kafka", "iss": "test", "iat": now, "exp": now + lifetime_s}
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "1"})

    def address(self, kafka: KafkaNode, token: str) -> KafkaAddress:
        """The address with the token in the file that the environment names."""
        file = self.folder / "token"
        file.write_text(f"{token}\n")
        config = load_settings(["test"], list(SETTINGS))
        return kafka_address(config, kafka.bootstrap, {f"{PASSWORD}_FILE": str(file)})


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    folder = tmp_path_factory.mktemp("issuer")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    keys = {"keys": [{**public, "kid": "1", "use": "sig", "alg": "RS256"}]}
    (folder / "keys.json").write_text(json.dumps(keys))
    return Issuer(folder, key)


@pytest.fixture(scope="module")
def kafka(issuer: Issuer) -> Iterator[KafkaNode]:
    keys = (issuer.folder / "keys.json").as_uri()
    listener = "listener.name.client.oauthbearer.sasl"
    options = KafkaOptions(
        security_protocol="SASL_PLAINTEXT",
        java_options=(
            *QUICK_JAVA,
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}",
        ),
        properties={
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            # of one node that asks no other broker: its own token is never looked at
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            f"{listener}.jaas.config": (
                f'{CLASSES}LoginModule required unsecuredLoginStringClaim_sub="admin";'
            ),
            f"{listener}.server.callback.handler.class": f"{CLASSES}ValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "sasl.oauthbearer.expected.audience": "kafka",
        },
    )
    with KafkaNode(issuer.folder / "kafka", options) as broker:
        yield broker


def end_of_acks(connection: str) -> int:
    """The end of the first partition, as another machine reads it."""
    place = TopicPartition(Topic.ACKS.value, 0)
    fetcher = RawFetcher(connection, (Topic.ACKS.value,))
    try:
        return fetcher.fetch({place: 0})[place].end
    finally:
        fetcher.close()


@pytest.mark.long
def test_token_lets_each_client_in_and_one_that_has_expired_does_not(
    kafka: KafkaNode, issuer: Issuer
) -> None:
    good = issuer.address(kafka, issuer.token(600))
    ensure_topics(good, wanted_topics(load_settings(["test"])))
    sender = Sender(good, "test")
    sender.send(Topic.ACKS, "c/b", b"1", partition=0)
    sender.flush(30_000)
    assert (sender.delivered, sender.not_delivered) == (1, 0)
    sender.close()

    connection = connection_text(good)
    assert end_of_acks(connection) == 1
    issuer.address(kafka, issuer.token(-600))
    with pytest.raises(KafkaError):
        end_of_acks(connection)
    issuer.address(kafka, issuer.token(600))
    assert end_of_acks(connection) == 1
