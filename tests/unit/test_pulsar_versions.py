"""Which Pulsar servers can be had: what each is made of, and which one is meant."""

import pytest

from jobs.console import MisuseError
from tests.pulsar.distribution import (
    DEFAULT,
    VARIABLE,
    VERSIONS,
    chosen_version,
    pinned_files,
)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_server_put_together_has_its_broker_scripts_and_no_two_files_of_one_name(
    version: str,
) -> None:
    pinned = pinned_files(version)
    names = [one.file_name for one in pinned]
    assert len(set(names)) == len(names)
    assert f"pulsar-broker-{version}.jar" in names
    assert "pulsar-4.2.4-source-release.zip" in names
    assert all(len(sha256) == 64 for sha256 in pinned.values())


def test_version_is_the_named_one_and_one_that_nobody_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen_version() == DEFAULT
    monkeypatch.setenv(VARIABLE, "5.0.0-M1")
    assert chosen_version() == "5.0.0-M1"
    monkeypatch.setenv(VARIABLE, "4.1.0")
    with pytest.raises(MisuseError) as refused:
        chosen_version()
    assert "4.0.8, 4.2.4, 5.0.0-M1" in refused.value.why
