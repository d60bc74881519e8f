"""Schema evolution beside delta-spark: each write is made by both, and both must leave the same table or refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.evolution_cases import CASES, Case, Outcome, expected, run


def _told(outcome: Outcome) -> tuple[object, ...]:
    return (outcome.refused, outcome.schema, outcome.partitions, outcome.rows)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(both: SparkSession, tmp_path: Path, case: Case) -> None:
    ours = run(both, "lakelog", str(tmp_path / "ours"), case)
    theirs = run(both, "delta", str(tmp_path / "theirs"), case)
    assert ours.refused == expected(case)[0]
    if case.differs is None:
        assert _told(ours) == _told(theirs), (ours.said, theirs.said)
    else:
        assert _told(ours) != _told(theirs), f"no difference any more: {case.differs}"


@pytest.mark.parametrize("case", [case for case in CASES if case.schema is not None], ids=lambda case: case.name)
def test_delta_spark_reads_what_lakelog_wrote(both: SparkSession, tmp_path: Path, case: Case) -> None:
    path = str(tmp_path / "ours")
    ours = run(both, "lakelog", path, case)
    found = both.read.format("delta").load(path)
    assert found.schema.simpleString() == ours.schema
    assert found.count() == len(ours.rows)
