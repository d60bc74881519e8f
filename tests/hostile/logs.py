"""Small valid logs, made by the code itself: what hostile logs are made from."""

from __future__ import annotations

import io
from functools import cache

import pyarrow.parquet as pq

from lakelog.core.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    serialize_commit,
)
from lakelog.core.commit_info import commit_info, write
from lakelog.core.log_files import MultiPartCheckpoint, checkpoint_name, commit_name
from lakelog.core.schema import DecimalType, PrimitiveType, StructField, StructType
from lakelog.storage.table_log import TableLog
from tests.hostile.opening import ROOT, Log, environment, store_of

_TYPES = ("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp", "timestamp_ntz")
SCHEMA = StructType(
    (
        *(StructField(name, PrimitiveType(name)) for name in _TYPES),
        StructField("decimal", DecimalType(10, 2)),
        StructField("wide", DecimalType(38, 18)),
        StructField("nested", StructType((StructField("inner", PrimitiveType("long")),))),
        StructField("p", DecimalType(12, 3)),
        StructField("q", PrimitiveType("timestamp")),
        StructField("r", PrimitiveType("long")),
    )
)
STATS = (
    '{"numRecords":2,'
    '"minValues":{"string":"a","long":1,"integer":1,"short":1,"byte":1,"float":0.5,"double":0.5,"date":"2020-01-01",'
    '"timestamp":"2020-01-01T00:00:00.000Z","timestamp_ntz":"2020-01-01T00:00:00","decimal":1.25,"wide":1.5,"nested":{"inner":1}},'
    '"maxValues":{"string":"z","long":9,"integer":9,"short":9,"byte":9,"float":9.5,"double":9.5,"date":"2021-01-01",'
    '"timestamp":"2021-01-01T00:00:00.000Z","timestamp_ntz":"2021-01-01T00:00:00","decimal":9.25,"wide":9.5,"nested":{"inner":9}},'
    '"nullCount":{"string":0,"long":0,"nested":{"inner":1}}}'
)
PARTITION = {"p": "1.500", "q": "2020-01-01T00:00:00.000000Z", "r": "7"}


def added(path: str, stats: str | None = STATS, size: int = 10) -> AddFile:
    """A file of the table that `simple_log` makes."""
    return AddFile(path=path, partition_values=PARTITION, size=size, modification_time=1, data_change=True, stats=stats)


def commit_of(*actions: Action) -> bytes:
    """A commit file with a ``commitInfo`` before the actions."""
    info = commit_info(
        write("append", ["p"]),
        timestamp_ms=1_700_000_000_000,
        read_version=0,
        isolation_level=None,
        is_blind_append=True,
        engine_info="lakelog/test",
        txn_id="txn",
        user_metadata="u",
    )
    return serialize_commit([info, *actions])


@cache
def simple_log(commits: int = 4) -> Log:
    """Version 0 with protocol and metadata, then commits that add and remove, and the application and domain of one."""
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("timestampNtz",), writer_features=("timestampNtz",))
    metadata = Metadata(
        id="table",
        schema_string=SCHEMA.to_json(),
        partition_columns=("p", "q", "r"),
        configuration={"delta.checkpointInterval": "100", "delta.deletedFileRetentionDuration": "interval 1 week"},
        created_time=1_700_000_000_000,
    )
    log = {commit_name(0): commit_of(protocol, metadata, added("p=1/part-0"))}
    for version in range(1, commits):
        actions: list[Action] = [added(f"p=1/part-{version}"), added(f"a%20b/part-{version}", stats=None)]
        if version == 2:
            actions += [
                RemoveFile(path="p=1/part-0", deletion_timestamp=1_700_000_000_000, data_change=True, size=10, partition_values=PARTITION),
                SetTransaction(app_id="app", version=3, last_updated=1_700_000_000_000),
                DomainMetadata(domain="user", configuration="{}", removed=False),
            ]
        log[commit_name(version)] = commit_of(*actions)
    return log


@cache
def log_with_checkpoint(*, parts: int = 1, hint: bool = True) -> Log:
    """`simple_log` with a checkpoint of version 3 and one commit after it; the commits before version 3 are gone."""
    log = dict(simple_log())
    store = store_of(log)
    table = TableLog(ROOT, store, environment())
    table.checkpoint()
    files = {info.name: store.read(info.path) for info in store.list_from(f"{ROOT}/_delta_log/")}
    data = files.pop(checkpoint_name(3))
    if parts == 1:
        files[checkpoint_name(3)] = data
    else:
        rows = pq.read_table(io.BytesIO(data))
        each = -(-rows.num_rows // parts)
        for part in range(parts):
            buffer = io.BytesIO()
            pq.write_table(rows.slice(part * each, each), buffer)
            files[MultiPartCheckpoint(3, part + 1, parts).name] = buffer.getvalue()
    if not hint:
        del files["_last_checkpoint"]
    for version in range(3):
        del files[commit_name(version)]
    files[commit_name(4)] = commit_of(added("p=1/part-4"))
    return files
