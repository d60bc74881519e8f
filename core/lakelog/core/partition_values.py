"""Partition values: the strings of ``add.partitionValues`` to typed values and back (PROTOCOL.md, "Partition Value Serialization")."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, localcontext
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.errors import CorruptLogError, PartitionColumnError
from lakelog.core.records import shown
from lakelog.core.schema import DataType, DecimalType, PrimitiveType, to_arrow_type

Texts: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"
Parsed: TypeAlias = "int | float | Decimal | bool | bytes"

_INTEGERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400_000_000
# The Gregorian calendar repeats after 400 years of this many days; Python's own dates end at year 9999.
_CYCLE = 146_097
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_INTEGER_FORM = re.compile(r"[+-]?[0-9]+")
# Arrow reads such decimals rightly; of exponents and of more digits than fit it makes wrong numbers, or crashes.
_SAFE_DECIMAL = r"^[+-]?[0-9]{1,38}(\.[0-9]{1,38})?$"
_NUMBER_FORM = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_DATE_FORM = re.compile(r"([+-]?[0-9]{1,7})-([0-9]{1,2})-([0-9]{1,2})")
_TIME_FORM = re.compile(r"([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]+))?)?")
_ZONE_FORM = re.compile(r"Z|([+-])([0-9]{2}):?([0-9]{2})?")
_ZONED = r":[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity", "-inf": "-Infinity", "-infinity": "-Infinity"}


def parse_partition_column(values: Texts, data_type: DataType) -> pa.Array[Any]:
    """Partition strings as values of the column's Arrow type (`to_arrow_type`); null and the empty string are null.

    Timestamps come in both forms of the protocol: with a zone, or without one and then in UTC. Digits after the sixth of a second are cut.

    Raises:
        CorruptLogError: a string that is no value of the type; names it. Also a type that cannot partition.
        UnsupportedTypeError: variant.
    """
    arrow_type = to_arrow_type(data_type)
    if not isinstance(data_type, PrimitiveType | DecimalType):
        raise CorruptLogError(f"The log partitions a table by a column of type {data_type}, which cannot partition. Restore the log.")
    if isinstance(values, pa.ChunkedArray):
        chunks = [parse_partition_column(chunk, data_type) for chunk in values.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], arrow_type)
    texts: pa.Array[Any] = values if values.type == pa.string() else values.cast(pa.string())
    texts = pc.if_else(pc.equal(texts, pa.scalar("")), pa.scalar(None, pa.string()), texts)
    if data_type == PrimitiveType("string"):
        return texts
    try:
        return _parse_fast(texts, data_type, arrow_type)
    except pa.ArrowException:
        return _parse_distinct(texts, data_type, arrow_type)


def serialize_partition_value(value: object, data_type: DataType) -> str | None:
    """A value as its partition string: None for null and for what has no characters, which the protocol does not tell apart.

    Dates are ``date`` or days since 1970, timestamps ``datetime`` or microseconds since 1970 (a ``datetime`` without a zone is in UTC).
    Timestamps are written in the protocol's ISO 8601 form in UTC with six digits of a second.

    Raises:
        PartitionColumnError: a value that is not of the type, or a type that cannot partition.
    """
    if value is None:
        return None
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name == "string" and isinstance(value, str):
        return value or None
    if name == "boolean" and isinstance(value, bool):
        return "true" if value else "false"
    if name in _INTEGERS and isinstance(value, int) and not isinstance(value, bool) and _fits(value, _INTEGERS[name]):
        return str(value)
    if name in ("float", "double") and isinstance(value, int | float) and not isinstance(value, bool):
        return _java_text(value, name)
    if isinstance(data_type, DecimalType) and isinstance(value, Decimal | int) and not isinstance(value, bool):
        exact = _exact(Decimal(value), data_type)
        if exact is not None:
            return f"{exact:f}"
    if name == "date" and (days := _days_of(value)) is not None:
        return _date_text(days)
    if name in ("timestamp", "timestamp_ntz") and (micros := _micros_of(value, name)) is not None:
        return _timestamp_text(micros, iso=name == "timestamp")
    if name == "binary" and isinstance(value, bytes | bytearray | memoryview):
        return _binary_text(bytes(value)) or None
    raise PartitionColumnError(
        f"{value!r} cannot be written as a partition value of type {data_type}. Cast the column, or partition by another."
    )


def _parse_fast(texts: pa.Array[Any], data_type: PrimitiveType | DecimalType, arrow_type: pa.DataType) -> pa.Array[Any]:
    """By Arrow's own casts.

    Raises:
        ArrowException: some string needs a closer look.
    """
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name == "timestamp":
        zoned = pc.match_substring_regex(texts, _ZONED)
        nothing = pa.scalar(None, pa.string())
        without = pc.cast(pc.if_else(zoned, nothing, texts), pa.timestamp("us")).cast(pa.int64()).cast(arrow_type)
        within = pc.cast(pc.if_else(zoned, texts, nothing), arrow_type)
        merged: pa.Array[Any] = pc.if_else(zoned, within, without)
        return merged
    if isinstance(data_type, DecimalType) and not pc.all(pc.match_substring_regex(texts, _SAFE_DECIMAL), min_count=0).as_py():
        raise pa.ArrowInvalid("decimal")
    # Arrow takes hexadecimal integers, digits for booleans, and raw bytes for binary: none of them is what the protocol means.
    if name in ("binary", "boolean", "void") or (name in _INTEGERS and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()):
        raise pa.ArrowInvalid(name)
    return pc.cast(texts, arrow_type)


def _parse_distinct(texts: pa.Array[Any], data_type: PrimitiveType | DecimalType, arrow_type: pa.DataType) -> pa.Array[Any]:
    encoded = texts.dictionary_encode()
    parse = _parser(data_type)
    parsed = []
    for text in map(str, encoded.dictionary.to_pylist()):
        value = parse(text.strip() if data_type != PrimitiveType("binary") else text)
        if value is None:
            raise CorruptLogError(f"The log holds the partition value {shown(text)}, which is no {data_type}. Restore the log.")
        parsed.append(value)
    stored = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}.get(str(data_type), arrow_type)
    return pc.take(pa.array(parsed, stored).cast(arrow_type), encoded.indices)


def _parser(data_type: PrimitiveType | DecimalType) -> Callable[[str], Parsed | None]:
    """Of one string; None when it is no value of the type."""
    if isinstance(data_type, DecimalType):
        return lambda text: _exact(Decimal(text), data_type) if len(text) <= 100 and _NUMBER_FORM.fullmatch(text) else None
    name = data_type.name
    if name in _INTEGERS:
        return lambda text: _integer(text, _INTEGERS[name])
    others: dict[str, Callable[[str], Parsed | None]] = {
        "float": _float,
        "double": _float,
        "boolean": lambda text: {"true": True, "false": False}.get(text.lower()),
        "binary": _binary,
        "date": _date,
        "timestamp": lambda text: _timestamp(text, shift=True),
        "timestamp_ntz": lambda text: _timestamp(text, shift=False),
    }
    return others.get(name, lambda text: None)


def _integer(text: str, bits: int) -> int | None:
    # Python refuses to read very long numbers with an error of its own; none of them fits.
    if not _INTEGER_FORM.fullmatch(text) or len(text) > 100:
        return None
    value = int(text)
    return value if _fits(value, bits) else None


def _fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _float(text: str) -> float | None:
    known = _NOT_FINITE.get(text.lower())
    return float(known or text) if known or _NUMBER_FORM.fullmatch(text) else None


def _exact(value: Decimal, data_type: DecimalType) -> Decimal | None:
    """The number with the type's scale; None when digits would be lost or are too many."""
    if not value.is_finite() or value.adjusted() > 100:
        return None
    with localcontext(Context(prec=200, traps=[Inexact])):
        try:
            scaled = value.quantize(Decimal((0, (1,), -data_type.scale)))
        except Inexact:
            return None
    if not scaled:
        return abs(scaled)
    return None if len(scaled.as_tuple().digits) > data_type.precision else scaled


def _binary(text: str) -> bytes | None:
    pieces = _ESCAPED.split(text)
    if any(int(code, 16) > 0xFF for code in pieces[1::2]):
        return None
    escapes = itertools.cycle((False, True))
    return b"".join(bytes([int(piece, 16)]) if escape else piece.encode() for piece, escape in zip(pieces, escapes, strict=False))


def _binary_text(value: bytes) -> str:
    """As text where it is one, which delta-spark reads and writes; else every byte escaped, as the protocol and delta-rs do."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return "".join(f"\\u{byte:04x}" for byte in value) if "\0" in text or _ESCAPED.search(text) else text


def _date(text: str) -> int | None:
    found = _DATE_FORM.fullmatch(text)
    if not found:
        return None
    cycles, year = divmod(int(found[1]) - 2000, 400)
    try:
        days = date(year + 2000, int(found[2]), int(found[3])).toordinal() - _EPOCH_ORDINAL + cycles * _CYCLE
    except ValueError:
        return None
    return days if _fits(days, 32) else None


def _timestamp(text: str, *, shift: bool) -> int | None:
    """Microseconds since 1970, moved to UTC by the zone when ``shift``, else by the wall clock alone."""
    day_text, clock_text = re.match(r"([^ T]*)[ T]?(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    days = _date(day_text)
    clock = _TIME_FORM.match(clock_text or "00:00")
    if days is None or clock is None:
        return None
    hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
    zone = (clock_text or "00:00")[clock.end() :].strip()
    found = _ZONE_FORM.fullmatch(zone or "Z")
    if hour > 23 or minute > 59 or second > 59 or not found:
        return None
    offset = int(found[2] or 0) * 60 + int(found[3] or 0)
    minutes = hour * 60 + minute - (offset * (-1 if found[1] == "-" else 1) if shift else 0)
    micros = days * _DAY + (minutes * 60 + second) * 1_000_000 + int((clock[4] or "")[:6].ljust(6, "0"))
    return micros if _fits(micros, 64) else None


def _days_of(value: object) -> int | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_ORDINAL
    return value if isinstance(value, int) and not isinstance(value, bool) and _fits(value, 32) else None


def _micros_of(value: object, name: str) -> int | None:
    if isinstance(value, datetime):
        # Without a zone is UTC already; a wall clock drops the zone and keeps what the clock shows.
        if name == "timestamp" and value.tzinfo is not None:
            value = value.astimezone(UTC)
        return (value.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) and _fits(value, 64) else None


def _date_text(days: int) -> str:
    cycles, rest = divmod(days + _EPOCH_ORDINAL - date(2000, 1, 1).toordinal(), _CYCLE)
    day = date.fromordinal(rest + date(2000, 1, 1).toordinal())
    year = day.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day.month:02d}-{day.day:02d}"


def _timestamp_text(micros: int, *, iso: bool) -> str:
    days, rest = divmod(micros, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if iso:
        return f"{_date_text(days)}T{clock}.{fraction:06d}Z"
    return f"{_date_text(days)} {clock}" + (f".{fraction:06d}" if fraction else "")


def _java_text(value: float, name: str) -> str:
    """As Java prints it, which is what Spark writes: the fewest digits that tell the number, ``1.0E10`` from ten million up."""
    kind = pa.float32() if name == "float" else pa.float64()
    stored = pa.array([float(value)], pa.float64()).cast(kind)
    if not pc.is_finite(stored)[0].as_py():
        return "NaN" if pc.is_nan(stored)[0].as_py() else "Infinity" if value > 0 else "-Infinity"
    number = Decimal(str(stored.cast(pa.string())[0].as_py()))
    sign = "-" if number.is_signed() else ""
    if not number:
        return f"{sign}0.0"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    exponent = number.adjusted()
    if -3 <= exponent < 7:
        plain = f"{abs(number):f}"
        return sign + (plain.rstrip("0") + ("0" if plain.rstrip("0").endswith(".") else "") if "." in plain else f"{plain}.0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
