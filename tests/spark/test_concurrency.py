"""Writers at once: every append lands, once, and only one of two that must not both land does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import DeltaConcurrentModificationException
from tests.spark.tables import info, parquet_files, rows, save, versions


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "the table")


def at_once(*work: Callable[[], object]) -> list[BaseException | None]:
    """Run all from one starting line; what each raised."""
    line = threading.Barrier(len(work))

    def run(task: Callable[[], object]) -> BaseException | None:
        line.wait()
        try:
            task()
        except DeltaConcurrentModificationException as error:
            return error
        return None

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


def test_appends_of_two_threads_and_another_implementation_all_land(delta: SparkSession, path: str) -> None:
    save(delta.range(0), path)

    def ours(first: int) -> None:
        for number in range(first, first + 5):
            save(delta.range(number, number + 1), path)

    def theirs() -> None:
        for number in range(200, 205):
            deltalake.write_deltalake(path, pa.table({"id": pa.array([number], pa.int64())}), mode="append")

    assert at_once(lambda: ours(0), lambda: ours(100), theirs) == [None, None, None]
    assert sorted(int(str(row[0])) for row in rows(delta, path)) == [*range(5), *range(100, 105), *range(200, 205)]
    assert versions(path) == list(range(16))
    assert len(parquet_files(path)) == 15


def test_of_two_creators_one_makes_the_table(delta: SparkSession, path: str) -> None:
    outcomes = at_once(*(lambda n=n: save(delta.range(n, n + 1), path, "append") for n in (1, 2)))  # type: ignore[misc]
    landed = outcomes.count(None)
    assert landed >= 1
    assert (versions(path), len(rows(delta, path)), len(parquet_files(path))) == (list(range(landed)), landed, landed)


def test_overwrites_at_once_leave_the_rows_of_one(delta: SparkSession, path: str) -> None:
    save(delta.range(5), path)
    outcomes = at_once(*(lambda n=n: save(delta.range(n, n + 10), path, "overwrite") for n in (100, 200)))  # type: ignore[misc]
    landed = outcomes.count(None)
    assert landed >= 1
    left = sorted(int(str(row[0])) for row in rows(delta, path))
    assert left in ([*range(100, 110)], [*range(200, 210)])
    assert versions(path) == list(range(1 + landed))
    assert info(path)["operationMetrics"]["numOutputRows"] == "10"
