"""CycloneDX 1.6 bill of materials: all locked Python packages and pinned jars.

A package's digests in a lock are those of all its files (a wheel for each platform), of which one
is installed, so they stand as properties. A jar has the one digest that it is checked against. The
licence is what an installed package's metadata say, and what a jar's project says. No time and no
random serial number: the same locks and packages give the same text. After
https://cyclonedx.org/docs/1.6/json.
"""

import json
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

from jobs.adapters.processes.jars import parse_lock

_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+))?")
_HASH = re.compile(r"--hash=(?P<digest>\w+:[0-9a-f]+)")
_JARS_LICENCE = "Apache-2.0"
_OTHER_LICENCES = {
    "HdrHistogram": "BSD-2-Clause OR CC0-1.0",
    "argparse4j": "MIT",
    "jopt-simple": "MIT",
    "pcollections": "MIT",
    "re2j": "BSD-3-Clause",
    "slf4j-api": "MIT",
    "zstd-jni": "BSD-2-Clause",
}
"""Jars whose licence is not that of Kafka, Spark, Delta and the rest."""
Component = dict[str, Any]


def bill_of_materials(packages: str, jars: str, version: str) -> str:
    """Return the document as JSON.

    packages: text of a pip lock; jars: text of conf/jars.lock.
    """
    components = [*_packages(packages), *_jars(jars)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/ballast@{version}",
                "name": "ballast",
                "version": version,
                "purl": f"pkg:pypi/ballast@{version}",
            }
        },
        "components": sorted(components, key=lambda one: str(one["bom-ref"])),
    }
    return json.dumps(document, indent=1) + "\n"


def _packages(text: str) -> Iterator[Component]:
    for block in re.split(r"\n(?=\S)", text):
        found = _PACKAGE.match(block)
        if found is None:
            continue
        name = re.sub(r"[-_.]+", "-", found["name"]).lower()
        digests = sorted(match["digest"] for match in _HASH.finditer(block))
        properties = [{"name": "ballast:accepted-digest", "value": one} for one in digests]
        if found["marker"]:
            properties.append({"name": "ballast:only-if", "value": found["marker"].strip()})
        purl = f"pkg:pypi/{name}@{found['version']}"
        library = _library(purl, name, found["version"])
        yield library | {"properties": properties} | _licences(name)


def _jars(text: str) -> Iterator[Component]:
    for jar in parse_lock(text):
        purl = f"pkg:maven/{jar.group}/{jar.artifact}@{jar.revision}?type=jar"
        yield _library(purl, jar.artifact, jar.revision) | {
            "group": jar.group,
            "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
            "licenses": [{"expression": _OTHER_LICENCES.get(jar.artifact, _JARS_LICENCE)}],
        }


def _licences(name: str) -> Component:
    """Return the field with a package's licences, none if it is not installed here."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return {}
    if "License-Expression" in found:
        return {"licenses": [{"expression": found["License-Expression"]}]}
    classifiers = (one.split(" :: ") for one in found.get_all("Classifier") or ())
    names = [parts[-1] for parts in classifiers if parts[0] == "License"]
    names = names or found.get_all("License", ["unknown"])
    return {"licenses": [{"license": {"name": one}} for one in names]}


def _library(purl: str, name: str, version: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
