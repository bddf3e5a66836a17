"""What an attached run remembers of a Pulsar cluster, and gives back, over real HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.bridge.attachment import give_back, known_attachment, look_at, settle, take_over
from jobs.bridge.pulsar_admin import AdminAddress, PulsarAdmin
from jobs.cli import main
from jobs.console import CommandError
from jobs.local.layout import Layout
from lbcore.bridge.guard import SHEDDING
from tests.support.admin.fake_pulsar import CLUSTER, FakePulsar, fake_pulsar

RUNTIME = "/admin/v2/brokers/configuration/runtime"
SWITCH = f"/admin/v2/brokers/configuration/{SHEDDING}"


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with fake_pulsar() as running:
        running.own({0: [], 1: []})
        running.put(RUNTIME, {SHEDDING: "true"})
        for word in ("true", "false"):
            running.put(f"{SWITCH}/{word}", b"")
        yield running


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(root=tmp_path)


def admin_of(fake: FakePulsar) -> PulsarAdmin:
    return PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))


def switched(fake: FakePulsar) -> list[str]:
    return [path.rpartition("/")[2] for method, path in fake.requests if method == "POST"]


@pytest.mark.parametrize("before", ["true", "false"])
def test_what_was_taken_is_given_back_as_it_was(
    fake: FakePulsar, layout: Layout, before: str
) -> None:
    fake.put(RUNTIME, {SHEDDING: before})
    admin = admin_of(fake)
    seen = look_at(admin, CLUSTER)
    take_over(admin, layout, settle(layout, fake.url, seen), seen)
    fake.put(RUNTIME, {SHEDDING: "false"})
    # after a crash it is taken over once more: what was so before is not what is so now
    seen = look_at(admin, CLUSTER)
    take_over(admin, layout, settle(layout, fake.url, seen), seen)
    known = known_attachment(layout)
    assert known is not None
    give_back(admin, layout, known)
    assert switched(fake) == ["false", "false", before]
    after = known_attachment(layout)
    assert after is not None
    assert not after.acts


def test_what_was_so_is_on_disk_before_it_is_changed(fake: FakePulsar, layout: Layout) -> None:
    fake.put(f"{SWITCH}/false", b"no", status=500)
    admin = admin_of(fake)
    seen = look_at(admin, CLUSTER)
    with pytest.raises(CommandError, match="could not be switched off"):
        take_over(admin, layout, settle(layout, fake.url, seen), seen)
    known = known_attachment(layout)
    assert known is not None
    assert (known.acts, known.shed_before) == (True, True)


def test_cluster_that_does_not_say_whether_it_sheds_is_observed_and_not_taken(
    fake: FakePulsar, layout: Layout
) -> None:
    fake.put(RUNTIME, b"forbidden", status=403)
    admin = admin_of(fake)
    seen = look_at(admin, CLUSTER)
    attachment = settle(layout, fake.url, seen)
    with pytest.raises(CommandError, match="could not be given back"):
        take_over(admin, layout, attachment, seen)
    assert switched(fake) == []


def test_cluster_without_brokers_is_refused(fake: FakePulsar) -> None:
    fake.put(f"/admin/v2/brokers/{CLUSTER}", [])
    with pytest.raises(CommandError, match="has no active broker"):
        look_at(admin_of(fake), CLUSTER)


def test_folder_of_another_run_is_refused(fake: FakePulsar, layout: Layout) -> None:
    seen = look_at(admin_of(fake), CLUSTER)
    settle(layout, "http://elsewhere:8080", seen)
    settle(layout, fake.url, seen)  # another broker of the same cluster
    (layout.root / "attachment.json").write_text(
        json.dumps({"url": fake.url, "pulsar_cluster": "other"})
    )
    with pytest.raises(CommandError, match="is attached to the cluster other"):
        settle(layout, fake.url, seen)
    (layout.root / "size.json").write_text("{}")
    with pytest.raises(CommandError, match="simulated brokers"):
        known_attachment(layout)


def test_nothing_is_done_where_nobody_can_be_asked_or_is_there(
    fake: FakePulsar, layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--state-dir", str(layout.root)]
    assert main(["attach", fake.url, "--act", *where]) == 2
    assert "add --yes if you agree" in capsys.readouterr().err
    assert main(["detach", *where]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert main(["detach", "--state-dir", str(layout.root / "no")]) == 1
    assert "is attached to no cluster" in capsys.readouterr().err
    assert main(["attach", "http://127.0.0.1:9", "--timeout-s", "1", *where]) == 1
    assert switched(fake) == []
