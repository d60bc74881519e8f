"""The cases of schema evolution on lakelog: the schema, the partitioning and the rows after each write, or a refusal that left no trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.evolution_cases import CASES, Case, expected, run
from tests.spark.tables import parquet_files, versions


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(delta: SparkSession, tmp_path: Path, case: Case) -> None:
    path = str(tmp_path / "t")
    outcome = run(delta, "lakelog", path, case)
    refused, schema, partitions, rows = expected(case)
    assert outcome.refused == refused, outcome.said
    if refused:
        assert path in outcome.said
        assert versions(path) == ([] if case.old is None else [0])
        assert len(parquet_files(path)) == (0 if case.old is None else 1)
    else:
        assert (outcome.schema, outcome.partitions, outcome.rows) == (schema, partitions, rows)


def test_each_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
