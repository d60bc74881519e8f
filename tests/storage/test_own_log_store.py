"""The LogStore of docs/own-log-store.md, and its test, as they stand there."""

from __future__ import annotations

import errno
import re
import sqlite3
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage import configure, log_store_for
from lakelog.storage.log_store import AlreadyExists, Created, Unknown
from lakelog.storage.table_log import TableLog
from tests import pages
from tests.storage.logs import added, attempt, creation

PAGE = pages.DOCS / "own-log-store.md"
_SOURCES = pages.modules(PAGE)


def _module(name: str) -> types.ModuleType:
    """A module of the page, under its own name."""
    made = types.ModuleType(name)
    sys.modules[name] = made
    exec(compile(_SOURCES[name], f"{PAGE}:{name}.py", "exec"), made.__dict__)
    return made


store = _module("sqlite_log_store")
# Collected by pytest, as it is where its reader puts it.
TestSqliteLogStore = _module("test_sqlite_log_store").TestSqliteLogStore


@pytest.fixture(autouse=True, scope="module")
def importable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The store's module where the child processes of the suite look for it, which are given this one's path."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "sqlite_log_store.py").write_text(_SOURCES["sqlite_log_store"], encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    yield f"{tmp_path}/logs.db"
    configure({"file": {}})


def test_a_tables_log_is_kept_in_it(database: str) -> None:
    configure({"file": {"logstore.class": "sqlite_log_store.SqliteLogStore", "database": database}})

    def log() -> TableLog:
        return TableLog("/lake/numbers", log_store_for("/lake/numbers"))

    log().commit(creation())

    def append(writer: int) -> None:
        own = log()
        for number in range(6):
            own.commit(attempt(own.snapshot().version, added(f"{writer}-{number}")))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    snapshot = log().snapshot()
    assert snapshot.version == 24
    assert snapshot.num_files == 24
    assert [entry.version for entry in log().history()] == list(range(24, -1, -1))
    with closing(sqlite3.connect(database)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM files WHERE folder = '/lake/numbers/_delta_log'")]
    assert {"00000000000000000024.json", "00000000000000000020.checkpoint.parquet", "_last_checkpoint"} <= set(names)


def test_a_refusal_is_an_error_and_a_doubt_is_unknown(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log_store = store.SqliteLogStore({"database": database})
    assert log_store.put_if_absent("/t/0", b"first") == Created()
    assert log_store.put_if_absent("/t/0", b"second") == AlreadyExists()

    answers = iter([sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY_SNAPSHOT, sqlite3.SQLITE_IOERR_FSYNC, None])

    class Failing:
        def execute(self, statement: str, values: object) -> None:
            error, code = sqlite3.OperationalError("it failed"), next(answers)
            if code is not None:
                error.sqlite_errorcode = code
            raise error

    monkeypatch.setattr(log_store, "_database", Failing())
    for expected in (errno.ENOSPC, errno.EBUSY):
        with pytest.raises(OSError, match="SQLite: it failed") as raised:
            log_store.put_if_absent("/t/1", b"data")
        assert raised.value.errno == expected
    for _ in range(2):
        outcome = log_store.put_if_absent("/t/1", b"data")
        assert isinstance(outcome, Unknown)
        assert "SQLite: it failed" in str(outcome.cause)


@pytest.mark.parametrize("options", [{}, {"database": "x.db", "host": "y"}])
def test_options_that_it_does_not_know_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(StoreConfigurationError, match=re.escape(f"not {sorted(options)}")):
        store.SqliteLogStore(options)
