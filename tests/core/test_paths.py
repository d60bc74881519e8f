"""File paths: what Java makes of them, every spelling read, and no way out of the table."""

from __future__ import annotations

import posixpath
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakelog.core.actions import AddFile, Metadata, parse_commit
from lakelog.core.errors import (
    CorruptLogError,
    InvalidRequestError,
    LakelogError,
    PartitionColumnError,
    PathEscapesTableError,
    PathOutsideTableError,
)
from lakelog.core.paths import (
    FEW,
    absolute_uri,
    absolute_uris,
    canonical_key,
    canonical_keys,
    decode_path,
    encode_path,
    hive_escape,
    hive_unescape,
    object_store_root,
    parse_partition_path,
    partition_folder,
)

CHARS = st.characters(exclude_categories=["Cs"])
NAME = st.text(CHARS.filter(lambda char: char not in "/\0"), min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
RELATIVE = st.lists(NAME, min_size=1, max_size=4).map("/".join)
# What a log may hold, and much that it should not.
LOG_PATH = (
    st.text(st.sampled_from(list("ab./:%25Eé =+\\~")), max_size=14) | RELATIVE.map(encode_path) | RELATIVE | st.text(CHARS, max_size=12)
)
ROOTS = st.sampled_from(["/tmp/t", "/tmp/x y%20z", "file:/tmp/t/", "s3a://bucket/some key", "s3a://bucket", "/"])


@pytest.mark.parametrize(
    ("relative", "encoded"),
    [
        ("part-0.parquet", "part-0.parquet"),
        ("x=a b/part", "x=a%20b/part"),
        ("x=a%2Fb/part", "x=a%252Fb/part"),
        ("x=1+1;&$,@!~*'()=/p", "x=1+1;&$,@!~*'()=/p"),
        ("x=größe/😀", "x=größe/😀"),
        ('"#<>?[\\]^`{|}', "%22%23%3C%3E%3F%5B%5C%5D%5E%60%7B%7C%7D"),
        ("\x01\x7f\x85", "%01%7F%C2%85"),
        ("a\u00a0b\u2003c\u2028d\u3000e\u200bf", "a%C2%A0b%E2%80%83c%E2%80%A8d%E3%80%80e\u200bf"),
        ("x=a:b/c:d", "x=a%3Ab/c%3Ad"),
    ],
)
def test_paths_are_encoded_as_java_does(relative: str, encoded: str) -> None:
    # Seen with java.net.URI behind Hadoop's Path, but for the colon, which Java leaves bare and then cannot read.
    assert encode_path(relative) == encoded


@given(RELATIVE)
def test_any_name_survives_encoding(relative: str) -> None:
    assert decode_path(encode_path(relative)) == relative


@given(RELATIVE)
def test_other_writers_escapes_read_the_same(relative: str) -> None:
    everything = "".join("/" if byte == ord("/") else f"%{byte:02x}" for byte in relative.encode())
    assert canonical_key(everything, "/t") == canonical_key(quote(relative), "/t") == canonical_key(encode_path(relative), "/t") == relative


@pytest.mark.parametrize("raw", ["x=a b/ü", "100%", "a%zz", "%", "a%2", "x=a:b/c", "p:1/c", "q?r#s"])
def test_unencoded_names_are_taken_as_they_are(raw: str) -> None:
    assert canonical_key(raw, "/t") == raw


def test_escapes_that_are_no_text_are_refused() -> None:
    with pytest.raises(CorruptLogError, match="is not UTF-8"):
        decode_path("x=%FF/p")


@pytest.mark.parametrize(
    ("path", "root", "key"),
    [
        ("p", "/t", "p"),
        ("./a//b/../c", "/t", "a/c"),
        ("/t/p", "/t", "p"),
        ("file:/t/p", "/t", "p"),
        ("file:///t/p", "file:/t", "p"),
        ("FILE://localhost/t/p", "/t/", "p"),
        ("file:/tmp/x%20y/p", "/tmp/x y", "p"),
        ("file:/tmp/x y/p", "/tmp/x y", "p"),
        ("file:/tmp/x%2520y/p", "/tmp/x%20y", "p"),
        ("/tt/p", "/t", "file:///tt/p"),
        ("%2Ft%2Fp", "/t", "p"),
        ("/some/unqualified/absolute/path", "/t", "file:///some/unqualified/absolute/path"),
        ("file:/some/unqualified/absolute/path", "/t", "file:///some/unqualified/absolute/path"),
        ("s3://bucket/t/p", "s3a://bucket/t", "p"),
        ("s3a://bucket/u/p", "s3://bucket/t", "s3://bucket/u/p"),
        ("s3a://other/t/p", "s3://bucket/t", "s3://other/t/p"),
        ("/u/p", "s3a://bucket/t", "s3://bucket/u/p"),
        ("s3a://bucket/p", "s3a://bucket", "p"),
        ("hdfs://nn:8020/t/p", "hdfs://nn:8020/t", "p"),
    ],
)
def test_spellings_of_one_file_share_a_key(path: str, root: str, key: str) -> None:
    assert canonical_key(path, root) == key


@pytest.mark.parametrize(
    ("root", "path", "uri"),
    [
        ("/tmp/x y", "p=1/part.parquet", "file:///tmp/x%20y/p=1/part.parquet"),
        ("/tmp/100%", "a%20b%3Ac%2Bd", "file:///tmp/100%25/a%20b:c+d"),
        ("file:/tmp/t", "größe 😀", "file:///tmp/t/größe%20😀"),
        ("s3a://bucket/some key", "x=1/p", "s3a://bucket/some%20key/x=1/p"),
        ("s3a://bucket", "p", "s3a://bucket/p"),
        ("/", "p", "file:///p"),
        ("/t", "/u/x%20y", "file:///u/x%20y"),
        ("/t", "file:/u/x%20y", "file:///u/x%20y"),
        ("s3a://bucket/t", "s3://bucket/u/p", "s3a://bucket/u/p"),
        ("hdfs://nn:8020/t", "/u/p", "hdfs://nn:8020/u/p"),
    ],
)
def test_absolute_uris_are_those_that_spark_shows(root: str, path: str, uri: str) -> None:
    assert absolute_uri(root, path) == uri


@pytest.mark.parametrize("path", ["../p", "a/../../p", "%2e%2e/p", "..%2Fp", "a/%2E%2e/../p", "file:/../../p", "/../p", "x/../../t/p"])
def test_no_path_leaves_the_table(path: str) -> None:
    with pytest.raises(PathEscapesTableError, match=r"the table at /t names the file .* leaves the table by"):
        canonical_key(path, "/t")
    with pytest.raises(PathEscapesTableError, match="leaves the table"):
        absolute_uri("/t", path)


@pytest.mark.parametrize("path", ["s3a://bucket/p", "hdfs://nn/p", "file://host/t/p"])
def test_files_on_other_filesystems_are_refused_unless_allowed(path: str) -> None:
    with pytest.raises(PathOutsideTableError, match="on another filesystem than the table"):
        absolute_uri("/t", path)
    assert absolute_uri("/t", path, allow_outside=True) == path
    with pytest.raises(PathOutsideTableError, match="on another filesystem than the table"):
        absolute_uris(pa.array(["a", path]), "/t")
    assert absolute_uris(pa.array(["a", path]), "/t", allow_outside=True).to_pylist() == ["file:///t/a", path]


@pytest.mark.parametrize("path", ["", ".", "/", "a/..", "file:/"])
def test_a_path_that_names_nothing_is_refused(path: str) -> None:
    with pytest.raises(CorruptLogError, match="which is no file"):
        canonical_key(path, "/t")


@given(st.lists(st.none() | LOG_PATH, max_size=6), ROOTS)
@example(["%3A", "a%3Ab", "a%253Ab", "%2520", ".", "...", "..a", ".a./b."], "/t")
@example(["a b", "a\nb", "a\n", "é\u00a0", "a/", "/a", "a//b"], "/t")
def test_whole_columns_give_what_single_paths_give(paths: list[str | None], root: str) -> None:
    def each(one: object) -> list[str | None] | type[LakelogError]:
        assert callable(one)
        try:
            return [None if path is None else one(path) for path in paths]
        except LakelogError as error:
            return type(error)

    def whole(many: object) -> list[str | None] | type[LakelogError]:
        assert callable(many)
        half, plenty = len(paths) // 2, ["p=1/part"] * FEW
        try:
            chunked = pa.chunked_array([pa.array(paths[:half], pa.string()), pa.array(paths[half:], pa.string())])
            found: list[str | None] = many(chunked).to_pylist()
            assert many(pa.array(paths, pa.string())).to_pylist() == found
            # Few paths are taken one by one; so many are not.
            assert many(pa.array([*paths, *plenty], pa.string())).to_pylist()[: len(paths)] == found
        except LakelogError as error:
            return type(error)
        return found

    # Where several paths are bad, which one is met first is not promised.
    keys, uris = each(lambda path: canonical_key(path, root)), each(lambda path: absolute_uri(root, path))
    assert isinstance(keys, type) == isinstance(whole(lambda rows: canonical_keys(rows, root)), type)
    assert isinstance(uris, type) == isinstance(whole(lambda rows: absolute_uris(rows, root)), type)
    if not isinstance(keys, type):
        assert whole(lambda rows: canonical_keys(rows, root)) == keys
    if not isinstance(uris, type):
        assert whole(lambda rows: absolute_uris(rows, root)) == uris


@given(LOG_PATH, ROOTS)
def test_what_is_under_the_root_stays_under_it(path: str, root: str) -> None:
    try:
        key, uri = canonical_key(path, root), absolute_uri(root, path)
    except LakelogError:
        return
    place = unquote(urlsplit(absolute_uri(root, "x")).path)[:-1]
    if "://" not in key:
        assert uri == absolute_uri(root, encode_path(key))
        assert unquote(uri.split("://", 1)[1].partition("/")[2]) == posixpath.join(place, key)[1:]
    assert not {"..", "."} & set(unquote(uri).split("/"))


def test_golden_paths_lead_to_the_files(golden: Path) -> None:
    seen = 0
    for table in ("deltars-delta-0.8.0-special-partition", "golden-data-reader-escaped-chars", "golden-data-reader-partition-values"):
        root = golden / table / "delta"
        actions = [action for file in sorted(root.glob("_delta_log/*.json")) for action in parse_commit(file.read_bytes(), str(file))]
        adds = [action for action in actions if isinstance(action, AddFile)]
        columns = next(action.partition_columns for action in actions if isinstance(action, Metadata))
        for add, key in zip(adds, canonical_keys(pa.array([add.path for add in adds]), str(root)).to_pylist(), strict=True):
            assert key is not None
            assert (root / key).is_file(), add.path
            values = parse_partition_path(posixpath.dirname(key), columns)
            assert {name: value for name, value in values.items() if value != "null"}.items() <= add.partition_values.items()
            seen += 1
    assert seen > 5


def test_folder_names_escape_what_spark_escapes() -> None:
    ascii_text = "".join(map(chr, range(1, 128)))
    escaped = [char for char in ascii_text if hive_escape(char) != char]
    assert "".join(escaped) == "".join(map(chr, range(1, 32))) + "\"#%'*/:=?[\\]^{\x7f"
    assert hive_escape("a:b/é 😀}") == "a%3Ab%2Fé 😀}"


@pytest.mark.parametrize(
    ("escaped", "text"), [("a%3ab", "a:b"), ("a%zz", "a%zz"), ("a%", "a%"), ("%%41", "%A"), ("%C3%A9", "Ã©"), ("a%25%", "a%%")]
)
def test_folder_names_are_unescaped_as_spark_does(escaped: str, text: str) -> None:
    assert hive_unescape(escaped) == text


@given(st.lists(st.tuples(NAME, st.none() | st.text(CHARS, max_size=10)), max_size=4, unique_by=lambda pair: pair[0]))
def test_partition_folders_give_their_values_back(pairs: list[tuple[str, str | None]]) -> None:
    columns, values = [column for column, _ in pairs], [value for _, value in pairs]
    folder = partition_folder(columns, values)
    if any(value == "__HIVE_DEFAULT_PARTITION__" for value in values):
        return
    assert folder.count("/") == max(len(pairs) - 1, 0)
    assert parse_partition_path(folder, columns) == {column: value or None for column, value in pairs}
    assert decode_path(encode_path(folder)) == folder


@pytest.mark.parametrize("folder", ["", "p=1", "q=2/p=1", "p=1/q=2/r=3", "p=1/q", "p=1/x=2"])
def test_folders_of_other_columns_are_refused(folder: str) -> None:
    with pytest.raises(PartitionColumnError, match=r"does not hold the partition columns \['p', 'q'\]"):
        parse_partition_path(folder, ["p", "q"])


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("s3://bucket/t", "s3a://bucket/t"),
        ("s3n://bucket/t", "s3a://bucket/t"),
        ("S3A://Bucket/T", "s3a://Bucket/T"),
        ("s3a://bucket//a///b/./c/", "s3a://bucket/a/b/c"),
        ("s3a://bucket/a/../b", "s3a://bucket/b"),
        ("s3a://bucket/a%20b/c d+e?f#g", "s3a://bucket/a%20b/c d+e?f#g"),
        ("s3a://bucket/x:y@z", "s3a://bucket/x:y@z"),
        ("s3a://bucket", "s3a://bucket"),
        ("s3://bucket/", "s3a://bucket"),
        ("s3a://bucket/line\nbreak", "s3a://bucket/line\nbreak"),
        ("/tmp/s3://bucket", None),
        ("file:/tmp/t", None),
        ("hdfs://s3/t", None),
        ("s3x://bucket/t", None),
        ("s3/t", None),
    ],
)
def test_the_spellings_of_one_root_on_s3(path: str, root: str | None) -> None:
    assert object_store_root(path) == root
    if root is not None:
        assert object_store_root(root) == root


@pytest.mark.parametrize(
    "path",
    ["s3a://AKIAKEY:sec/ret@bucket/t", "s3a://AKIAKEY:secret@bucket/t", "s3a://AKIAKEY@bucket/t", "s3a://AKIAKEY:443/t"],
)
def test_credentials_in_a_path_are_refused_and_not_repeated(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="as settings") as caught:
        object_store_root(path)
    assert "AKIA" not in str(caught.value)
    assert "ret" not in str(caught.value)


@pytest.mark.parametrize("path", ["s3a:///t", "s3:t", "s3a:/bucket/t", "s3://bucket/..", "s3://bucket/a/../../b"])
def test_a_root_without_a_bucket(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="bucket"):
        object_store_root(path)


@pytest.mark.parametrize("part", ["X-Amz-Signature=planted", "a=b&X-Amz-Credential=planted", "AWSAccessKeyId=planted"])
def test_a_presigned_url_is_no_path_and_is_not_repeated(part: str) -> None:
    with pytest.raises(InvalidRequestError, match="carries a signature") as raised:
        object_store_root(f"s3a://bucket/t?{part}")
    assert "planted" not in str(raised.value)
