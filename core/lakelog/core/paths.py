"""File paths as the log writes them, and as stores want them (PROTOCOL.md, "Add File and Remove File").

An add path is a URI: percent-encoded, relative to the table or absolute. delta-spark writes what
``java.net.URI`` makes of a Hadoop path: space, ``%``, control characters and ``"#<>?[\\]^`{|}`` as ``%XX``, letters of
any script, emoji and ``+ : = & @`` as they are. Other writers encode more or nothing at all, so reading accepts both:
an escape that is none stays literal.

A table's root is never encoded: ``/tmp/x y``, ``file:/tmp/x y`` or ``s3a://bucket/some key`` (Hadoop's
``Path.toString``). A root without a scheme is on the local filesystem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.errors import CorruptLogError, InvalidRequestError, PartitionColumnError, PathEscapesTableError, PathOutsideTableError
from lakelog.core.log_files import LOG_FOLDER

Strings: TypeAlias = "pa.StringArray | pa.ChunkedArray[pa.StringScalar]"

# Up to so many paths, one by one costs less than Arrow's kernels, which compile their patterns at every call.
FEW = 64

HIVE_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def object_store_root(path: str) -> str | None:
    """The root of a table on S3 in the one form that its spellings share, ``s3a://bucket/some key``; None for another filesystem's path.

    A path is read as Hadoop reads it: no character is an escape, slashes in a row count once, ``.`` and ``..`` are undone.

    Raises:
        InvalidRequestError: the path names no bucket, leaves it by ``..``, or carries credentials.
    """
    match = _S3.fullmatch(path)
    if match is None:
        return None
    bucket = match[1] or ""
    if "@" in bucket or ":" in bucket:
        # Nothing of it is repeated: what stands before the bucket may be a secret, and messages end up in logs.
        raise InvalidRequestError(
            "a path of scheme s3a has credentials or a port beside its bucket's name. Write it as s3a://bucket/folder, and give "
            "credentials and endpoint as settings."
        )
    if _PRESIGNED.search(path):
        raise InvalidRequestError(
            "a path of scheme s3a carries a signature, as presigned URLs do. Write it as s3a://bucket/folder, and give credentials as "
            "settings."
        )
    if not bucket:
        raise InvalidRequestError(f"the path {_told(path)} names no bucket. Write it as s3a://bucket/folder.")
    parts: list[str] = []
    for part in match[2].split("/"):
        if part == ".." and not parts:
            raise InvalidRequestError(f"the path {_told(path)} leaves its bucket by '..'. Write it without.")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join((f"s3a://{bucket}", *parts))


_PRESIGNED = re.compile(r"[?&](?:X-Amz-(?:Signature|Credential|Security-Token)|AWSAccessKeyId)=", re.IGNORECASE)


def decode_path(add_path: str) -> str:
    """The path without its percent escapes: ``x=a%20b/part`` gives ``x=a b/part``.

    Raises:
        CorruptLogError: the escapes are not UTF-8.
    """
    try:
        return unquote(add_path, errors="strict")
    except UnicodeDecodeError as error:
        raise CorruptLogError(f"the file path {_told(add_path)} in the log is not UTF-8 once its % escapes are undone") from error


def encode_path(relative: str) -> str:
    """The add path for a file at ``relative`` (un-encoded) under the table's root.

    As ``java.net.URI`` does, and ``:`` too: delta-spark takes a relative path for a scheme when it meets a bare colon.
    """
    return _quote(relative).replace(":", "%3A")


def canonical_key(path: str, root: str) -> str:
    """What two spellings of one file have in common.

    Args:
        path: as an action holds it.
        root: the table's, un-encoded.

    Returns:
        the un-encoded path relative to the root, or ``scheme://authority/path`` for a file that is not under the root.

    Raises:
        PathEscapesTableError: ``..`` leaves the table.
        CorruptLogError: the path names no file, or one of the table's own log.
    """
    found = _locate(path, _root(root))
    return found.path if found.inside else f"{_family(found.scheme)}://{found.authority}{found.path}"


def absolute_uri(root: str, add_path: str, *, allow_outside: bool = False) -> str:
    """Where the file is, percent-encoded: ``file:///tmp/x%20y/p=1/part.parquet``.

    The same text as Java's ``Path.toUri`` gives, but for the authority that Hadoop leaves out of ``file:``.

    Args:
        root: the table's, un-encoded.
        add_path: as an action holds it; an absolute path without scheme is on the root's filesystem.
        allow_outside: accept absolute paths on another filesystem than the root's.

    Raises:
        PathEscapesTableError: ``..`` leaves the table.
        PathOutsideTableError: the file is on another filesystem and ``allow_outside`` is false.
        CorruptLogError: the path names no file, or one of the table's own log.
    """
    base = _root(root)
    found = _locate(add_path, base)
    if found.inside:
        return base.uri_prefix + _quote(found.path)
    if not found.same_filesystem and not allow_outside:
        raise PathOutsideTableError(
            f"the log of the table at {root} names the file {_told(add_path)}, which is on another filesystem than the table; "
            "lakelog reads such files only where a setting allows it"
        )
    return f"{found.scheme}://{found.authority}{_quote(found.path)}"


def canonical_keys(paths: Strings, root: str) -> pa.StringArray:
    """`canonical_key` of every row; nulls stay null. Raises as it does."""
    return _vectorised(paths, _decode_plain, lambda path: canonical_key(path, root))


def absolute_uris(paths: Strings, root: str, *, allow_outside: bool = False) -> pa.StringArray:
    """`absolute_uri` of every row; nulls stay null. Raises as it does."""
    prefix = _root(root).uri_prefix

    def plain(rows: pa.StringArray) -> pa.StringArray:
        text = pc.replace_substring(rows, "%3A", ":")
        return pc.binary_replace_slice(text, 0, 0, prefix)

    return _vectorised(paths, plain, lambda path: absolute_uri(root, path, allow_outside=allow_outside))


def hive_escape(text: str) -> str:
    """A partition column's name or value as part of a folder name, as Spark writes it."""
    return _HIVE_SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)


def hive_unescape(text: str) -> str:
    """The reverse of `hive_escape`: every ``%XX`` is one character; what is no escape stays."""
    return _HIVE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_folder(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """The folder of a partition under the root, un-encoded and without a slash at the end: ``p=1/q=a%3Ab``.

    Args:
        columns: partition columns in the table's order; none gives ``""``.
        values: their values in the protocol's string form; null and ``""`` share one folder.
    """
    parts = (
        f"{hive_escape(column)}={hive_escape(value) if value else HIVE_DEFAULT_PARTITION}"
        for column, value in zip(columns, values, strict=True)
    )
    return "/".join(parts)


def parse_partition_path(rel_dir: str, columns: Sequence[str]) -> dict[str, str | None]:
    """The partition values that a folder name holds.

    Args:
        rel_dir: the folder under the root, un-encoded: ``p=1/q=a%3Ab``.
        columns: partition columns in the table's order.

    Raises:
        PartitionColumnError: the folders are not these columns in this order.
    """
    parts = [part for part in rel_dir.split("/") if part]
    found = [part.partition("=") for part in parts]
    if [hive_unescape(name) for name, equals, _ in found if equals] != list(columns) or len(found) != len(columns):
        raise PartitionColumnError(f"the folder {rel_dir!r} does not hold the partition columns {list(columns)} as column=value")
    return {
        column: None if value == HIVE_DEFAULT_PARTITION else hive_unescape(value)
        for column, (_, _, value) in zip(columns, found, strict=True)
    }


# No filesystem and no object store has longer names, percent-encoded and all.
_LONGEST = 32_768

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(/.*)?", re.DOTALL)

_S3 = re.compile(r"s3[an]?:(?://([^/]*))?(.*)", re.DOTALL | re.IGNORECASE)

# One store under several names: Hadoop's S3 clients share their buckets.
_FAMILIES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Root:
    text: str
    scheme: str
    authority: str
    path: str

    @property
    def uri_prefix(self) -> str:
        return f"{self.scheme}://{self.authority}{_quote(self.path)}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Location:
    """``path`` is relative to the root when ``inside``, else absolute; never encoded."""

    inside: bool
    same_filesystem: bool
    scheme: str
    authority: str
    path: str


@lru_cache(maxsize=256)
def _root(root: str) -> _Root:
    match = _URI.fullmatch(root)
    scheme, authority, path = (match[1].lower(), match[2] or "", match[3] or "") if match else ("file", "", root)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return _Root(text=root, scheme=scheme, authority=_authority(scheme, authority), path="".join(f"/{part}" for part in parts))


def _locate(add_path: str, root: _Root) -> _Location:
    if len(add_path) > _LONGEST:
        raise CorruptLogError(f"the log of the table at {root.text} names the path {_told(add_path)}, which is longer than any file's")
    match = _URI.fullmatch(add_path)
    # Without a slash after the colon it is a name that holds a colon, which some writers leave bare.
    if match is not None and match[3]:
        scheme = match[1].lower()
        authority, path = _authority(scheme, match[2] or ""), decode_path(match[3])
    elif add_path.startswith("//"):
        # What stands there is an authority (RFC 3986, "Relative Reference"), whatever the root's scheme makes of it.
        host, _, below = add_path[2:].partition("/")
        scheme, authority, path = root.scheme, _authority(root.scheme, host), "/" + decode_path(below)
    else:
        scheme, authority, path = root.scheme, root.authority, decode_path(add_path)
    absolute = path.startswith("/")
    parts = _normalised(path, add_path, root)
    same = _family(scheme) == _family(root.scheme) and authority == root.authority
    joined = "/".join(parts)
    if same and absolute and parts and f"{root.path}/".startswith(f"/{joined}/"):
        parts = []
    if not parts or "\0" in path:
        raise CorruptLogError(f"the log of the table at {root.text} names the path {_told(add_path)}, which is no file")
    if not absolute or (same and f"/{joined}".startswith(f"{root.path}/")):
        inside = joined[len(root.path) :] if absolute else joined
        if inside.partition("/")[0].lower() == LOG_FOLDER:
            raise CorruptLogError(
                f"the log of the table at {root.text} names the path {_told(add_path)} as a data file, which is one of the log's own"
            )
        return _Location(inside=True, same_filesystem=True, scheme=root.scheme, authority=authority, path=inside)
    if ".." in path.split("/"):
        raise _escape(add_path, root)
    return _Location(inside=False, same_filesystem=same, scheme=root.scheme if same else scheme, authority=authority, path="/" + joined)


def _normalised(path: str, add_path: str, root: _Root) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            raise _escape(add_path, root)
    return parts


def _escape(add_path: str, root: _Root) -> PathEscapesTableError:
    return PathEscapesTableError(
        f"the log of the table at {root.text} names the file {_told(add_path)}, which leaves the table by '..'; it is not read"
    )


def _told(add_path: str) -> str:
    """A path in a message, cut to a readable length."""
    return repr(add_path if len(add_path) <= 300 else add_path[:297] + "...")


def _family(scheme: str) -> str:
    return _FAMILIES.get(scheme, scheme)


def _authority(scheme: str, authority: str) -> str:
    return "" if scheme == "file" and authority == "localhost" else authority


# What java.net.URI's multi-argument constructor quotes in a path: all ASCII but these, and of the rest the controls and spaces.
_LEGAL_ASCII = r"A-Za-z0-9_!~*'()@&=+$,;\-"
_SPACES = "\x80-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_QUOTED = re.compile(rf"[^{_LEGAL_ASCII}.:/\x80-\U0010ffff]|[{_SPACES}]")


def _quote(path: str) -> str:
    return _QUOTED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), path)


_HIVE_SPECIAL = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\[\\\]^{]""")
_HIVE_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")

# A relative path that needs no Python: no dot segment, no empty segment, nothing that java.net.URI would spell otherwise, but for %3A.
_RARE = '"#<>?[\\]^`{|}'
_RARE_ESCAPE = "%(?:" + "|".join(f"{ord(char):02X}" for char in _RARE) + ")"
_ESCAPES = "|".join(f"{ord(char):02X}" for char in " :%" + _RARE)
_RE2_SPACES = r"\x{80}-\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_TOKEN = rf"(?:[{_LEGAL_ASCII}]|%(?:{_ESCAPES})|[^\x00-\x7f{_RE2_SPACES}])"
_SEGMENT = rf"(?:{_TOKEN}(?:{_TOKEN}|\.)*|\.{_TOKEN}(?:{_TOKEN}|\.)*|\.\.(?:{_TOKEN}|\.)+)"
_PLAIN_PATH = rf"^{_SEGMENT}(?:/{_SEGMENT})*$"


def _vectorised(paths: Strings, plain: Callable[[pa.StringArray], pa.StringArray], slow: Callable[[str], str]) -> pa.StringArray:
    rows = cast(pa.StringArray, paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths)
    if len(rows) <= FEW:
        return pa.array([None if path is None else slow(path) for path in rows.to_pylist()], type=rows.type)
    for path in rows.filter(pc.greater(pc.binary_length(rows), pa.scalar(_LONGEST))):
        slow(path.as_py())
    plainly = pc.and_(pc.match_substring_regex(rows, _PLAIN_PATH), pc.invert(pc.starts_with(rows, LOG_FOLDER, ignore_case=True)))
    odd = pc.and_kleene(pc.is_valid(rows), pc.invert(plainly))
    result = plain(rows)
    spelled = cast(list[str], rows.filter(odd).to_pylist())
    if not spelled:
        return result
    return cast(pa.StringArray, pc.replace_with_mask(result, odd, pa.array([slow(path) for path in spelled], type=rows.type)))


def _decode_plain(rows: pa.StringArray) -> pa.StringArray:
    if not pc.any(pc.match_substring_regex(rows, "%")).as_py():
        return rows
    rare = _RARE if pc.any(pc.match_substring_regex(rows, _RARE_ESCAPE)).as_py() else ""
    # Every % starts an escape here, so undoing %25 last undoes each escape once.
    for char in f" :{rare}%":
        rows = pc.replace_substring(rows, f"%{ord(char):02X}", char)
    return rows
