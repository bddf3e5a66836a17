"""The bill of materials lists what the lock files install, and nothing twice."""

import json

from jobs import VERSION
from jobs.adapters.processes.jars import LOCK_PATH, parse_lock
from jobs.bill_of_materials import bill_of_materials
from jobs.prepare import LOCKS, ROOT

PACKAGES = """\
ruamel.yaml==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
tomli==2.5.0 ; python_full_version < '3.11' \\
    --hash=sha256:cc
"""
JARS = "spark org.x:a_2.13:1.0 dd\nbroker org.x:a_2.13:1.0 dd\n"


def test_package_has_its_address_its_digests_and_where_it_is_needed() -> None:
    found = json.loads(bill_of_materials(PACKAGES, "", "1.2"))
    assert found["metadata"]["component"]["version"] == "1.2"
    yaml, tomli = found["components"]
    assert (yaml["purl"], yaml["version"]) == ("pkg:pypi/ruamel-yaml@1.0", "1.0")
    assert [one["value"] for one in yaml["properties"]] == ["sha256:aa", "sha256:bb"]
    assert tomli["properties"][-1]["value"] == "python_full_version < '3.11'"


def test_jar_of_two_folders_is_listed_once_with_its_checksum() -> None:
    (jar,) = json.loads(bill_of_materials("", JARS, "1"))["components"]
    assert jar["purl"] == "pkg:maven/org.x/a_2.13@1.0?type=jar"
    assert jar["hashes"] == [{"alg": "SHA-256", "content": "dd"}]


def test_everything_that_is_locked_is_listed_and_each_time_alike() -> None:
    packages = (ROOT / LOCKS["run"]).read_text(encoding="ascii")
    jars = LOCK_PATH.read_text(encoding="ascii")
    text = bill_of_materials(packages, jars, VERSION)
    assert text == bill_of_materials(packages, jars, VERSION)
    listed = [one["bom-ref"] for one in json.loads(text)["components"]]
    assert len(set(listed)) == len(listed)
    lines = [line for line in packages.splitlines() if "==" in line and line[0].isalnum()]
    assert sum(one.startswith("pkg:pypi/") for one in listed) == len(lines)
    pinned = {(jar.group, jar.artifact, jar.revision) for jar in parse_lock(jars)}
    assert sum(one.startswith("pkg:maven/") for one in listed) == len(pinned)
