"""delta-spark's jars, fetched once with Maven."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

# The wheel of delta-spark 4.4.1 runs on these; the jars of 4.4.1 are not on every registry.
ARTIFACT = "delta-spark_4.2_2.13"
VERSION = "4.4.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lakelog</groupId>
  <artifactId>benchmarks</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId>
      <artifactId>{ARTIFACT}</artifactId>
      <version>{VERSION}</version>
      <exclusions>
        <exclusion><groupId>org.apache.spark</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""


class JarsNotToBeHad(Exception):
    """delta-spark cannot take part; the message says why."""


def delta_spark_jars(folder: Path) -> Path:
    """``folder`` holding ``delta-*.jar``, fetched if they are not there.

    Raises:
        JarsNotToBeHad: there is no Maven, or Maven could not get them.
    """
    done = folder / ".complete"
    if done.exists():
        return folder
    if shutil.which("mvn") is None:
        raise JarsNotToBeHad("no mvn on the PATH to fetch its jars with")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pom.xml").write_text(POM, encoding="utf-8")
    command = ["mvn", "-B", "-q", "-f", "pom.xml", "dependency:copy-dependencies", "-DincludeGroupIds=io.delta", "-DoutputDirectory=."]
    fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if fetched.returncode != 0 or not list(folder.glob("delta-spark*.jar")):
        said = [line for line in (fetched.stdout + fetched.stderr).splitlines() if line.strip()]
        raise JarsNotToBeHad(f"mvn could not fetch its jars: {said[0] if said else fetched.returncode}")
    done.touch()
    return folder
