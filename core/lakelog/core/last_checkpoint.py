"""``_last_checkpoint``: the hint that says where the newest checkpoint is (PROTOCOL.md, "Last Checkpoint File Schema").

It is a hint and no more: readers fall back to listing when it is missing, damaged or wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import quote

from lakelog.core.actions import INT64_MAX
from lakelog.core.errors import CorruptLogError

_Json: TypeAlias = "bool | _Number | str | list[_Json] | dict[str, _Json] | None"

# The hint is read before anything is known about the table: what is absurdly large is damaged.
_MAX_BYTES = 16 * 1024 * 1024
# Of the path to one value, and of the whole canonical form, which repeats the path for every value.
_MAX_PATH = 64 * 1024
_MAX_CANONICAL = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheckpoint:
    """The newest checkpoint, as the hint tells it.

    Attributes:
        version: the checkpoint's version.
        size: number of actions in it.
        parts: number of files of a multi-part checkpoint, None for a single file.
        size_in_bytes: of all its files.
        num_of_add_files: number of ``add`` actions.
        tags: free additions.
    """

    version: int
    size: int
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The file's content, with its checksum."""
        fields: dict[str, object] = {"version": self.version, "size": self.size}
        for name, value in (("parts", self.parts), ("sizeInBytes", self.size_in_bytes), ("numOfAddFiles", self.num_of_add_files)):
            if value is not None:
                fields[name] = value
        if self.tags:
            fields["tags"] = dict(self.tags)
        fields["checksum"] = json_checksum(json.dumps(fields))
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LastCheckpoint:
        """The hint in a file's content. Fields that lakelog does not use are checked by the checksum alone.

        Raises:
            CorruptLogError: not a JSON object, a key twice, a field missing or of the wrong type, or a wrong checksum.
        """
        if len(data) > _MAX_BYTES:
            raise CorruptLogError(f"_last_checkpoint has {len(data)} bytes")
        value = _parse(data)
        if not isinstance(value, dict):
            raise CorruptLogError("_last_checkpoint is not a JSON object")
        checksum = value.get("checksum")
        if checksum is not None and checksum != _checksum(value):
            raise CorruptLogError(f"_last_checkpoint does not match its checksum {checksum!r}")
        tags = value.get("tags")
        version = _count(value, "version")
        if version is None:
            raise CorruptLogError("_last_checkpoint.version is missing")
        return cls(
            version=version,
            size=_count(value, "size") or 0,
            parts=_count(value, "parts"),
            size_in_bytes=_count(value, "sizeInBytes"),
            num_of_add_files=_count(value, "numOfAddFiles"),
            tags={name: item for name, item in tags.items() if isinstance(item, str)} if isinstance(tags, dict) else {},
        )


def json_checksum(text: str) -> str:
    """MD5 over the canonical form of a JSON object, its top-level ``checksum`` left out (PROTOCOL.md, "JSON checksum").

    Raises:
        CorruptLogError: not JSON, not an object, or a key twice in one object.
    """
    value = _parse(text)
    if not isinstance(value, dict):
        raise CorruptLogError("only a JSON object has a checksum")
    return _checksum(value)


class _Number(str):
    """A number as the JSON text spells it, which is its own canonical form."""

    __slots__ = ()


def _parse(data: str | bytes) -> _Json:
    try:
        parsed: _Json = json.loads(data, object_pairs_hook=_unique, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptLogError(f"_last_checkpoint is not valid JSON: {error}") from error
    return parsed


def _unique(pairs: list[tuple[str, _Json]]) -> dict[str, _Json]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key occurs twice")
    return unique


def _no_constant(name: str) -> _Json:
    raise ValueError(f"{name} is no JSON value")


def _checksum(value: dict[str, _Json]) -> str:
    pairs: list[tuple[str, str]] = []
    size = 0
    try:
        for name, item in value.items():
            for path, leaf in _flatten(_quoted(name), item) if name != "checksum" else ():
                size += len(path) + len(leaf)
                if size > _MAX_CANONICAL:
                    raise CorruptLogError("_last_checkpoint has a canonical form that is absurdly large")
                pairs.append((path, leaf))
    except (UnicodeEncodeError, RecursionError) as error:
        raise CorruptLogError(f"_last_checkpoint has no canonical form: {error}") from error
    pairs.sort(key=lambda pair: pair[0].encode())
    return hashlib.md5(",".join(f"{path}={leaf}" for path, leaf in pairs).encode(), usedforsecurity=False).hexdigest()


def _flatten(path: str, value: _Json) -> Iterator[tuple[str, str]]:
    if len(path) > _MAX_PATH:
        raise CorruptLogError("_last_checkpoint has keys that are absurdly long")
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flatten(f"{path}+{_quoted(name)}", item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _flatten(f"{path}+{position}", item)
    elif isinstance(value, _Number):
        yield path, str(value)
    elif isinstance(value, str):
        yield path, _quoted(value)
    else:
        yield path, {None: "null", True: "true", False: "false"}[value]


def _quoted(text: str) -> str:
    # quote() leaves exactly the octets unreserved that the protocol names, and writes upper-case hexadecimal.
    return f'"{quote(text, safe="")}"'


def _count(value: dict[str, _Json], name: str) -> int | None:
    item = value.get(name)
    if item is None:
        return None
    if not isinstance(item, _Number) or not item.isdecimal() or len(item) > 19 or int(item) > INT64_MAX:
        raise CorruptLogError(f"_last_checkpoint.{name} must be a count, found {str(item)[:40]!r}")
    return int(item)
