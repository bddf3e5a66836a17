"""Makes keys, tokens and certificates for tests of who is let in."""

import json
import time
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "ballast"
SECRET = "0123456789abcdef0123456789abcdef"  # noqa: S105 (a test's)
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def claims(**changed: Any) -> dict[str, Any]:
    """What a good token says; None takes a claim away."""
    good = {"sub": "ada", "exp": time.time() + 600, "aud": "ballast", "roles": ["viewer"]}
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def token(key: Any, algorithm: str, *, kid: str = "", **changed: Any) -> str:
    headers = {"kid": kid} if kid else {}
    return jwt.encode(claims(**changed), key, algorithm=algorithm, headers=headers)


def public_pem(key: Any) -> str:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def jwks(**keys: Any) -> str:
    """A JWKS of private keys' public halves, by key id."""
    found = []
    for kid, key in keys.items():
        algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        found.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
    return json.dumps({"keys": found})


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "test authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._sign(self.name, self.key, is_authority=True)

    def issue(
        self, folder: Path, name: str, lasts: timedelta = timedelta(days=1)
    ) -> tuple[Path, Path]:
        """The files of a new certificate with this common name, and of its key.

        lasts: from now on; one that is below 0 has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, is_authority=False, lasts=lasts)
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        paths[1].write_bytes(pem)
        return paths

    def write(self, path: Path) -> Path:
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return path

    def _sign(
        self,
        subject: x509.Name,
        key: Any,
        *,
        is_authority: bool,
        lasts: timedelta = timedelta(days=1),
    ) -> x509.Certificate:
        now = datetime.now(timezone.utc)
        alternative = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
            .sign(self.key, hashes.SHA256())
        )
