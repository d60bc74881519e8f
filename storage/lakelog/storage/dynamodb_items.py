"""What a commit leaves in DynamoDB: the item of delta-spark's S3DynamoDBLogStore, attribute for attribute.

| attribute  | type     | meaning                                                                                        |
|------------|----------|------------------------------------------------------------------------------------------------|
| tablePath  | S, HASH  | the table's root with its scheme, as the writers spell it: ``s3a://bucket/some key``           |
| fileName   | S, RANGE | ``00000000000000000007.json``                                                                  |
| tempPath   | S        | where the commit's bytes are, from ``_delta_log`` on: ``.tmp/00000000000000000007.json.<uuid>`` |
| complete   | S        | ``true`` once the file of the commit is there, before that ``false``                           |
| expireTime | N        | seconds since the epoch, with ``complete`` alone: when DynamoDB may drop the item              |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakelog.core.errors import StorageError

__all__ = [
    "COMPLETE",
    "EXPIRE_TIME",
    "FILE_NAME",
    "SCHEMES",
    "TABLE_PATH",
    "TEMP_PATH",
    "CommitEntry",
    "Item",
    "LogFolder",
    "commit_at",
    "commit_version",
    "log_folder",
]

TABLE_PATH = "tablePath"
FILE_NAME = "fileName"
TEMP_PATH = "tempPath"
COMPLETE = "complete"
EXPIRE_TIME = "expireTime"

SCHEMES = ("s3a", "s3", "s3n")
"""The schemes by which Spark's users call S3; each is a hash key of its own."""

Item: TypeAlias = Mapping[str, Mapping[str, str]]
"""An item as DynamoDB's API spells it: ``{"fileName": {"S": "..."}}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """One item. Attributes as in the module's table.

    Attributes:
        expire_time_s: seconds since the epoch; None while the entry is not complete, and in one that never expires.
    """

    table_path: str
    file_name: str
    temp_path: str
    complete: bool = False
    expire_time_s: int | None = None

    @classmethod
    def from_item(cls, item: Item) -> CommitEntry:
        """Read an item.

        Raises:
            StorageError: it is none of a commit.
        """
        try:
            expires = item.get(EXPIRE_TIME)
            return cls(
                table_path=item[TABLE_PATH]["S"],
                file_name=item[FILE_NAME]["S"],
                temp_path=item[TEMP_PATH]["S"],
                complete=item[COMPLETE]["S"].lower() == "true",
                expire_time_s=None if expires is None else int(expires["N"]),
            )
        except (KeyError, ValueError) as error:
            raise StorageError(
                f"An item of DynamoDB is no commit of a Delta table: it has {', '.join(sorted(item))}, and wants {TABLE_PATH}, "
                f"{FILE_NAME}, {TEMP_PATH}, {COMPLETE}. Give lakelog the DynamoDB table of your Delta writers, by ddb.table_name."
            ) from error

    def to_item(self) -> dict[str, dict[str, str]]:
        """The item."""
        item = {
            TABLE_PATH: {"S": self.table_path},
            FILE_NAME: {"S": self.file_name},
            TEMP_PATH: {"S": self.temp_path},
            COMPLETE: {"S": "true" if self.complete else "false"},
        }
        if self.expire_time_s is not None:
            item[EXPIRE_TIME] = {"N": str(self.expire_time_s)}
        return item

    def completed(self, expire_time_s: int) -> CommitEntry:
        """The same commit once its file is there."""
        return replace(self, complete=True, expire_time_s=expire_time_s)


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A table's log.

    Args:
        path: the folder as it was asked for, ``s3://bucket/some key/_delta_log``.
    """

    path: str

    def key(self, scheme: str) -> str:
        """The table's ``tablePath`` for writers that call it by a scheme."""
        bucket_and_key = self.path.partition("://")[2].removesuffix("/_delta_log")
        # Hadoop's Path spells the root of a bucket with a slash at its end, and every other folder without.
        return f"{scheme}://{bucket_and_key}" + ("" if "/" in bucket_and_key else "/")

    def file(self, name: str) -> str:
        """The path of a file of the log."""
        return f"{self.path}/{name}"

    def temp_file(self, entry: CommitEntry) -> str:
        """The path of the object that holds an entry's bytes.

        Raises:
            StorageError: the entry points elsewhere than into this log.
        """
        if not _TEMP_PATH.fullmatch(entry.temp_path):
            raise StorageError(
                f"{self.file(entry.file_name)}: its entry in DynamoDB says that the commit's bytes are at {entry.temp_path!r}, which is no "
                f"path below {self.path}/.tmp. No Delta writer makes such an entry; delete it if you know who did."
            )
        return f"{self.path}/{entry.temp_path}"


def commit_at(path: str) -> tuple[LogFolder, str] | None:
    """The log and the name of a commit file; None for every other file."""
    match = _COMMIT.fullmatch(path)
    return (LogFolder(match[1]), match[2]) if match else None


def commit_version(name: str) -> int:
    """The version of a commit file, from its name."""
    return int(name.partition(".")[0])


def log_folder(path: str) -> LogFolder | None:
    """The log in which a path lies directly; None where its folder is no table's log."""
    folder = path.rpartition("/")[0]
    return LogFolder(folder) if _LOG.fullmatch(folder) else None


_LOG = re.compile(r"[A-Za-z0-9+.-]+://(?:.*/)?[^/]+/_delta_log", re.DOTALL)
_COMMIT = re.compile(rf"({_LOG.pattern})/([0-9]{{20}}\.json)", re.DOTALL)
# Flat and below .tmp, whatever comes after the name: nobody but the entry's writer knows it.
_TEMP_PATH = re.compile(r"\.tmp/[^/]+")
