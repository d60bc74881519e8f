"""What lakelog does in Spark, on S3: run for each engine and master by `test_spark_s3.py`, in a process of its own.

``LAKELOG_MATRIX`` holds, as JSON, the engine, the master, the session's conf and how the server is reached. By hand, a server being up:

    python -m pytest integration/test_spark_s3.py -k "arrow and local-cluster"
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakelog.spark
from lakelog.core.errors import (
    CommitOutcomeUnknown,
    DataFileMissingError,
    DeltaConcurrentModificationException,
    LakelogError,
    NotADeltaTableError,
    SchemaMismatchError,
    StoreConfigurationError,
    TableExistsError,
    VersionNotFoundError,
)
from lakelog.spark import DeltaTable
from lakelog.spark.session import context_of
from lakelog.storage.log_store import PutOutcome, Unknown
from lakelog.storage.s3 import S3LogStore

ASKED = json.loads(os.environ["LAKELOG_MATRIX"])
ENGINE = ASKED["engine"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master(ASKED["master"]).appName("lakelog matrix")
    for key, value in ASKED["conf"].items():
        builder = builder.config(key, value)
    made = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    yield lakelog.spark.enable(made)
    application = str(made.sparkContext.applicationId)
    made.stop()
    # local-cluster's workers keep what executors said below PySpark itself.
    work = Path(pyspark.__file__).parent / "work"
    shutil.rmtree(work / application, ignore_errors=True)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()


@pytest.fixture(scope="session")
def s3() -> Any:
    """A client of the server that is not lakelog's."""
    return boto3.client("s3", **ASKED["client"])


@pytest.fixture
def table() -> str:
    """Where a table may be made, with much in its name that is more than a letter."""
    return f"s3a://{ASKED['bucket']}/{uuid.uuid4().hex[:8]}/a b%20c+d=é"


def key_of(table: str) -> str:
    return table.split("/", 3)[3]


def objects(s3: Any, table: str, inside: str = "") -> list[str]:
    """The names of the objects below a table."""
    prefix = f"{key_of(table)}/{inside}"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=ASKED["bucket"], Prefix=prefix)
    return [found["Key"].removeprefix(f"{key_of(table)}/") for page in pages for found in page.get("Contents", [])]


def data_files(s3: Any, table: str) -> list[str]:
    return [name for name in objects(s3, table) if name.endswith(".parquet") and not name.startswith("_delta_log/")]


def commit_of(s3: Any, table: str, version: int) -> list[dict[str, Any]]:
    """The actions of a commit."""
    name = f"{key_of(table)}/_delta_log/{version:020}.json"
    body = s3.get_object(Bucket=ASKED["bucket"], Key=name)["Body"].read()
    return [json.loads(line) for line in body.splitlines()]


def save(frame: DataFrame, table: str, mode: str = "append", **options: str) -> None:
    frame.write.format("delta").mode(mode).options(**options).save(table)


def load(spark: SparkSession, table: str, **options: str) -> DataFrame:
    return spark.read.format("delta").options(**options).load(table)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


@pytest.fixture
def ten(spark: SparkSession, table: str) -> str:
    """A table of the ids 0 to 9, in two files."""
    save(spark.range(10).repartition(2), table)
    return table


# writing and reading ----------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_write_append_overwrite(spark: SparkSession, s3: Any, ten: str) -> None:
    assert ids(load(spark, ten)) == list(range(10))
    save(spark.range(10, 12), ten)
    assert ids(load(spark, ten)) == list(range(12))
    save(spark.range(3), ten, "overwrite")
    assert ids(load(spark, ten)) == [0, 1, 2]
    save(spark.range(3), ten, "ignore")
    with pytest.raises(TableExistsError):
        save(spark.range(3), ten, "error")
    assert [name for name in objects(s3, ten, "_delta_log/") if name.endswith(".json")] == [
        f"_delta_log/{version:020}.json" for version in range(3)
    ]


@pytest.mark.cluster
def test_which_engine_serves(spark: SparkSession, ten: str, caplog: pytest.LogCaptureFixture) -> None:
    row = DeltaTable.forPath(spark, ten).detail().collect()[0]
    assert (row.engine, row.logStore, row.location) == (ENGINE, "s3", ten)
    assert ("S3AFileSystem not found" in row.engineReason) == (ENGINE == "arrow")
    text = load(spark, ten).where("id > 3")._jdf.queryExecution().executedPlan().toString()
    assert ("MapInArrow" in text) == (ENGINE == "arrow")


@pytest.mark.cluster
def test_every_type(spark: SparkSession, table: str) -> None:
    frame = spark.sql(
        "SELECT id, CAST(id AS INT) i, CAST(id AS SMALLINT) s, CAST(id AS TINYINT) t, id / 3.0D d, CAST(id / 3 AS FLOAT) f, "
        "CAST(id AS DECIMAL(20, 3)) dec, CONCAT('text ', id) str, CAST(CONCAT('b', id) AS BINARY) bin, id % 2 = 0 AS bool, "
        "DATE_ADD(DATE'2024-02-28', CAST(id AS INT)) AS day, TIMESTAMP'2024-02-29 12:34:56.789012' + MAKE_INTERVAL(0, 0, 0, id) AS stamp, "
        "CAST(TIMESTAMP_NTZ'1969-12-31 23:59:59.999999' AS TIMESTAMP_NTZ) AS wall, "
        "ARRAY(id, NULL) arr, MAP('k', id) m, NAMED_STRUCT('x', id, 'y', ARRAY(NAMED_STRUCT('z', 'deep'))) st, CAST(NULL AS STRING) none "
        "FROM RANGE(20)"
    )
    save(frame, table)
    found = load(spark, table)
    assert found.dtypes == frame.dtypes
    assert sorted(found.collect()) == sorted(frame.collect())
    assert found.select("st.y.z", "d").where("i BETWEEN 5 AND 6").collect() == [(["deep"], 5 / 3), (["deep"], 2.0)]


@pytest.mark.cluster
def test_partitions_with_odd_values(spark: SparkSession, s3: Any, table: str) -> None:
    values = ["plain", "with space", "per%cent", "sl/ash", "colon:", "q?u#e&s=t+", "größe😀", None, ""]
    frame = spark.createDataFrame(list(enumerate(values)), "id long, p string")
    frame.write.format("delta").partitionBy("p").save(table)
    expected = {(number, value or None) for number, value in enumerate(values)}
    assert {tuple(row) for row in load(spark, table).collect()} == expected
    for number, value in enumerate(values[:-2]):
        assert ids(load(spark, table).where(F.col("p") == value)) == [number]
    assert ids(load(spark, table).where("p IS NULL")) == [7, 8]
    DeltaTable.forPath(spark, table).delete(F.col("p") == "per%cent")
    assert 2 not in ids(load(spark, table))
    assert len({name.rpartition("/")[0] for name in data_files(s3, table)}) == 8


def test_only_the_columns_and_files_that_a_query_needs(spark: SparkSession, ten: str) -> None:
    save(spark.range(100, 110), ten)
    found = load(spark, ten).where("id >= 100")
    assert ids(found) == list(range(100, 110))
    assert load(spark, ten).where("id = 105").count() == 1
    assert load(spark, ten).where("id > 1000").collect() == []
    assert sorted(load(spark, ten).groupBy(F.col("id") % 2).count().collect()) == [(0, 10), (1, 10)]


@pytest.mark.cluster
def test_replace_where(spark: SparkSession, ten: str) -> None:
    save(spark.range(5, 7), ten, "overwrite", replaceWhere="id >= 5")
    assert ids(load(spark, ten)) == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(LakelogError, match="replaceWhere"):
        save(spark.range(3), ten, "overwrite", replaceWhere="id >= 5")
    assert ids(load(spark, ten)) == [0, 1, 2, 3, 4, 5, 6]


def test_dynamic_overwrite(spark: SparkSession, table: str) -> None:
    spark.range(10).selectExpr("id", "id % 3 AS p").write.format("delta").partitionBy("p").save(table)
    save(spark.range(100, 101).selectExpr("id", "1L AS p"), table, "overwrite", partitionOverwriteMode="dynamic")
    assert ids(load(spark, table)) == [0, 2, 3, 5, 6, 8, 9, 100]


def test_a_table_that_reads_itself(spark: SparkSession, ten: str) -> None:
    save(load(spark, ten).where("id < 5"), ten, "overwrite")
    assert ids(load(spark, ten)) == [0, 1, 2, 3, 4]


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, s3: Any, ten: str) -> None:
    before = objects(s3, ten)
    bad = spark.range(100).coalesce(1).selectExpr("IF(id = 99, RAISE_ERROR('at the end'), id) AS id")
    with pytest.raises(Exception, match="at the end"):
        save(bad, ten)
    assert objects(s3, ten) == before


# deleting ---------------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_delete(spark: SparkSession, ten: str) -> None:
    assert spark.sql(f"DELETE FROM delta.`{ten}` WHERE id IN (1, 3)").collect() == [(2,)]
    DeltaTable.forPath(spark, ten).delete("id > 7")
    assert ids(load(spark, ten)) == [0, 2, 4, 5, 6, 7]
    spark.range(5).createOrReplaceTempView("gone")
    spark.sql(f"DELETE FROM delta.`{ten}` WHERE id IN (SELECT id FROM gone)")
    assert ids(load(spark, ten)) == [5, 6, 7]
    DeltaTable.forPath(spark, ten).delete()
    assert load(spark, ten).count() == 0


@pytest.mark.cluster
def test_change_feed(spark: SparkSession, table: str) -> None:
    save(spark.range(5), table, **{"delta.enableChangeDataFeed": "true"})
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 2")
    save(spark.range(7, 8), table)
    feed = load(spark, table, readChangeFeed="true", startingVersion="1")
    assert sorted((r.id, r._change_type, r._commit_version) for r in feed.collect()) == [(2, "delete", 1), (7, "insert", 2)]


# versions ---------------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_time_travel(spark: SparkSession, ten: str) -> None:
    save(spark.range(3), ten, "overwrite")
    assert ids(load(spark, ten, versionAsOf="0")) == list(range(10))
    assert ids(load(spark, f"{ten}@v0")) == list(range(10))
    assert spark.sql(f"SELECT count(*) FROM delta.`{ten}` VERSION AS OF 0").collect() == [(10,)]
    rows = DeltaTable.forPath(spark, ten).history().collect()
    assert [(row.version, row.operation) for row in rows] == [(1, "WRITE"), (0, "WRITE")]
    assert ids(load(spark, ten, timestampAsOf=rows[1].timestamp.isoformat(sep=" "))) == list(range(10))
    with pytest.raises(VersionNotFoundError):
        load(spark, ten, versionAsOf="7")


@pytest.mark.cluster
def test_checkpoints(spark: SparkSession, s3: Any, table: str) -> None:
    save(spark.range(1), table, **{"delta.checkpointInterval": "3"})
    for number in range(1, 7):
        save(spark.range(number, number + 1), table)
    names = [name for name in objects(s3, table, "_delta_log/") if "checkpoint" in name]
    assert names == [
        "_delta_log/00000000000000000003.checkpoint.parquet",
        "_delta_log/00000000000000000006.checkpoint.parquet",
        "_delta_log/_last_checkpoint",
    ]
    # From the checkpoint, as a process that starts now: what is older is not there any more.
    for version in range(6):
        s3.delete_object(Bucket=ASKED["bucket"], Key=f"{key_of(table)}/_delta_log/{version:020}.json")
    context_of(spark).logs.forget(table)
    assert ids(load(spark, table)) == list(range(7))


# several writers --------------------------------------------------------------------------------------------------------


def just_before(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let ``act`` happen, in a thread of its own as another user's, before the next commit is put."""
    real = S3LogStore.put_if_absent

    def put(store: S3LogStore, path: str, data: bytes) -> PutOutcome:
        monkeypatch.setattr(S3LogStore, "put_if_absent", real)
        with ThreadPoolExecutor(1) as other:
            other.submit(act).result()
        return real(store, path, data)

    monkeypatch.setattr(S3LogStore, "put_if_absent", put)


def test_two_appends_at_once_both_land(spark: SparkSession, ten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    just_before(monkeypatch, lambda: save(spark.range(20, 21), ten))
    save(spark.range(10, 11), ten)
    assert ids(load(spark, ten)) == [*range(11), 20]
    assert [row.version for row in DeltaTable.forPath(spark, ten).history().collect()] == [2, 1, 0]


@pytest.mark.cluster
def test_conflict(spark: SparkSession, s3: Any, ten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    just_before(monkeypatch, lambda: DeltaTable.forPath(spark, ten).delete("id = 0"))
    with pytest.raises(DeltaConcurrentModificationException):
        save(spark.range(3), ten, "overwrite", replaceWhere="id < 5")
    assert ids(load(spark, ten)) == list(range(1, 10))
    named = {action["add"]["path"] for version in range(2) for action in commit_of(s3, ten, version) if "add" in action}
    assert len(data_files(s3, ten)) == len(named)


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_outcome(spark: SparkSession, s3: Any, ten: str, monkeypatch: pytest.MonkeyPatch, arrives: bool) -> None:
    monkeypatch.setattr("lakelog.storage.commit_loop._SETTLE_DELAY_S", 0.0)
    real_put, real_read = S3LogStore.put_if_absent, S3LogStore.read

    def unanswered_read(_store: S3LogStore, _path: str) -> bytes:
        raise TimeoutError("no answer")

    def unanswered_put(store: S3LogStore, path: str, data: bytes) -> PutOutcome:
        if arrives and not objects(s3, ten, f"_delta_log/{1:020}"):
            real_put(store, path, data)
        monkeypatch.setattr(S3LogStore, "read", unanswered_read)
        return Unknown(TimeoutError("no answer"))

    monkeypatch.setattr(S3LogStore, "put_if_absent", unanswered_put)
    before = len(data_files(s3, ten))
    with pytest.raises(CommitOutcomeUnknown) as caught:
        save(spark.range(10, 11).coalesce(1), ten)
    assert len(data_files(s3, ten)) == before + 1
    monkeypatch.setattr(S3LogStore, "put_if_absent", real_put)
    monkeypatch.setattr(S3LogStore, "read", real_read)
    if not arrives:
        save(spark.range(30, 31).coalesce(1), ten)
    assert caught.value.resolve() == (1 if arrives else None)
    assert ids(load(spark, ten)) == [*range(10), 10 if arrives else 30]
    assert len(data_files(s3, ten)) == before + 1


def test_idempotent_writes(spark: SparkSession, ten: str) -> None:
    for _ in range(2):
        save(spark.range(10, 12), ten, txnAppId="app", txnVersion="1")
    assert ids(load(spark, ten)) == list(range(12))


# schemas ----------------------------------------------------------------------------------------------------------------


def test_schema_evolution(spark: SparkSession, ten: str) -> None:
    wider = spark.range(10, 11).selectExpr("id", "'new' AS word")
    with pytest.raises(SchemaMismatchError):
        save(wider, ten)
    save(wider, ten, mergeSchema="true")
    assert load(spark, ten).where("word = 'new'").collect() == [(10, "new")]
    assert load(spark, ten).where("word IS NULL").count() == 10
    spark.sql(f"ALTER TABLE delta.`{ten}` ADD COLUMNS (more INT)")
    assert load(spark, ten).where("more IS NULL").count() == 11
    save(spark.range(2).selectExpr("id AS other"), ten, "overwrite", overwriteSchema="true")
    assert load(spark, ten).columns == ["other"]


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(spark: SparkSession, table: str, mode: str) -> None:
    frame = spark.range(6).selectExpr("id", "CONCAT('w', id) AS `a word`", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").option("delta.columnMapping.mode", mode).save(table)
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN `a word` TO term")
    save(spark.range(6, 7).selectExpr("id", "'w6' AS term", "0L AS p"), table)
    found = load(spark, table)
    assert sorted(found.select("id", "term", "p").collect()) == [(n, f"w{n}", n % 2) for n in range(7)]
    assert ids(found.where("term = 'w3'")) == [3]
    spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN term")
    assert load(spark, table).columns == ["id", "p"]


# names ------------------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_sql_by_path(spark: SparkSession, ten: str) -> None:
    other = ten.replace("s3a://", "s3://")
    spark.sql(f"INSERT INTO delta.`{other}` SELECT 10L")
    assert spark.sql(f"SELECT max(id) FROM delta.`{ten}`").collect() == [(10,)]
    joined = f"SELECT count(*) FROM delta.`{ten}` a JOIN delta.`{other}/` b ON a.id = b.id + 1 WHERE a.id < 5"
    assert spark.sql(joined).collect() == [(4,)]
    spark.sql(f"INSERT OVERWRITE delta.`{ten}` VALUES (1), (2)")
    assert ids(load(spark, other)) == [1, 2]
    assert [row.col_name for row in spark.sql(f"DESCRIBE delta.`{ten}`").collect()][:1] == ["id"]
    assert spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM delta.`{ten}`").collect() == []
    assert spark.table("seen").count() == 2


@pytest.mark.cluster
def test_catalog_table(spark: SparkSession, s3: Any, table: str) -> None:
    location = table.replace("s3a://", "s3://")
    made = DeltaTable.create(spark).tableName("shop_orders").location(location).addColumn("id", "BIGINT").addColumn("at", "DATE")
    made.partitionedBy("at").execute()
    try:
        spark.sql("INSERT INTO shop_orders VALUES (1, DATE'2024-01-01'), (2, DATE'2024-01-02'), (3, NULL)")
        assert ids(spark.table("shop_orders").where("at > DATE'2024-01-01'")) == [2]
        spark.sql("DELETE FROM shop_orders WHERE at IS NULL")
        found = DeltaTable.forName(spark, "shop_orders")
        assert ids(found.toDF()) == [1, 2]
        row = found.detail().collect()[0]
        assert (row.name, row.location, row.partitionColumns) == ("spark_catalog.default.shop_orders", table, ["at"])
        spark.range(3, 4).selectExpr("id", "DATE'2024-01-03' AS at").writeTo("shop_orders").append()
        assert ids(spark.table("shop_orders")) == [1, 2, 3]
        assert spark.sql("SELECT count(*) FROM shop_orders VERSION AS OF 1").collect() == [(3,)]
        DeltaTable.createOrReplace(spark).tableName("shop_orders").addColumn("id", "BIGINT").execute()
        assert spark.table("shop_orders").count() == 0
    finally:
        spark.sql("DROP TABLE shop_orders")
    assert len(objects(s3, table, "_delta_log/")) == 5
    assert not DeltaTable.isDeltaTable(spark, f"{table}/nothing")


def test_a_folder_with_other_files_is_no_table(spark: SparkSession, s3: Any, table: str) -> None:
    s3.put_object(Bucket=ASKED["bucket"], Key=f"{key_of(table)}/report.csv", Body=b"1,2")
    with pytest.raises(TableExistsError, match=r"report\.csv"):
        DeltaTable.create(spark).location(table).addColumn("id", "BIGINT").execute()
    with pytest.raises(NotADeltaTableError):
        load(spark, table)


@pytest.mark.cluster
def test_a_cached_frame_shows_a_write(spark: SparkSession, ten: str) -> None:
    frame = load(spark, ten).where("id >= 0").cache()
    try:
        assert frame.count() == 10
        save(spark.range(10, 12), ten)
        assert frame.count() == 12
        DeltaTable.forPath(spark, ten).delete("id = 0")
        assert ids(frame) == list(range(1, 12))
    finally:
        frame.unpersist()


@pytest.mark.cluster
def test_a_file_named_by_its_absolute_path(spark: SparkSession, s3: Any, ten: str, table: str) -> None:
    """As a shallow clone has it, and under another spelling of the scheme."""
    other = f"{table}/clone"
    save(spark.range(100, 101), other)
    add = next(action["add"] for action in commit_of(s3, ten, 0) if "add" in action)
    add["path"] = f"{ten.replace('s3a://', 's3://').replace('%', '%25').replace(' ', '%20')}/{add['path']}"
    commit = json.dumps({"commitInfo": {"timestamp": 1, "operation": "CLONE"}}) + "\n" + json.dumps({"add": add}) + "\n"
    s3.put_object(Bucket=ASKED["bucket"], Key=f"{key_of(other)}/_delta_log/{1:020}.json", Body=commit.encode())
    numbers = json.loads(add["stats"])["numRecords"]
    assert load(spark, other).count() == 1 + numbers
    assert load(spark, other).where("id < 100").count() == numbers


def test_a_data_file_that_is_gone(spark: SparkSession, s3: Any, ten: str) -> None:
    gone = data_files(s3, ten)[0]
    s3.delete_object(Bucket=ASKED["bucket"], Key=f"{key_of(ten)}/{gone}")
    with pytest.raises(DataFileMissingError) as caught:
        load(spark, ten).collect()
    assert str(caught.value).startswith(f"Delta table {ten}: ")
    assert gone in str(caught.value)


# settings ---------------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_what_hadoop_is_told_at_run_time_counts(spark: SparkSession, s3: Any) -> None:
    """For this bucket alone: a wrong secret, then the right one."""
    bucket = f"{ASKED['bucket']}-other"
    s3.create_bucket(Bucket=bucket)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    own = f"fs.s3a.bucket.{bucket}"
    reached = {"endpoint": "endpoint_url", "access.key": "aws_access_key_id", "secret.key": "aws_secret_access_key"}
    before = {key: spark.conf.get(key) for key in ASKED["conf"] if key.startswith("spark.lakelog.s3")}
    for key in before:
        spark.conf.unset(key)
    try:
        for key, argument in reached.items():
            hadoop.set(f"{own}.{key}", ASKED["client"][argument])
        hadoop.set(f"{own}.path.style.access", "true")
        hadoop.set(f"{own}.endpoint.region", "us-east-1")
        hadoop.set(f"{own}.secret.key", "no such secret")
        with pytest.raises(Exception, match=re.compile("secret|signature|credential", re.IGNORECASE)) as caught:
            save(spark.range(3), f"s3a://{bucket}/t")
        assert "no such secret" not in str(caught.value)
        hadoop.set(f"{own}.secret.key", ASKED["client"]["aws_secret_access_key"])
        save(spark.range(3), f"s3a://{bucket}/t")
        assert ids(load(spark, f"s3://{bucket}/t")) == [0, 1, 2]
    finally:
        for key in (*reached, "path.style.access", "endpoint.region"):
            hadoop.unset(f"{own}.{key}")
        for key, value in before.items():
            spark.conf.set(key, value)


def test_no_secret_on_the_way(spark: SparkSession, ten: str, s3: Any) -> None:
    secret = ASKED["client"]["aws_secret_access_key"]
    frame = load(spark, ten).where("id > 3")
    assert frame.count() == 6
    execution = frame._jdf.queryExecution()
    row = DeltaTable.forPath(spark, ten).detail().collect()[0]
    texts = [execution.toString(), execution.executedPlan().treeString(), execution.logical().toJSON(), str(row.asDict())]
    texts += [json.dumps(commit_of(s3, ten, 0)), repr(context_of(spark)), repr(vars(context_of(spark)))]
    assert not [text for text in texts if secret in text]


def test_the_single_drivers_store_is_ours_with_a_warning(spark: SparkSession, ten: str, caplog: pytest.LogCaptureFixture) -> None:
    key = "spark.delta.logStore.s3a.impl"
    spark.conf.set(key, "io.delta.storage.S3SingleDriverLogStore")
    try:
        for _ in range(2):
            save(spark.range(10, 11), ten)
        assert DeltaTable.forPath(spark, ten).detail().collect()[0].logStore == "s3"
    finally:
        spark.conf.unset(key)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([text for text in said if "S3SingleDriverLogStore" in text]) == 1


def test_native_needs_hadoop_aws(spark: SparkSession, ten: str) -> None:
    spark.conf.set("spark.lakelog.engine", "native")
    try:
        if ENGINE == "native":
            assert load(spark, ten).count() == 10
        else:
            with pytest.raises(StoreConfigurationError, match=r"hadoop-aws \S+ and the jars .* spark\.lakelog\.engine=arrow"):
                load(spark, ten)
    finally:
        spark.conf.unset("spark.lakelog.engine")


def test_arrow_by_choice_where_native_would_do(spark: SparkSession, ten: str) -> None:
    spark.conf.set("spark.lakelog.engine", "arrow")
    try:
        save(spark.range(10, 12), ten)
        assert ids(load(spark, ten)) == list(range(12))
        row = DeltaTable.forPath(spark, ten).detail().collect()[0]
        assert (row.engine, row.engineReason) == ("arrow", "spark.lakelog.engine is arrow")
    finally:
        spark.conf.unset("spark.lakelog.engine")
    assert ids(load(spark, ten)) == list(range(12))
