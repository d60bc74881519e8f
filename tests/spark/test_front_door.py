"""What passes between the JVM and Python: time travel, errors, versions that a query sees, trips, the closed channel, Spark's SQL tab."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from lakelog.core.errors import (
    DataFileMissingError,
    InvalidOptionError,
    MetadataChangedException,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakelog.spark import DeltaTable, front_door
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.front_door import trips
from tests.spark.told import check_ours, executions

HOUR = 3600


@pytest.fixture
def table(delta: SparkSession, tmp_path: Path) -> str:
    """Version 0 with ids 0 to 9, version 1 with 10 more."""
    path = str(tmp_path / "t")
    delta.range(10).write.format("delta").save(path)
    delta.range(10, 20).write.format("delta").mode("append").save(path)
    return path


@pytest.fixture
def dated(delta: SparkSession, table: str) -> str:
    """The same table, its commits made three hours ago and in an hour from now."""
    now = time.time()
    for version, moment in ((0, now - 3 * HOUR), (1, now + HOUR)):
        os.utime(Path(table) / "_delta_log" / f"{version:020}.json", (moment, moment))
    return table


@pytest.mark.parametrize(
    "moment",
    [
        "current_timestamp()",
        "current_timestamp() - INTERVAL 1 HOUR",
        "(SELECT TIMESTAMP'{now}')",
    ],
)
def test_time_travel_to_an_expression(delta: SparkSession, dated: str, moment: str) -> None:
    moment = moment.format(now=delta.sql("SELECT date_format(now(), 'yyyy-MM-dd HH:mm:ss')").collect()[0][0])
    assert delta.sql(f"SELECT count(*) FROM delta.`{dated}` TIMESTAMP AS OF {moment}").collect() == [(10,)]
    assert delta.sql(f"SELECT count(*) FROM spark_catalog.delta.`{dated}` TIMESTAMP AS OF {moment} AS t WHERE t.id > 4").collect() == [(5,)]


def test_time_travel_in_every_spelling(delta: SparkSession, dated: str) -> None:
    stamp = delta.sql("SELECT date_format(now(), 'yyyyMMddHHmmssSSS')").collect()[0][0]
    text = delta.sql("SELECT date_format(now(), 'yyyy-MM-dd HH:mm:ss.SSS')").collect()[0][0]
    reader = delta.read.format("delta")
    olds: list[DataFrame] = [
        delta.read.format("delta").option("versionAsOf", 0).load(dated),
        delta.read.format("delta").option("timestampAsOf", text).load(dated),
        delta.read.option("versionAsOf", 0).table(f"delta.`{dated}`"),
        reader.load(f"{dated}@v0"),
        reader.load(f"{dated}@{stamp}"),
        delta.table(f"delta.`{dated}@v0`"),
        delta.sql(f"SELECT * FROM delta.`{dated}` VERSION AS OF 0"),
        delta.sql(f"SELECT * FROM lakelog.`{dated}` FOR SYSTEM_VERSION AS OF '0'"),
        delta.sql(f"SELECT * FROM delta.`{dated}` TIMESTAMP AS OF '{text}'"),
        delta.sql(f"WITH old AS (SELECT * FROM delta.`{dated}` TIMESTAMP AS OF now()) SELECT * FROM old"),
    ]
    assert [frame.count() for frame in olds] == [10] * len(olds)
    assert reader.load(f"{dated}@v1").count() == 20


def test_versions_and_times_that_are_not_there(delta: SparkSession, table: str) -> None:
    asked: dict[str, Callable[[], object]] = {
        "no version 7.*0 to 1": lambda: delta.read.format("delta").option("versionAsOf", 7).load(table),
        r"no version 8.*0 to 1": lambda: delta.sql(f"SELECT * FROM delta.`{table}` VERSION AS OF 8"),
        r"2001-02-03T00:00:00.*before the earliest.*\d{4}-\d\d-\d\dT": lambda: delta.sql(
            f"SELECT * FROM delta.`{table}` TIMESTAMP AS OF '2001-02-03 00:00:00Z'"
        ),
        r"2201-02-03T00:00:00.*after the latest": lambda: (
            delta.read.format("delta").option("timestampAsOf", "2201-02-03T00:00:00Z").load(table)
        ),
    }
    for pattern, act in asked.items():
        with pytest.raises(VersionNotFoundError, match=pattern) as caught:
            act()
        assert table in check_ours(caught)
        assert caught.value.earliest == 0
        assert caught.value.latest == 1
    for option, value in (("versionAsOf", "x"), ("timestampAsOf", "soon")):
        with pytest.raises(InvalidOptionError, match=value) as wrong:
            delta.read.format("delta").option(option, value).load(table)
        check_ours(wrong)


def test_insert_through_sql_and_write_to(delta: SparkSession, table: str) -> None:
    name = f"delta.`{table}`"
    delta.sql(f"INSERT INTO {name} VALUES (100)")
    delta.sql(f"INSERT INTO {name} (id) SELECT 101")
    delta.range(102, 103).writeTo(name).append()
    delta.range(103, 104).write.insertInto(name)
    assert delta.sql(f"SELECT count(*) FROM {name} WHERE id >= 100").collect() == [(4,)]
    delta.sql(f"INSERT OVERWRITE {name} SELECT 7")
    assert delta.table(name).collect() == [(7,)]
    delta.range(3).write.insertInto(name, overwrite=True)
    assert delta.table(name).count() == 3
    assert not [f for f in Path(table).iterdir() if f.name == "_SUCCESS"]


def test_a_frame_follows_the_table(delta: SparkSession, table: str) -> None:
    frame = delta.read.format("delta").load(table)
    assert frame.count() == 20
    delta.range(20, 25).write.format("delta").mode("append").save(table)
    assert frame.count() == 25
    DeltaTable.forPath(delta, table).delete("id < 5")
    assert frame.count() == 20


def test_a_cached_frame_is_refreshed_after_writes(delta: SparkSession, table: str) -> None:
    frame = delta.read.format("delta").load(table).cache()
    try:
        assert frame.count() == 20
        delta.range(20, 25).write.format("delta").mode("append").save(table)
        assert frame.count() == 25
        DeltaTable.forPath(delta, table).delete("id < 5")
        assert frame.count() == 20
        delta.sql(f"DELETE FROM delta.`{table}`")
        assert frame.count() == 0
    finally:
        frame.unpersist()


def test_one_query_sees_one_version(delta: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    landed = []

    name = f"delta.`{table}`"
    frame = delta.sql(f"SELECT (SELECT count(*) FROM {name}) AS a, count(*) AS b FROM {name} x JOIN {name} y USING (id)")
    seen: list[str] = []
    tell = front_door.listing.answer

    def noted(held: HeldSnapshot, *args: Any, **more: Any) -> bytes:
        seen.append(held.id)
        if not landed:
            landed.append(True)
            log = Path(table) / "_delta_log"
            told = [line for line in (log / f"{1:020}.json").read_text().splitlines() if '"commitInfo"' in line]
            (log / f"{2:020}.json").write_text("\n".join(told) + "\n")
        return tell(held, *args, **more)

    monkeypatch.setattr(front_door.listing, "answer", noted)
    assert frame.collect() == [(20, 20)]
    assert landed
    assert {identity.split("#")[0] for identity in seen} == {f"{table}@1"}
    assert frame.select("*").collect() == [(20, 20)]
    assert seen[-1].startswith(f"{table}@2")


def test_a_schema_that_changed_since_analysis(delta: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    delta.range(3).write.format("delta").save(str(path))
    frame = delta.read.format("delta").load(str(path))
    metadata = next(line for line in (path / "_delta_log" / f"{0:020}.json").read_text().splitlines() if '"metaData"' in line)
    (path / "_delta_log" / f"{1:020}.json").write_text(metadata.replace('\\"long\\"', '\\"string\\"') + "\n")
    with pytest.raises(MetadataChangedException, match=r"schema changed.*version 1.*Read the table again") as caught:
        frame.collect()
    assert str(path) in check_ours(caught)


def test_planning_a_scan_is_one_trip(delta: SparkSession, table: str) -> None:
    def planned(frame: DataFrame) -> int:
        before = trips()
        frame.collect()
        return trips() - before

    frame = delta.read.format("delta").load(table)
    assert planned(frame) == 1
    assert planned(frame.where("id > 3 AND id < 7")) == 1
    assert planned(frame.groupBy("id").count()) == 1
    assert planned(frame.alias("a").join(frame.alias("b"), "id")) <= 2


def test_errors_from_worker_threads_arrive_as_ours(delta: SparkSession, table: str) -> None:
    for file in Path(table).glob("*.parquet"):
        file.unlink()
    name = f"delta.`{table}`"
    for query in (
        f"SELECT * FROM {name}",
        f"SELECT /*+ BROADCAST(b) */ * FROM range(3) a JOIN {name} b USING (id)",
        f"SELECT (SELECT max(id) FROM {name}) AS m",
    ):
        with pytest.raises(DataFileMissingError, match=r"data file .*\.parquet is named by the log but is not there") as caught:
            delta.sql(query).collect()
        assert table in check_ours(caught)


def test_four_threads_plan_at_once(delta: SparkSession, tmp_path: Path) -> None:
    paths = [str(tmp_path / str(i)) for i in range(4)]
    for i, path in enumerate(paths):
        delta.range(i + 1).write.format("delta").save(path)

    def work(i: int) -> tuple[int, str]:
        count = delta.read.format("delta").load(paths[i]).where("id >= 0").count()
        with pytest.raises(VersionNotFoundError) as caught:
            delta.read.format("delta").option("versionAsOf", 5 + i).load(paths[i])
        return count, str(caught.value)

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(work, range(4)))
    assert [count for count, _ in told] == [1, 2, 3, 4]
    assert all(paths[i] in message and f"no version {5 + i}" in message for i, (_, message) in enumerate(told))


def test_a_write_that_does_not_fit(delta: SparkSession, table: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        delta.range(1).selectExpr("'x' AS id").write.format("delta").mode("append").save(table)
    assert table in check_ours(caught)
    assert caught.value.differences


def stranger(command: str) -> str:
    """The answer of the callback port to someone who connects from outside."""
    gateway: Any = SparkContext._gateway
    with socket.create_connection(("127.0.0.1", gateway._callback_server.get_listening_port()), timeout=10) as connection:
        connection.sendall(command.encode())
        return connection.recv(65536).decode()


def door_ids() -> list[str]:
    gateway: Any = SparkContext._gateway
    pool = gateway.gateway_property.pool
    return [key for key, value in pool.dict.items() if isinstance(value, front_door.Channel)]


@pytest.mark.parametrize("header", ["", "guess", "guess\\nexists\\n"])
def test_a_stranger_is_refused(delta: SparkSession, table: str, header: str) -> None:
    before = trips()
    for identity in door_ids():
        answer = stranger(f"c\n{identity}\napply\ns{header}\ns{table}\nn\nn\ne\n")
        assert "serves its own Spark driver alone" in answer
    assert door_ids()
    assert trips() == before


@pytest.mark.parametrize("method", ["close", "error", "_door", "__setattr__", "__init__", "_keep", "__getattribute__"])
def test_a_stranger_reaches_no_other_method(delta: SparkSession, table: str, method: str) -> None:
    for identity in door_ids():
        assert "AttributeError" in stranger(f"c\n{identity}\n{method}\ns_secret\nsknown\ne\n")
    assert delta.read.format("delta").load(table).count() == 20


def test_a_stranger_cannot_cut_the_session_off(delta: SparkSession, table: str) -> None:
    for identity in door_ids():
        stranger(f"g\n{identity}\ne\n")
    assert delta.read.format("delta").load(table).count() == 20


def test_the_sql_tab_shows_writes_and_the_phases_of_a_delete(delta: SparkSession, table: str) -> None:
    before = executions(delta)[-1].id
    delta.range(20, 25).write.format("delta").mode("append").save(table)
    DeltaTable.forPath(delta, table).delete("id IN (3, 21)")
    shown = {execution.description: execution.metrics for execution in executions(delta, before)}
    write = shown[f"WRITE append to {table}"]
    assert "5" in write["number of output rows"]
    assert int(write["number of written files"][0]) >= 1
    assert "B" in write["written output"][0]
    assert "number of output rows" in shown[f"DELETE on {table}: find the rows"]
    assert "number of written files" in shown[f"DELETE on {table}: write the files without them"]
