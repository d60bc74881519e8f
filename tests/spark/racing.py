"""Another writer whose commit lands just before ours: after ours has read the table and written its files, before its put."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lakelog.spark.session import context_of
from lakelog.storage import configure
from lakelog.storage.log_store import LogStore, PutOutcome
from tests.spark.tables import of_kind, parquet_files, versions
from tests.storage.faults import FaultyLogStore

Read = Callable[[LogStore, str], bytes]


class HookedLogStore(FaultyLogStore):
    """A local store whose ``put_if_absent`` and ``read`` are the class's `put_of_test` and `read_of_test` while those are set."""

    read_of_test: Read | None = None

    def read(self, path: str) -> bytes:
        decide = type(self).read_of_test
        return super().read(path) if decide is None else decide(self._inner, path)


@contextmanager
def hooked_store(spark: SparkSession, table: str) -> Iterator[None]:
    """The table's log behind a store of the test's own."""
    configure({"file": {"logstore.class": f"{HookedLogStore.__module__}.HookedLogStore"}})
    context_of(spark).logs.forget(table)
    try:
        yield
    finally:
        HookedLogStore.put_of_test = HookedLogStore.read_of_test = None
        configure({"file": {}})
        context_of(spark).logs.forget(table)


def just_before(act: Callable[[], object]) -> None:
    """Let ``act`` happen, in a thread of its own as another user's, before the next commit through `hooked_store` is put."""

    def put(store: LogStore, path: str, data: bytes) -> PutOutcome:
        HookedLogStore.put_of_test = None
        with ThreadPoolExecutor(1) as other:
            other.submit(act).result()
        return store.put_if_absent(path, data)

    HookedLogStore.put_of_test = staticmethod(put)


def orphans(table: str) -> list[str]:
    """Data files that no commit has ever named."""
    named = {Path(str(add["path"])).name for version in versions(table) for add in of_kind(table, "add", version)}
    return [path.name for path in parquet_files(table) if path.name not in named]
