"""What `test_secrets.py` runs in a process of its own: a session that writes, reads, explains and fails, and tells all that it saw."""

from __future__ import annotations

import json
import logging
import pickle
import sys
import traceback
from typing import Any

from pyspark.sql import SparkSession

import lakelog.spark
from lakelog.spark import DeltaTable
from lakelog.storage import configure, log_store_for


def session(told: dict[str, Any]) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", f"file:{told['events']}")
        .config("spark.eventLog.compress", "false")
        .config("spark.sql.warehouse.dir", told["warehouse"])
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.lakelog.engine", told["engine"])
    )
    options = told["options"]
    if told["jars"]:
        builder = builder.config("spark.jars", told["jars"])
    if told["given"] == "hadoop":
        keys = {
            "endpoint": options["endpoint_url"],
            "endpoint.region": options["region"],
            "access.key": options["key"],
            "secret.key": options["secret"],
            "session.token": options["token"],
            "path.style.access": "true",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        }
        for name, value in keys.items():
            builder = builder.config(f"spark.hadoop.fs.s3a.{name}", value)
    else:
        configure({"s3a": options})
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    return lakelog.spark.enable(spark)


def plan(frame: Any) -> str:
    """All that a query's plans say."""
    query = frame._jdf.queryExecution()
    return f"{query.toString()}\n{query.stringWithStats()}"


def pickled(value: object) -> str:
    """What a pickle of it holds, if there is one."""
    try:
        return repr(pickle.dumps(value))
    except Exception as error:
        return repr(error)


def main(told: dict[str, Any]) -> dict[str, Any]:
    spark, root, texts = session(told), told["root"], dict[str, str]()
    table = f"delta.`{root}`"
    spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id long, name string").write.format("delta").save(root)
    spark.sql(f"INSERT INTO {table} VALUES (4, 'd')")
    spark.sql(f"DELETE FROM {table} WHERE id IN (2, 4)")
    changed = spark.createDataFrame([(1, "changed")], "id long, name string")
    changed.write.format("delta").mode("overwrite").option("replaceWhere", "id = 1").save(root)
    frame = spark.read.format("delta").load(root).where("id > 0").orderBy("id")
    rows = [list(row) for row in frame.collect()]
    explained = ("EXTENDED", "FORMATTED", "CODEGEN", "COST")
    texts["explain scan"] = "\n".join(spark.sql(f"EXPLAIN {mode} SELECT * FROM {table} WHERE id > 1").first()[0] for mode in explained)
    texts["explain write"] = "\n".join(spark.sql(f"EXPLAIN {mode} INSERT INTO {table} VALUES (5, 'e')").first()[0] for mode in explained)
    texts["plan"] = plan(frame)
    texts["plan as JSON"] = str(frame._jdf.queryExecution().analyzed().toJSON())
    detail = DeltaTable.forPath(spark, root).detail().first().asDict(recursive=True)
    texts["detail"] = str(detail)
    texts["history"] = "\n".join(str(row.asDict(recursive=True)) for row in DeltaTable.forPath(spark, root).history().collect())
    store = log_store_for(root, {} if told["given"] == "configure" else dict(spark.sparkContext.getConf().getAll()))
    infos = list(store.list_from(f"{root}/_delta_log/"))
    texts["commits"] = "\n".join(store.read(info.path).decode() for info in infos if info.name.endswith(".json"))
    texts["table"] = repr(DeltaTable.forPath(spark, root))
    texts["pickles"] = "\n".join(pickled(value) for value in (DeltaTable.forPath(spark, root), store, log_store_for(root)))
    # A data file that is gone, of which executors speak.
    store.delete([f"{root}/{json.loads(line)['add']['path']}" for line in texts["commits"].splitlines() if '"add"' in line])
    try:
        spark.read.format("delta").load(root).collect()
        raise AssertionError("the files are gone, and were read")
    except Exception as error:
        texts["error"] = "".join(traceback.format_exception(error))
    spark.stop()
    return {"engine": detail.get("engine", told["engine"]), "rows": rows, "texts": texts}


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    asked = json.loads(sys.stdin.read())
    if asked["given"] == "hadoop":
        # On DEBUG it prints all that PySpark tells the JVM, the user's own conf first of all.
        logging.getLogger("py4j").setLevel(logging.INFO)
    print(json.dumps(main(asked)))
