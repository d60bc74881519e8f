"""Partition strings to values and back, with the forms that Spark, delta-rs and others write."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import CorruptLogError, PartitionColumnError
from lakelog.core.partition_values import parse_partition_column, serialize_partition_value
from lakelog.core.schema import ArrayType, DataType, DecimalType, PrimitiveType

DATE, STAMP, NTZ, BINARY, STRING = (PrimitiveType(n) for n in ("date", "timestamp", "timestamp_ntz", "binary", "string"))


def parsed(text: str | None, data_type: DataType) -> object:
    column = parse_partition_column(pa.array([text], pa.string()), data_type)
    if data_type == DATE:
        return column.cast(pa.int32())[0].as_py()
    return column.cast(pa.int64())[0].as_py() if data_type in (STAMP, NTZ) else column[0].as_py()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("integer", "-7", -7),
        ("long", "+9223372036854775807", 2**63 - 1),
        ("double", "1.0E10", 1e10),
        ("double", "-Infinity", -math.inf),
        ("float", "0.5", 0.5),
        ("boolean", "TRUE", True),
        ("boolean", "false", False),
        ("binary", "\u0001\u00ff\u0100", b"\x01\xc3\xbf\xc4\x80"),
        ("binary", "\\u0001\\u00fFz", b"\x01\xffz"),
        ("string", " a", " a"),
        ("string", "", None),
        ("date", "1970-01-02", 1),
        ("date", "0001-01-01", -719162),
        ("date", "+10000-01-01", 2932897),
        ("timestamp", "2021-09-08 11:11:11", 1631099471000000),
        ("timestamp", "2021-09-08 11:11:11.5", 1631099471500000),
        ("timestamp", "2021-09-08T11:11:11.000001Z", 1631099471000001),
        ("timestamp", "2021-09-08 13:11:11+02:00", 1631099471000000),
        ("timestamp", "1970-01-01 00:00:00.123456789", 123456),
        ("timestamp", "9999-12-31T23:59:59.999999Z", 253402300799999999),
        ("timestamp", "+10000-01-01 00:00:00", 253402300800000000),
        ("timestamp", "1970-01-02", 86_400_000_000),
        ("timestamp_ntz", "2013-07-05 17:01:00.123456", 1373043660123456),
    ],
)
def test_a_string_that_some_engine_writes_is_read(name: str, text: str, value: object) -> None:
    assert parsed(text, PrimitiveType(name)) == value


def test_a_decimal_is_read_at_the_scale_of_its_column() -> None:
    texts = pa.array(["12.000", "1.2E+2", "-0.01", "1", None])
    assert parse_partition_column(texts, DecimalType(5, 2)).to_pylist() == [Decimal(12), Decimal(120), Decimal("-0.01"), Decimal(1), None]


def test_both_forms_of_a_timestamp_may_stand_in_one_column() -> None:
    texts = pa.chunked_array([["1970-01-01 00:00:01", None], ["1970-01-01T00:00:02.000000Z", ""], ["1970-01-01 01:00:00.0000000+01:00"]])
    column = parse_partition_column(texts, STAMP)
    assert column.type == pa.timestamp("us", "UTC")
    assert column.cast(pa.int64()).to_pylist() == [1_000_000, None, 2_000_000, None, 0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("byte", "128"),
        ("integer", "0x1F"),
        ("integer", "1_0"),
        ("integer", "9" * 5000),
        ("double", "1_0"),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("date", "2021-02-30"),
        ("timestamp", "2021-02-03 25:00:00"),
        ("timestamp", "2021-02-03 10:00:00 Mars"),
        ("timestamp", "+300000-01-01 00:00:00"),
        ("void", "x"),
    ],
)
def test_a_string_that_is_no_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(CorruptLogError, match=f"no {name}"):
        parsed(text, PrimitiveType(name))


@pytest.mark.parametrize("text", ["1.005", "1000", "NaN", "1E+999999999", "one"])
def test_a_decimal_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(CorruptLogError, match=r"decimal\(5,2\)"):
        parsed(text, DecimalType(5, 2))


def test_a_nested_partition_column_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="array<long>"):
        parsed("1", ArrayType(PrimitiveType("long")))


@pytest.mark.parametrize(
    ("value", "data_type", "text"),
    [
        (None, STRING, None),
        ("", STRING, None),
        (b"", BINARY, None),
        (b"caf\xc3\xa9", BINARY, "caf\u00e9"),
        (b"\xff", BINARY, "\\u00ff"),
        (b"a\0", BINARY, "\\u0061\\u0000"),
        (True, PrimitiveType("boolean"), "true"),
        (10.0, PrimitiveType("double"), "10.0"),
        (1e7, PrimitiveType("double"), "1.0E7"),
        (0.001, PrimitiveType("double"), "0.001"),
        (1.5e-4, PrimitiveType("double"), "1.5E-4"),
        (0.1, PrimitiveType("float"), "0.1"),
        (math.nan, PrimitiveType("float"), "NaN"),
        (-0.0, PrimitiveType("double"), "-0.0"),
        (Decimal("1E+2"), DecimalType(5, 2), "100.00"),
        (date(2021, 9, 8), DATE, "2021-09-08"),
        (2932897, DATE, "+10000-01-01"),
        (datetime(2021, 9, 8, 11, 11, 11, tzinfo=UTC), STAMP, "2021-09-08T11:11:11.000000Z"),
        (1, NTZ, "1970-01-01 00:00:00.000001"),
        (0, NTZ, "1970-01-01 00:00:00"),
    ],
)
def test_a_value_is_written_as_spark_writes_it(value: object, data_type: DataType, text: str | None) -> None:
    assert serialize_partition_value(value, data_type) == text


@pytest.mark.parametrize(
    ("value", "name"), [("1", "integer"), (True, "long"), (300, "byte"), (1, "string"), (2**63, "timestamp"), ("x", "array")]
)
def test_a_value_of_another_type_is_not_written(value: object, name: str) -> None:
    with pytest.raises(PartitionColumnError, match="partition value of type"):
        serialize_partition_value(value, PrimitiveType(name))


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([STAMP, NTZ]))
def test_every_timestamp_survives(micros: int, data_type: DataType) -> None:
    assert parsed(serialize_partition_value(micros, data_type), data_type) == micros


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_date_survives(days: int) -> None:
    assert parsed(serialize_partition_value(days, DATE), DATE) == days


@given(st.binary(min_size=1) | st.sampled_from([b"\\u0041", b"\\u005cu0041", b"\\\\u0041"]))
def test_every_binary_survives(value: bytes) -> None:
    assert parsed(serialize_partition_value(value, BINARY), BINARY) == value


@given(st.floats(allow_nan=False))
def test_every_double_survives(value: float) -> None:
    again = parsed(serialize_partition_value(value, PrimitiveType("double")), PrimitiveType("double"))
    assert isinstance(again, float)
    assert (again, math.copysign(1, again)) == (value, math.copysign(1, value))


@given(st.floats(width=32, allow_nan=False))
def test_every_float_survives(value: float) -> None:
    assert parsed(serialize_partition_value(value, PrimitiveType("float")), PrimitiveType("float")) == value


@given(st.decimals(min_value=-(10**20), max_value=10**20, places=6))
def test_every_decimal_survives(value: Decimal) -> None:
    assert parsed(serialize_partition_value(value, DecimalType(38, 6)), DecimalType(38, 6)) == value
