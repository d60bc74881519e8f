"""Jars by Maven, an artifact with all that it depends on."""

from __future__ import annotations

from pathlib import Path

from integration.servers.cache import NotToBeHad, Say, cached, run_tool

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lakelog</groupId>
  <artifactId>integration</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def jars(what: str, group: str, artifact: str, version: str, *, say: Say) -> Path:
    """The folder with the artifact's jars, fetched once.

    Args:
        what: the artifact's name in messages.

    Raises:
        NotToBeHad: there is no Maven, or it could not fetch them.
    """

    def fetch(folder: Path) -> None:
        say(f"fetching {group}:{artifact}:{version} with mvn, once")
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(group=group, artifact=artifact, version=version), encoding="utf-8")
        run_tool(what, ["mvn", "-B", "-q", "-f", "pom.xml", "dependency:copy-dependencies", "-DoutputDirectory=."], folder=folder)
        if not (folder / f"{artifact}-{version}.jar").is_file():
            raise NotToBeHad(f"{what} is not to be had: mvn fetched no {artifact}-{version}.jar")

    return cached(f"{artifact}-{version}", fetch)
