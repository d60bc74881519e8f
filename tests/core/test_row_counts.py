"""Row counts out of statistics, whoever wrote them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakelog.core.stats_bounds import read_row_counts


@pytest.mark.parametrize(
    ("stats", "rows"),
    [
        ('{"numRecords":7}', 7),
        ('{ "nullCount" : {}, "numRecords" : 0 }', 0),
        ('{"minValues":{"numRecords":5},"maxValues":{"numRecords":9}}', None),
        ('{"numRecords":3,"minValues":{"numRecords":5}}', 3),
        ('{"numRecords":-1}', None),
        ('{"numRecords":"12"}', None),
        ('{"numRecords":9223372036854775807}', 2**63 - 1),
        ('{"numRecords":9223372036854775808}', None),
        ('{"numRecords":null}', None),
        ("", None),
        ("{", None),
        ("null", None),
        (None, None),
    ],
)
def test_only_the_files_own_count_counts(stats: str | None, rows: int | None) -> None:
    assert read_row_counts(pa.array([stats], pa.string())).to_pylist() == [rows]
    among_others = pa.array(['{"numRecords":1}', stats, '{"numRecords":2}'], pa.string())
    assert read_row_counts(among_others).to_pylist() == [1, rows, 2]


def test_of_no_file() -> None:
    assert read_row_counts(pa.array([], pa.string())).to_pylist() == []
