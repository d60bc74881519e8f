"""What a commit, a refresh and a fresh writer ask of S3, counted at the wire: each of these requests is a round trip and costs money."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from integration.servers import MinIO
from integration.wire import Wire, wiretap
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.table_log import TableLog
from tests.storage.logs import append, creation, deletion, grow

_ROOT = Path(__file__).parents[1]
NO_CHECKPOINTS = {"delta.checkpointInterval": "1000"}


def commit_file(version: int, root: str = "t") -> str:
    return f"{root}/_delta_log/{version:020d}.json"


@pytest.fixture
def wire(minio: MinIO) -> Iterator[Wire]:
    with wiretap(minio.endpoint) as wire:
        yield wire


@pytest.fixture
def options(minio: MinIO, wire: Wire) -> dict[str, object]:
    return {**minio.options(), "endpoint_url": wire.url}


@pytest.fixture
def unseen(minio: MinIO, bucket: str) -> TableLog:
    """The table at version 5 without a checkpoint, as another writer has it whose requests nobody notes."""
    log = TableLog(f"s3a://{bucket}/t", S3LogStore(minio.options()))
    log.commit(creation(configuration=NO_CHECKPOINTS))
    grow(log, 5)
    return log


@pytest.fixture
def log(unseen: TableLog, options: dict[str, object], wire: Wire) -> TableLog:
    """A handle that has committed to the table once and has seen it at version 6."""
    log = TableLog(unseen.root, S3LogStore(options))
    grow(log, 1)
    log.refresh()
    wire.take()
    return log


def test_an_uncontended_commit_is_one_put_of_its_file_and_nothing_else(log: TableLog, wire: Wire) -> None:
    for version in (7, 8, 9):
        assert log.commit(append(version - 1, f"file-{version}")).version == version
        assert wire.take() == [f"PUT {commit_file(version)}"]
    assert log.commit(deletion(9, "file-9")).version == 10
    assert wire.take() == [f"PUT {commit_file(10)}"]


def test_a_refresh_that_finds_nothing_new_is_one_list(log: TableLog, wire: Wire) -> None:
    for _ in range(3):
        assert log.refresh().version == 6
        requests = wire.take()
        assert len(requests) == 1, requests
        assert requests[0].startswith("LIST t/_delta_log/ after t/_delta_log/0000000000000000000"), "the past is not listed again"


@pytest.mark.parametrize("others", [1, 2, 10])
def test_a_refresh_reads_each_new_commit_once(log: TableLog, unseen: TableLog, wire: Wire, others: int) -> None:
    grow(unseen, others)
    assert log.refresh().version == 6 + others
    requests = wire.take()
    assert requests[0].startswith("LIST ")
    assert sorted(requests[1:]) == [f"GET {commit_file(version)}" for version in range(7, 7 + others)]


def test_a_refresh_after_ones_own_commit_is_one_list(log: TableLog, wire: Wire) -> None:
    log.commit(append(6, "more"))
    wire.take()
    assert log.refresh().version == 7
    assert [request.split()[0] for request in wire.take()] == ["LIST"], "the listing tells the content's sum, which is that of the commit"


def test_a_table_made_anew_at_its_path_is_read_anew(log: TableLog, unseen: TableLog, minio: MinIO, wire: Wire) -> None:
    log.commit(append(6, "more"))
    store = S3LogStore(minio.options())
    store.delete([file.path for file in store.list_from(f"{log.root}/_delta_log/")])
    other = TableLog(log.root, store)
    other.commit(creation(configuration=NO_CHECKPOINTS))
    grow(other, 7)
    wire.take()
    assert log.refresh().metadata.id == other.snapshot().metadata.id
    assert f"GET {commit_file(7)}" in wire.take()


def test_whoever_lost_to_another_reads_what_won_and_puts_once_more(log: TableLog, unseen: TableLog, wire: Wire) -> None:
    grow(unseen, 1)
    assert log.commit(append(6, "late")).version == 8
    requests = wire.take()
    assert [request for request in requests if request.startswith("PUT")] == [f"PUT {commit_file(7)}", f"PUT {commit_file(8)}"]
    assert sum(request.startswith("LIST") for request in requests) == 1
    assert {request for request in requests if request.startswith("GET")} == {f"GET {commit_file(7)}"}


_READS = """
assert log.refresh().version == 5
assert len(log.history()) == 6
"""
_WRITES = """
for version in (6, 7):
    assert log.commit(append(version - 1, f"by-process-{version}")).version == version
other = TableLog(log.root + "-other", S3LogStore(options))
other.commit(creation())
again = TableLog(log.root, S3LogStore(options))
again.commit(append(again.refresh().version, "by-another-handle"))
"""


_OPENING = """
import json, os
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.table_log import TableLog
from tests.storage.logs import append, creation
options = json.loads(os.environ["OPTIONS"])
log = TableLog(os.environ["ROOT"], S3LogStore(options))
"""


def in_a_fresh_process(program: str, root: str, options: Mapping[str, object]) -> None:
    """Run a program in a process in which nothing has been asked yet."""
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "OPTIONS": json.dumps(options),
        "ROOT": root,
    }
    subprocess.run([sys.executable, "-c", program], cwd=_ROOT, env={**os.environ, **variables}, check=True)


def test_a_reader_sends_nothing_but_lists_and_gets(unseen: TableLog, options: dict[str, object], wire: Wire) -> None:
    in_a_fresh_process(_OPENING + _READS, unseen.root, options)
    requests = wire.take()
    assert {request.split()[0] for request in requests} == {"LIST", "GET"}
    assert not any(".probe-" in request or ".tmp" in request for request in requests)


def test_a_writer_probes_once_a_process_and_looks_once_a_table_for_writers_of_another_kind(
    unseen: TableLog, options: dict[str, object], wire: Wire
) -> None:
    in_a_fresh_process(_OPENING + _WRITES, unseen.root, options)
    requests = [request for request in wire.take() if not request.startswith("GET")]
    probes = [request for request in requests if ".probe-" in request]
    name = probes[0].partition(" ")[2]
    assert name.startswith("t/_delta_log/.probe-"), "never a name of the log"
    assert probes == [f"PUT {name}", f"PUT {name}", f"DELETE {name}"], "made, refused the second time, removed"
    guards = [request for request in requests if ".tmp" in request]
    assert guards == ["LIST t/_delta_log/.tmp/", "LIST t-other/_delta_log/.tmp/"]
    writes = [request for request in requests if request.startswith("PUT") and request not in probes]
    assert writes == [f"PUT {commit_file(6)}", f"PUT {commit_file(7)}", f"PUT {commit_file(0, 't-other')}", f"PUT {commit_file(8)}"]
    first_write = requests.index(writes[0])
    assert all(requests.index(request) < first_write for request in [*probes, guards[0]]), "before the first write"


def test_the_probe_is_gone(unseen: TableLog, options: dict[str, object], minio: MinIO, bucket: str) -> None:
    in_a_fresh_process(_OPENING + _WRITES, unseen.root, options)
    found = [item["Key"] for item in minio.client().list_objects_v2(Bucket=bucket)["Contents"]]
    assert found == [*(commit_file(0, "t-other"),), *(commit_file(version) for version in range(9))]


_SPARK = """
import json, os, urllib.error, urllib.request
import lakelog.spark
from pyspark.sql import SparkSession
options, root = json.loads(os.environ["OPTIONS"]), os.environ["ROOT"]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
for name, value in options.items():
    builder = builder.config("spark.lakelog.s3a." + name, value)
spark = lakelog.spark.enable(builder.getOrCreate())
spark.sparkContext.setLogLevel("OFF")

def mark(name):
    # A request that means nothing, to tell on the wire what came before it from what follows.
    try:
        urllib.request.urlopen(options["endpoint_url"] + "/bucket/MARK-" + name)
    except urllib.error.HTTPError:
        pass

for name in ("create", "append", "append-again"):
    spark.range(3).coalesce(1).write.format("delta").mode("append").save(root)
    mark(name)
for name in ("read", "read-again"):
    assert spark.read.format("delta").load(root).count() == 9
    mark(name)
spark.sql(f"DELETE FROM delta.`{root}` WHERE id = 1")
mark("delete")
spark.stop()
"""


def test_what_spark_does_asks_no_more_of_the_log(options: dict[str, object], bucket: str, wire: Wire) -> None:
    in_a_fresh_process(_SPARK, f"s3a://{bucket}/t", options)
    asked: dict[str, list[str]] = {}
    since: list[str] = []
    for request in wire.take():
        if request.startswith("GET MARK-"):
            asked[request.removeprefix("GET MARK-")], since = since, []
        elif "_delta_log" in request:
            since.append(request.partition(" after ")[0])
    assert asked["append"] == ["LIST t/_delta_log/", f"PUT {commit_file(1)}"]
    assert asked["append-again"] == ["LIST t/_delta_log/", f"PUT {commit_file(2)}"]
    assert set(asked["read"]) == {"LIST t/_delta_log/"}
    assert set(asked["read-again"]) == {"LIST t/_delta_log/"}
    assert [request for request in asked["delete"] if not request.startswith("LIST")] == [f"PUT {commit_file(3)}"]
