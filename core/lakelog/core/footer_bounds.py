"""Least and greatest value of one column in a Parquet footer, and how ``add.stats`` spells them.

Works on the footer's physical values, which hold every date and timestamp, where Python's datetimes would overflow. Which footers hide
what (parquet-format, "Statistics"): of a column with NaN parquet-mr gives NaN as a bound or no bound, pyarrow bounds that ignore it; both
may give -0.0 or 0.0 for either; parquet-mr drops statistics over 4096 bytes with their null count; INT96 has no order, hence no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from typing import Any, TypeAlias

import orjson
import pyarrow.parquet as pq

from lakelog.core.schema import DataType, DecimalType, PrimitiveType

# int: integrals, days, microseconds, a decimal's digits without its point. bytes: UTF-8.
Raw: TypeAlias = int | float | bytes


@dataclass(frozen=True, slots=True)
class FooterBounds:
    """``lower`` and ``upper`` in units of the logical type, None if unknown; ``nulls`` the number of null rows, None if unknown."""

    lower: Raw | None
    upper: Raw | None
    nulls: int | None


def leaf_bounds(
    footer: pq.FileMetaData, leaf: int, data_type: DataType, *, nan_free: bool = False, groups: Sequence[int] | None = None
) -> FooterBounds:
    """The bounds over all row groups of column chunk ``leaf``, read as ``data_type``.

    A footer type that Spark would not read as ``data_type`` unchanged gives no bounds.

    Args:
        nan_free: the writer has looked, and no float in the column is NaN.
        groups: the row groups that count; None for all.
    """
    chunks = [footer.row_group(group).column(leaf) for group in (range(footer.num_row_groups) if groups is None else groups)]
    # The stubs of pyarrow know neither has_null_count nor that a measured chunk has its values.
    measured: list[tuple[int, Any]] = [(chunk.num_values, chunk.statistics) for chunk in chunks if chunk.num_values]
    known = all(stats is not None and stats.has_null_count for _, stats in measured)
    nulls = sum(stats.null_count for _, stats in measured) if known else None
    decode = _decoder(footer.schema.column(leaf), data_type)
    if decode is None:
        return FooterBounds(None, None, nulls)
    lows: list[Raw] = []
    highs: list[Raw] = []
    for count, stats in measured:
        if stats is not None and stats.has_null_count and stats.null_count == count:
            continue
        if stats is None or not stats.has_min_max:
            return FooterBounds(None, None, nulls)
        lows.append(decode(stats.min_raw))
        highs.append(decode(stats.max_raw))
    if not lows:
        return FooterBounds(None, None, nulls)
    if isinstance(lows[0], float):
        shows_nan = nan_free or footer.created_by.startswith("parquet-mr version")
        return FooterBounds(_least(lows), _greatest(highs) if shows_nan else None, nulls)
    lower, upper = min(lows), max(highs)
    earliest = _earliest_certain(footer, data_type)
    if earliest is not None:
        sure = [bound if isinstance(bound, int) and bound >= earliest else None for bound in (lower, upper)]
        return FooterBounds(sure[0], sure[1], nulls)
    return FooterBounds(lower, upper, nulls)


def bounds_text(bounds: FooterBounds, data_type: DataType, prefix_length: int) -> tuple[str | None, str | None]:
    """Minimum and maximum as JSON texts, each None when unknown or when JSON or the protocol cannot say it."""
    if isinstance(data_type, PrimitiveType) and data_type.name == "string":
        lower, upper = _utf8(bounds.lower), _utf8(bounds.upper)
        return _quoted(None if lower is None else lower[:prefix_length]), _quoted(cut_maximum(upper, prefix_length))
    return _text(bounds.lower, data_type), _text(bounds.upper, data_type)


def cut_maximum(text: str | None, prefix_length: int) -> str | None:
    """The shortest spelling, by Delta's rule, of something no less than ``text``; None when there is none within twice the length.

    A prefix followed by a tie-breaker that is greater than the first character cut off: U+007F if that is enough, else U+10FFFF.
    """
    if text is None or len(text) <= prefix_length:
        return text
    for length in range(prefix_length, 2 * prefix_length + 1):
        if length == len(text):
            return text
        following = text[length]
        if following < "\x7f":
            return text[:length] + "\x7f"
        if following < "\U0010ffff":
            return text[:length] + "\U0010ffff"
    return None


# --- Reading --------------------------------------------------------------------------------------------------------------------

_INTEGRAL_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_PER_MICROSECOND = {"milliseconds": (1_000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1_000)}


def _decoder(column: pq.ColumnSchema, data_type: DataType) -> Callable[[Raw], Raw] | None:
    """From the footer's raw value to a `Raw` of the type; None when the column's bounds cannot be read as the type."""
    physical = column.physical_type
    annotation = orjson.loads(column.logical_type.to_json())
    kind = annotation["Type"]
    if column.max_repetition_level > 0:
        return None
    if isinstance(data_type, DecimalType):
        plain = kind == "None" and physical in {"INT32", "INT64"}
        return _decimal_decoder(physical, 0 if plain else annotation.get("scale"), data_type) if kind == "Decimal" or plain else None
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    fits = {
        "string": physical == "BYTE_ARRAY" and kind in {"String", "Enum", "JSON", "None"},
        "float": physical == "FLOAT",
        "double": physical in {"DOUBLE", "FLOAT"},
        "date": physical == "INT32" and kind == "Date",
        "timestamp": physical == "INT64" and kind == "Timestamp" and annotation.get("isAdjustedToUTC") is True,
        "timestamp_ntz": physical == "INT64" and kind == "Timestamp" and annotation.get("isAdjustedToUTC") is False,
    }
    if name in _INTEGRAL_BITS:
        bits = annotation.get("bitWidth", {"INT32": 32, "INT64": 64}.get(physical, 0))
        signed = kind == "None" or (kind == "Int" and annotation.get("isSigned") is True)
        return _unchanged if signed and physical in {"INT32", "INT64"} and 0 < bits <= max(_INTEGRAL_BITS[name], 32) else None
    if not fits.get(name, False):
        return None
    if name.startswith("timestamp"):
        multiplier, divisor = _PER_MICROSECOND[annotation["timeUnit"]]
        return lambda raw: int(raw) * multiplier // divisor
    return _unchanged


def _unchanged(raw: Raw) -> Raw:
    return raw


def _decimal_decoder(physical: str, scale: object, data_type: DecimalType) -> Callable[[Raw], Raw] | None:
    if not isinstance(scale, int) or scale > data_type.scale:
        return None
    factor = 10 ** (data_type.scale - scale)
    if physical in {"INT32", "INT64"}:
        return lambda raw: int(raw) * factor
    return lambda raw: int.from_bytes(raw, "big", signed=True) * factor if isinstance(raw, bytes) else int(raw) * factor


def _least(lows: list[Raw]) -> float | None:
    values = [float(low) for low in lows]
    if any(math.isnan(value) for value in values):
        return None
    least = min(values)
    return -0.0 if least == 0 else least


def _greatest(highs: list[Raw]) -> float | None:
    """Readers skip a file by its maximum although NaN is greater than all, so it may be told only where a NaN would have shown."""
    values = [float(high) for high in highs]
    if any(math.isnan(value) for value in values):
        return None
    greatest = max(values)
    return 0.0 if greatest == 0 else greatest


# Files of the hybrid Julian calendar say other dates than Spark reads out of them: before the Gregorian calendar began, and for
# timestamps as long as zones had odd offsets.
_EARLIEST_CERTAIN = {
    "date": date(1582, 10, 15).toordinal() - date(1970, 1, 1).toordinal(),
    "timestamp": (date(1900, 1, 1).toordinal() - date(1970, 1, 1).toordinal()) * 86_400_000_000,
    "timestamp_ntz": (date(1900, 1, 1).toordinal() - date(1970, 1, 1).toordinal()) * 86_400_000_000,
}


def _earliest_certain(footer: pq.FileMetaData, data_type: DataType) -> int | None:
    """The first day or microsecond whose value is beyond doubt; None when all are."""
    metadata = footer.metadata or {}
    version = metadata.get(b"org.apache.spark.version", b"")
    julian = b"org.apache.spark.legacyDateTime" in metadata or (
        footer.created_by.startswith("parquet-mr") and (not version or version.split(b".")[0] in {b"1", b"2"})
    )
    return _EARLIEST_CERTAIN.get(data_type.name) if julian and isinstance(data_type, PrimitiveType) else None


# --- Writing --------------------------------------------------------------------------------------------------------------------

_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MILLISECONDS = 86_400_000
_WIDE = Context(prec=80)


def _text(value: Raw | None, data_type: DataType) -> str | None:
    if value is None or isinstance(value, bytes):
        return None
    if isinstance(data_type, DecimalType):
        return format(Decimal(int(value)).scaleb(-data_type.scale, _WIDE), "f")
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name == "date":
        day = _day(int(value))
        return None if day is None else f'"{day}"'
    if name.startswith("timestamp"):
        return _timestamp_text(int(value), "Z" if name == "timestamp" else "")
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    return str(value)


def _timestamp_text(micros: int, zone: str) -> str | None:
    days, milliseconds = divmod(micros // 1_000, _DAY_MILLISECONDS)
    day = _day(days)
    seconds, fraction = divmod(milliseconds, 1_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:03}"
    return None if day is None else f'"{day}T{clock}{zone}"'


def _day(days: int) -> str | None:
    ordinal = days + _EPOCH
    return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= date.max.toordinal() else None


def _utf8(raw: Raw | None) -> str | None:
    try:
        return raw.decode() if isinstance(raw, bytes) else None
    except UnicodeDecodeError:
        return None


def _quoted(text: str | None) -> str | None:
    return None if text is None else orjson.dumps(text).decode()
