"""`enable` on a session in use, twice, on two sessions; `disable` takes it back; what delta-spark's users have in their conf."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import SessionNotEnabledError, StoreConfigurationError
from lakelog.spark import DeltaTable, disable, enable
from tests.spark.told import check_ours, rules

CATALOG = "spark.sql.catalog.spark_catalog"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """The run's session while lakelog is not enabled in it; enabled again afterwards, as other tests expect it."""
    yield disable(spark)
    enable(spark)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    enable(spark).range(5).write.format("delta").save(path)
    return path


def test_a_session_in_use_keeps_what_it_has(plain: SparkSession, table: str) -> None:
    plain.conf.set("lakelog.test.kept", "yes")
    plain.range(3).createOrReplaceTempView("kept_view")
    plain.udf.register("kept_function", lambda x: x + 1, "long")
    assert enable(plain) is plain
    assert plain.conf.get("lakelog.test.kept") == "yes"
    assert plain.sql("SELECT kept_function(max(id)) FROM kept_view").collect() == [(3,)]
    assert plain.sql(f"SELECT count(*) FROM delta.`{table}` JOIN kept_view USING (id)").collect() == [(3,)]
    disable(plain)
    assert plain.conf.get("lakelog.test.kept") == "yes"
    assert plain.sql("SELECT kept_function(max(id)) FROM kept_view").collect() == [(3,)]


def test_conf_set_afterwards_counts(plain: SparkSession) -> None:
    before = plain.conf.get("spark.sql.session.timeZone")
    enable(plain)
    plain.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert plain.sql("SELECT current_timezone()").collect() == [("Asia/Tokyo",)]
    finally:
        plain.conf.set("spark.sql.session.timeZone", str(before))


def test_enabling_twice_is_enabling_once(plain: SparkSession) -> None:
    enable(plain)
    once = rules(plain)
    enable(plain)
    assert rules(plain) == once


def test_disable_leaves_the_session_as_it_was(plain: SparkSession, table: str) -> None:
    disable(plain)
    before, conf = rules(plain), dict(plain.conf.getAll)
    enable(plain)
    enabled = rules(plain)
    assert all(enabled[kind] != before[kind] for kind in before)
    disable(plain)
    assert rules(plain) == before
    assert dict(plain.conf.getAll) == conf
    enable(plain)
    assert rules(plain) == enabled
    assert plain.read.format("delta").load(table).count() == 5


def test_two_sessions(plain: SparkSession, table: str) -> None:
    disable(plain)
    before = rules(plain)
    second = plain.newSession()
    enable(plain)
    enabled = rules(plain)
    enable(second)
    assert rules(second) == enabled
    disable(plain)
    assert rules(plain)["catalog"] == before["catalog"]
    assert second.sql(f"SELECT count(*) FROM delta.`{table}` VERSION AS OF 0").collect() == [(5,)]
    third = second.newSession()
    assert third.sql(f"SELECT count(*) FROM delta.`{table}`").collect() == [(5,)]
    disable(second)
    assert rules(plain)["optimizer"] == before["optimizer"]
    assert rules(second) == before
    assert rules(second.newSession()) == before


def test_a_new_session_has_its_own_conf(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "n")
    enable(delta)
    new = delta.newSession()
    new.conf.set("spark.lakelog.commitInfo.userMetadata", "from the new one")
    new.range(3).write.format("delta").save(path)
    new.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    assert new.read.format("delta").load(path).count() == 2
    told = DeltaTable.forPath(delta, path).history().select("userMetadata").distinct().collect()
    assert told == [("from the new one",)]


def test_a_disabled_session_says_one_thing(plain: SparkSession, table: str, tmp_path: Path) -> None:
    new = plain.newSession()
    disable(plain)
    frame = plain.range(2)
    acts: list[Callable[[], object]] = [
        lambda: plain.read.format("delta").load(table),
        lambda: plain.read.format("lakelog").load(table),
        lambda: frame.write.format("delta").save(str(tmp_path / "new")),
        lambda: frame.write.format("delta").mode("append").save(table),
        lambda: frame.write.format("delta").saveAsTable("never_made"),
        lambda: frame.write.insertInto(f"delta.`{table}`"),
        lambda: frame.writeTo(f"delta.`{table}`").append(),
        lambda: plain.readStream.format("delta").load(table),
        lambda: plain.table(f"delta.`{table}`"),
        lambda: plain.sql(f"SELECT * FROM delta.`{table}`"),
        lambda: plain.sql(f"SELECT * FROM delta.`{table}` VERSION AS OF 0"),
        lambda: plain.sql(f"INSERT INTO delta.`{table}` VALUES (1)"),
        lambda: plain.sql(f"DELETE FROM delta.`{table}`"),
        lambda: plain.sql(f"UPDATE delta.`{table}` SET id = 1"),
        lambda: plain.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN x int"),
        lambda: plain.sql("CREATE TABLE never_made (id long) USING delta"),
        lambda: plain.sql("CREATE TABLE never_made USING delta AS SELECT 1 AS a"),
        lambda: new.sql(f"SELECT * FROM delta.`{table}`"),
        lambda: DeltaTable.forPath(plain, table),
    ]
    messages = set()
    for act in acts:
        with pytest.raises(SessionNotEnabledError) as caught:
            act()
        messages.add(check_ours(caught))
    assert len(messages) == 1
    assert "lakelog.spark.enable(spark)" in messages.pop()
    assert not plain.catalog.tableExists("never_made")
    assert not (tmp_path / "new").exists()


def test_another_extensions_catalog_is_not_displaced(plain: SparkSession) -> None:
    disable(plain)
    other = plain.newSession()
    other.conf.set(CATALOG, "org.example.TheirCatalog")
    with pytest.raises(StoreConfigurationError, match=r"org\.example\.TheirCatalog.*does not displace"):
        enable(other)
    assert other.conf.get(CATALOG) == "org.example.TheirCatalog"


OLD_CODE = """
import os, stat, sys
from pathlib import Path
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from lakelog.spark import disable, enable, session

catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config("spark.sql.catalog.spark_catalog", catalog)
    .getOrCreate()
)
path = sys.argv[1]
enable(spark)
spark.range(4).write.format("delta").save(path)
assert spark.sql(f"SELECT count(*) FROM delta.`{path}`").collect() == [(4,)]
assert spark.newSession().sql(f"SELECT count(*) FROM delta.`{path}` VERSION AS OF 0").collect() == [(4,)]
folder = session._driver.jvm.folder
assert stat.S_IMODE(folder.stat().st_mode) == 0o700
assert Path(SparkFiles.getRootDirectory()) in folder.parents
disable(spark)
assert spark.conf.get("spark.sql.catalog.spark_catalog") == catalog
enable(spark)
spark.stop()
assert not folder.exists()
again = enable(SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate())
assert again.read.format("delta").load(path).count() == 4
again.stop()
print("all well")
"""


def test_old_code_with_delta_sparks_settings(spark: SparkSession, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OLD_CODE, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(str(ROOT / part) for part in ("core", "storage", "spark"))},
    )
    assert done.stdout.endswith("all well\n"), done.stderr[-3000:]


def test_a_session_that_was_disabled_changes_nothing_while_another_is_enabled(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    delta.range(3).write.format("delta").save(path)
    other = delta.newSession()
    enable(other)
    disable(other)
    try:
        for act in (
            lambda: other.read.format("delta").load(path).count(),
            lambda: other.range(1).write.format("delta").mode("append").save(path),
            lambda: DeltaTable.forPath(other, path).delete(),
        ):
            with pytest.raises(SessionNotEnabledError):
                act()
        assert delta.read.format("delta").load(path).count() == 3
    finally:
        enable(other)
    assert other.read.format("delta").load(path).count() == 3
    disable(other)
