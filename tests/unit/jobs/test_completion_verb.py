"""The script that completes words, tried in a real bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.cli import main
from jobs.verbs.completion import SHELLS

COMPLETED = """\
source "$1"; COMP_WORDS=(ballast {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_ballast ballast "${{COMP_WORDS[COMP_CWORD]}}"; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "found"),
    [("ow", {"ownership"}), ("ownership --as", {"--as-of"}), ("completion b", {"bash"})],
)
def test_bash_completes_verbs_options_and_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, found: set[str]
) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "ballast.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    ended = subprocess.run(
        [bash, "-c", COMPLETED.format(words=words), "bash", str(script)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert set(ended.stdout.split()) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_script_of_each_shell_knows_every_option(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert "as-of" in capsys.readouterr().out
