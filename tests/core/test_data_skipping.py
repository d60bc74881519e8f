from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core import data_skipping
from lakelog.core.data_skipping import EVERY_ROW, NO_ROW, SOME_ROWS, classify
from lakelog.core.errors import ColumnNotFoundError
from lakelog.core.predicates import (
    TRUE,
    And,
    Column,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from lakelog.core.schema import ArrayType, DataType, DecimalType, PrimitiveType, StructField, StructType
from lakelog.core.statistics import IndexedColumns, file_statistics

from .predicate_models import COLUMNS, arrow_table, predicates, rows, truth


def struct(**types: DataType) -> StructType:
    return StructType(fields=tuple(StructField(name=name, type=kind, nullable=True, metadata={}) for name, kind in types.items()))


FLAT = struct(**{name: kind for name, (kind, _, _) in COLUMNS.items()})
NESTED = StructType(fields=(*FLAT.fields, StructField(name="s", type=FLAT, nullable=True, metadata={})))
INT, LONG, STRING, DOUBLE = (PrimitiveType(name=name) for name in ("integer", "long", "string", "double"))


def files_of(stats: Sequence[str | None], partitions: Sequence[dict[str, str | None]] | None = None) -> pa.Table:
    maps = [list(values.items()) for values in partitions or [{}] * len(stats)]
    return pa.table({"partitionValues": pa.array(maps, pa.map_(pa.string(), pa.string())), "stats": pa.array(stats, pa.string())})


def classes(
    stats: Sequence[str | None],
    predicate: Predicate,
    schema: StructType,
    partitions: Sequence[dict[str, str | None]] | None = None,
    partition_columns: Sequence[str] = (),
) -> list[int]:
    found = classify(files_of(stats, partitions), predicate, schema=schema, partition_columns=partition_columns)
    assert found.type == pa.int8()
    return [value.as_py() for value in found]


def column_stats(low: Any, high: Any, nulls: int | None = 0, records: int = 3) -> str:
    """Statistics of a column ``c`` with the given JSON values; None leaves one out."""
    parts = {"minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps({"numRecords": records, **{name: {"c": value} for name, value in parts.items() if value is not None}})


def compare(op: Any, value: Any, kind: DataType) -> Comparison:
    return Comparison(op, Column(("c",)), Literal(value, kind))


def assert_sound(found: int, predicate: Predicate, truths: Sequence[bool | None]) -> None:
    assert found != NO_ROW or True not in truths, f"{predicate} drops a matching row"
    assert found != EVERY_ROW or all(value is True for value in truths), f"{predicate} is no proof"


def test_bounds_from_before_a_float_became_a_double_are_a_floats() -> None:
    # 0.7 as a float is 0.699999988: less than 0.7, though the file's least value is told as "0.7".
    for changes, expected in [([{"fromType": "float", "toType": "double"}], SOME_ROWS), ([], NO_ROW)]:
        schema = StructType((StructField("c", DOUBLE, True, {"delta.typeChanges": changes}),))
        assert classes([column_stats(0.7, 0.9)], compare("<", 0.7, DOUBLE), schema) == [expected]
        assert classes([column_stats(0.7, 0.9)], compare("<", 0.6, DOUBLE), schema) == [NO_ROW]


@given(st.data())
def test_real_footers_never_hide_a_match_nor_prove_too_much(data: st.DataObject) -> None:
    some_files = data.draw(st.lists(rows(min_size=1, max_size=4), min_size=1, max_size=3))
    stats = []
    for some_rows in some_files:
        sink = io.BytesIO()
        pq.write_table(
            arrow_table(some_rows, nested=True),
            sink,
            row_group_size=data.draw(st.integers(1, 4)),
            store_decimal_as_integer=data.draw(st.booleans()),
        )
        stats.append(file_statistics(pq.read_metadata(sink), NESTED, indexed=IndexedColumns(count=-1)))
    values = {name: [row[name] for some_rows in some_files for row in some_rows] for name in COLUMNS}
    predicate = data.draw(predicates(values, data.draw(st.sampled_from([(), ("s",)])), unknown=True))
    for found, some_rows in zip(classes(stats, predicate, NESTED), some_files, strict=True):
        assert_sound(found, predicate, [truth(predicate, row) for row in some_rows])


@given(st.data())
def test_a_file_of_one_value_is_proved_or_dropped_by_most_comparisons(data: st.DataObject) -> None:
    low, high = sorted(data.draw(st.tuples(st.integers(-5, 5), st.integers(-5, 5))))
    value, op = data.draw(st.integers(-6, 6)), data.draw(st.sampled_from(["<", "<=", ">", ">=", "=", "!="]))
    truths = [truth(compare(op, value, INT), {"c": row}) for row in range(low, high + 1)]
    expected = EVERY_ROW if all(truths) else SOME_ROWS if any(truths) else NO_ROW
    assert classes([column_stats(low, high)], compare(op, value, INT), struct(c=INT)) == [expected]
    assert classes([column_stats(low, high)], Not(compare(op, value, INT)), struct(c=INT)) == [2 - expected]


def test_null_counts_decide_null_checks_and_guard_proofs() -> None:
    stats = [column_stats(1, 1, nulls) for nulls in (0, 1, 3)] + [column_stats(1, 1, None), None, "{}"]
    schema, column = struct(c=INT), Column(("c",))
    assert classes(stats, IsNull(column), schema) == [0, 1, 2, 1, 1, 1]
    assert classes(stats, IsNotNull(column), schema) == [2, 1, 0, 1, 1, 1]
    assert classes(stats, compare("=", 1, INT), schema) == [2, 1, 0, 1, 1, 1]
    assert classes(stats, compare("<=>", 1, INT), schema) == [2, 1, 0, 1, 1, 1]
    assert classes(stats, compare("<=>", None, INT), schema) == [0, 1, 2, 1, 1, 1]
    assert classes(stats, compare("=", None, INT), schema) == [0] * 6
    assert classes(stats, Not(compare("<=>", 1, INT)), schema) == [0, 1, 2, 1, 1, 1]


def test_counts_that_cannot_be_are_unknown() -> None:
    odd = [column_stats(None, None, nulls) for nulls in (-1, 4)] + [
        column_stats(None, None, 0, 0),
        '{"nullCount":{"c":2}}',
        '{"nullCount":{"c":true},"numRecords":true}',
    ]
    assert classes(odd, IsNull(Column(("c",))), struct(c=INT)) == [1, 1, 0, 1, 1]
    assert classes(odd, IsNotNull(Column(("c",))), struct(c=INT)) == [1, 1, 2, 1, 1]


def test_some_nulls_of_wide_bounds_carry_no_information() -> None:
    wide = '{"numRecords":3,"minValues":{"c":1},"maxValues":{"c":1},"nullCount":{"c":1},"tightBounds":false}'
    assert classes([wide], IsNull(Column(("c",))), struct(c=INT)) == [SOME_ROWS]
    assert classes([wide], compare("=", 1, INT), struct(c=INT)) == [SOME_ROWS]
    assert classes([wide], compare(">", 1, INT), struct(c=INT)) == [NO_ROW]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_bounds_of_floating_point_neither_prove_nor_rule_out_larger_values(kind: str) -> None:
    stats, schema, data_type = [column_stats(1.0, 2.0)], struct(c=PrimitiveType(name=kind)), PrimitiveType(name=kind)
    expected = {
        ("<", 1.0): 0,
        ("<", 3.0): 1,
        ("<=", 0.5): 0,
        ("=", 0.5): 0,
        ("=", 2.5): 0,
        ("=", 1.5): 1,
        ("=", math.nan): 1,
        ("<", math.nan): 1,
    }
    expected |= {(op, value): 1 for op in (">", ">=", "!=") for value in (0.5, 1.5, 2.5, math.nan)}
    if kind == "float":
        expected[("<", 1.0)] = 1  # within the rounding of a float
    for (op, value), wanted in expected.items():
        assert classes(stats, compare(op, value, data_type), schema) == [wanted], (op, value)
    assert classes(stats, Not(compare(">=", 0.5, data_type)), schema) == [0]
    assert classes(stats, In(Column(("c",)), (Literal(math.nan, data_type),)), schema) == [1]
    assert classes(stats, In(Column(("c",)), tuple(Literal(7.0 + n, data_type) for n in range(150))), schema) == [0]
    assert classes(stats, In(Column(("c",)), tuple(Literal(n or math.nan, data_type) for n in range(150))), schema) == [1]


@pytest.mark.parametrize("spelled", [math.nan, math.inf, "NaN", "Infinity", -math.inf])
def test_bounds_that_are_no_numbers_are_unknown(spelled: Any) -> None:
    stats = column_stats(spelled, spelled)
    for op in ("<", ">", "="):
        assert classes([stats, column_stats(1.0, 1.0)], compare(op, 5.0, DOUBLE), struct(c=DOUBLE)) == [
            1,
            1 if op == "<" else {"=": 0, ">": 1}[op],
        ]


def test_a_float_written_short_is_not_taken_for_a_double() -> None:
    # The float nearest to 0.1 is greater than 0.1 and equal to its own double.
    single, kind = 0.10000000149011612, PrimitiveType(name="float")
    assert classes([column_stats(0.1, 0.1)], compare("=", single, kind), struct(c=kind)) == [1]
    assert classes([column_stats(0.3, 0.3)], compare("<=", 0.30000001192092896, DOUBLE), struct(c=kind)) == [1]


@pytest.mark.parametrize(
    ("low", "high", "value", "maybe"),
    [
        ("a" * 32, "a" * 32 + "\x7f", "a" * 40, True),
        ("b", "b" * 32 + "\U0010ffff", "b" * 50, True),
        ("b", "b" * 32 + "\ufffd", "b" * 32 + "\U0001f600", True),  # delta-spark before 3.3: a tie-breaker in the order of UTF-16
        ("b", "b" * 31 + "?\ufffd", "b" * 31 + "\U0001f600", True),  # ... which cut a pair of surrogates in two
        ("a\ufffd", "c", "a\x80", True),  # bytes that were no UTF-8
        ("b", "c" * 64, "c" * 64 + "d", True),  # cut without a tie-breaker
        ("b", "c" * 32 + "\x7f", "d", False),
        ("b", "c", "a" * 40, False),
    ],
)
def test_cut_strings_bound_what_was_cut_off(low: str, high: str, value: str, maybe: bool) -> None:
    stats = column_stats(low, high)
    assert classes([stats], compare("=", value, STRING), struct(c=STRING)) == [int(maybe)]
    assert classes([stats], StartsWith(Column(("c",)), value), struct(c=STRING)) == [int(maybe)]


def test_strings_prove_by_widened_bounds_alone() -> None:
    stats, schema = [column_stats("ab", "ad")], struct(c=STRING)
    assert classes(stats, compare(">=", "ab", STRING), schema) == [2]
    assert classes(stats, compare(">", "aa", STRING), schema) == [2]
    assert classes(stats, compare("<", "ae", STRING), schema) == [2]
    assert classes(stats, compare("<=", "ad", STRING), schema) == [1]
    assert classes([column_stats("ab", "ab")], compare("=", "ab", STRING), schema) == [1]
    assert classes(stats, StartsWith(Column(("c",)), "a"), schema) == [2]
    assert classes(stats, StartsWith(Column(("c",)), "ac"), schema) == [1]
    assert classes(stats, StartsWith(Column(("c",)), "b"), schema) == [0]
    assert classes(stats, StartsWith(Column(("c",)), ""), schema) == [2]


@pytest.mark.parametrize(
    ("text", "micros", "maybe"),
    [
        ("1970-01-01T00:00:01.234Z", 1_234_999, True),
        ("1970-01-01T00:00:01.234Z", 1_235_001, False),
        ("1970-01-01T00:00:01.234Z", 1_233_999, False),
        ("1970-01-01T00:00:01.234567Z", 1_234_567, True),
        ("1970-01-01T00:00:01.234567891Z", 1_234_567, True),
        ("1970-01-01T01:00:01.234+01:00", 1_234_999, True),
        (
            "1883-01-01T00:00:00.000-07:53",
            (date(1883, 1, 1) - date(1970, 1, 1)).days * 86_400 * 10**6 + (7 * 3600 + 52 * 60 + 58) * 10**6,
            True,
        ),
        ("1970-01-01 00:00:01Z", 1_000_000, True),
        ("1970-01-01T00:00:01", 5_000_000, True),
        ("1970-13-01T00:00:01Z", 5_000_000, True),
        ("yesterday", 5_000_000, True),
        ("1969-12-31T23:59:59.999Z", -1_500, True),
    ],
)
def test_timestamps_are_widened_and_malformed_ones_unknown(text: str, micros: int, maybe: bool) -> None:
    kind = PrimitiveType(name="timestamp")
    good = column_stats("2000-01-01T00:00:00.000Z", "2000-01-01T00:00:00.000Z")
    assert classes([good, column_stats(text, text), good], compare("=", micros, kind), struct(c=kind)) == [0, int(maybe), 0]


def test_timestamps_without_zone_and_dates() -> None:
    ntz, day = PrimitiveType(name="timestamp_ntz"), PrimitiveType(name="date")
    stats = [column_stats("1970-01-01T00:00:01.000", "1970-01-01T00:00:01.000Z"), column_stats("x", "1970-01-01T00:00:01.000+01:00")]
    assert classes(stats, compare(">=", 1_000_000, ntz), struct(c=ntz)) == [2, 1]
    assert classes(stats, compare("<=", 1_001_000, ntz), struct(c=ntz)) == [2, 1]
    assert classes(stats, compare("<=", 1_000_999, ntz), struct(c=ntz)) == [1, 1]
    dates = [
        column_stats("1970-01-02", "1970-01-03"),
        column_stats("1970-02-30", "1970-02-30"),
        column_stats("+10000-01-01", "+10000-01-01"),
    ]
    assert classes(dates, compare("<", 1, day), struct(c=day)) == [0, 1, 1]
    assert classes(dates, compare("<=", 2, day), struct(c=day)) == [2, 1, 1]


def test_decimals_written_as_doubles_or_exactly() -> None:
    short, long = DecimalType(precision=10, scale=2), DecimalType(precision=38, scale=18)
    raw = '{"numRecords":1,"minValues":{"c":%s},"maxValues":{"c":%s},"nullCount":{"c":0}}'
    assert classes([raw % ("1.10", "1.1")], compare("=", Decimal("1.1"), short), struct(c=short)) == [2]
    assert classes([raw % ("1.1000000000000001", "1.0999999999999999")], compare("=", Decimal("1.1"), short), struct(c=short)) == [2]
    exact = Decimal("12345678901234567890.123456789012345678")
    rounded = raw % (repr(float(exact)), repr(float(exact)))
    assert classes([rounded], compare("=", exact, long), struct(c=long)) == [1]
    assert classes([rounded], compare("=", exact + 10**8, long), struct(c=long)) == [0]
    assert classes([raw % ("-3.1661E-8", "-3.1661E-8")], compare("<", Decimal(-1), long), struct(c=long)) == [0]
    assert classes([raw % ("1e60", "1e60")], compare("<", Decimal(-1), long), struct(c=long)) == [1]
    assert classes([raw % (2**53 + 1, 2**53 + 1)], compare("=", Decimal(2**53), DecimalType(precision=20, scale=0)), struct(c=LONG)) == [0]


def test_partition_values_are_exact_and_need_no_statistics() -> None:
    schema = struct(p=INT, c=INT)
    partitions: list[dict[str, str | None]] = [{"p": "1"}, {"p": "2"}, {"p": None}, {"p": ""}]
    p = Column(("p",))

    def found(predicate: Predicate) -> list[int]:
        return classes([None] * 4, predicate, schema, partitions, ["p"])

    assert found(Comparison("=", p, Literal(1, INT))) == [2, 0, 0, 0]
    assert found(Not(Comparison("=", p, Literal(1, INT)))) == [0, 2, 0, 0]
    assert found(IsNull(p)) == [0, 0, 2, 2]
    assert found(In(p, (Literal(1, INT), Literal(None, INT)))) == [2, 0, 0, 0]
    assert found(And((Comparison("=", p, Literal(1, INT)), compare("=", 1, INT)))) == [1, 0, 0, 0]
    assert found(Or((Comparison("=", p, Literal(1, INT)), Unknown("rand()")))) == [2, 1, 1, 1]
    assert found(Not(Unknown("x"))) == [1, 1, 1, 1]
    assert found(Comparison("=", p, Literal(1.0, DOUBLE))) == [1, 1, 1, 1]


def test_partition_values_and_statistics_decide_together() -> None:
    schema, p = struct(p=INT, c=INT), Column(("p",))
    partitions: list[dict[str, str | None]] = [{"p": str(number % 2)} for number in range(6)]
    stats = [column_stats(number, number) for number in range(6)]
    both = And((Comparison("=", p, Literal(1, INT)), compare("<=", 3, INT)))
    either = Or((Comparison("=", p, Literal(1, INT)), compare("<=", 3, INT)))
    assert classes(stats, both, schema, partitions, ["p"]) == [0, 2, 0, 2, 0, 0]
    assert classes(stats, either, schema, partitions, ["p"]) == [2, 2, 2, 2, 0, 2]


def test_null_counts_of_nested_data_are_not_believed() -> None:
    schema = struct(c=ArrayType(element=INT, contains_null=True), s=struct(x=INT))
    stats = ['{"numRecords":3,"nullCount":{"c":3,"s":3},"minValues":{},"maxValues":{}}']
    assert classes(stats, IsNotNull(Column(("c",))), schema) == [SOME_ROWS]
    assert classes(stats, IsNotNull(Column(("s",))), schema) == [SOME_ROWS]


@pytest.mark.parametrize(
    "odd",
    [
        "",
        " ",
        "null",
        "5",
        "[]",
        "{",
        '{"numRecords":1}{"numRecords":2}',
        '{"minValues":5,"maxValues":{"c":{"d":9}}}',
        '{"minValues":{"c":"9"}}',
        '{"minValues":{"c":9.5},"maxValues":{"c":1e300}}',
        '{"minValues":{"c":99999999999999999999}}',
        '{"minValues":null,"nullCount":null}',
        '{}} null {"s":{}',
        "{} null",
        '{"a":"\\ud800","minValues":{"c":true}}',
        '{"minValues":{"c":9},"maxValues":{"c":-9}}',
        "\u00e9\x00",
    ],
)
def test_odd_statistics_are_unknown_and_harm_no_other_file(odd: str) -> None:
    good = column_stats(1, 2)
    assert classes([good, odd, None, good], compare(">", 2, LONG), struct(c=LONG)) == [0, 1, 1, 0]
    spread = '{"numRecords":3,\n "minValues":{"c":1},\r\n "maxValues":{"c":2}, "nullCount":{"c":0}}'
    assert classes([spread, odd], compare("<=", 2, LONG), struct(c=LONG)) == [2, 1]


def test_longs_keep_every_digit() -> None:
    stats = [column_stats(2**63 - 1, 2**63 - 1), '{"numRecords":3,"minValues":{"c":"x"}}']
    assert classes(stats[:1], compare("<", 2**63 - 1, LONG), struct(c=LONG)) == [0]
    assert classes(stats, compare("=", 2**63 - 1, LONG), struct(c=LONG)) == [2, 1]


def test_long_lists_are_looked_at_as_a_range() -> None:
    wanted = tuple(Literal(value, INT) for value in range(1000, 2000))
    stats, c = [column_stats(0, 999), column_stats(1500, 1500), column_stats(2000, 3000)], Column(("c",))
    assert classes(stats, In(c, wanted), struct(c=INT)) == [0, 1, 0]
    assert classes(stats, Not(In(c, wanted)), struct(c=INT)) == [2, 1, 2]
    assert classes(stats, In(c, wanted[:3]), struct(c=INT)) == [0, 0, 0]
    assert classes(stats, In(c, (*wanted[500:503], Literal(None, INT))), struct(c=INT)) == [0, 2, 0]
    assert classes(stats, Not(In(c, (*wanted, Literal(None, INT)))), struct(c=INT)) == [0, 0, 0]


def test_many_files_in_several_rounds() -> None:
    count = 40_000
    stats = [column_stats(number, number) for number in range(count)]
    found = classify(files_of(stats), compare("=", 33_333, INT), schema=struct(c=INT), partition_columns=[])
    assert [index for index, value in enumerate(found.to_pylist()) if value] == [33_333]


def test_bounds_are_parsed_once_for_a_caller_that_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of([column_stats(number, number) for number in range(20_000)])
    schema, kept = struct(c=INT), {}
    for value in (7, 17_000):
        found = classify(files, compare("=", value, INT), schema=schema, partition_columns=[], parsed=kept)
        assert [index for index, verdict in enumerate(found.to_pylist()) if verdict] == [value]
        monkeypatch.setattr(data_skipping, "read_bounds", None)
    assert {column for _, column in kept} == {Column(("c",))}


def test_no_files_and_no_columns() -> None:
    assert classes([], TRUE, struct(c=INT)) == []
    assert classes([None, "{}"], TRUE, struct(c=INT)) == [2, 2]


def test_a_column_that_the_table_lacks_is_named() -> None:
    with pytest.raises(ColumnNotFoundError, match=r"no column d; there are: c"):
        classes([None], IsNull(Column(("d",))), struct(c=INT))
    with pytest.raises(ColumnNotFoundError, match=r"no column c\.d"):
        classes([None], IsNull(Column(("c", "d"))), struct(c=INT))
