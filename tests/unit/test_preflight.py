"""The checks before anything is set up or started."""

import socket
from pathlib import Path

import pytest

from jobs.adapters.processes.preflight import check_disk, check_port, check_python, free_ports
from jobs.console import CommandError


@pytest.mark.parametrize("version", [(3, 10), (3, 13), (4, 0)])
def test_check_python_new_enough_passes(version: tuple[int, int]) -> None:
    check_python(version)


@pytest.mark.parametrize("version", [(2, 7), (3, 9)])
def test_check_python_too_old_names_both_versions(version: tuple[int, int]) -> None:
    with pytest.raises(CommandError) as caught:
        check_python(version)
    assert f"{version[0]}.{version[1]}" in caught.value.what
    assert "3.10" in caught.value.why


def test_check_disk_of_a_folder_not_made_yet_looks_at_its_parent(tmp_path: Path) -> None:
    check_disk(tmp_path / "not" / "yet", 1)


def test_check_disk_too_full_says_how_much_is_needed(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        check_disk(tmp_path, 10**18)
    assert "1000000000000 MB are needed" in caught.value.why


def test_check_port_taken_names_port_and_user() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CommandError) as caught:
            check_port(port, "the lookup service")
    assert str(port) in caught.value.what
    assert "the lookup service" in caught.value.what


def test_free_ports_are_different_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        check_port(port, "this test")
