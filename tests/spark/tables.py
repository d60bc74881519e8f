"""What the tests of writes and deletes ask of a table's folder, without the code under test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Action = dict[str, Any]


def commit_path(table: str, version: int) -> Path:
    return Path(table) / "_delta_log" / f"{version:020d}.json"


def commit(table: str, version: int) -> list[Action]:
    """The actions of one commit, as JSON."""
    return [json.loads(line) for line in commit_path(table, version).read_text(encoding="utf-8").splitlines()]


def versions(table: str) -> list[int]:
    """The versions whose commits are in the log, none where there is no log."""
    return sorted(int(path.stem) for path in (Path(table) / "_delta_log").glob("*.json"))


def latest(table: str) -> int:
    return versions(table)[-1]


def info(table: str, version: int | None = None) -> Action:
    """A commit's commitInfo, the newest's by default."""
    first: Action = commit(table, latest(table) if version is None else version)[0]["commitInfo"]
    return first


def of_kind(table: str, kind: str, version: int | None = None) -> list[Action]:
    """The actions of one kind in a commit, the newest by default."""
    return [action[kind] for action in commit(table, latest(table) if version is None else version) if kind in action]


def parquet_files(table: str) -> list[Path]:
    """Every Parquet file below the folder, whether the log names it or not; checkpoints are not counted."""
    return sorted(path for path in Path(table).rglob("*.parquet") if "_delta_log" not in path.parts)


def rows(spark: SparkSession, table: str) -> list[tuple[object, ...]]:
    """The table's rows, sorted by their text."""
    return sorted((tuple(row) for row in spark.read.format("delta").load(table).collect()), key=repr)


def engine(spark: SparkSession) -> str:
    """The engine that the session's conf forces upon local tables."""
    return str(spark.conf.get("spark.lakelog.engine", "native"))


def save(frame: DataFrame, table: str, mode: str = "append", partition_by: Iterable[str] = (), **options: object) -> None:
    """``frame.write.format("delta")`` with one file per partition value at most."""
    writer = frame.coalesce(1).write.format("delta").mode(mode).options(**{name: str(value) for name, value in options.items()})
    columns = list(partition_by)
    (writer.partitionBy(*columns) if columns else writer).save(table)


def make_log(
    table: str, schema: Mapping[str, Any], *, partition_by: Iterable[str] = (), protocol: Action | None = None, **properties: str
) -> str:
    """An empty table as another writer would leave it; property names are given with ``_`` for ``.`` after ``delta``."""
    metadata = {
        "id": "5b2b6e0e-0f6c-4f5e-9a50-1d9c4e9e6f10",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partition_by),
        "configuration": {name.replace("_", "."): value for name, value in properties.items()},
        "createdTime": 1_700_000_000_000,
    }
    path = commit_path(table, 0)
    path.parent.mkdir(parents=True)
    lines = [{"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return table


def field(name: str, kind: Any, *, nullable: bool = True, **metadata: object) -> Action:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: Action) -> Action:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any) -> Action:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(key: Any, value: Any) -> Action:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
