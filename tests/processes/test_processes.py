"""Processes that append to one table at once, and processes killed while they do. ``make soak`` runs the same with more of both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.race import check, make_table, race
from tests.processes.table import Table


def test_every_append_of_every_process_lands_once(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"))
    make_table(table)
    result = race(table, writers=8, appends=50)
    check(table, result, wanted=400)
    assert sorted(said.version for said in result.acknowledged.values()) == list(range(1, 401))
    assert [name for name in os.listdir(tmp_path / "t" / "_delta_log") if name.endswith(".tmp")] == []


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_killed_writer_acknowledged_is_there(tmp_path: Path, seed: int) -> None:
    table = Table(str(tmp_path / "t"))
    make_table(table, {"delta.checkpointInterval": "3"})
    result = race(table, writers=4, appends=12, kill_after=8, seed=seed)
    check(table, result, wanted=48)
    assert result.kills > 0


def test_a_writer_imports_no_more_than_it_needs() -> None:
    """A process that appends starts in a fraction of what PySpark or pandas take."""
    program = "import sys, tests.processes.writer; print({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'py4j', 'pandas'})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    root = Path(__file__).resolve().parents[2]
    answer = subprocess.run([sys.executable, "-c", program], env=environment, cwd=root, text=True, capture_output=True, check=True)
    assert answer.stdout.strip() == "set()"
