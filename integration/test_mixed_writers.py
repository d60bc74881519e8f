"""lakelog's s3 store and the deltalake package, both by conditional puts, append to one table at once: nothing is lost on either side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import deltalake
import pytest

from integration.servers import MinIO
from tests.processes.race import make_table, race
from tests.processes.table import Table

WRITERS, APPENDS = 2, 10


@pytest.fixture
def table(minio: MinIO, bucket: str) -> Table:
    settings = {f"spark.lakelog.s3a.{name}": str(value) for name, value in minio.options().items()}
    others = {**minio.environment(), "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag"}
    return Table(f"s3a://{bucket}/some folder/t", {**settings, "spark.lakelog.s3a.logstore.class": "s3"}, others)


def start(table: Table, name: str) -> subprocess.Popen[str]:
    told = {"root": table.root, "options": dict(table.storage_options), "name": name, "appends": APPENDS}
    return subprocess.Popen(
        [sys.executable, "-m", "integration.deltalake_writer", json.dumps(told)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _go_after_the_first(table: Table, others: Sequence[subprocess.Popen[str]]) -> None:
    """Let them begin when lakelog's have, who take longer to start."""
    store, first = table.store(), f"{table.root}/_delta_log/{1:020d}.json"
    while not any(info.path == first for info in store.list_from(first)):
        continue
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()


def test_every_acknowledged_commit_of_both_is_in_one_contiguous_log(table: Table) -> None:
    make_table(table)
    others = [start(table, f"deltalake{number}") for number in range(WRITERS)]
    try:
        for other in others:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
        starter = threading.Thread(target=_go_after_the_first, args=(table, others), daemon=True)
        starter.start()
        result = race(table, writers=WRITERS, appends=APPENDS)
        said = [other.communicate(timeout=300)[0].split() for other in others]
    finally:
        for other in others:
            other.kill()
            other.communicate()
    assert result.failures == []
    assert [len(names) for names in said] == [APPENDS] * WRITERS
    theirs = {name for names in said for name in names}

    store, log = table.store(), f"{table.root}/_delta_log"
    names = [info.name for info in store.list_from(f"{log}/") if len(info.name) == 25 and info.name.endswith(".json")]
    assert names == [f"{version:020d}.json" for version in range(1 + 2 * WRITERS * APPENDS)]
    files: list[tuple[str, int]] = []
    named: list[str] = []
    for version, name in enumerate(names):
        actions = [json.loads(line) for line in store.read(f"{log}/{name}").splitlines()]
        files += [(action["add"]["path"], version) for action in actions if "add" in action]
        named += [info["append"] for action in actions if "append" in (info := action.get("commitInfo", {}))]
    assert sorted(named) == sorted(theirs)
    assert [path for path, count in Counter(path for path, _ in files).items() if count > 1] == []
    assert {(path, one.version) for path, one in result.acknowledged.items()} <= set(files)
    assert len(files) == 2 * WRITERS * APPENDS

    # Each reads what both wrote.
    snapshot = table.log().snapshot()
    assert snapshot.version == len(names) - 1
    assert sorted(snapshot.files["path"].to_pylist()) == sorted(path for path, _ in files)
    other = deltalake.DeltaTable(table.root, storage_options=dict(table.storage_options))
    assert other.version() == snapshot.version
    assert {uri.rpartition("/")[2] for uri in other.file_uris()} == {path for path, _ in files}
