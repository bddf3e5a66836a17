"""A state folder that is damaged while the job is away: the next start says so and serves.

On the real stack: what the job looks at before its query begins, and what only Spark finds, whose
sums are gone as well. Each case damages what the start before it left in order.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.stack import Cluster, Stack, running_stack

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_000)]

CLUSTER = Cluster(brokers=2, namespaces={"demo/one": ("crc32", 6)})


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _put_older(path: Path) -> None:
    """Put what the log has of the batch before there, with its sums."""
    if path.stem.isdigit():
        before = path.with_name(f"{int(path.stem) - 1}{path.suffix}")
        if before.exists():
            path.write_bytes(before.read_bytes())
            sums = path.with_name(f".{path.name}.crc")
            sums.write_bytes(sums.with_name(f".{before.name}.crc").read_bytes())


FAULTS: Mapping[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": _cut,
    "garbage": lambda path: path.write_bytes(b"\xff\x00{" * 40),
    "old": _put_older,
}
KINDS = {
    "metadata": "metadata",
    "offsets": "offsets/*",
    "commits": "commits/*",
    "change log": "state/0/*/*.changelog",
    "snapshot": "state/1/*/*.zip",
    "table": "state/1/*/SSTs/*.sst",
    "schema": "state/0/_stateSchema/default/*",
    "operator": "state/1/_metadata/v2/*",
}
OWN = ("job.json", "events-version", "lock")
HARMLESS = {("commits", "missing"), ("commits", "old")}
"""A commit says nothing of its batch."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("damaged"), CLUSTER) as running:
        yield running


def newest(stack: Stack, kind: str) -> Path:
    """The newest file of a kind in the checkpoint in use; there must be one."""
    (folder,) = stack.folder.glob("job/checkpoints")
    checkpoint = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    files = [path for path in checkpoint.glob(KINDS[kind]) if not path.name.startswith(".")]
    return max(files, key=lambda path: (path.stem.isdigit() and int(path.stem), path.name))


def started_again(stack: Stack, damage: Callable[[], Any]) -> list[dict[str, Any]]:
    """Stop the job in order, damage its folder, start it and let it serve; its start lines."""
    if "job" in stack.children:
        stack.wait_for_batches(3)
        assert stack.stop("job") == 0
    damage()
    before = len(stack.lines("job", "start"))
    stack.start_job()
    stack.wait_for_batches(1)
    stack.wait_settled()
    return stack.lines("job", "start")[before:]


def test_offsets_cut_by_a_crash_are_rebuilt_from_the_tables(stack: Stack) -> None:
    cut: list[Path] = []

    def damage() -> None:
        cut.append(newest(stack, "offsets"))
        _cut(cut[0])

    (line,) = started_again(stack, damage)
    assert line["rebuilt_because"].startswith(f"the checkpoint is damaged: {cut[0]} ")
    assert cut[0].exists()
    assert f"{cut[0]} is not what Spark wrote" in (stack.folder / "job.log").read_text()


def test_change_log_that_only_spark_finds_damaged_is_rebuilt_once_in_the_same_run(
    stack: Stack,
) -> None:
    def damage() -> None:
        path = newest(stack, "change log")
        _cut(path)
        path.with_name(f".{path.name}.crc").unlink()

    goes_on, rebuilt = started_again(stack, damage)
    assert goes_on["rebuilt_because"] == ""
    assert "the checkpoint is damaged: " in rebuilt["rebuilt_because"]
    assert goes_on["writer_epoch"] == rebuilt["writer_epoch"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_a_checkpoint_damaged_in_every_way(
    stack: Stack, kind: str, fault: str
) -> None:
    changed: list[bool] = []

    def damage() -> None:
        path = newest(stack, kind)
        whole = path.read_bytes()
        FAULTS[fault](path)
        changed.append(not path.exists() or path.read_bytes() != whole)

    lines = started_again(stack, damage)
    if fault == "missing" and kind in ("snapshot", "operator"):
        return  # an older one does where there is one, and else Spark alone may find out
    (line,) = lines
    is_harmless = (kind, fault) in HARMLESS or not changed[0]
    assert ("is damaged" in line["rebuilt_because"]) is not is_harmless, line


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_cut_without_its_sums(stack: Stack, kind: str) -> None:
    def damage() -> None:
        path = newest(stack, kind)
        _cut(path)
        path.with_name(f".{path.name}.crc").unlink()

    assert "is damaged" in started_again(stack, damage)[-1]["rebuilt_because"]


@pytest.mark.parametrize("fault", ["missing", "empty", "cut", "garbage"])
@pytest.mark.parametrize("name", OWN)
def test_every_file_of_the_job_damaged_in_every_way(stack: Stack, name: str, fault: str) -> None:
    path = stack.folder / "job" / name
    (line,) = started_again(stack, lambda: FAULTS[fault](path))
    is_number_left = (name, fault) == ("events-version", "cut")  # a number's half is a number
    is_harmless = name == "lock" or is_number_left or (name, fault) == ("events-version", "missing")
    assert line["rebuilt_because"].startswith(f"{name} is damaged") is not is_harmless, line


def test_manifest_of_a_start_before_stops_with_the_command(stack: Stack) -> None:
    path = stack.folder / "job" / "job.json"
    older = path.read_text()
    started_again(stack, lambda: None)
    stack.stop("job")
    path.write_text(older)
    stack.start_job()
    code, log = stack.wait_end("job")
    assert code == 1
    assert "ballast state rebuild --state-dir" in log
    assert "another job has taken over the tables" in log
