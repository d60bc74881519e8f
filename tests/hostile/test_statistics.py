"""Statistics and partition values that lie or are no such thing: a plan may keep too many files, and nothing else."""

from __future__ import annotations

import json

import pytest

from lakelog.core.data_skipping import NO_ROW, classify
from lakelog.core.errors import CorruptLogError
from lakelog.core.log_files import commit_name
from lakelog.core.partition_values import parse_partition_column
from lakelog.core.predicates import Column, Comparison, Literal, pa
from lakelog.core.schema import DecimalType, PrimitiveType
from lakelog.core.stats_bounds import read_bounds, read_row_counts
from tests.hostile.hostile_json import DEEP, HOSTILE_TEXTS
from tests.hostile.logs import SCHEMA, STATS, added, commit_of, simple_log
from tests.hostile.opening import open_everything, open_log

VALUES = tuple(text for text in HOSTILE_TEXTS if len(text) < 20_000)
COLUMNS = {Column((field.name,)): field.type for field in SCHEMA.fields if not isinstance(field.type, type(SCHEMA))}


def hostile_statistics() -> list[str]:
    found = [
        "",
        " ",
        "null",
        "[]",
        "3",
        '"x"',
        "{",
        "}",
        "{}{}",
        '{"numRecords":1}\n{"numRecords":2}',
        "\0",
        "\ufeff{}",
        DEEP,
        '{"a":' * 5000,
    ]
    for text in VALUES:
        found += [f'{{"numRecords":{text}}}', f'{{"numRecords":1,"minValues":{text},"maxValues":{text},"nullCount":{text}}}']
        for kind in ("minValues", "maxValues", "nullCount"):
            inner = ",".join(f"{json.dumps(str(column))}:{text}" for column in COLUMNS)
            found.append(f'{{"numRecords":1,"{kind}":{{{inner}}}}}')
    return found


@pytest.mark.parametrize("beside", [[], [STATS] * 3], ids=["alone", "beside good ones"])
def test_hostile_statistics_are_no_statistics(beside: list[str]) -> None:
    """One by one, for what one text spoils must be seen; beside good ones, which must not be spoilt."""
    for stats in hostile_statistics():
        texts = pa.array([stats, *beside, None])
        bounds = read_bounds(texts, COLUMNS)
        counts = read_row_counts(texts)
        assert len(counts) == len(texts)
        for column, found in bounds.items():
            assert len(found.lower) == len(found.upper) == len(texts), (column, stats[:100])
            assert not found.may_be_null.null_count
            assert not found.may_be_value.null_count
        if beside:
            assert counts.to_pylist()[1:4] == [2, 2, 2]
            assert bounds[Column(("long",))].lower.to_pylist()[1:4] == [1, 1, 1]


@pytest.mark.parametrize("number", ["1e-2000000000", "0e-2000000000", "9" * 100_000, "1e400", "-1e-2147483648", "0." + "3" * 100_000])
@pytest.mark.parametrize("name", ["decimal", "wide"])
def test_no_number_crashes_the_reader_of_decimals(name: str, number: str) -> None:
    stats = f'{{"numRecords":1,"minValues":{{"{name}":{number}}},"maxValues":{{"{name}":{number}}}}}'
    log = {**simple_log(1), commit_name(1): commit_of(added("x", stats=stats))}
    snapshot = open_log(log)
    column = Column((name,))
    beyond = Comparison("=", column, Literal(5, PrimitiveType("integer")))
    found = classify(snapshot.files, beyond, schema=snapshot.schema, partition_columns=snapshot.partition_columns)
    assert len(found) == 2
    assert (
        classify(
            snapshot.files, Comparison("=", column, Literal(None, PrimitiveType("integer"))), schema=snapshot.schema, partition_columns=()
        )[0].as_py()
        == NO_ROW
    )


@pytest.mark.parametrize(
    "data_type", [DecimalType(10, 2), DecimalType(38, 18), *map(PrimitiveType, ("long", "double", "date", "timestamp", "binary"))]
)
def test_partition_values_are_values_or_refused(data_type: DecimalType | PrimitiveType) -> None:
    texts = [json.loads(text) for text in VALUES if text.startswith('"') and "\\ud" not in text]
    texts += [
        "1e-2000000000",
        "0e-2000000000",
        "9" * 100_000,
        "1e999999999999999999999",
        "0x10",
        "\\uffff",
        "0" * 5000 + "1",
        "-",
        ".",
        "1_0",
    ]
    texts += ["9999999-12-31", "-0001-01-01", "2020-13-01", "2020-01-01 25:00:00", "2020-01-01T00:00:00+99:99", "\u0661", "1" * 38, "nan"]
    for text in texts:
        try:
            parsed = parse_partition_column(pa.array([text]), data_type)
        except CorruptLogError:
            continue
        assert len(parsed) == 1
        parsed.validate(full=True)


def test_a_decimal_of_more_digits_than_fit_is_no_other_decimal() -> None:
    with pytest.raises(CorruptLogError):
        parse_partition_column(pa.array(["9" * 100]), DecimalType(10, 2))
    assert [str(value) for value in parse_partition_column(pa.array(["1e2", "5.", ".5"]), DecimalType(10, 2)).to_pylist()] == [
        "100.00",
        "5.00",
        "0.50",
    ]


@pytest.mark.parametrize(
    "stats", ["{" * 10_000, "[" * 1_000_000, '{"numRecords":1,"x":' + DEEP + "}", '{"minValues":' * 300 + "1" + "}" * 300]
)
def test_deep_statistics_are_none(stats: str) -> None:
    open_everything({**simple_log(1), commit_name(1): commit_of(added("x", stats=stats), added("y"))})


def test_a_map_of_very_many_partition_values() -> None:
    add = added("x")
    many = type(add)(
        path="y",
        partition_values={**{str(number): None for number in range(100_000)}, "p": "1"},
        size=1,
        modification_time=1,
        data_change=True,
    )
    log = {**simple_log(1), commit_name(1): commit_of(add, many)}
    assert open_log(log).num_files == 3
    open_everything(log, ways=("newest", "checkpoint"))
