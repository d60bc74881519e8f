from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from lakelog.core.actions import AddFile, DeletionVectorDescriptor, DomainMetadata, Format, Metadata, Protocol, RemoveFile, SetTransaction
from lakelog.core.checkpoint import CHECKPOINT_SCHEMA, checkpoint_table, read_checkpoint
from lakelog.core.errors import CorruptLogError, UnsupportedFeatureError
from lakelog.core.replay import Fold, LogState
from lakelog.core.schema import PrimitiveType, StructField, StructType
from lakelog.core.snapshot import Snapshot

ROOT = "/tables/t"
NOW = 10**12
DAY = 24 * 3600 * 1000
FIELDS = {"id": "long", "p": "string", "q": "string"}
SCHEMA = StructType(tuple(StructField(name, PrimitiveType(kind)) for name, kind in FIELDS.items())).to_json()
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "domainMetadata"))


def table_metadata(**configuration: str) -> Metadata:
    return Metadata(
        id="i",
        name="n",
        description="d",
        format=Format(provider="parquet", options={}),
        schema_string=SCHEMA,
        partition_columns=("p", "q"),
        configuration={"delta." + key: value for key, value in configuration.items()},
        created_time=3,
    )


def snapshot(*actions: AddFile | RemoveFile | SetTransaction | DomainMetadata, metadata: Metadata | None = None) -> Snapshot:
    fold = Fold(LogState(), root=ROOT)
    fold.add_actions(0, [PROTOCOL, metadata or table_metadata(), *actions])
    return Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=NOW)


def add(path: str, **more: object) -> AddFile:
    given: dict[str, object] = {"partition_values": {"p": "1", "q": None}, "size": 5, "modification_time": 6, "data_change": True}
    return AddFile(path=path, **(given | more))  # type: ignore[arg-type]


def remove(path: str, at: int) -> RemoveFile:
    return RemoveFile(
        path=path, deletion_timestamp=at, data_change=True, extended_file_metadata=True, partition_values={"p": "1", "q": None}, size=7
    )


FULL = (
    add(
        "p=1/a%20b",
        stats='{"numRecords":2}',
        tags={"k": "v", "n": None},
        deletion_vector=DeletionVectorDescriptor(storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=2, cardinality=3),
        base_row_id=8,
        default_row_commit_version=9,
        clustering_provider="liquid",
    ),
    add("plain", tags=None),
    remove("gone", NOW),
    SetTransaction(app_id="app", version=4, last_updated=5),
    SetTransaction(app_id="other", version=6),
    DomainMetadata(domain="d", configuration="{}", removed=False),
)


def test_a_state_survives_its_checkpoint() -> None:
    written = snapshot(*FULL)
    table = checkpoint_table(written, now_ms=NOW)
    state = read_checkpoint(table.to_batches(max_chunksize=2), version=0, root=ROOT)
    assert state.files.to_pylist() == written.files.to_pylist()
    assert state.tombstones.to_pylist() == written.tombstones.to_pylist()
    assert state.protocol == written.protocol
    assert state.metadata == written.metadata
    assert state.transactions == written.transactions
    assert state.domains == written.domains


def test_the_rows_are_the_protocols() -> None:
    table = checkpoint_table(snapshot(*FULL), now_ms=NOW)
    assert table.schema == CHECKPOINT_SCHEMA
    rows = table.to_pylist()
    assert all(sum(value is not None for value in row.values()) == 1 for row in rows)
    assert [next(name for name, value in row.items() if value is not None) for row in rows] == [
        "protocol", "metaData", "txn", "txn", "domainMetadata", "remove", "add", "add",
    ]  # fmt: skip
    assert [row["add"]["dataChange"] for row in rows if row["add"]] == [False, False]
    assert rows[0]["protocol"] == {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "readerFeatures": None,
        "writerFeatures": ["appendOnly", "domainMetadata"],
    }


def test_what_has_expired_is_left_out() -> None:
    metadata = table_metadata(deletedFileRetentionDuration="interval 1 days", setTransactionRetentionDuration="interval 1 days")
    written = snapshot(
        remove("old", NOW - DAY - 1),
        remove("new", NOW - DAY),
        SetTransaction(app_id="old", version=1, last_updated=NOW - DAY),
        SetTransaction(app_id="new", version=1, last_updated=NOW - DAY + 1),
        SetTransaction(app_id="timeless", version=1),
        metadata=metadata,
    )
    state = read_checkpoint(checkpoint_table(written, now_ms=NOW).to_batches(), version=0, root=ROOT)
    assert state.tombstones["path"].to_pylist() == ["new"]
    assert set(state.transactions) == {"new"}


@pytest.mark.parametrize(("as_json", "as_struct", "kept"), [("true", "true", True), ("false", "true", True), ("false", "false", False)])
def test_statistics_leave_only_when_both_forms_are_off(as_json: str, as_struct: str, kept: bool) -> None:
    metadata = table_metadata(**{"checkpoint.writeStatsAsJson": as_json, "checkpoint.writeStatsAsStruct": as_struct})
    table = checkpoint_table(snapshot(add("a", stats='{"numRecords":1}'), metadata=metadata), now_ms=NOW)
    state = read_checkpoint(table.to_batches(), version=0, root=ROOT)
    assert state.files["stats"].to_pylist() == ['{"numRecords":1}' if kept else None]


def rewritten(table: pa.Table, **columns: pa.Array) -> list[pa.RecordBatch]:
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        table = table.append_column(name, column) if index < 0 else table.set_column(index, name, column)
    return list(table.to_batches())


def test_struct_statistics_come_back_as_json() -> None:
    utc = datetime.UTC
    bounds = {
        "date": datetime.date(2024, 2, 29),
        "ts": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=utc),
        "ntz": datetime.datetime(2024, 1, 2, 3, 4, 5, 678_901),
        "dec": Decimal("12345678901234567890.10"),
        "nan": float("nan"),
        "text": 'a "quoted" \u2028 é',
        "nested": {"x": 1, "y": None},
        "flag": None,
    }
    types = pa.struct(
        [
            ("date", pa.date32()),
            ("ts", pa.timestamp("us", "UTC")),
            ("ntz", pa.timestamp("us")),
            ("dec", pa.decimal128(22, 2)),
            ("nan", pa.float64()),
            ("text", pa.string()),
            ("nested", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
            ("flag", pa.bool_()),
        ]
    )
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", types), ("nullCount", pa.struct([("date", pa.int64())]))])
    adds = CHECKPOINT_SCHEMA.field("add").type
    fields = [field for field in adds if field.name != "stats"] + [pa.field("stats_parsed", stats)]
    row = {"path": "a", "partitionValues": [], "size": 1, "modificationTime": 2, "dataChange": False}
    table = checkpoint_table(snapshot(), now_ms=NOW)
    parsed = {"numRecords": 7, "minValues": bounds, "nullCount": {"date": 0}}
    column = pa.array([None, row | {"stats_parsed": parsed}], pa.struct(fields))
    (text,) = read_checkpoint(rewritten(table, add=column), version=0, root=ROOT).files["stats"].to_pylist()
    assert text is not None
    assert '"dec":12345678901234567890.10' in text
    values = json.loads(text)
    assert values == {
        "numRecords": 7,
        "minValues": {
            "date": "2024-02-29",
            "ts": "1969-12-31T23:59:59.999Z",
            "ntz": "2024-01-02T03:04:05.678",
            "dec": 12345678901234567890.10,
            "text": 'a "quoted" \u2028 é',
            "nested": {"x": 1},
        },
        "nullCount": {"date": 0},
    }


def test_json_statistics_win_over_struct_ones() -> None:
    stats = pa.struct([("numRecords", pa.int64())])
    fields = [*CHECKPOINT_SCHEMA.field("add").type, pa.field("stats_parsed", stats)]
    row = {"partitionValues": [], "size": 1, "modificationTime": 2, "dataChange": False, "stats_parsed": {"numRecords": 2}}
    rows = [row | {"path": "both", "stats": '{"numRecords":1}'}, row | {"path": "struct"}]
    table = checkpoint_table(snapshot(), now_ms=NOW)
    state = read_checkpoint(rewritten(table, add=pa.array(rows, pa.struct(fields))), version=0, root=ROOT)
    assert state.files["stats"].to_pylist() == ['{"numRecords":1}', '{"numRecords":2}']


@pytest.mark.parametrize(("column", "inner"), [("checkpointMetadata", {"version": 0}), ("sidecar", {"path": "s"})])
def test_v2_content_is_refused_by_the_features_name_whatever_the_file_is_called(column: str, inner: dict[str, object]) -> None:
    table = checkpoint_table(snapshot(), now_ms=NOW)
    batches = rewritten(table, **{column: pa.array([inner, None])})
    with pytest.raises(UnsupportedFeatureError, match=r"/tables/t: .*v2Checkpoint") as caught:
        read_checkpoint(batches, version=0, root=ROOT)
    assert caught.value.features == ("v2Checkpoint",)


def test_what_is_no_checkpoint_is_an_error() -> None:
    table = checkpoint_table(snapshot(add("a"), add("b")), now_ms=NOW)
    with pytest.raises(CorruptLogError, match="0 protocol and 1 metaData"):
        read_checkpoint(table.slice(1).to_batches(), version=0, root=ROOT)
    with pytest.raises(CorruptLogError, match="0 protocol and 0 metaData"):
        read_checkpoint([], version=0, root=ROOT)
    with pytest.raises(CorruptLogError, match="a file twice"):
        read_checkpoint([*table.to_batches(), *table.slice(3).to_batches()], version=0, root=ROOT)
    with pytest.raises(CorruptLogError, match=r"column add has type string"):
        read_checkpoint(rewritten(table, add=pa.array(["x"] * 4)), version=0, root=ROOT)
    bad = pa.array([{"path": "x", "size": "many"}] * 4)
    with pytest.raises(CorruptLogError, match=r"add\.size has type string"):
        read_checkpoint(rewritten(table, add=bad), version=0, root=ROOT)
    with pytest.raises(CorruptLogError, match=r"add\.partitionValues holds a null"):
        read_checkpoint(rewritten(table, add=pa.array([{"path": "x", "size": 1}] * 4)), version=0, root=ROOT)
