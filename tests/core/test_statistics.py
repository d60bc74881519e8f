from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import InvalidTablePropertyError
from lakelog.core.footer_bounds import FooterBounds
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType
from lakelog.core.statistics import IndexedColumns, file_statistics, indexed_leaves, parse_column_names

from .predicate_models import COLUMNS, arrow_table, rows

INT, STRING = PrimitiveType(name="integer"), PrimitiveType(name="string")


def struct(**types: DataType) -> StructType:
    return StructType(fields=tuple(StructField(name=name, type=kind, nullable=True, metadata={}) for name, kind in types.items()))


def text_of(table: pa.Table, schema: StructType, indexed: IndexedColumns | None = None, **writing: Any) -> str:
    sink = io.BytesIO()
    pq.write_table(table, sink, **writing)
    return file_statistics(pq.read_metadata(sink), schema, indexed=indexed or IndexedColumns())


def of_column(values: Sequence[Any], arrow: pa.DataType, kind: DataType, **writing: Any) -> tuple[Any, Any, Any]:
    """(minimum, maximum, null count) of a file of one column, decimals exact; None for what was left out."""
    found = json.loads(text_of(pa.table({"c": pa.array(values, arrow)}), struct(c=kind), **writing), parse_float=Decimal)
    assert found["numRecords"] == len(values)
    return tuple(found.get(kind, {}).get("c") for kind in ("minValues", "maxValues", "nullCount"))  # type: ignore[return-value]


def primitive(name: str) -> PrimitiveType:
    return PrimitiveType(name=name)


def test_the_text_is_delta_sparks_shape_and_spelling() -> None:
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int32()),
            "dec": pa.array([Decimal("123.50"), Decimal("-0.01")], pa.decimal128(7, 2)),
            "d": pa.array([0, 1], pa.date32()),
            "t": pa.array([1_577_836_800_123_999, None], pa.timestamp("us", "UTC")),
            "n": pa.array([-1, 0], pa.timestamp("us")),
            "b": pa.array([True, None]),
            "s": pa.array([{"x": "a", "l": [1]}, None], pa.struct([("x", pa.string()), ("l", pa.list_(pa.int32()))])),
        }
    )
    schema = struct(
        i=INT,
        dec=DecimalType(precision=7, scale=2),
        d=primitive("date"),
        t=primitive("timestamp"),
        n=primitive("timestamp_ntz"),
        b=primitive("boolean"),
        s=struct(x=STRING, l=ArrayType(element=INT, contains_null=True)),
    )
    assert text_of(table, schema) == (
        '{"numRecords":2,'
        '"minValues":{"i":1,"dec":-0.01,"d":"1970-01-01","t":"2020-01-01T00:00:00.123Z","n":"1969-12-31T23:59:59.999","s":{"x":"a"}},'
        '"maxValues":{"i":1,"dec":123.50,"d":"1970-01-02","t":"2020-01-01T00:00:00.123Z","n":"1970-01-01T00:00:00.000","s":{"x":"a"}},'
        '"nullCount":{"i":1,"dec":0,"d":0,"t":1,"n":0,"b":1,"s":{"x":1}}}'
    )


@given(some_rows=rows(min_size=1, max_size=5), group=st.integers(1, 5))
def test_bounds_and_null_counts_are_those_of_the_rows(some_rows: list[dict[str, Any]], group: int) -> None:
    schema = struct(s=struct(**{name: kind for name, (kind, _, _) in COLUMNS.items()}))
    table = arrow_table(some_rows, nested=True).select(["s"])
    found = json.loads(text_of(table, schema, row_group_size=group), parse_float=Decimal)
    for name in COLUMNS:
        values = [row[name] for row in some_rows if row[name] is not None]
        assert found["nullCount"]["s"][name] == len(some_rows) - len(values)
        low, high = (found.get(side, {}).get("s", {}).get(name) for side in ("minValues", "maxValues"))
        if name in {"byte", "int", "long", "decimal", "wide"}:
            assert (low, high) == ((min(values), max(values)) if values else (None, None))
        elif name in {"float", "double"}:
            finite = [value for value in values if not math.isnan(value)]
            assert high is None
            known = bool(finite) and math.isfinite(min(finite))
            # A row group of NaN alone has no bounds, which leaves those of the file unknown.
            assert low == (Decimal(repr(min(finite))) if known else None) or (low is None and len(finite) < len(values))
        elif name == "string":
            encoded = [value.encode() for value in values]
            assert low == (min(encoded).decode()[:32] if values else None)
            assert high is None or all(value <= high.encode() for value in encoded)
        elif name in {"binary", "boolean"}:
            assert (low, high) == (None, None)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7e", "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0001f600", "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0010ffff" * 2 + "bc", "a" * 32 + "\U0010ffff" * 2 + "\x7f"),
        ("a" * 32 + "\U0010ffff" * 32, "a" * 32 + "\U0010ffff" * 32),
        ("a" * 32 + "\U0010ffff" * 33, None),
        ("\U0001f600" * 33, "\U0001f600" * 32 + "\U0010ffff"),
    ],
)
def test_a_long_maximum_is_cut_with_a_tie_breaker(text: str, cut: str | None) -> None:
    assert of_column([text], pa.string(), STRING) == (text[:32], cut, 0)


def test_the_prefix_length_is_a_setting() -> None:
    found = text_of(pa.table({"c": ["abcdef"]}), struct(c=STRING), IndexedColumns(string_prefix_length=3))
    assert json.loads(found)["minValues"] == {"c": "abc"}
    assert json.loads(found)["maxValues"] == {"c": "abc\x7f"}


def test_a_nan_that_a_footer_may_hide_leaves_no_maximum() -> None:
    for name, arrow in (("float", pa.float32()), ("double", pa.float64())):
        assert of_column([1.5, math.nan], arrow, primitive(name)) == (Decimal("1.5"), None, 0)
        assert of_column([math.nan], arrow, primitive(name)) == (None, None, 0)


def test_a_minimum_of_zero_is_written_negative() -> None:
    text = text_of(pa.table({"c": [0.0, 1.0]}), struct(c=primitive("double")))
    assert '"minValues":{"c":-0.0}' in text


def test_infinity_is_left_out() -> None:
    assert of_column([-math.inf, 1.0], pa.float64(), primitive("double")) == (None, None, 0)


def test_years_that_have_no_four_digits_are_left_out() -> None:
    day, last = primitive("date"), 2_932_896
    assert of_column([last, last + 1], pa.int32(), INT)[1] == last + 1
    dates = pa.array([-719_163, last + 1], pa.int32()).cast(pa.date32())
    found = json.loads(text_of(pa.table({"c": dates, "e": pa.array([-719_162, last], pa.int32()).cast(pa.date32())}), struct(c=day, e=day)))
    assert (found["minValues"], found["maxValues"]) == ({"e": "0001-01-01"}, {"e": "9999-12-31"})
    micros = 253_402_300_800_000_000
    assert of_column([0, micros], pa.timestamp("us", "UTC"), primitive("timestamp")) == ("1970-01-01T00:00:00.000Z", None, 0)
    assert of_column([0, micros - 1], pa.timestamp("us"), primitive("timestamp_ntz"))[1] == "9999-12-31T23:59:59.999"


@pytest.mark.parametrize(("unit", "value"), [("ms", 1), ("us", 1_999), ("ns", 1_999_999)])
def test_every_unit_of_timestamps_is_floored_to_milliseconds(unit: str, value: int) -> None:
    found = of_column([-value, value], pa.timestamp(unit, "UTC"), primitive("timestamp"))
    low = "1969-12-31T23:59:59.999Z" if unit == "ms" else "1969-12-31T23:59:59.998Z"
    assert found == (low, "1970-01-01T00:00:00.001Z", 0)


def test_int96_has_null_counts_alone() -> None:
    found = of_column([0, None], pa.timestamp("us"), primitive("timestamp"), use_deprecated_int96_timestamps=True)
    assert found[:2] == (None, None)
    assert found[2] in (None, 1)


@pytest.mark.parametrize("precision", [9, 18, 38])
def test_decimals_of_every_physical_type(precision: int) -> None:
    values = [Decimal("-1.50"), Decimal("12.25"), None]
    for as_integer in (True, False):
        kind, wider = DecimalType(precision=precision, scale=2), DecimalType(precision=38, scale=4)
        arrow = pa.decimal128(precision, 2)
        assert of_column(values, arrow, kind, store_decimal_as_integer=as_integer) == (Decimal("-1.50"), Decimal("12.25"), 1)
        assert '"c":-1.5000' in text_of(pa.table({"c": pa.array(values, arrow)}), struct(c=wider), store_decimal_as_integer=as_integer)
        assert of_column(values, arrow, DecimalType(precision=38, scale=1)) == (None, None, 1)


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.uint32(), "integer"),
        (pa.int64(), "integer"),
        (pa.timestamp("us"), "timestamp"),
        (pa.timestamp("us", "UTC"), "timestamp_ntz"),
        (pa.int32(), "date"),
    ],
)
def test_a_footer_of_another_type_gives_no_bounds(arrow: pa.DataType, kind: str) -> None:
    assert of_column([1, 2], arrow, primitive(kind)) == (None, None, 0)


def test_bytes_that_are_no_text_give_no_bounds() -> None:
    assert of_column([b"\xff\xfe"], pa.binary(), STRING) == (None, None, 0)


def test_one_unmeasured_row_group_makes_all_unknown() -> None:
    table = pa.table({"c": [1, 2], "d": [None, 4]})
    schema = struct(c=primitive("long"), d=primitive("long"))
    assert json.loads(text_of(table, schema, write_statistics=["d"], row_group_size=1)) == {
        "numRecords": 2,
        "minValues": {"d": 4},
        "maxValues": {"d": 4},
        "nullCount": {"d": 1},
    }


def test_arrays_maps_and_what_is_below_them_have_no_entry() -> None:
    table = pa.table(
        {"l": [[1, None], None], "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())), "c": pa.array([1, 2], pa.int32())}
    )
    schema = struct(l=ArrayType(element=INT, contains_null=True), m=MapType(key=STRING, value=INT, value_contains_null=True), c=INT)
    assert json.loads(text_of(table, schema))["nullCount"] == {"c": 0}


def test_dots_in_names_are_not_taken_for_structs() -> None:
    table = pa.table(
        [pa.array([1], pa.int32()), pa.array([{"b": 2}], pa.struct([("b", pa.int32())])), pa.array([3], pa.int32())],
        names=["a.b", "a", 'q"\n'],
    )
    schema = StructType(
        fields=(
            StructField(name='q"\n', type=INT, nullable=True, metadata={}),
            *struct(a=struct(b=INT)).fields,
            StructField(name="a.b", type=INT, nullable=True, metadata={}),
        )
    )
    assert json.loads(text_of(table, schema))["minValues"] == {'q"\n': 3, "a": {"b": 2}, "a.b": 1}


def test_a_column_that_the_file_lacks_is_null_throughout() -> None:
    table = pa.table({"c": pa.array([1, 2], pa.int32()), "Case": pa.array([1, 2], pa.int32())})
    found = json.loads(text_of(table, struct(new=INT, v=primitive("void"), c=INT, case=INT)))
    assert found["nullCount"] == {"new": 2, "v": 2, "c": 0}


def test_a_file_without_rows() -> None:
    assert text_of(pa.table({"c": pa.array([], pa.int32())}), struct(c=INT)) == '{"numRecords":0,"nullCount":{"c":0}}'


def wide_schema() -> StructType:
    return struct(a=INT, s=struct(x=INT, t=struct(y=INT)), l=ArrayType(element=INT, contains_null=True), z=INT)


@pytest.mark.parametrize(
    ("indexed", "leaves"),
    [
        (IndexedColumns(count=0), []),
        (IndexedColumns(count=2), ["a", "s.x"]),
        (IndexedColumns(count=4), ["a", "s.x", "s.t.y", "l"]),
        (IndexedColumns(count=-1), ["a", "s.x", "s.t.y", "l", "z"]),
        (IndexedColumns(names=(("Z",), ("s", "T"))), ["s.t.y", "z"]),
        (IndexedColumns(names=(("s",),)), ["s.x", "s.t.y"]),
        (IndexedColumns(names=()), []),
    ],
)
def test_indexed_columns(indexed: IndexedColumns, leaves: list[str]) -> None:
    assert [".".join(path) for path, _ in indexed_leaves(wide_schema(), indexed)] == leaves


def test_the_default_is_the_first_32_leaves() -> None:
    schema = struct(**{f"c{number}": INT for number in range(40)})
    table = pa.table({f"c{number}": pa.array([number], pa.int32()) for number in range(40)})
    assert list(json.loads(text_of(table, schema))["nullCount"]) == [f"c{number}" for number in range(32)]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", ()),
        ("a", (("a",),)),
        (" a , b.c ", (("a",), ("b", "c"))),
        ("`a,b`.`c``d`, é", (("a,b", "c`d"), ("é",))),
    ],
)
def test_lists_of_column_names(text: str, paths: tuple[tuple[str, ...], ...]) -> None:
    assert parse_column_names(text) == paths


@pytest.mark.parametrize("text", ["a,", ",a", "a..b", "`a", "``", "a`b", "`a`b", "a.", " , "])
def test_malformed_lists_of_column_names(text: str) -> None:
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.dataSkippingStatsColumns=.* is no comma-separated list"):
        parse_column_names(text)


def test_leaves_with_a_nan_are_told_by_number() -> None:
    inner = StructType((StructField("x", primitive("double")), StructField("y", primitive("double"))))
    schema = StructType((StructField("l", ArrayType(primitive("double"), True)), StructField("s", inner)))
    table = pa.table({"l": [[1.0]], "s": [{"x": 2.0, "y": 3.0}]})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    told = json.loads(file_statistics(pq.read_metadata(sink), schema, indexed=IndexedColumns(), nan_leaves={1: FooterBounds(1.5, None, 4)}))
    assert told["minValues"] == {"s": {"x": 1.5, "y": 3.0}}
    assert told["maxValues"] == {"s": {"y": 3.0}}
    assert told["nullCount"] == {"s": {"x": 4, "y": 0}}
