"""hadoop-aws, with which Spark's own filesystem reads and writes ``s3a:``: fetched by Maven, in the version of Spark's Hadoop."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark

from integration.servers import maven
from integration.servers.cache import NotToBeHad, Say

__all__ = ["hadoop_aws_jars", "hadoop_version"]


def hadoop_version() -> str:
    """Of the Hadoop inside the PySpark that is installed.

    Raises:
        NotToBeHad: its jars do not say.
    """
    jars = Path(pyspark.__file__).parent / "jars"
    names = [re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name) for jar in jars.glob("hadoop-client-api-*")]
    versions = [name[1] for name in names if name]
    if len(versions) != 1:
        raise NotToBeHad(f"hadoop-aws is not to be had: PySpark {pyspark.__version__} has no one Hadoop in {jars}")
    return versions[0]


def hadoop_aws_jars(*, say: Say = print) -> list[Path]:
    """hadoop-aws and what it needs, for ``spark.jars``: some 700 MB, nearly all of it the AWS SDK.

    Raises:
        NotToBeHad: there is no Maven, or it could not fetch them.
    """
    return sorted(maven.jars("hadoop-aws", "org.apache.hadoop", "hadoop-aws", hadoop_version(), say=say).glob("*.jar"))
