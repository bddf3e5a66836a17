"""Keys that tokens are checked with: of a secret, a file and an address.

A key has one algorithm, which follows from the key and never from the token: RSA is RS256, P-256 is
ES256, a shared secret is HS256; so neither "none" nor a public key used as a secret gets through.
The address is asked every five minutes, and at once when a token names an unknown key, but not
within ten seconds of the last time. What it says counts only whole; else the last keys stay.
Sources: RFC 7517, 7518, 8725; PyJWT.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from jobs.adapters.http.client import HttpQuestion, connection_to, exchange
from jobs.adapters.http.tls import WatchedFile
from jobs.atomic_file import read_text_file

logger = logging.getLogger(__name__)

SECRET_MIN_BYTES = 32
_RSA_MIN_BITS = 2_048
_KEYS_MAX = 100
_ANSWER_MAX_BYTES = 262_144
_TIMEOUT_S = 5.0
_RENEW_S = 300.0
BETWEEN_S = 10.0
"""The lower bound between two questions: tokens with made-up key ids bring no more."""
_OK = 200
_SHARED = "HS256"
_ALGORITHMS = {"RSA": "RS256", "EC": "ES256", "oct": _SHARED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """A key that tokens may be signed with, and the only algorithm that it is for."""

    algorithm: str
    material: Any
    key_id: str = ""

    def __repr__(self) -> str:
        """Without the key."""
        return f"TrustedKey(algorithm={self.algorithm!r}, key_id={self.key_id!r})"


def secret_key(secret: str) -> TrustedKey:
    """A shared secret as a key; raises ValueError when it is too short to be one."""
    material = secret.encode()
    if len(material) < SECRET_MIN_BYTES:
        raise ValueError(f"a token secret must have at least {SECRET_MIN_BYTES} bytes")
    return TrustedKey(algorithm=_SHARED, material=material)


def read_keys(path: str) -> tuple[TrustedKey, ...]:
    """Return the keys of a file: a JWKS, or one PEM key. Raises OSError, ValueError."""
    text = read_text_file(Path(path))
    if text.lstrip().startswith("-----"):
        return (_public_key(text),)
    entries = _entries(path, text, f"{path} is neither a JWKS nor a PEM public key")
    return tuple(_key_of(path, entry) for entry in entries)


def _entries(name: str, text: str | bytes, otherwise: str) -> list[Mapping[str, Any]]:
    """The entries of a JWKS that are for signatures; raises ValueError."""
    try:
        found = json.loads(text)["keys"]
        entries = [entry for entry in found if entry.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(otherwise) from None
    if not 1 <= len(entries) <= _KEYS_MAX:
        raise ValueError(f"{name} must hold 1 to {_KEYS_MAX} keys for signatures")
    return entries


def _key_of(name: str, entry: Mapping[str, Any]) -> TrustedKey:
    """One key of a JWKS; messages never show it."""
    key_id = str(entry.get("kid", ""))
    algorithm = _ALGORITHMS.get(str(entry.get("kty")), "")
    if not algorithm or entry.get("alg", algorithm) != algorithm:
        raise ValueError(f"{name}: key {key_id!r} is for none of RS256, ES256, HS256")
    try:
        material = jwt.PyJWK(dict(entry), algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise ValueError(f"{name}: key {key_id!r} can't be used") from None
    if isinstance(material, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        material = material.public_key()
    _check_strength(material, f"{name}: key {key_id!r}")
    return TrustedKey(algorithm=algorithm, material=material, key_id=key_id)


def _public_key(text: str) -> TrustedKey:
    material = load_pem_public_key(text.encode())
    _check_strength(material, "the PEM key")
    return TrustedKey(
        algorithm="RS256" if isinstance(material, rsa.RSAPublicKey) else "ES256",
        material=material,
    )


def _check_strength(material: Any, name: str) -> None:
    is_strong = (
        (isinstance(material, bytes) and len(material) >= SECRET_MIN_BYTES)
        or (isinstance(material, rsa.RSAPublicKey) and material.key_size >= _RSA_MIN_BITS)
        or (
            isinstance(material, ec.EllipticCurvePublicKey)
            and isinstance(material.curve, ec.SECP256R1)
        )
    )
    if not is_strong:
        raise ValueError(
            f"{name} must be RSA of at least {_RSA_MIN_BITS} bits, on the curve P-256, or a secret "
            f"of at least {SECRET_MIN_BYTES} bytes"
        )


class KeyAddress:
    """A JWKS URL and the public keys that it named last."""

    def __init__(self, url: str) -> None:
        """Ask at once; raises ValueError with the reason why there are no keys."""
        self._url = url
        self._check_scheme()
        self._asked_s = monotonic()
        self._renewing: asyncio.Future[None] | None = None
        self._content, self.keys = self._fetch()

    @property
    def may_know_more(self) -> bool:
        """True if it is being asked, or may be asked again already."""
        return self._renewing is not None or monotonic() - self._asked_s >= BETWEEN_S

    def keep_up(self, stop: threading.Event) -> None:
        """Ask every five minutes until `stop` is set, so that withdrawn keys go."""
        while not stop.wait(_RENEW_S):
            self._renew()

    async def renew(self) -> None:
        """Ask now, once for all who want it."""
        if self._renewing is None:
            self._asked_s = monotonic()
            self._renewing = asyncio.ensure_future(asyncio.to_thread(self._renew))
            self._renewing.add_done_callback(self._end_renewing)
        await asyncio.shield(self._renewing)

    def _end_renewing(self, _: "asyncio.Future[None]") -> None:
        self._renewing = None

    def _renew(self) -> None:
        self._asked_s = monotonic()
        try:
            content, keys = self._fetch()
        except ValueError as error:
            fields = {
                "what": "the keys of tokens were not renewed",
                "why": str(error),
                "next": "the last ones stay; correct lookup.token_keys_url or what serves it",
            }
            logger.warning("token_keys_not_renewed", extra={"fields": fields})
            return
        if content != self._content:  # who compares keys by identity is not disturbed
            self._content, self.keys = content, keys
            logger.info("token_keys_renewed", extra={"fields": {"keys": len(keys)}})

    def _check_scheme(self) -> None:
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        try:
            is_here = host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            is_here = False
        if not host or parts.scheme not in (("http", "https") if is_here else ("https",)):
            raise ValueError(f"{self._url!r} must be https://..., http only on this machine")

    def _fetch(self) -> tuple[bytes, tuple[TrustedKey, ...]]:
        parts = urlsplit(self._url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        asked = HttpQuestion(target=target, headers={"Accept": "application/json"})
        try:
            answer = exchange(connection_to(self._url, _TIMEOUT_S), asked, _ANSWER_MAX_BYTES)
        except (OSError, HTTPException) as error:
            raise ValueError(f"{self._url} gives no answer: {error}") from None
        if answer.status != _OK:
            where = f" and sends to {answer.location}" if answer.location else ""
            raise ValueError(f"{self._url} answers with HTTP {answer.status}{where}")
        kind = answer.kind or "no content type"
        otherwise = f"{self._url} answers with no JWKS ({kind}): it may be a login page"
        return answer.content, self._usable(_entries(self._url, answer.content, otherwise))

    def _usable(self, entries: list[Mapping[str, Any]]) -> tuple[TrustedKey, ...]:
        """The keys that can be used here; others are for other services, and are left out."""
        found, faults = [], ["no key of it is public"]
        for entry in entries:
            try:
                key = _key_of(self._url, entry)
            except ValueError as error:  # noqa: PERF203 (a hundred at most)
                faults.append(str(error))
            else:
                found += [key] if key.algorithm != _SHARED else []  # a secret is not published
        if not found:
            raise ValueError(f"{self._url} names no usable key: {faults[-1]}")
        return tuple(found)


class TokenKeys:
    """All keys of the moment: those of the files, and those of an address."""

    def __init__(
        self, files: WatchedFile[tuple[TrustedKey, ...]], address: KeyAddress | None = None
    ) -> None:
        self.address = address
        self._files = files
        self._made: tuple[tuple[TrustedKey, ...], ...] = ()
        self._all: tuple[TrustedKey, ...] = ()

    @property
    def value(self) -> tuple[TrustedKey, ...]:
        """The keys trusted now; the same object while they have not changed."""
        parts = (self._files.value, self.address.keys if self.address else ())
        if len(self._made) != len(parts) or any(map(_differ, parts, self._made)):
            self._made, self._all = parts, sum(parts, ())
        return self._all


def _differ(one: object, other: object) -> bool:
    return one is not other
