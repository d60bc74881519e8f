"""Random sequences of writes, schema changes, deletes and property changes on one table beside a plain model.

After every step lakelog reads the table back, and deltalake does too wherever it reads tables of that protocol.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as OtherReader
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from pyspark.sql import DataFrame, SparkSession

from lakelog.core.errors import LakelogError
from tests.spark.tables import latest

Row = dict[str, Any]

KEYS = st.integers(-5, 5)
PARTS = st.sampled_from(["a", "b c", "ä/ö", None])
VALUES: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "id": ("long", KEYS),
    "part": ("string", PARTS),
    "text": ("string", st.sampled_from(["", "x", "it's", "日本", None])),
    "real": ("double", st.sampled_from([0.5, -1.25, 1e300, None])),
    "day": ("date", st.sampled_from([None, "1970-01-01", "9999-12-31"])),
    "flag": ("boolean", st.sampled_from([True, False, None])),
}
EXTRA = [name for name in VALUES if name not in ("id", "part")]
# Conditions as SQL, and as the model sees them; a null answer takes no row.
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "id < 0": lambda row: row["id"] < 0,
    "id >= 2": lambda row: row["id"] >= 2,
    "part = 'a'": lambda row: row["part"] == "a",
    "part IS NULL": lambda row: row["part"] is None,
    "part = 'b c' OR id = 5": lambda row: row["part"] == "b c" or row["id"] == 5,
    "part = 'a' AND id % 2 = 0": lambda row: row["part"] == "a" and row["id"] % 2 == 0,
}
PROPERTIES = {
    "delta.checkpointInterval": ["1", "3", "100"],
    "delta.enableChangeDataFeed": ["true", "false"],
    "delta.dataSkippingNumIndexedCols": ["0", "1", "32"],
    "delta.enableInCommitTimestamps": ["true"],
    "delta.enableRowTracking": ["true"],
    "delta.parquet.compression.codec": ["zstd", "snappy"],
    "note": ["one", "two"],
}


class Operations(RuleBasedStateMachine):
    """One table and the rows that it must hold."""

    spark: SparkSession

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="random-operations-")
        self.path = str(Path(self.folder) / "t")
        self.columns: list[str] = []
        self.rows: list[Row] = []
        self.partitioned = False
        self.made = False

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    # helpers ---------------------------------------------------------------------------------------------------------

    def frame(self, columns: list[str], rows: list[Row]) -> DataFrame:
        schema = ", ".join(f"{name} {'string' if name == 'day' else VALUES[name][0]}" for name in columns)
        made = self.spark.createDataFrame([tuple(row[name] for name in columns) for row in rows], schema).coalesce(1)
        return made.withColumn("day", made["day"].cast("date")) if "day" in columns else made

    def write(self, columns: list[str], rows: list[Row], mode: str, **options: str) -> None:
        writer = self.frame(columns, rows).write.format("delta").mode(mode).options(**options)
        (writer.partitionBy("part") if self.partitioned and not self.made else writer).save(self.path)
        self.made = True

    def drawn(self, data: st.DataObject, columns: list[str], **fixed: Any) -> list[Row]:
        row = st.fixed_dictionaries({name: st.just(fixed[name]) if name in fixed else VALUES[name][1] for name in columns})
        return data.draw(st.lists(row, max_size=4))

    def widened(self, columns: list[str]) -> None:
        self.columns += [name for name in columns if name not in self.columns]
        for row in self.rows:
            for name in self.columns:
                row.setdefault(name, None)

    def filled(self, rows: list[Row]) -> list[Row]:
        return [{name: row.get(name) for name in self.columns} for row in rows]

    # rules -----------------------------------------------------------------------------------------------------------

    @initialize(data=st.data(), partitioned=st.booleans(), extra=st.sets(st.sampled_from(EXTRA), max_size=2))
    def create(self, data: st.DataObject, partitioned: bool, extra: set[str]) -> None:
        self.columns, self.partitioned = ["id", "part", *sorted(extra)], partitioned
        self.rows = self.drawn(data, self.columns)
        self.write(self.columns, self.rows, "error")

    @rule(data=st.data(), drop=st.booleans())
    def append(self, data: st.DataObject, drop: bool) -> None:
        columns = self.columns[:2] if drop else list(reversed(self.columns))
        rows = self.drawn(data, columns)
        self.write(columns, rows, "append")
        self.rows += self.filled(rows)

    @rule(data=st.data(), new=st.sampled_from(EXTRA), mode=st.sampled_from(["append", "overwrite"]))
    def evolve(self, data: st.DataObject, new: str, mode: str) -> None:
        columns = ["id", "part", new]
        rows = self.drawn(data, columns)
        self.write(columns, rows, mode, mergeSchema="true")
        self.widened(columns)
        self.rows = (self.rows if mode == "append" else []) + self.filled(rows)

    @precondition(lambda self: set(EXTRA) - set(self.columns))
    @rule(data=st.data())
    def refuse_an_extra_column(self, data: st.DataObject) -> None:
        new = data.draw(st.sampled_from(sorted(set(EXTRA) - set(self.columns))))
        before = latest(self.path)
        with pytest.raises(LakelogError, match=new):
            self.write(["id", "part", new], [], "append")
        assert latest(self.path) == before

    @rule(data=st.data())
    def overwrite(self, data: st.DataObject) -> None:
        self.rows = self.drawn(data, self.columns)
        self.write(self.columns, self.rows, "overwrite")

    @rule(data=st.data(), extra=st.sets(st.sampled_from(EXTRA), max_size=2))
    def overwrite_schema(self, data: st.DataObject, extra: set[str]) -> None:
        self.columns = ["part", "id", *sorted(extra)]
        self.rows = self.drawn(data, self.columns)
        writer = self.frame(self.columns, self.rows).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        (writer.partitionBy("part") if self.partitioned else writer).save(self.path)

    @rule(data=st.data(), condition=st.sampled_from(sorted(CONDITIONS)))
    def replace_where(self, data: st.DataObject, condition: str) -> None:
        takes = CONDITIONS[condition]
        rows = [row for row in self.drawn(data, self.columns) if takes(row)]
        self.write(self.columns, rows, "overwrite", replaceWhere=condition)
        self.rows = [row for row in self.rows if not takes(row)] + rows

    @rule(data=st.data())
    def replace_using(self, data: st.DataObject) -> None:
        rows = self.drawn(data, self.columns)
        self.write(self.columns, rows, "overwrite", replaceUsing="id")
        gone = {row["id"] for row in rows}
        self.rows = [row for row in self.rows if row["id"] not in gone] + rows

    @rule(data=st.data())
    def overwrite_partitions(self, data: st.DataObject) -> None:
        rows = self.drawn(data, self.columns)
        self.write(self.columns, rows, "overwrite", partitionOverwriteMode="dynamic")
        gone = {row["part"] for row in rows}
        self.rows = [row for row in self.rows if self.partitioned and row["part"] not in gone] + rows

    @rule(condition=st.sampled_from(sorted(CONDITIONS)))
    def delete(self, condition: str) -> None:
        self.spark.sql(f"DELETE FROM delta.`{self.path}` WHERE {condition}")
        self.rows = [row for row in self.rows if not CONDITIONS[condition](row)]

    @rule(data=st.data(), key=st.sampled_from(sorted(PROPERTIES)))
    def set_property(self, data: st.DataObject, key: str) -> None:
        value = data.draw(st.sampled_from(PROPERTIES[key]))
        self.spark.sql(f"ALTER TABLE delta.`{self.path}` SET TBLPROPERTIES ('{key}' = '{value}')")

    @rule()
    def rearrange(self) -> None:
        self.spark.read.format("delta").load(self.path).coalesce(1).write.format("delta").mode("overwrite").option(
            "dataChange", "false"
        ).save(self.path)

    # what must hold --------------------------------------------------------------------------------------------------

    @invariant()
    def lakelog_reads_the_rows(self) -> None:
        if not self.columns:
            return
        frame = self.spark.read.format("delta").load(self.path)
        assert frame.columns == self.columns
        assert sorted(repr(tuple(_text(v) for v in row)) for row in frame.collect()) == self.wanted()

    @invariant()
    def deltalake_reads_the_rows(self) -> None:
        if not self.columns:
            return
        table = OtherReader(self.path).to_pyarrow_table().select(self.columns)
        assert sorted(repr(tuple(_text(v) for v in row.values())) for row in table.to_pylist()) == self.wanted()

    def wanted(self) -> list[str]:
        return sorted(repr(tuple(_text(row[name]) for name in self.columns)) for row in self.rows)


def _text(value: object) -> object:
    return None if value is None else str(value)


def test_random_operations(delta: SparkSession) -> None:
    Operations.spark = delta
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Operations,
        settings=settings(
            max_examples=int(os.environ.get("LAKELOG_RANDOM_TABLES", "8")),
            stateful_step_count=12,
            deadline=None,
            # One failure is told as it was found: shrinking runs Spark for minutes.
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
