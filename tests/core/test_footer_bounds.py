"""Footers as parquet-mr writes them, which pyarrow cannot: the values are those seen in files of Spark 4.3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.core.footer_bounds import FooterBounds, bounds_text, leaf_bounds
from lakelog.core.schema import PrimitiveType

SPARK = {b"org.apache.spark.version": b"4.3.0"}
PARQUET_MR = "parquet-mr version 1.17.0 (build fac0c746532e133beb928a7f6a7e57b510b477a1)"
DAY = {"physical": "INT32", "logical": '{"Type":"Date"}'}
INSTANT = {"physical": "INT64", "logical": '{"Type":"Timestamp","isAdjustedToUTC":true,"timeUnit":"microseconds"}'}
# Days and microseconds between 1970 and the first value that means the same in both calendars.
GREGORIAN = (date(1582, 10, 15) - date(1970, 1, 1)).days
CENTURY = (date(1900, 1, 1) - date(1970, 1, 1)).days * 86_400_000_000


def footer(
    *groups: tuple[Any, Any] | None,
    physical: str = "DOUBLE",
    logical: str = '{"Type":"None"}',
    created_by: str = PARQUET_MR,
    metadata: Mapping[bytes, bytes] | None = SPARK,
) -> Any:
    """One column without nulls; a row group is its (minimum, maximum), or None for statistics that were dropped."""
    chunks = [
        SimpleNamespace(
            num_values=3,
            statistics=SimpleNamespace(
                has_min_max=group is not None,
                has_null_count=group is not None,
                null_count=0 if group else None,
                min_raw=group and group[0],
                max_raw=group and group[1],
            ),
        )
        for group in groups
    ]
    column = SimpleNamespace(physical_type=physical, max_repetition_level=0, logical_type=SimpleNamespace(to_json=lambda: logical))
    return SimpleNamespace(
        num_row_groups=len(groups),
        row_group=lambda number: SimpleNamespace(column=lambda _: chunks[number]),
        schema=SimpleNamespace(column=lambda _: column),
        created_by=created_by,
        metadata=metadata,
    )


def bounds(kind: str, *groups: tuple[Any, Any] | None, **told: Any) -> FooterBounds:
    return leaf_bounds(footer(*groups, **told), 0, PrimitiveType(kind))


def test_a_maximum_of_parquet_mr_is_told_unless_it_is_nan() -> None:
    assert bounds("double", (1.0, 2.0), (0.5, 1.5)) == FooterBounds(0.5, 2.0, 0)
    assert bounds("double", (1.0, 2.0), (0.5, math.nan)) == FooterBounds(0.5, None, 0)
    assert bounds("double", (1.0, 2.0), (math.nan, math.nan)) == FooterBounds(None, None, 0)


@pytest.mark.parametrize("writer", ["parquet-cpp-arrow version 26.0.1", "parquet-mr compatible Photon", "DuckDB", ""])
def test_no_other_writers_maximum_is_told(writer: str) -> None:
    assert bounds("double", (1.0, 2.0), created_by=writer) == FooterBounds(1.0, None, 0)


def test_a_writer_that_looked_for_nan_is_believed() -> None:
    column = footer((1.0, 2.0), (0.5, 1.5), created_by="parquet-cpp-arrow version 26.0.1")
    assert leaf_bounds(column, 0, PrimitiveType("double"), nan_free=True) == FooterBounds(0.5, 2.0, 0)
    assert leaf_bounds(column, 0, PrimitiveType("double")) == FooterBounds(0.5, None, 0)


def test_either_zero_may_stand_for_the_other() -> None:
    found = bounds("double", (0.0, -0.0))
    assert bounds_text(found, PrimitiveType("double"), 32) == ("-0.0", "0.0")


def test_dropped_statistics_leave_bounds_and_null_count_unknown() -> None:
    assert bounds("double", (1.0, 2.0), None) == FooterBounds(None, None, None)


@pytest.mark.parametrize(
    "metadata", [{**SPARK, b"org.apache.spark.legacyDateTime": b""}, {b"org.apache.spark.version": b"2.4.8"}, {}, None]
)
def test_old_days_of_the_julian_calendar_are_left_out(metadata: Mapping[bytes, bytes] | None) -> None:
    told: dict[str, Any] = {"metadata": metadata}
    assert bounds("date", (GREGORIAN - 1, GREGORIAN), **DAY, **told) == FooterBounds(None, GREGORIAN, 0)
    assert bounds("timestamp", (CENTURY - 1, CENTURY), **INSTANT, **told) == FooterBounds(None, CENTURY, 0)


def test_old_days_of_todays_spark_are_certain() -> None:
    assert bounds("date", (GREGORIAN - 1, GREGORIAN), **DAY) == FooterBounds(GREGORIAN - 1, GREGORIAN, 0)
    assert bounds("date", (GREGORIAN - 1, GREGORIAN), **DAY, metadata=None, created_by="parquet-cpp") == FooterBounds(
        GREGORIAN - 1, GREGORIAN, 0
    )
