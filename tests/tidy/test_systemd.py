"""The systemd units: systemd takes them, and the processes take the words they are started with."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.cli import main
from tests.tidy.conftest import ParsedError
from tests.tidy.source_files import ROOT

UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
SYSTEMD = shutil.which("systemd-analyze")


def name_of(path: Path) -> str:
    return path.stem


def service_of(path: Path) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(path)
    return unit["Service"]


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
@pytest.mark.usefixtures("only_parsing")
def test_process_takes_the_words_of_its_unit(unit: Path) -> None:
    command, *words = service_of(unit)["ExecStart"].split()
    assert command == "/opt/ballast/bin/ballast"
    with pytest.raises(ParsedError):
        main(words)


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_unit_gives_the_process_the_time_to_end_and_no_rights_beyond_its_folder(unit: Path) -> None:
    service = service_of(unit)
    assert int(service["TimeoutStopSec"]) >= 20
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["User"] == service["StateDirectory"] == "ballast"


@pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8").replace("/opt/ballast/bin/ballast", "/bin/true")
    here = tmp_path / unit.name
    here.write_text(text.replace("User=ballast", "User=root"), encoding="utf-8")
    ended = subprocess.run(
        [str(SYSTEMD), "verify", "--man=no", str(here)], check=False, capture_output=True, text=True
    )
    told = [line for line in ended.stderr.splitlines() if unit.name in line]
    assert (ended.returncode, told) == (0, [])
