"""Statistics in struct form (``add.stats_parsed`` of a checkpoint) back to the JSON that ``add.stats`` holds.

Leaves are spelled as PROTOCOL.md ("Per-file Statistics") has them: dates as ``yyyy-MM-dd``, timestamps in
milliseconds, decimals as numbers with all their digits. Null leaves are left out: unknown is not a value.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.arrow_text import join_text

# Statistics that wait as Python objects before they are JSON again.
_ROWS_PER_CHUNK = 4096


def stats_to_json(stats: pa.StructArray) -> pa.StringArray:
    """The JSON text of each struct, null for a null one.

    Args:
        stats: ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``, ``tightBounds`` as far as they are there.
    """
    texts = _spelled(stats)
    chunks = [
        pa.array([_dump(row) for row in texts.slice(start, _ROWS_PER_CHUNK).to_pylist()], pa.string())
        for start in range(0, len(texts), _ROWS_PER_CHUNK)
    ]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.string())


def _spelled(array: pa.Array[Any]) -> pa.Array[Any]:
    """The array with every leaf in a type whose Python value is what JSON holds; Arrow does it, since Python's dates end at 9999."""
    kind = array.type
    if isinstance(array, pa.StructArray):
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays([_spelled(child) for child in array.flatten()], names=names, mask=array.is_null())
    if pa.types.is_timestamp(kind):
        return _timestamp_text(array)
    if pa.types.is_date(kind):
        return array.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        # The protocol gives these no bounds.
        return pa.nulls(len(array), pa.string())
    return array


def _timestamp_text(array: pa.Array[Any]) -> pa.Array[Any]:
    # Whole milliseconds, rounded down, as delta-spark writes them.
    millis = pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", array.type.tz), safe=False)
    zoned = array.type.tz is not None
    text = millis.cast(pa.timestamp("ms")).cast(pa.string())
    text = pc.replace_substring(text, " ", "T")
    return join_text(text, "Z") if zoned else text


def _dump(row: dict[str, object] | None) -> str | None:
    if row is None:
        return None
    return orjson.dumps(_known(row), default=_number).decode()


def _known(value: dict[str, object]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            result[name] = _known(item)
        elif item is not None and item == item:
            result[name] = item
    return result


def _number(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    raise TypeError(f"no JSON for {type(value).__name__}")
