"""A Delta table that is all log: thousands of files in one commit, none of which exists. For planning, never for reading."""

from __future__ import annotations

import json
from pathlib import Path

ROWS_A_FILE = 1000
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "price", "type": "double", "nullable": True, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    ],
}


def write_log_only_table(table: Path, files: int) -> None:
    """Version 0 with ``files`` files; file n holds the ids from n * ROWS_A_FILE up to the next file's."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    actions: list[dict[str, object]] = [
        {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationParameters": {}, "isBlindAppend": True}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "00000000-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(SCHEMA, separators=(",", ":")),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 1_700_000_000_000,
            }
        },
    ]
    actions.extend({"add": _add(number)} for number in range(files))
    with (log / f"{0:020}.json").open("w", encoding="utf-8") as commit:
        commit.writelines(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def _add(number: int) -> dict[str, object]:
    first = number * ROWS_A_FILE
    last = first + ROWS_A_FILE - 1
    stats = {
        "numRecords": ROWS_A_FILE,
        "minValues": {"id": first, "price": 0.0, "name": "customer-1"},
        "maxValues": {"id": last, "price": 1000.0, "name": "customer-9"},
        "nullCount": {"id": 0, "price": 0, "name": 0},
    }
    return {
        "path": f"part-{number:05}-00000000-0000-4000-8000-{number:012}-c000.snappy.parquet",
        "partitionValues": {},
        "size": 1_000_000,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "stats": json.dumps(stats, separators=(",", ":")),
    }
