"""Which engine serves: what the conf says, what the JVM has, what the user hears of it; and paths that no Hadoop filesystem serves."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import (
    InvalidOptionError,
    InvalidRequestError,
    StoreConfigurationError,
    UnknownSchemeError,
    UnsupportedOperationError,
)
from lakelog.spark import DeltaTable
from lakelog.spark.context import Context
from lakelog.spark.engine import ENGINE_CONF, Engine, EngineChoice, HadoopFilesystem, choose, missing_entries
from lakelog.spark.session import context_of
from lakelog.storage.environment import Environment
from tests.storage.faults import FaultyLogStore

THERE = HadoopFilesystem(name="org.example.S3AFileSystem", fault="", hadoop="3.5.0")
ABSENT = HadoopFilesystem(name=None, fault="Class org.example.S3AFileSystem not found", hadoop="3.5.0")


class WithARegion(FaultyLogStore):
    """A store that takes an option."""

    def __init__(self, options: Mapping[str, object]) -> None:
        super().__init__({})
        self.region = options["region"]


@pytest.fixture
def context(delta: SparkSession) -> Iterator[Context]:
    """What an enabled session has, made anew, so that nothing is remembered of other tests."""
    yield Context(delta, Environment.system(), lambda _id: None)
    delta.conf.unset(ENGINE_CONF)


def unasked(scheme: str) -> HadoopFilesystem:
    raise AssertionError(f"the JVM was asked about {scheme}")


@pytest.mark.parametrize("asked", ["auto", "native", "AUTO", " Native "])
@pytest.mark.parametrize("root", ["/tmp/t", "hdfs://host:8020/t", "viewfs://cluster/t"])
def test_what_spark_reads_itself_is_native(asked: str, root: str) -> None:
    assert choose(asked, root, unasked).engine is Engine.NATIVE


def test_the_jvm_decides_for_other_schemes() -> None:
    there = choose("auto", "s3a://b/t", lambda _scheme: THERE)
    assert there == EngineChoice(engine=Engine.NATIVE, reason="the driver's JVM has org.example.S3AFileSystem")
    absent = choose("auto", "s3a://b/t", lambda _scheme: ABSENT)
    assert absent.engine is Engine.ARROW
    assert absent.reason == "the driver's JVM has no Hadoop filesystem for s3a: Class org.example.S3AFileSystem not found"


@pytest.mark.parametrize("root", ["/tmp/t", "s3a://b/t", "hdfs://host/t"])
def test_arrow_by_conf_asks_nobody(root: str) -> None:
    assert choose("Arrow", root, unasked) == EngineChoice(engine=Engine.ARROW, reason="spark.lakelog.engine is arrow")


def test_native_by_conf_needs_the_filesystem() -> None:
    assert choose("native", "s3a://b/t", lambda _scheme: THERE).engine is Engine.NATIVE
    with pytest.raises(StoreConfigurationError) as caught:
        choose("native", "s3a://b/t", lambda _scheme: ABSENT)
    for word in ("Delta table s3a://b/t", "hadoop-aws 3.5.0", "spark.jars", "spark.lakelog.engine=arrow"):
        assert word in str(caught.value)
    with pytest.raises(StoreConfigurationError, match="of that filesystem's Hadoop client"):
        choose("native", "cos://b/t", lambda _scheme: ABSENT)


def test_no_other_value(context: Context, delta: SparkSession) -> None:
    delta.conf.set(ENGINE_CONF, "vectorised")
    with pytest.raises(InvalidOptionError) as caught:
        context.engine(delta, "/tmp/t")
    assert str(caught.value) == "Delta table /tmp/t: spark.lakelog.engine must be auto, native or arrow, not 'vectorised'."


def test_one_line_says_which_and_why(context: Context, delta: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakelog.spark")
    for root in ("s3a://one/t", "s3a://one/u", "s3a://two/t", "/tmp/t", "/tmp/u"):
        context.engine(delta, root)
    absent = "the driver's JVM has no Hadoop filesystem for s3a: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    assert [record.getMessage() for record in caplog.records] == [
        f"the arrow engine serves data files of s3a tables: {absent}",
        "the native engine serves data files of file tables: Spark reads file itself",
    ]
    assert context.engine(delta, "s3a://one/t") == EngineChoice(engine=Engine.ARROW, reason=absent)


def test_a_conf_that_changes_counts_at_once(context: Context, delta: SparkSession) -> None:
    assert context.engine(delta, "/tmp/t").engine is Engine.NATIVE
    delta.conf.set(ENGINE_CONF, "arrow")
    assert context.engine(delta, "/tmp/t").engine is Engine.ARROW
    delta.conf.set(ENGINE_CONF, "native")
    assert context.engine(delta, "/tmp/t").engine is Engine.NATIVE
    with pytest.raises(StoreConfigurationError, match="hadoop-aws"):
        context.engine(delta, "s3a://one/t")


def test_detail_tells(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    delta.range(3).write.format("delta").save(path)
    delta.conf.set(ENGINE_CONF, "arrow")
    try:
        row = DeltaTable.forPath(delta, path).detail().collect()[0]
    finally:
        delta.conf.unset(ENGINE_CONF)
    assert (row.engine, row.engineReason, row.logStore) == ("arrow", "spark.lakelog.engine is arrow", "local")


def test_roots_on_s3_need_no_hadoop(context: Context, delta: SparkSession) -> None:
    for path in ("s3://bucket/a b//c%20d/", "S3N://bucket/a b/c%20d", "s3a://bucket/a b/./c%20d"):
        assert context.root(delta, path) == "s3a://bucket/a b/c%20d"
    with pytest.raises(InvalidRequestError, match="names no bucket"):
        context.root(delta, "s3a:///t")


def test_a_scheme_that_nobody_serves_is_told_as_before(context: Context, delta: SparkSession) -> None:
    with pytest.raises(UnknownSchemeError, match="No LogStore serves the scheme 'gopher'"):
        context.root(delta, "gopher://host/t")


def test_settings_are_those_that_users_gave(context: Context, delta: SparkSession) -> None:
    hadoop = delta.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    hadoop.set("fs.s3a.endpoint", "http://127.0.0.1:9")
    delta.conf.set("spark.lakelog.s3a.region", "eu-central-1")
    delta.conf.set("spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName", "log")
    delta.conf.set("fs.s3a.endpoint.region", "eu-west-1")
    try:
        told = context.settings(delta)
        assert told["fs.s3a.endpoint"] == "http://127.0.0.1:9"
        assert told["fs.s3a.endpoint.region"] == "eu-west-1"
        assert told["spark.lakelog.s3a.region"] == "eu-central-1"
        assert told["spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName"] == "log"
        # Hadoop's own defaults are many, and nobody gave them
        assert not [key for key in told if key.startswith("fs.s3a.aws") or "impl" in key]
        assert "spark.app.name" not in told
    finally:
        hadoop.unset("fs.s3a.endpoint")
        for key in ("spark.lakelog.s3a.region", "spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName", "fs.s3a.endpoint.region"):
            delta.conf.unset(key)


def test_the_session_that_names_a_table_decides_how_its_bucket_is_reached(context: Context, delta: SparkSession) -> None:
    other = delta.newSession()
    store = f"{WithARegion.__module__}.WithARegion"
    for session, region in ((delta, "eu-central-1"), (other, "us-west-2")):
        session.conf.set("spark.lakelog.s3a.logstore.class", store)
        session.conf.set("spark.lakelog.s3.region", region)
    try:
        root = context.root(delta, "s3://bucket/t")
        first = context.logs.log(root)
        assert context.settings_of(root)["spark.lakelog.s3.region"] == "eu-central-1"
        # what says nothing of the bucket changes nothing
        delta.conf.set("spark.lakelog.schema.autoMerge.enabled", "true")
        assert context.logs.log(context.root(delta, "s3a://bucket/t")) is first
        assert context.logs.log(context.root(other, "s3a://bucket/t")) is not first
        assert context.settings_of(root)["spark.lakelog.s3.region"] == "us-west-2"
    finally:
        for key in ("s3a.logstore.class", "s3.region", "schema.autoMerge.enabled"):
            delta.conf.unset(f"spark.lakelog.{key}")


def test_the_driver_holds_no_secret_in_a_repr(context: Context, delta: SparkSession) -> None:
    delta.conf.set("spark.lakelog.s3a.key", "PLANTEDKEY")
    delta.conf.set("spark.lakelog.s3a.secret", "PLANTEDSECRET")
    try:
        context.root(delta, "s3a://bucket/t")
        assert "PLANTED" not in repr(context) + repr(vars(context)) + repr(vars(context.logs))
    finally:
        delta.conf.unset("spark.lakelog.s3a.key")
        delta.conf.unset("spark.lakelog.s3a.secret")


def test_hadoop_is_told_what_it_was_not_told() -> None:
    wanted = {
        "fs.s3a.endpoint": "http://here",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.connection.timeout": "1ms",
    }
    own = "fs.s3a.bucket.b."
    assert missing_entries(wanted, {}, "b") == {
        f"{own}endpoint": "http://here",
        f"{own}path.style.access": "true",
        f"{own}access.key": "key",
        f"{own}secret.key": "secret",
    }
    without_keys = {f"{own}endpoint": "http://here", f"{own}path.style.access": "true"}
    assert missing_entries(wanted, {"fs.s3a.session.token": "other"}, "b") == without_keys
    assert missing_entries(wanted, {f"{own}aws.credentials.provider": "x"}, "b") == without_keys
    assert missing_entries(wanted, {f"{own}endpoint": "http://there"}, "b").keys() == {
        f"{own}path.style.access",
        f"{own}access.key",
        f"{own}secret.key",
    }
    # what another bucket was told says nothing of this one
    assert len(missing_entries(wanted, {"fs.s3a.bucket.other.access.key": "x", "fs.s3a.bucket.other.endpoint": "y"}, "b")) == 4


def test_credentials_in_a_path_are_not_repeated(delta: SparkSession) -> None:
    with pytest.raises(InvalidRequestError, match="as settings") as caught:
        delta.read.format("delta").load("s3a://PLANTED:SECRET@bucket/t")
    assert "PLANTED" not in str(caught.value)


def test_how_a_bucket_is_reached_is_no_option_of_one_table(delta: SparkSession) -> None:
    secret = {"fs.s3a.secret.key": "PLANTED"}
    for act in (
        lambda: delta.read.format("delta").options(**secret).load("s3://bucket/t"),
        lambda: delta.range(1).write.format("delta").options(**secret).save("s3a://bucket/t"),
        lambda: DeltaTable.forPath(delta, "s3a://bucket/t", secret),
    ):
        with pytest.raises(UnsupportedOperationError, match=r"Delta table s3a://bucket/t.* spark\.hadoop\.fs\.s3a\.secret\.key") as caught:
            act()
        assert "PLANTED" not in str(caught.value)


def test_the_jvm_has_no_s3_here(delta: SparkSession) -> None:
    """Else the tests of the Arrow engine on S3 would say nothing."""
    assert context_of(delta).engine(delta, "s3a://bucket/t").engine is Engine.ARROW
