"""What the ``stats`` JSON of many files says about a column, whoever wrote it, as Arrow columns that are safe to reason with.

PROTOCOL.md, "Per-file Statistics". Writers cut strings, floor timestamps, write decimals as doubles, and hide NaN; a bound given here
is widened so far that every value of the file lies within it. What is absent, malformed or contradictory is null: unknown.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, cast

import orjson
import pyarrow as pa
import pyarrow.json as pj

from lakelog.core.predicates import STORAGE, WIDE_DECIMAL, Column, Family, Values, family_of, pc
from lakelog.core.schema import DataType, DecimalType, PrimitiveType


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBounds:
    """One entry per file.

    ``lower`` and ``upper`` hold the storage type of the column's family (`lakelog.core.predicates.STORAGE`; strings as binary): no value
    is less than ``lower``, and no value except NaN is greater than ``upper``. Null is unknown.
    ``may_be_null`` and ``may_be_value`` are never null: whether a row of the file can, and can not, be null in this column.
    """

    lower: Values
    upper: Values
    may_be_null: Values
    may_be_value: Values


def read_bounds(stats: Values, columns: Mapping[Column, DataType]) -> dict[Column, ColumnBounds]:
    """The bounds of ``columns`` in each file.

    Args:
        stats: one JSON text per file, or null.
        columns: primitive columns, not under arrays or maps. Others have no statistics that all writers agree on.
    """
    wanted: list[_Leaf] = [_Leaf(("numRecords",), pa.int64())]
    for column, data_type in columns.items():
        json_type = _JSON_TYPES.get(family_of(data_type) or "binary", pa.null())
        wanted.append(_Leaf(("nullCount", *column.path), pa.int64()))
        if json_type != pa.null():
            wanted += [_Leaf((kind, *column.path), json_type) for kind in ("minValues", "maxValues")]
    values = dict(zip((leaf.path for leaf in wanted), _read_leaves(stats, wanted), strict=True))
    records = values[("numRecords",)]
    return {
        column: _bounds_of(
            data_type,
            values.get(("minValues", *column.path)),
            values.get(("maxValues", *column.path)),
            values[("nullCount", *column.path)],
            records,
        )
        for column, data_type in columns.items()
    }


def read_row_counts(stats: pa.StringArray) -> pa.Int64Array:
    """``numRecords`` of each file's statistics; null where they do not tell, or tell a negative number."""
    counts = _read_leaves(stats, [_Leaf(("numRecords",), pa.int64())])[0]
    return cast(pa.Int64Array, pc.if_else(pc.greater_equal(counts, 0), counts, pa.scalar(None, pa.int64())))


def _bounds_of(data_type: DataType, low: Values | None, high: Values | None, nulls: Values, records: Values) -> ColumnBounds:
    sane = pc.and_(pc.greater_equal(nulls, 0), pc.or_kleene(pc.less_equal(nulls, records), pc.is_null(records)))
    without_null = pc.and_(sane, pc.equal(nulls, 0))
    only_null = pc.and_(pc.and_(sane, pc.equal(nulls, records)), pc.greater(records, 0))
    family = family_of(data_type)
    if family is None or low is None or high is None:
        lower = upper = pa.nulls(len(nulls))
    else:
        lower, upper = _WIDEN[family](low, high, data_type)
        # Bounds that contradict each other say nothing at all.
        good = pc.fill_null(pc.less_equal(lower, upper), True)
        nothing = pa.scalar(None, lower.type)
        lower, upper = pc.if_else(good, lower, nothing), pc.if_else(good, upper, nothing)
    return ColumnBounds(
        lower=lower,
        upper=upper,
        may_be_null=pc.invert(pc.fill_null(without_null, False)),
        may_be_value=pc.invert(pc.fill_null(only_null, False)),
    )


# --- From what was written to what can be relied on -----------------------------------------------------------------------------

Bounds: TypeAlias = tuple[Values, Values]

# A millisecond is the resolution of timestamps in stats; formatters that print an offset may drop its seconds.
_MILLISECOND = 1_000
_OFFSET_SECONDS = 60_000_000

_DATE = r"^\d{4}-\d{2}-\d{2}$"
_TIMESTAMP = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?"
_ZONED = _TIMESTAMP + r"(Z|[+-]\d{2}:\d{2}(:\d{2})?)$"
_ZONELESS = _TIMESTAMP + r"Z?$"

# Old delta-spark ends a cut maximum with U+FFFD, in the order of UTF-16, and leaves "?" of a character it cut in two. Elsewhere U+FFFD
# stands for bytes that were no UTF-8. Either way only what comes before it is known.
_UNRELIABLE_TAIL = r"(?s)\?*\x{FFFD}.*$"


def _integral(low: Values, high: Values, _: DataType) -> Bounds:
    return low, high


def _fractional(low: Values, high: Values, data_type: DataType) -> Bounds:
    low, high = (pc.if_else(pc.is_finite(side), side, pa.scalar(None, side.type)) for side in (low, high))
    if data_type == PrimitiveType("float"):
        # "0.1" may stand for the float nearest to 0.1, which as a double lies on either side of it.
        low = pc.subtract(low, pc.add(pc.multiply(pc.abs(low), 2.0**-23), 2.0**-148))
        high = pc.add(high, pc.add(pc.multiply(pc.abs(high), 2.0**-23), 2.0**-148))
    return low, high


def _decimal(low: Values, high: Values, data_type: DataType) -> Bounds:
    if not isinstance(data_type, DecimalType) or data_type.precision <= _EXACT_DIGITS:
        scale = data_type.scale if isinstance(data_type, DecimalType) else 0
        return pc.round(low, scale, round_mode="down"), pc.round(high, scale, round_mode="up")
    return _widen_as_double(low, -_DOUBLE_ERROR), _widen_as_double(high, _DOUBLE_ERROR)


# Decimals of up to 15 digits survive a double; of longer ones a writer that used doubles kept about 16.
_EXACT_DIGITS = 15
_DOUBLE_ERROR = 1e-14
_LARGEST = 9e37


def _widen_as_double(values: Values, by: float) -> Values:
    doubles = values.cast(pa.float64())
    widened = pc.add(doubles, pc.multiply(pc.abs(doubles), by))
    fits = pc.less(pc.abs(widened), _LARGEST)
    return pc.if_else(fits, widened, pa.scalar(None, pa.float64())).cast(WIDE_DECIMAL)


def _string(low: Values, high: Values, _: DataType) -> Bounds:
    known_low = pc.replace_substring_regex(low, pattern=_UNRELIABLE_TAIL, replacement="").cast(pa.binary())
    known_high = pc.replace_substring_regex(high, pattern=_UNRELIABLE_TAIL, replacement="").cast(pa.binary())
    # No UTF-8 has the byte 0xFF: this is above every string that begins with the known part.
    return known_low, pc.binary_join_element_wise(known_high, pa.scalar(b"\xff"), pa.scalar(b""))


def _date(low: Values, high: Values, _: DataType) -> Bounds:
    days = [_cast_texts(_only(side, _DATE), pa.date32()).cast(pa.int32()).cast(pa.int64()) for side in (low, high)]
    return days[0], days[1]


def _timestamp(low: Values, high: Values, _: DataType) -> Bounds:
    lower, upper = (_micros(_only(side, _ZONED), pa.timestamp("us", "UTC")) for side in (low, high))
    low_slack, high_slack = (pc.if_else(pc.ends_with(side, "Z"), 0, _OFFSET_SECONDS) for side in (low, high))
    return _widen_instants(pc.subtract(lower, low_slack), pc.add(upper, high_slack))


def _timestamp_ntz(low: Values, high: Values, _: DataType) -> Bounds:
    lower, upper = (_micros(pc.utf8_rtrim(_only(side, _ZONELESS), "Z"), pa.timestamp("us")) for side in (low, high))
    return _widen_instants(lower, upper)


def _widen_instants(lower: Values, upper: Values) -> Bounds:
    # Before 1970 a writer that truncates towards zero has raised the minimum.
    return pc.subtract(lower, pc.if_else(pc.less(lower, 0), _MILLISECOND, 0)), pc.add(upper, _MILLISECOND)


def _micros(texts: Values, arrow: pa.DataType) -> Values:
    texts = pc.replace_substring_regex(texts, pattern=r"(\.\d{6})\d+", replacement=r"\1")
    texts = pc.replace_substring_regex(texts, pattern=r"([+-]\d{2}:\d{2}):\d{2}$", replacement=r"\1")
    return _cast_texts(texts, arrow).cast(pa.int64())


def _only(texts: Values, pattern: str) -> Values:
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))


def _cast_texts(texts: Values, arrow: pa.DataType) -> Values:
    try:
        return texts.cast(arrow)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.array([None], arrow)
    middle = len(texts) // 2
    return pa.concat_arrays([_cast_texts(texts.slice(0, middle), arrow), _cast_texts(texts.slice(middle), arrow)])


_WIDEN: Mapping[Family, Callable[[Values, Values, DataType], Bounds]] = {
    "integral": _integral,
    "fractional": _fractional,
    "decimal": _decimal,
    "string": _string,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}

_JSON_TYPES: Mapping[Family, pa.DataType] = {
    family: pa.string() if family in {"date", "timestamp", "timestamp_ntz"} else STORAGE[family] for family in _WIDEN
}


# --- Out of the JSON ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: tuple[str, ...]
    type: pa.DataType


def _read_leaves(stats: Values, wanted: Sequence[_Leaf]) -> list[Values]:
    block = _read_block(stats, wanted)
    return block if block is not None else _read_lines(stats, wanted)


# Arrow crashes on a decimal with a far negative exponent, and makes a wrong number of one with more digits than fit.
_UNSAFE_DECIMAL = r"[0-9.][eE][+-]?[0-9]{3}|[0-9.]{77}"


def _read_block(stats: Values, wanted: Sequence[_Leaf]) -> list[Values] | None:
    """All texts at once; None when any of them is not what most writers write."""
    if any(leaf.type == WIDE_DECIMAL for leaf in wanted) and pc.any(pc.match_substring_regex(stats, _UNSAFE_DECIMAL)).as_py():
        return None
    lines = pc.binary_join_element_wise('{"s":', pc.fill_null(stats, "null"), "}\n", "")
    size = pc.sum(pc.binary_length(lines)).as_py() or 0
    data = b"" if size == 0 else lines.buffers()[2].slice(0, size)
    text = bytes(data)
    # Several documents in one line would shift the rows, and Arrow's parser crashes on a document that is a bare null.
    if size == 0 or text.count(b"\n") != len(stats) or any(odd in text for odd in (b"\r", b"}null", b" null", b"\tnull")):
        return None
    try:
        table = pj.read_json(
            io.BytesIO(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([pa.field("s", _tree_type(wanted))]), newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowException, OverflowError):
        return None
    if table.num_rows != len(stats):
        return None
    root = table.column(0).combine_chunks()
    return [pc.struct_field(root, list(leaf.path)) for leaf in wanted]


def _tree_type(wanted: Sequence[_Leaf]) -> pa.DataType:
    by_head: dict[str, list[_Leaf]] = {}
    for leaf in wanted:
        by_head.setdefault(leaf.path[0], []).append(leaf)
    return pa.struct(
        [
            pa.field(head, below[0].type if len(below[0].path) == 1 else _tree_type([_Leaf(leaf.path[1:], leaf.type) for leaf in below]))
            for head, below in by_head.items()
        ]
    )


def _read_lines(stats: Values, wanted: Sequence[_Leaf]) -> list[Values]:
    """One text after the other; whatever does not fit is null, alone."""
    found: list[list[object]] = [[] for _ in wanted]
    for text in stats:
        document = _parse(text.as_py())
        for leaf, values in zip(wanted, found, strict=True):
            values.append(_fitting(_at(document, leaf.path), leaf.type))
    return [pa.array(values, leaf.type) for leaf, values in zip(wanted, found, strict=True)]


def _parse(text: str | None) -> object:
    try:
        return None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _at(document: object, path: tuple[str, ...]) -> object:
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


def _fitting(value: object, arrow: pa.DataType) -> object:
    if pa.types.is_string(arrow):
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if pa.types.is_integer(arrow):
        return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None
    if pa.types.is_floating(arrow):
        return float(value)
    exact = Decimal(repr(value))
    exponent = exact.as_tuple().exponent
    return exact if isinstance(exponent, int) and exponent >= -38 and exact.adjusted() < 38 else None
