"""A Go client that is generated from the OpenAPI document compiles and looks a topic up.

Needs Go and its module proxy. ogen has every path of the document; a few are enough to compile.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.admin.admin_world import write_tables
from tests.support.processes.lookup_service import LookupService

GO = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
OGEN = "github.com/ogen-go/ogen/cmd/ogen@v1.25.0"
KEPT = ("/lookup/", "/v1/ownership", "/v1/lookups", "/v1/status")
SOURCE = Path(__file__).parent / "go_client" / "main.go"
WITHOUT_WARNING = """generator:
  ignore_not_implemented: [all]
  features: {disable_all: true, enable: [paths/client]}
"""


def run(folder: Path, *command: str) -> str:
    """What a command prints, run in a folder with Go's caches."""
    own = {**os.environ, "PATH": f"{os.environ['PATH']}:{Path(str(GO)).parent}"}
    done = subprocess.run(
        command, cwd=folder, env=own, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.skipif(GO is None, reason="needs Go: apt-get install golang")
def test_generated_go_client_compiles_and_looks_a_topic_up(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables")
    service = LookupService(tmp_path / "tables", "--wait-ms", "0")
    service.wait_ready()
    document = service.get("/v1/openapi.json").json
    paths = {path: said for path, said in document["paths"].items() if path.startswith(KEPT)}
    folder = tmp_path / "lookup"
    folder.mkdir()
    (folder / "openapi.json").write_text(json.dumps({**document, "paths": paths}))
    (folder / "ogen.yml").write_text(WITHOUT_WARNING)
    shutil.copy(SOURCE, folder)
    run(folder, "go", "mod", "init", "example.com/lookup")
    asked = ("--config", "ogen.yml", "--target", "api", "--package", "api", "openapi.json")
    run(folder, "go", "run", OGEN, *asked)
    run(folder, "go", "mod", "tidy")
    run(folder, "go", "build", "-o", "client", ".")
    url = f"http://127.0.0.1:{service.port}"
    assert run(folder, "./client", url, "ns1").startswith("pulsar://")
    assert "NotFound" in run(folder, "./client", url, "nosuch")
    assert service.stop() == 0
