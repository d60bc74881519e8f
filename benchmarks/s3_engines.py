"""The Arrow engine beside the native one on MinIO: the same appends and scans, interleaved; medians and ratios as a table.

``make bench-s3-engines`` runs it. Each engine is a process of its own with a session of its own: the native one with hadoop-aws on the
class path, the Arrow one with pip packages alone. A first round on a tenth of the rows warms both up and is not counted.

Environment:
    ROWS     rows of the table, 5,000,000 by default
    ROUNDS   counted rounds, 3 by default

Exits with 1 when an engine failed. A missed figure is printed, not an error.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ENGINES = ("native", "arrow")
WORK = {"append": "append all rows", "scan": "read all rows", "column": "read one column", "filter": "one row by id"}
WANTED = {"append": 1.7, "scan": 1.7}
FILES = 8


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from integration.servers import MinIO, hadoop_aws_jars

    rows, rounds = int(os.environ.get("ROWS", "5000000")), int(os.environ.get("ROUNDS", "3"))
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as folder, MinIO.running(Path(folder)) as server:
        bucket = server.new_bucket()
        arms = {engine: _Arm(engine, server, hadoop_aws_jars() if engine == "native" else []) for engine in ENGINES}
        try:
            for number in range(rounds + 1):
                order = ENGINES if number % 2 == 0 else ENGINES[::-1]
                for work in WORK:
                    for engine in order:
                        path = f"s3a://{bucket}/{engine}-{number}"
                        seconds = arms[engine].ask(work=work, path=path, rows=rows if number else rows // 10)
                        if number:
                            taken[work][engine].append(seconds)
        finally:
            for arm in arms.values():
                arm.close()
    print(f"\n{rows:,} rows of five columns in {FILES} files on MinIO, local[2], medians of {rounds} rounds\n")
    print("| work | native | arrow | ratio | wanted |\n| --- | --- | --- | --- | --- |")
    for work, name in WORK.items():
        native, arrow = (statistics.median(taken[work][engine]) for engine in ENGINES)
        wanted = WANTED.get(work)
        verdict = "" if wanted is None else f"<= {wanted} {'met' if arrow / native <= wanted else 'MISSED'}"
        print(f"| {name} | {native:.2f} s | {arrow:.2f} s | {arrow / native:.2f} | {verdict} |")
    return 0


class _Arm:
    """One engine's process, asked one thing at a time."""

    def __init__(self, engine: str, server: Any, jars: list[Path]) -> None:
        told = {
            "engine": engine,
            "jars": [str(jar) for jar in jars],
            "endpoint": server.endpoint,
            "key": server.access_key,
            "secret": server.secret_key,
            "region": server.region,
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, "worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        self.ask(**told)

    def ask(self, **what: object) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"an engine's process ended with {self._process.wait()}")
        return float(json.loads(line)["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def worker() -> None:
    """Reads one JSON command a line and answers with one line; what Spark prints goes to standard error."""
    from pyspark.sql import SparkSession
    from worker import rows as made

    import lakelog.spark
    from lakelog.storage import configure

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    told = json.loads(sys.stdin.readline())
    configure({"s3": {name: told[name] for name in ("key", "secret", "region")} | {"endpoint_url": told["endpoint"]}})
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "4g")
    builder = builder.config("spark.lakelog.engine", told["engine"]).config("spark.sql.shuffle.partitions", "2")
    if told["jars"]:
        builder = builder.config("spark.jars", ",".join(told["jars"]))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    lakelog.spark.enable(spark)
    print(json.dumps({"seconds": 0}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        path, rows = asked["path"], asked["rows"]
        started = time.perf_counter()
        if asked["work"] == "append":
            made(spark, 0, rows, FILES).write.format("delta").mode("append").save(path)
        elif asked["work"] == "scan":
            spark.read.format("delta").load(path).write.format("noop").mode("overwrite").save()
        elif asked["work"] == "column":
            spark.read.format("delta").load(path).agg({"id": "sum"}).collect()
        else:
            assert spark.read.format("delta").load(path).where(f"id = {rows // 3}").count() == 1
        print(json.dumps({"seconds": time.perf_counter() - started}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        worker()
    else:
        sys.exit(main())
