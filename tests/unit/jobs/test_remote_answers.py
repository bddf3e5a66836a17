"""Each verb that reads or commands, asked of the tables and of a service: equal answers."""

import asyncio
import base64
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any
from unittest import mock

import pytest

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.http.client import HttpAnswer, HttpRequest
from jobs.adapters.kafka.command_client import CommandOutcome
from jobs.cli import main
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.v1 import reading
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.wire.messages import Command
from tests.support.admin.admin_world import Balancer, make_context, outcome
from tests.support.admin.asgi_calls import ask
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.world import CLUSTER, World

HOT = "broker-0:8080"
SPACE = "acme/a"
BUNDLE = f"{SPACE}/0x00000000_0x20000000"
PROBLEM = "application/problem+json"
URL = "http://service.test:8090"
QUIET = [
    "shedding.cool_down_ms=0",
    "splitting.enabled=false",
    "shedding.strategy=avg",
    "placement.strategy=avg",
]


@pytest.fixture(scope="module")
def world() -> World:
    """Two brokers, one of them hot, with a pin, a policy, two plans and a changed setting."""
    made = World(parse_assignments(Config(), QUIET), brokers=2)
    made.command("create_namespace", namespace=SPACE, bundles=8)
    made.run(60_000)
    made.command("pause")
    for row in made.newest():
        made.rates[str(row["bundle"])] = 1_500.0 if row["destination"] == HOT else 50.0
    made.run(120_000)
    moved, owner = max((str(row["bundle"]), str(row["destination"])) for row in made.newest())
    other = next(one for one in sorted(made.brokers) if one != owner)
    made.command("unload_bundle", bundle=moved, destination=other)
    made.command("pin_bundle", bundle=BUNDLE, broker=HOT, reason="release day")
    made.command("set_anti_affinity", name="apart", namespaces=[SPACE])
    made.command("set_config", values={"shedding.max_moves_per_cycle": 3})
    made.command("propose_plan", moves={moved: owner}, plan="mine")
    made.run(60_000)
    made.command("resume")
    made.run(5_000)
    back = next(
        str(row["bundle"])
        for row in made.newest()
        if row["destination"] == owner and row["bundle"] not in (moved, BUNDLE)
    )
    made.command("propose_plan", moves={back: other}, plan="done")
    made.command("approve_plan", plan="done")
    made.run(5_000)
    return made


@pytest.fixture(scope="module")
def tables(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The world's tables, and its time for all that asks for the time."""
    root = tmp_path_factory.mktemp("remote")
    write_tables(world, root)
    asking = [one for name, one in sys.modules.items() if name.startswith("jobs.")]
    with ExitStack() as patched:
        for one in asking:
            if hasattr(one, "wall_ms"):
                patched.enter_context(mock.patch.object(one, "wall_ms", return_value=world.now_ms))
        yield root


class Service:
    """A service in this process behind the HTTP client of the verbs. asked: so far."""

    def __init__(self, app: AdminApp) -> None:
        self.app = app
        self.asked: list[HttpRequest] = []
        self.instead: Callable[[HttpRequest], HttpAnswer] | None = None

    def exchange(self, connection: Any, asked: HttpRequest, bytes_max: int) -> HttpAnswer:
        del connection, bytes_max
        self.asked.append(asked)
        if self.instead is not None:
            return self.instead(asked)
        path, _, query = asked.target.partition("?")
        answer = asyncio.run(
            ask(
                self.app,
                f"{path}?{query}" if query else path,
                method=asked.method,
                body=asked.body,
                headers=asked.headers,
            )
        )
        return HttpAnswer(
            status=answer.status,
            content=answer.body,
            kind=answer.headers.get("content-type", ""),
            headers=answer.headers,
        )


async def read_here(read: reading.Read, root: TablePlace, cluster: str) -> tuple[IO[bytes], str]:
    """Read as a process of the service's pool does, in this one."""
    answer: IO[bytes] = NamedTemporaryFile(prefix="ballast-answer-")  # noqa: SIM115 (as there)
    return answer, reading._answer(read, root, cluster, Path(answer.name))  # noqa: SLF001 (as there)


@pytest.fixture
def balancer() -> Balancer:
    return Balancer()


@pytest.fixture
def service(
    tables: Path, balancer: Balancer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Service:
    monkeypatch.setattr("tests.support.admin.admin_world.CLUSTER", CLUSTER)
    context = replace(make_context(tables, balancer), cluster=CLUSTER)
    found = Service(AdminApp(context, ROUTES))
    monkeypatch.setattr("jobs.operating.connection_options.exchange", found.exchange)
    monkeypatch.setattr(reading.readers, "ask", read_here)
    # a plan says who proposed it: the token's owner, or this user
    monkeypatch.setattr("jobs.adapters.kafka.command_client.local_principal", lambda: "anonymous")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return found


Said = tuple[int, str, str]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*words: str) -> Said:
        code = main(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


DRY = ("plan", "--dry-run", "--set", QUIET[0], "--set", QUIET[1])
LINES: list[tuple[str, ...]] = [
    ("status",),
    ("explain", "cluster"),
    ("explain", "broker", HOT),
    ("explain", "bundle", BUNDLE),
    ("explain", "bundle", BUNDLE, "--at", "30s"),
    ("explain", "broker", "nobody"),
    ("explain", "bundle", f"{SPACE}/0x00000000_0x00000001"),
    DRY,
    (*DRY, "--strategy", "uniform", "--add-brokers", "1", "--remove-broker", HOT),
    ("plan", "list"),
    ("plan", "show", "mine"),
    ("plan", "show", "nobody's"),
    ("plan", "undo", "--since", "1h", "--dry-run", "--command-id", "once"),
    ("ownership",),
    ("ownership", "--namespace", SPACE, "--broker", HOT),
    ("ownership", "--namespace", "acme/none"),
    ("ownership", "--as-of", "90s"),
    ("ownership", "--diff", "110s", "0s"),
    ("ownership", "--diff", "0s", "110s"),
    ("bundle", "list"),
    ("bundle", "list", "--by", "bandwidth", "--broker", HOT, "--limit", "3"),
    ("bundle", "list", "--broker", "nobody"),
    ("bundle", "list", "--by", "partitions"),
    ("policy", "list"),
    ("lookup", f"persistent://{SPACE}/t1", "persistent://acme/none/t"),
    ("lookup", "not a topic"),
    ("sql", "most-moved"),
    ("sql", "SELECT broker, count(*) AS bundles FROM owners GROUP BY broker ORDER BY broker"),
    ("config", "show", "--changed"),
    ("broker", "drain", HOT, "--dry-run", "--command-id", "once"),
    ("bundle", "unload", BUNDLE, "--dry-run", "--command-id", "once"),
    ("bundle", "unpin", f"{SPACE}/0xe0000000_0xffffffff", "--dry-run"),
]


def ageless(text: str) -> str:
    """Without how old a snapshot is: each source loads its own."""
    text = re.sub(r"\d+ ms old", "N ms old", text)
    return re.sub(r'"(age_ms|table_version|writer_silent_ms)": -?\d+', r'"\1": N', text)


ONE_OF_EACH = {line[:2]: (*line, "--json") for line in reversed(LINES)}.values()


@pytest.mark.parametrize("line", [*LINES, *ONE_OF_EACH], ids=" ".join)
def test_verb_gives_the_same_answer_by_tables_and_by_service(
    tables: Path, service: Service, say: Callable[..., Said], line: tuple[str, ...]
) -> None:
    own = ("--cluster", CLUSTER)
    code, out, err = say(*line, *own, "--tables", str(tables))
    assert not service.asked
    remote = say(*line, *own, "--url", URL)
    assert service.asked
    assert (remote[0], ageless(remote[1])) == (code, ageless(out))
    assert bool(remote[2]) == bool(err)
    if line[0] != "config":
        assert remote[2].splitlines()[:1] == err.splitlines()[:1]


def answering(
    status: int, content: str, kind: str = "application/json", **more: Any
) -> Callable[[HttpRequest], HttpAnswer]:
    """A server that gives one answer to whatever it is asked."""
    found = HttpAnswer(status=status, content=content.encode(), kind=kind, **more)
    return lambda _: found


def token_that_ended(path: Path) -> Path:
    """A token in a file, of the year 2001."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_000_000_000}).encode()).decode()
    path.write_text(f"head.{claims.rstrip('=')}.sign\n")
    return path


def refused(_: HttpRequest) -> HttpAnswer:
    raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (
            answering(200, "<html>Sign in</html>", "text/html; charset=utf-8"),
            ["does not answer as a Ballast service", "text/html", "login page"],
        ),
        (
            answering(302, "", "", location="https://login.test/"),
            ["does not answer as a Ballast service", "on to https://login.test/", "--url"],
        ),
        (answering(200, "{", "application/json"), ["does not answer as a Ballast service"]),
        (refused, ["does not answer", "Connection refused", "`ballast serve`"]),
        (
            answering(401, json.dumps({"reason": "A token is needed"})),
            ["does not accept who asks", "no token was given (A token is needed)", "--token-file"],
        ),
        (
            answering(403, json.dumps({"title": "Forbidden", "detail": "ada is no viewer"})),
            ["refuses it", "ada is no viewer", "with a token that has this role"],
        ),
        (
            answering(404, json.dumps({"detail": "HTTP 404 Not Found"}), PROBLEM),
            ["has no /v1/status", "of an older version", "--tables"],
        ),
        (
            answering(503, json.dumps({"reason": "The tables are not loaded yet"})),
            ["can't answer now", "The tables are not loaded yet"],
        ),
        (answering(200, "{}"), ["can't be used", "of another version", "of one version"]),
    ],
)
def test_what_is_wrong_with_the_service_is_said_in_three_parts(
    service: Service, say: Callable[..., Said], instead: Any, said: list[str]
) -> None:
    service.instead = instead
    code, out, err = say("status", "--url", URL)
    assert (code, out) == (1, "")
    what, why, next_step = err.splitlines()
    assert what.startswith("error: ")
    assert why.startswith("  why: ")
    assert next_step.startswith(" next: ")
    assert all(part in err for part in said), err


def test_expired_token_is_told_with_its_time(
    service: Service, say: Callable[..., Said], tmp_path: Path
) -> None:
    token = token_that_ended(tmp_path / "token")
    service.instead = answering(401, json.dumps({"reason": "expired"}))
    code, _, err = say("status", "--url", URL, "--token-file", str(token))
    assert code == 1
    assert f"the token in {token} expired at 2001-09-09 01:46:40 UTC" in err
    assert service.asked[0].headers["Authorization"].startswith("Bearer head.")


@pytest.mark.usefixtures("service")
def test_command_of_another_cluster_is_not_sent(
    balancer: Balancer, say: Callable[..., Said]
) -> None:
    code, _, err = say("pause", "--url", URL, "--cluster", "elsewhere")
    assert code == 1
    assert "serves another cluster" in err
    assert balancer.commands == []


@pytest.mark.usefixtures("service")
def test_command_goes_to_the_service_and_its_outcome_comes_back(
    balancer: Balancer, say: Callable[..., Said]
) -> None:
    code, out, _ = say("pause", "--reason", "inventory", "--url", URL, "--timeout", "5m")
    assert code == 0
    assert out.startswith("done after ")
    (sent,) = balancer.commands
    assert (sent.kind, sent.arguments["reason"], sent.timeout_ms) == ("pause", "inventory", 300_000)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("status", "code"), [("refused", 1), ("timed_out", 3), ("done", 0)], ids=str
)
def test_outcome_decides_the_exit_code(
    balancer: Balancer, say: Callable[..., Said], status: str, code: int
) -> None:
    def end(command: Command) -> CommandOutcome:
        return outcome(command, status=status, reason="it is so")

    balancer.answer = end
    found = say("bundle", "unload", BUNDLE, "--url", URL)
    assert found[0] == code
    assert ("it is so" in found[2]) == bool(code)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("broker", "drain", "b1", "--deadline", "10m"), "--deadline"),
        (("broker", "drain", "b1"), "--timeout"),
        (("pause",), "--timeout"),
    ],
    ids=["drain with a deadline", "drain", "pause"],
)
def test_more_time_is_asked_for_with_the_option_that_gives_it(
    balancer: Balancer, say: Callable[..., Said], words: tuple[str, ...], option: str
) -> None:
    balancer.answer = lambda command: outcome(command, status="timed_out", reason="it is so")
    assert f"with more time: {option}\n" in say(*words, "--url", URL)[2]


def test_command_is_not_waited_for_where_nobody_wants_to(
    service: Service, balancer: Balancer, say: Callable[..., Said]
) -> None:
    balancer.answer = lambda _: None
    code, out, _ = say("pause", "--no-wait", "--command-id", "once", "--url", URL)
    assert (code, out.split(";")[0]) == (0, "sent pause as once")
    assert "wait_ms=0" in service.asked[-1].target


def test_context_names_service_token_and_cluster(
    service: Service, say: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("head.claims.sign")
    contexts = tmp_path / "ballast" / "contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text(
        f'current = "prod"\n[contexts.prod]\nurl = "{URL}/ballast/"\n'
        f'token_file = "{tmp_path / "token"}"\n[contexts.other]\nurl = "{URL}"\n'
        f'cluster = "elsewhere"\n[contexts.bad]\nurl = 1\n'
    )
    service.instead = answering(403, json.dumps({"reason": "no"}))
    assert say("status")[0] == 1
    assert service.asked[-1].target == "/ballast/v1/status"
    assert service.asked[-1].headers["Authorization"] == "Bearer head.claims.sign"
    service.instead = None
    monkeypatch.setenv("BALLAST_TOKEN_FILE", str(tmp_path / "another service's"))
    monkeypatch.setenv("BALLAST_CONTEXT", "other")
    assert "serves another cluster" in say("pause")[2]
    code, _, err = say("status", "--context", "proud")
    assert code == 2
    assert "there is no context 'proud'" in err
    assert "did you mean prod?" in err
    assert "'url' is no entry with a text" in say("status", "--context", "bad")[2]


@pytest.mark.usefixtures("service")
def test_contexts_in_a_wrong_form_are_a_misuse(say: Callable[..., Said], tmp_path: Path) -> None:
    contexts = tmp_path / "ballast" / "contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text('current = ["a"]\n[[contexts]]\nurl = "http://a:1"\n')
    code, _, err = say("status")
    assert (code, err.partition("\n")[0]) == (2, "error: there is no context \"['a']\"")


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ('url = "http://a:1"', "its url is not https"),
        ('tables = "t"', "its place is tables, not a url"),
    ],
)
def test_authority_that_a_context_can_not_use_is_a_misuse(
    place: str, why: str, say: Callable[..., Said], tmp_path: Path
) -> None:
    contexts = tmp_path / "ballast" / "contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text(f'[contexts.a]\n{place}\nca_file = "/ca.pem"\n')
    code, _, err = say("status", "--context", "a")
    assert code == 2
    assert "ca_file has no effect" in err
    assert why in err


def test_cluster_of_a_chosen_context_precedes_the_variable(
    service: Service, say: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = tmp_path / "ballast" / "contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text(f'[contexts.other]\nurl = "{URL}"\ncluster = "elsewhere"\n')
    service.instead = None
    monkeypatch.setenv("BALLAST_CLUSTER", "test")
    assert "the context says elsewhere" in say("status", "--context", "other")[2]
    assert "$BALLAST_CLUSTER or the context says test" in say("status", "--url", URL)[2]
    monkeypatch.setenv("BALLAST_CONTEXT", "other")
    assert "the context says test" in say("status")[2]


def test_two_places_are_misuse(say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        "--url and --tables name different places"
        in say("status", "--url", URL, "--tables", "x")[2]
    )
    monkeypatch.setenv("BALLAST_URL", URL)
    monkeypatch.setenv("BALLAST_TABLES", "x")
    assert "$BALLAST_URL and $BALLAST_TABLES" in say("status")[2]
    assert "is no address of a service" in say("status", "--url", "service.test:8090")[2]


def test_command_that_may_have_been_sent_is_told_with_its_id(
    service: Service, say: Callable[..., Said]
) -> None:
    def cut(asked: HttpRequest) -> HttpAnswer:
        if asked.method == "GET":
            return answering(200, '{"cluster": "local"}')(asked)
        raise TimeoutError("no whole answer within 25 s")

    service.instead = cut
    code, _, err = say("pause", "--command-id", "once", "--url", URL)
    assert code == 3
    assert "command once may have been sent" in err
    assert "--command-id once: it is carried out at most once" in err
    kafka_is_away = "Kafka did not take the command: sending command once again is safe"
    service.instead = lambda asked: (
        cut(asked)
        if asked.method == "GET"
        else answering(503, json.dumps({"detail": kafka_is_away}), PROBLEM)(asked)
    )
    assert say("pause", "--command-id", "once", "--url", URL)[0] == 3


def test_command_under_way_is_looked_at_until_it_ends(
    service: Service, say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.operating.answers._POLL_S", 0.0)
    looks = iter(["accepted", "accepted", "done"])

    def answer(asked: HttpRequest) -> HttpAnswer:
        if "/v1/settings" in asked.target:
            return answering(200, '{"cluster": "local"}')(asked)
        status = "sent" if asked.method == "POST" else next(looks)
        row = {"command_id": "once", "status": status, "reason": "", "result": {}}
        return answering(202 if status == "sent" else 200, json.dumps(row))(asked)

    service.instead = answer
    code, out, _ = say("broker", "drain", HOT, "--command-id", "once", "--url", URL)
    assert (code, out.split(" after ")[0]) == (0, "done")
    assert "timeout_ms=3600000" in service.asked[1].target
    assert service.asked[-1].target == "/v1/commands/once"


def test_refusal_of_a_later_look_is_no_refusal_of_the_command(
    service: Service, say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.operating.answers._POLL_S", 0.0)

    def answer(asked: HttpRequest) -> HttpAnswer:
        if "/v1/settings" in asked.target:
            return answering(200, '{"cluster": "local"}')(asked)
        if asked.method == "POST":
            row = {"command_id": "once", "status": "accepted", "reason": "", "result": {}}
            return answering(202, json.dumps(row))(asked)
        return answering(403, json.dumps({"detail": "the token has ended"}), PROBLEM)(asked)

    service.instead = answer
    code, _, err = say("pause", "--command-id", "once", "--url", URL)
    assert code == 3
    assert "command once may have been sent" in err


def test_doctor_asks_the_service_and_needs_no_tables(
    service: Service, say: Callable[..., Said]
) -> None:
    code, out, _ = say("doctor", "--url", URL)
    assert "it answers for cluster local" in out
    assert "job" in out
    service.instead = refused
    code, out, _ = say("doctor", "--url", URL)
    assert code == 1
    assert "does not answer" in out


@pytest.mark.usefixtures("service")
def test_verb_that_needs_the_tables_says_so(say: Callable[..., Said]) -> None:
    code, _, err = say("backtest", "--url", URL)
    assert code == 2
    assert "this needs the tables" in err
    assert "name their folder with --tables" in err


@pytest.mark.usefixtures("service", "tables")
def test_completion_offers_what_the_service_knows(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BALLAST_URL", URL)
    assert HOT in say("completion", "--names", "brokers")[1].splitlines()
    assert BUNDLE in say("completion", "--names", "bundles")[1].splitlines()
