"""Footers, deletions and look-ups by percent-encoded URIs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote_from_bytes

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import DataFileMissingError, StorageError, UnknownSchemeError
from lakelog.storage.data_files import delete_files, open_footers
from lakelog.storage.file_access import FileAccess
from lakelog.storage.local import LocalLogStore

LOCAL = FileAccess(kind="file")
ODD_NAMES = ["plain.parquet", "x y.parquet", "50%.parquet", "%20.parquet", "a+b.parquet", "a:b.parquet", "é雪😀.parquet", "p=1#?.parquet"]


def uri_of(path: Path | bytes, prefix: str = "file://") -> str:
    return prefix + quote_from_bytes(os.fsencode(path))


def write(path: Path, rows: int) -> str:
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), str(path))
    return uri_of(path)


@pytest.mark.parametrize("threads", [1, 3, 64])
def test_footers_come_in_the_order_of_the_uris(tmp_path: Path, threads: int) -> None:
    uris = [write(tmp_path / name, rows) for rows, name in enumerate(ODD_NAMES)]
    assert [footer.num_rows for footer in open_footers(LOCAL, uris, threads=threads)] == list(range(len(ODD_NAMES)))
    assert [footer.num_rows for footer in open_footers(LOCAL, uris[::-1], threads=threads)] == list(range(len(ODD_NAMES)))[::-1]


def test_no_files_no_footers() -> None:
    assert open_footers(LOCAL, [], threads=4) == []


def test_both_spellings_of_a_file_uri_are_understood(tmp_path: Path) -> None:
    write(tmp_path / "x y.parquet", 2)
    spellings = [uri_of(tmp_path / "x y.parquet", prefix) for prefix in ("file://", "file:", "FILE://")]
    assert [footer.num_rows for footer in open_footers(LOCAL, spellings, threads=2)] == [2, 2, 2]


def test_a_name_that_is_no_utf8_is_found(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff\xe9.parquet")
    os.rename(write(tmp_path / "a", 1).removeprefix("file://"), path)
    uri = uri_of(path)
    assert [footer.num_rows for footer in open_footers(LOCAL, [uri], threads=1)] == [1]
    delete_files(LOCAL, LocalLogStore(), [uri])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("threads", [1, 4])
def test_a_file_that_is_gone_is_named(tmp_path: Path, threads: int) -> None:
    uris = [write(tmp_path / f"{number}", 1) for number in range(6)]
    delete_files(LOCAL, LocalLogStore(), uris[3:4])
    with pytest.raises(DataFileMissingError, match="is gone") as raised:
        open_footers(LOCAL, uris, threads=threads)
    assert uris[3] in str(raised.value)
    assert "delta.deletedFileRetentionDuration" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all, whatever its name says"])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x y.parquet"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="no readable Parquet footer") as raised:
        open_footers(LOCAL, [uri_of(path)], threads=1)
    assert uri_of(path) in str(raised.value)


@pytest.mark.parametrize("uri", ["s3a://bucket/x", "hdfs://host/x", "/tmp/x", "x.parquet", "file://host/x", "file:x", "file:////x", ""])
def test_other_uris_are_refused_before_anything_is_touched(tmp_path: Path, uri: str) -> None:
    kept = write(tmp_path / "a", 1)
    for call in (lambda: open_footers(LOCAL, [kept, uri], threads=1), lambda: delete_files(LOCAL, LocalLogStore(), [kept, uri])):
        with pytest.raises(UnknownSchemeError, match="Cannot open the data file") as raised:
            call()
        assert repr(uri) in str(raised.value)
    assert os.path.exists(kept.removeprefix("file://"))


def test_threads_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        open_footers(LOCAL, [], threads=0)


def test_deletion_takes_the_file_and_its_checksum_and_no_other(tmp_path: Path) -> None:
    uris = [write(tmp_path / name, 1) for name in ("a b", "a%20b", "c")]
    (tmp_path / ".a b.crc").touch()
    (tmp_path / ".c.crc").touch()
    delete_files(LOCAL, LocalLogStore(), [uris[0], uri_of(tmp_path / "absent"), uris[0]])
    assert sorted(os.listdir(tmp_path)) == [".c.crc", "a%20b", "c"]


def test_a_deletion_that_is_refused_does_not_spare_the_others(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    uri = write(tmp_path / "b", 1)
    with pytest.raises(OSError, match="folder"):
        delete_files(LOCAL, LocalLogStore(), [uri_of(tmp_path / "folder"), uri])
    assert os.listdir(tmp_path) == ["folder"]


@given(name=st.binary(min_size=1, max_size=255).filter(lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")))
def test_every_name_survives_its_encoding(tmp_path_factory: pytest.TempPathFactory, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path_factory.mktemp("names")), name)
    with open(path, "wb"):
        pass
    delete_files(LOCAL, LocalLogStore(), [uri_of(path)])
    assert not os.path.lexists(path)
