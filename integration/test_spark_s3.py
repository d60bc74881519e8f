"""Spark on S3 with both engines: `spark_matrix.py` for each, on one JVM, and in part on a cluster, in a process of its own.

The native engine is told of the server under lakelog's names and the Arrow engine under Hadoop's, so that each also shows that the other
side's names are understood.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from integration.servers import MinIO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# What a clone's tests import, wherever an executor happens to run.
SOURCES = [str(ROOT / part) for part in ("core", "storage", "spark", ".")]


def environment(folder: Path, python: str = sys.executable) -> dict[str, str]:
    """Of a process that knows nothing of AWS but what it is told."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYSPARK_", "SPARK_"))}
    return {
        **inherited,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": os.pathsep.join(SOURCES),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder),
    }


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize("engine", ["native", "arrow"])
def test_matrix(engine: str, master: str, minio: MinIO, bucket: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if engine == "native":
        jars = [str(jar) for jar in request.getfixturevalue("hadoop_aws")]
        # Each executor of a cluster would fetch the jars from the driver, some 700 MB.
        paths = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
        conf = {"spark.jars": ",".join(jars)} if master == "local[2]" else dict.fromkeys(paths, os.pathsep.join(jars))
        conf |= {f"spark.lakelog.s3.{name}": str(value) for name, value in minio.options().items()}
    else:
        conf = {f"spark.hadoop.{name}": value for name, value in minio.hadoop().items()}
    client = {
        "endpoint_url": minio.endpoint,
        "aws_access_key_id": minio.access_key,
        "aws_secret_access_key": minio.secret_key,
        "region_name": minio.region,
    }
    asked = {"engine": engine, "master": master, "conf": conf, "bucket": bucket, "client": client}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", str(HERE / "spark_matrix.py"), "-q", "-p", "no:cacheprovider"),
            *(() if master == "local[2]" else ("-m", "cluster")),
        ],
        cwd=ROOT,
        env=environment(tmp_path) | {"LAKELOG_MATRIX": json.dumps(asked)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert re.search(r"\d\d passed\b(?!.*(skipped|xfailed))", done.stdout), done.stdout


BARE = """
import sys
from pyspark.sql import SparkSession
import lakelog.spark
from lakelog.core.errors import LakelogError

spark = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
lakelog.spark.enable(spark)
path = sys.argv[2]
spark.range(3).write.format("delta").save(path)
spark.conf.set("spark.lakelog.engine", "arrow")
append = spark.range(3).write.format("delta").mode("append")
for act in (lambda: spark.read.format("delta").load(path).collect(), lambda: append.save(path)):
    try:
        act()
    except LakelogError as error:
        print("SAID", type(error).__name__, str(error).replace(chr(10), " | "))
    else:
        print("SAID nothing")
spark.stop()
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter without any package."""
    venv.create(tmp_path / "bare", with_pip=False)
    return str(tmp_path / "bare" / "bin" / "python")


def said_by(python: str, tmp_path: Path) -> list[str]:
    """What a user is told whose executors run this interpreter: for a read, then for a write."""
    script = tmp_path / "script.py"
    script.write_text(BARE, encoding="utf-8")
    env = environment(tmp_path, python)
    # The driver's own path is not the executors': their interpreter has what it has.
    bootstrap = f"import sys; sys.path[:0] = {SOURCES!r}; sys.argv = sys.argv[1:]; exec(open(sys.argv[0]).read())"
    del env["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, "-c", bootstrap, str(script), "local[1]", str(tmp_path / "t")],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.removeprefix("SAID ") for line in done.stdout.splitlines() if line.startswith("SAID ")]


def test_executors_without_what_the_arrow_engine_needs(bare_python: str, tmp_path: Path) -> None:
    told = said_by(bare_python, tmp_path)
    assert len(told) == 2
    for text in told:
        assert "PYSPARK_PYTHON" in text
        assert "no module lakelog" in text
        assert "Traceback" not in text
        assert len(text) < 800


def test_executors_without_an_interpreter(tmp_path: Path) -> None:
    told = said_by(str(tmp_path / "no" / "python"), tmp_path)
    assert len(told) == 2
    for text in told:
        assert "PYSPARK_PYTHON" in text
        assert str(tmp_path / "no" / "python") in text
        assert "Traceback" not in text
