"""Forged and broken tokens against the running service, over real sockets.

What is tested value by value in tests/unit/admin is tried here on the process that is attacked:
each answer is 401, nothing of it is a traceback in the log, and who has a good token is served on.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.frozen import COMPILER, TurnedClock
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import TablesWriter, owned
from tests.support.values.tokens import OTHER_RSA_KEY, RSA_KEY, SECRET, jwks, public_pem, token

LOOKUP = "/lookup/v2/topic/persistent/acme/ns1/t1"
HS256 = '{"alg":"HS256","typ":"JWT"}'
GOOD = '"sub":"ada","aud":"ballast","roles":["viewer"]'
NO_NUMBERS = (
    '"9999999999"', '"never"', '""', "NaN", "Infinity", "-Infinity", "1e999", "1e400",
    "1" + "0" * 400, "1" + "0" * 5_000, "[9999999999]", "{}", '"\\ud800"',
)  # fmt: skip
WORDS = ("--set", "lookup.authentication=token", "--set", "lookup.token_audience=ballast")
HOUR_S = 3_600


def tables_of(folder: Path) -> Path:
    writer = TablesWriter(folder / "tables")
    writer.namespaces({"acme/ns1": "crc32"})
    writer.brokers("b1")
    writer.batch(owned("acme/ns1", 4, ["b1"]))
    return folder / "tables"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    folder = tmp_path_factory.mktemp("attacked")
    keys = folder / "keys.json"
    keys.write_text(jwks(r1=RSA_KEY))
    words = (*WORDS, "--set", f"lookup.token_keys_file={keys}")
    environment = {"BALLAST_TOKEN_SECRET": SECRET}
    running = LookupService(tables_of(folder), *words, environment=environment)
    running.wait_ready()
    yield running
    assert running.stop() == 0
    log = running.log_path.read_text()
    assert "Traceback" not in log
    assert SECRET not in log


def part(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(payload: str, header: str = HS256, key: str = SECRET) -> str:
    """A token of exactly this text, whatever a library thinks of it."""
    said = f"{part(header)}.{part(payload)}"
    return f"{said}.{part(hmac.new(key.encode(), said.encode(), hashlib.sha256).digest())}"


def status(service: LookupService, proof: str) -> int:
    return service.get(LOOKUP, Authorization=f"Bearer {proof}").status


def soon() -> int:
    return int(time.time()) + 600


def refuse(service: LookupService, proofs: dict[str, str]) -> None:
    """Each twice, for the second may be answered from what was kept; and a good one after all."""
    found = {name: [status(service, one) for _ in range(2)] for name, one in proofs.items()}
    assert {name: one for name, one in found.items() if one != [401, 401]} == {}
    assert status(service, signed(f'{{{GOOD},"exp":{soon()}}}')) == 200


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
def test_time_that_is_no_number_is_refused(service: LookupService, claim: str) -> None:
    rest = GOOD if claim == "exp" else f'{GOOD},"exp":{soon()}'
    refuse(service, {value[:20]: signed(f'{{{rest},"{claim}":{value}}}') for value in NO_NUMBERS})


def test_time_that_is_over_or_not_yet_is_refused(service: LookupService) -> None:
    times = {
        "over": f'"exp":{int(time.time()) - 60}',
        "long over": '"exp":-1',
        "missing": '"x":1',
        "none": '"exp":null',
        "twice": f'"exp":{soon()},"exp":1',
        "not yet": f'"exp":{soon() + HOUR_S},"nbf":{soon()}',
    }
    refuse(service, {name: signed(f"{{{GOOD},{said}}}") for name, said in times.items()})


def test_token_that_nobody_signed_is_refused(service: LookupService) -> None:
    said = f'{{{GOOD},"exp":{soon()}}}'
    good = signed(said)
    names = {name: json.dumps({"alg": name}) for name in ("none", "None", "nOnE", "", "HS512")}
    proofs = {f"alg {name}": signed(said, header) for name, header in names.items()}
    for name, header in names.items():
        proofs[f"alg {name}, unsigned"] = f"{part(header)}.{part(said)}."
    proofs |= {
        "no alg": signed(said, "{}"),
        "a list for alg": signed(said, '{"alg":["HS256"]}'),
        "no object": signed("[]"),
        "deep": signed("[" * 20_00 + "]" * 20_00),
        "another secret": signed(said, key="another" * 5),
        "another key": token(OTHER_RSA_KEY, "RS256", kid="r1"),
        "the public key as a secret": signed(said, key=public_pem(RSA_KEY)),
        "a path as kid": signed(said, '{"alg":"HS256","kid":"../../dev/null"}', ""),
        "another's payload": ".".join([good.split(".")[0], part(said + " "), good.split(".")[2]]),
        "no signature": good.rpartition(".")[0] + ".",
    }
    refuse(service, proofs)


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler: apt-get install gcc")
@pytest.mark.long
def test_token_is_over_by_the_services_clock_also_when_it_was_good_before(tmp_path: Path) -> None:
    clock = TurnedClock(tmp_path / "clock")
    environment = {"BALLAST_TOKEN_SECRET": SECRET, **clock.environment}
    service = LookupService(tables_of(tmp_path), *WORDS, environment=environment)
    try:
        service.wait_ready()
        good = signed(f'{{{GOOD},"exp":{soon()}}}')
        over = signed(f'{{{GOOD},"exp":{soon() - 1_200}}}')
        seen = []
        for ahead_s in (0, HOUR_S, -HOUR_S, 0):
            clock.turn(ahead_s)
            seen.append((status(service, good), status(service, over)))
        assert seen == [(200, 401), (401, 401), (200, 200), (200, 401)]
    finally:
        assert service.stop() == 0
