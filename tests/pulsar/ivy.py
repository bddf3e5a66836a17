"""Artifacts of Maven, fetched by the Ivy that pyspark ships, without POMs.

Decides what Ivy is asked and under which name a file lies afterwards; whether its bytes are the
right ones is the caller's to say. From Maven Central or the mirror that BALLAST_JAR_MIRROR names.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from jobs.adapters.processes.preflight import find_java
from jobs.adapters.processes.processes import last_output


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file of a repository. kind: its extension."""

    group: str
    name: str
    revision: str
    classifier: str = ""
    kind: str = "jar"

    @property
    def file_name(self) -> str:
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{tail}.{self.kind}"


def fetch(place: Path, wanted: Sequence[Artifact]) -> str:
    """Put them into a folder, `place`, with Ivy's cache beside; what Ivy said at its end."""
    mirror = os.environ.get("BALLAST_JAR_MIRROR", "")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    (place / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(ivy_cache(place)))}/><resolvers>"
        f'<ibiblio name="central" m2compatible="true" usepoms="false"{root}/>'
        "</resolvers></ivysettings>"
    )
    (place / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="ballast" module="pulsar"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{_dependencies(wanted)}</dependencies></ivy-module>"
    )
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    words = [find_java().command, "-jar", str(jars[-1]), "-settings", "ivysettings.xml"]
    words += ["-ivy", "ivy.xml", "-confs", "default", "-retrieve"]
    ended = subprocess.run(
        [*words, f"{place}/[artifact]-[revision](-[classifier]).[ext]"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    return last_output(ended.stdout + ended.stderr)


def ivy_cache(place: Path) -> Path:
    return place / "ivy-cache"


def _dependencies(wanted: Sequence[Artifact]) -> str:
    """One for each module, with all that is wanted of it."""
    modules = dict.fromkeys((one.group, one.name, one.revision) for one in wanted)
    return "".join(
        f'<dependency org="{group}" name="{name}" rev="{revision}" conf="default->default"'
        f' transitive="false">{_files(group, name, wanted)}</dependency>'
        for group, name, revision in modules
    )


def _files(group: str, name: str, wanted: Sequence[Artifact]) -> str:
    found = [one for one in wanted if (one.group, one.name) == (group, name)]
    return "".join(
        f'<artifact name="{name}" type="{one.kind}" ext="{one.kind}"'
        + (f' m:classifier="{one.classifier}"' if one.classifier else "")
        + "/>"
        for one in found
    )
