"""Checkpoints that are no checkpoints: damaged files, columns of other types, values that the types do not allow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.core.errors import CorruptLogError
from lakelog.core.log_files import checkpoint_name, commit_name
from lakelog.storage import checkpoint_io
from tests.hostile.logs import log_with_checkpoint, simple_log
from tests.hostile.opening import Log, open_everything, open_log

NAME = checkpoint_name(3)
GOOD = log_with_checkpoint()[NAME]


def log_of(data: bytes) -> Log:
    """A log that nothing but the checkpoint can start."""
    return {NAME: data, commit_name(4): log_with_checkpoint()[commit_name(4)]}


def parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def good_table() -> pa.Table:
    return pq.read_table(io.BytesIO(GOOD))


def with_child(action: str, child: str, change: Callable[[pa.Array[Any]], pa.Array[Any] | None]) -> pa.Table:
    """The good checkpoint with one field of one action changed, or gone where the change gives None."""
    table = good_table()
    struct: Any = table[action].combine_chunks()
    fields = {field.name: struct.field(field.name) for field in struct.type}
    changed = change(fields.get(child, pa.nulls(len(struct))))
    fields.pop(child, None)
    if changed is not None:
        fields[child] = changed
    rebuilt = pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=struct.is_null())
    return table.set_column(table.schema.get_field_index(action), action, rebuilt)


def constant(value: object, kind: pa.DataType | None = None) -> Callable[[pa.Array[Any]], pa.Array[Any]]:
    return lambda old: pa.array([value] * len(old), kind)


def cuts() -> Iterator[bytes]:
    yield from (
        b"",
        b"PAR1",
        b"PAR1PAR1",
        GOOD[:100],
        GOOD[:-1],
        GOOD[:-8],
        GOOD[:-8] + b"\xff\xff\xff\x7fPAR1",
        GOOD[:-8] + b"\xff" * 4 + b"PAR1",
    )
    yield from (GOOD[4:], b"PARE" + GOOD[4:-4] + b"PARE", GOOD + b"x", b'{"add":{}}', b"\0" * 5000, GOOD[: len(GOOD) // 2] + GOOD[-2000:])


@pytest.mark.parametrize("data", list(cuts()), ids=range(14))
def test_a_file_that_is_cut_or_no_parquet_is_refused_by_its_name(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"checkpoint|no complete checkpoint|starts with commit"):
        open_log(log_of(data))
    open_everything({**simple_log(), **log_of(data)})


@pytest.mark.parametrize("data", list(cuts()), ids=range(14))
def test_the_commits_serve_where_the_checkpoint_does_not(data: bytes) -> None:
    log = {**simple_log(), **log_of(data)}
    assert open_log(log).files["key"].to_pylist() == open_log({name: log[name] for name in log if name != NAME}).files["key"].to_pylist()


DAMAGED = {
    "path null": with_child("add", "path", constant(None, pa.string())),
    "path gone": with_child("add", "path", lambda old: None),
    "path a struct": with_child("add", "path", constant({"a": 1})),
    "path no utf-8": with_child("add", "path", lambda old: pa.array([b"\xff%d" % n for n in range(len(old))]).view(pa.string())),
    "path twice": with_child("add", "path", constant("same")),
    "path out of the table": with_child("add", "path", lambda old: pa.array([f"../{n}" for n in range(len(old))])),
    "path of the log": with_child("add", "path", lambda old: pa.array([f"_delta_log/{n}" for n in range(len(old))])),
    "size null": with_child("add", "size", constant(None, pa.int64())),
    "size text": with_child("add", "size", constant("big")),
    "size of 64 bits unsigned": with_child("add", "size", constant(2**64 - 1, pa.uint64())),
    "size infinite": with_child("add", "size", constant(float("inf"))),
    "size a fraction": with_child("add", "size", constant(1.5)),
    "partition values a list": with_child("add", "partitionValues", constant(["a"])),
    "partition values null": with_child("add", "partitionValues", constant(None, pa.map_(pa.string(), pa.string()))),
    "vector a text": with_child("add", "deletionVector", constant("x")),
    "vector too far": with_child("add", "deletionVector", constant({"storageType": "u", "pathOrInlineDv": "x", "offset": 2**40})),
    "remove path null": with_child("remove", "path", constant(None, pa.string())),
    "protocol of 64 bits": with_child("protocol", "minReaderVersion", constant(2**40)),
    "protocol a text": with_child("protocol", "minReaderVersion", constant("one")),
    "protocol features a text": with_child("protocol", "readerFeatures", constant("timestampNtz")),
    "metadata id null": with_child("metaData", "id", constant(None, pa.string())),
    "metadata no utf-8": with_child("metaData", "id", lambda old: pa.array([b"\xff"] * len(old)).view(pa.string())),
    "configuration of numbers": with_child("metaData", "configuration", constant([(b"\xff", 1)], pa.map_(pa.binary(), pa.int64()))),
    "schema a number": with_child("metaData", "schemaString", constant(7)),
    "txn without version": with_child("txn", "version", lambda old: None),
    "domain a time": with_child("domainMetadata", "domain", constant(None, pa.timestamp("ns"))),
    "no metadata": good_table().drop_columns(["metaData"]),
    "no protocol": good_table().drop_columns(["protocol"]),
    "all twice": pa.concat_tables([good_table(), good_table()]),
    "no row": good_table().slice(0, 0),
    "no known column": pa.table({"x": [1]}),
    "add a number": good_table().drop_columns(["add"]).append_column("add", pa.array([1] * good_table().num_rows)),
    "protocol a list": good_table().drop_columns(["protocol"]).append_column("protocol", pa.array([[1]] * good_table().num_rows)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_columns_that_do_not_fit_are_refused(name: str) -> None:
    log = log_of(parquet(DAMAGED[name]))
    with pytest.raises(CorruptLogError) as caught:
        open_log(log)
    assert len(str(caught.value)) < 2000
    open_everything({**simple_log(), **log})


ODD = {
    "an unknown column": good_table().append_column("x", pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * good_table().num_rows)),
    "an unknown field that has no JSON": with_child("metaData", "x", constant(2**62, pa.timestamp("us", "UTC"))),
    "an unknown field of bytes": with_child("txn", "x", constant(b"\xff")),
    "no tags": with_child("add", "tags", lambda old: None),
    "large strings": with_child("add", "path", lambda old: old.cast(pa.large_string())),
    "dictionaries": with_child("add", "path", lambda old: old.dictionary_encode()),
    "bytes for strings": with_child("add", "path", lambda old: old.cast(pa.binary())),
    "small numbers": with_child("add", "size", lambda old: old.cast(pa.int32())),
    "statistics that are none": with_child("add", "stats", constant("}{")),
    "parsed statistics of no use": with_child("add", "stats_parsed", constant("text")),
    "parsed statistics without JSON": with_child(
        "add", "stats_parsed", constant({"numRecords": b"\xff", "minValues": {"a": None, "b": 1e308}})
    ),
    "null features": with_child("protocol", "x", constant(None, pa.null())),
}


@pytest.mark.parametrize("name", ODD)
def test_columns_that_are_only_odd_are_read(name: str) -> None:
    log = log_of(parquet(ODD[name]))
    assert sorted(open_log(log).files["key"].to_pylist()) == sorted(open_log(log_of(GOOD)).files["key"].to_pylist())
    assert open_everything(log)["newest"] is None


def test_parsed_statistics_that_have_no_json_stand_for_none() -> None:
    without = with_child("add", "stats", lambda old: None)
    struct: Any = without["add"].combine_chunks()
    columns = [*struct.flatten(), pa.array([1] * len(struct), pa.duration("s"))]
    names = [*(field.name for field in struct.type), "stats_parsed"]
    table = without.drop_columns(["add"]).append_column("add", pa.StructArray.from_arrays(columns, names=names, mask=struct.is_null()))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    snapshot = open_log(log_of(buffer.getvalue()))
    assert snapshot.files["stats"].null_count >= snapshot.num_files - 1


def test_more_rows_than_the_bytes_can_hold_are_not_counted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run lengths put a billion empty rows into some bytes."""
    empty = pa.nulls(2_000_000, good_table().schema.field("add").type)
    table = pa.table({"add": empty, "txn": pa.nulls(len(empty), good_table().schema.field("txn").type)})
    data = parquet(table)
    assert len(data) * 16 < table.num_rows
    read: list[int] = []
    monkeypatch.setattr(checkpoint_io, "_lacks_json_stats", lambda *_: read.append(1))
    with pytest.raises(CorruptLogError, match="cannot hold the 2000000 actions"):
        open_log(log_of(data))
    assert not read


def test_one_bit_in_a_page_of_our_own_checkpoint_is_noticed() -> None:
    """Every byte of the pages is under a checksum, so no wrong row comes out of a checkpoint that rotted."""
    honest = open_log(log_of(GOOD))
    metadata = pq.ParquetFile(io.BytesIO(GOOD)).metadata
    chunk = next(
        column for column in (metadata.row_group(0).column(n) for n in range(metadata.num_columns)) if column.path_in_schema == "add.path"
    )
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    for offset in range(start, start + chunk.total_compressed_size):
        data = bytearray(GOOD)
        data[offset] ^= 1
        try:
            snapshot = open_log(log_of(bytes(data)))
        except CorruptLogError:
            continue
        assert snapshot.files.select(["key"]).equals(honest.files.select(["key"]))


def test_a_type_that_arrow_has_few_kernels_for_is_read_or_refused() -> None:
    open_everything(log_of(parquet(with_child("add", "path", lambda old: old.cast(pa.string_view())))))
