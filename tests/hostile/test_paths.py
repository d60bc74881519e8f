"""Paths in a hostile log: what they may name, what they never reach, and when two of them are one file."""

from __future__ import annotations

import pytest

from lakelog.core.errors import CorruptLogError, LakelogError, PathEscapesTableError, PathOutsideTableError
from lakelog.core.log_files import commit_name
from lakelog.core.paths import absolute_uri, canonical_key
from tests.hostile.logs import added, commit_of, simple_log
from tests.hostile.opening import Log, open_everything, open_log

S3 = "s3a://bucket/tables/t"


def log_with(*paths: str) -> Log:
    return {**simple_log(1), commit_name(1): commit_of(*(added(path) for path in paths))}


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "%2e%2e/x", "..%2fx", "a/%2E./%2e%2E/x", "./../x", "..", "p=1/..%2F..%2Fx"),
        *("/../x", "file:/root/../../etc", "file:///../etc/passwd", "/tables/t/../other/x", "file:/tables/t/a/../../x", "%2F..%2Fetc"),
    ],
)
def test_no_dots_lead_out_of_the_table(path: str) -> None:
    with pytest.raises(PathEscapesTableError):
        open_log(log_with("fine", path))
    open_everything(log_with(path))


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "a/..",
        "/",
        "//",
        "a%00b",
        "/a%00b",
        "a\0b",
        "%ff",
        "x" * 40_000,
        "%41" * 2_000_000,
        "/tables/t",
        "/tables",
        "file:///tables/t/",
    ],
    ids=lambda path: path[:12],
)
def test_what_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(CorruptLogError) as caught:
        open_log(log_with("fine", path))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "path",
    [
        *("_delta_log/00000000000000000000.json", "./_delta_log//_last_checkpoint", "p=1/../_delta_log/x", "%5fdelta_log/x", "_delta_log"),
        *("/tables/t/_delta_log/x", "file:///tables/./t/_delta%5Flog/x", "_DELTA_LOG/00000000000000000000.json", "_delta_log%2Fx"),
    ],
)
def test_the_log_itself_is_no_data_file(path: str) -> None:
    with pytest.raises(CorruptLogError, match="one of the log's own"):
        open_log(log_with("fine", path))


@pytest.mark.parametrize(
    "path", ["_delta_log=1/x", "_delta_logs/x", "a/_delta_log/x", "_delta_index/x", "..x", "...", "a..b/c", "..\\x", "~/x", "jar:file:/x"]
)
def test_names_that_only_look_dangerous_are_files(path: str) -> None:
    assert open_log(log_with(path, *map(str, range(100)))).files["key"].to_pylist().count(f"{path}|") == 1


@pytest.mark.parametrize(
    ("root", "path"),
    [
        *(
            (S3, path)
            for path in ("file:///etc/passwd", "s3://other-bucket/x", "//host/x", "///x", "https://169.254.169.254/latest", "s3:/x")
        ),
        *(("/tables/t", path) for path in ("s3://bucket/x", "//host/x", "file://host/etc/x", "hdfs://nn/x", "http:///x")),
        ("hdfs://nn:8020/t", "hdfs://nn:9000/t/x"),
    ],
)
def test_another_filesystem_is_read_by_a_setting_alone(root: str, path: str) -> None:
    log = log_with("fine", path)
    snapshot = open_log(log, root)
    assert snapshot.num_files == 3
    with pytest.raises(PathOutsideTableError, match="another filesystem"):
        absolute_uri(root, path)
    assert not absolute_uri(root, path, allow_outside=True).startswith(absolute_uri(root, "x")[:-1])
    open_everything(log, root)


@pytest.mark.parametrize(
    ("root", "path", "uri"),
    [
        ("/tables/t", "/etc/passwd", "file:///etc/passwd"),
        ("/tables/t", "file:/tables/u/x", "file:///tables/u/x"),
        ("/tables/t", "/tables/tt/x", "file:///tables/tt/x"),
        (S3, "s3://bucket/tables/u/x", "s3a://bucket/tables/u/x"),
        (S3, "/tables/u/x", "s3a://bucket/tables/u/x"),
    ],
)
def test_an_absolute_path_on_the_tables_own_filesystem_is_read_where_it_says(root: str, path: str, uri: str) -> None:
    assert absolute_uri(root, path) == uri


@pytest.mark.parametrize(
    ("root", "spellings"),
    [
        (
            "/tables/t",
            (
                "a b/x",
                "a%20b/x",
                "./a%20b//x",
                "/tables/t/a%20b/x",
                "file:/tables/t/a%20b/x",
                "FILE:///tables/./t/c/../a%20b/%78",
                "%61 b/x",
            ),
        ),
        (S3, ("x", "s3://bucket/tables/t/x", "s3n://bucket/tables//t/x", "S3A://bucket/tables/t/./x", "/tables/t/x", "y/../x")),
    ],
)
def test_one_file_under_many_spellings_is_one_file(root: str, spellings: tuple[str, ...]) -> None:
    assert len({canonical_key(spelling, root) for spelling in spellings}) == 1
    snapshot = open_log({**simple_log(1), **{commit_name(n + 1): commit_of(added(path)) for n, path in enumerate(spellings)}}, root)
    assert snapshot.num_files == 2


def test_an_error_of_a_path_names_the_table_and_the_file() -> None:
    with pytest.raises(LakelogError, match=r"/tables/t .*'\.\./x'"):
        open_log(log_with("../x"))
