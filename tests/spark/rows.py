"""Rows in one comparable form, whoever read them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import cast

import pyarrow as pa


def plain(value: object, kind: pa.DataType) -> object:
    """A value in the JSON form of the golden tables' manifest."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        number = cast(float, value)
        return number if math.isfinite(number) else "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if pa.types.is_decimal(kind):
        exact = cast(Decimal, value)
        return f"{abs(exact) if exact == 0 else exact:.{kind.scale}f}"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return cast(bytes, value).hex()
    if pa.types.is_date(kind):
        return (cast(date, value) - date(1970, 1, 1)).days
    if pa.types.is_timestamp(kind):
        stamp = cast(datetime, value)
        since = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if pa.types.is_struct(kind):
        parts = cast(dict[str, object], value)
        return [plain(parts[field.name], field.type) for field in kind]
    if pa.types.is_map(kind):
        pairs = [[plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in cast(list[tuple[object, object]], value)]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0], separators=(",", ":")))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(item, kind.value_type) for item in cast(list[object], value)]
    return value


def texts(table: pa.Table) -> list[bytes]:
    """The rows as JSON, sorted: equal for tables that hold the same rows."""
    columns = [[plain(v, column.type) for v in column.to_pylist()] for column in table.columns]
    return sorted(json.dumps(row, separators=(",", ":")).encode() for row in zip(*columns, strict=True))
