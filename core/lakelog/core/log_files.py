"""The names of the files in ``_delta_log`` as a closed set of types (PROTOCOL.md, "File Types").

`parse_log_file` never fails: what the protocol does not name is an `OtherFile`, which readers ignore and clean-up
leaves alone. Every type gives its ``name`` back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from lakelog.core.records import INT64_MAX

LOG_FOLDER = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"


@dataclass(frozen=True, slots=True)
class CommitFile:
    """``V.json``: the actions of one version."""

    version: int

    @property
    def name(self) -> str:
        return f"{self.version:020d}.json"


@dataclass(frozen=True, slots=True)
class ClassicCheckpoint:
    """``V.checkpoint.parquet``; its content may follow the V1 or the V2 specification."""

    version: int

    @property
    def name(self) -> str:
        return f"{self.version:020d}.checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class MultiPartCheckpoint:
    """``V.checkpoint.PART.PARTS.parquet``; parts count from 1."""

    version: int
    part: int
    parts: int

    @property
    def name(self) -> str:
        return f"{self.version:020d}.checkpoint.{self.part:010d}.{self.parts:010d}.parquet"


@dataclass(frozen=True, slots=True)
class V2Checkpoint:
    """``V.checkpoint.UUID.json`` or ``.parquet``: the top file of a V2 checkpoint."""

    version: int
    uuid: str
    format: str

    @property
    def name(self) -> str:
        return f"{self.version:020d}.checkpoint.{self.uuid}.{self.format}"


@dataclass(frozen=True, slots=True)
class CompactedFile:
    """``START.END.compacted.json``: the reconciled actions of the versions from start to end, both included."""

    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.start:020d}.{self.end:020d}.compacted.json"


@dataclass(frozen=True, slots=True)
class ChecksumFile:
    """``V.crc``: what the table's state at a version sums up to."""

    version: int

    @property
    def name(self) -> str:
        return f"{self.version:020d}.crc"


@dataclass(frozen=True, slots=True)
class LastCheckpointFile:
    """``_last_checkpoint``: a hint at the newest checkpoint."""

    @property
    def name(self) -> str:
        return LAST_CHECKPOINT


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A name that the protocol does not know."""

    name: str


CheckpointFile: TypeAlias = ClassicCheckpoint | MultiPartCheckpoint | V2Checkpoint
LogFile: TypeAlias = CommitFile | CheckpointFile | CompactedFile | ChecksumFile | LastCheckpointFile | OtherFile


def parse_log_file(name: str) -> LogFile:
    """What a name in the log folder stands for. ``name`` holds no slash."""
    # Most of a log, and the leading zero keeps it below 2**63.
    if name[20:] == ".json" and name[0] == "0" and name.isascii() and name[:20].isdecimal():
        return CommitFile(int(name[:20]))
    match = _NAME.fullmatch(name)
    if match is None:
        return LastCheckpointFile() if name == LAST_CHECKPOINT else OtherFile(name)
    version = int(match["version"])
    if version > INT64_MAX:
        return OtherFile(name)
    if match["part"] is not None:
        part, parts = int(match["part"]), int(match["parts"])
        return MultiPartCheckpoint(version, part, parts) if 1 <= part <= parts else OtherFile(name)
    if match["uuid"] is not None:
        return V2Checkpoint(version, match["uuid"], match["format"])
    if match["end"] is not None:
        end = int(match["end"])
        return CompactedFile(version, end) if version < end <= INT64_MAX else OtherFile(name)
    return _PLAIN[match["rest"]](version)


def commit_name(version: int) -> str:
    """``00000000000000000007.json``"""
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """``00000000000000000010.checkpoint.parquet``"""
    return ClassicCheckpoint(version).name


def version_prefix(version: int) -> str:
    """The 20 digits that every file of ``version`` starts with: where a listing of it and all later ones begins."""
    return f"{version:020d}"


def sort_key(file: LogFile) -> tuple[int, int, int, int, str]:
    """A total order over log files.

    1. By version; a compacted file counts at its start, files without a version come last.
    2. Within a version: commit, checksum, compacted, then checkpoints in the order in which readers prefer them least
       to most: classic, multi-part (fewer parts first, then by part), V2.
    3. By name.
    """
    match file:
        case CommitFile(version):
            return version, 0, 0, 0, file.name
        case ChecksumFile(version):
            return version, 1, 0, 0, file.name
        case CompactedFile(start, end):
            return start, 2, end, 0, file.name
        case ClassicCheckpoint(version):
            return version, 3, 0, 0, file.name
        case MultiPartCheckpoint(version, part, parts):
            return version, 4, parts, part, file.name
        case V2Checkpoint(version):
            return version, 5, 0, 0, file.name
        case LastCheckpointFile() | OtherFile():
            return INT64_MAX + 1, 6, 0, 0, file.name


_NAME = re.compile(
    r"(?P<version>[0-9]{20})\.(?:"
    r"checkpoint\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet"
    r"|(?P<rest>json|crc|checkpoint\.parquet)"
    r"|checkpoint\.(?P<uuid>[^./]+)\.(?P<format>json|parquet)"
    r"|(?P<end>[0-9]{20})\.compacted\.json)"
)
_PLAIN: dict[str, type[CommitFile] | type[ChecksumFile] | type[ClassicCheckpoint]] = {
    "json": CommitFile,
    "crc": ChecksumFile,
    "checkpoint.parquet": ClassicCheckpoint,
}
