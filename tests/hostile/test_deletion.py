"""Whatever a log says, nothing outside of the table's root is deleted, and of the log only what a kept checkpoint makes superfluous."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from lakelog.core.actions import RemoveFile
from lakelog.core.errors import LakelogError, UnknownSchemeError
from lakelog.core.log_files import checkpoint_name, commit_name
from lakelog.storage.data_files import delete_files
from lakelog.storage.file_access import FileAccess
from lakelog.storage.local import LocalLogStore
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing.memory import MemoryLogStore
from tests.hostile.logs import added, commit_of, log_with_checkpoint, simple_log
from tests.hostile.opening import LATER_MS, NOW_MS, ROOT, Log, environment
from tests.hostile.test_names import ODD_NAMES


class Watched(MemoryLogStore):
    """Notes what is to be deleted."""

    def __init__(self) -> None:
        clock = itertools.count(NOW_MS, 1000)
        super().__init__(lambda: next(clock))
        self.deleted: list[str] = []

    def delete(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        self.deleted += paths
        super().delete(paths)


def reach(*targets: str) -> bytes:
    """A commit whose paths name what they must not reach."""
    return commit_of(
        *(added(path) for path in targets),
        *(RemoveFile(path=f"{path}2", deletion_timestamp=0, data_change=True) for path in targets),
    )


TARGETS = ("/etc/passwd", "file:///victim", "s3://bucket/x", "//host/x", "a/../b", "%2Fvictim", "..\\x")


@pytest.mark.parametrize("targets", [TARGETS, ("../victim",), ("_delta_log/00000000000000000003.json",), ("_delta_log/_last_checkpoint",)])
def test_clean_up_deletes_names_of_the_listing_alone(targets: tuple[str, ...]) -> None:
    log: dict[str, bytes] = {**simple_log(), checkpoint_name(3): log_with_checkpoint()[checkpoint_name(3)]}
    log |= dict.fromkeys((*ODD_NAMES, "00000000000000000001.checkpoint.\\..json", "00000000000000000001.checkpoint.%2e%2e.parquet"), b"x")
    log[commit_name(4)] = reach(*targets)
    store = Watched()
    for name in sorted(log):
        store.put(f"{ROOT}/_delta_log/{name}", log[name])
    table = TableLog(ROOT, store, environment(LATER_MS))
    try:
        table.clean_up()
    except LakelogError:
        # The newest commit cannot be read: a writer that held the version before cleans up.
        table = TableLog(ROOT, store, environment(LATER_MS))
        table._maintenance.clean_up(table.snapshot(3))
    assert store.deleted
    folder = f"{ROOT}/_delta_log/"
    assert all(path.startswith(folder) and path.removeprefix(folder) in log for path in store.deleted)
    assert all(path.removeprefix(folder)[:20] < f"{3:020d}" for path in store.deleted)
    assert not {"00000000000000000003.json", checkpoint_name(3), commit_name(4)} & {path.removeprefix(folder) for path in store.deleted}


def test_on_a_disk_nothing_beside_the_log_is_touched(tmp_path: Path) -> None:
    root = tmp_path / "t"
    log: Log = {**simple_log(), checkpoint_name(3): log_with_checkpoint()[checkpoint_name(3)], commit_name(4): reach(*TARGETS)}
    (root / "_delta_log").mkdir(parents=True)
    for name, data in log.items():
        (root / "_delta_log" / name).write_bytes(data)
    others = [tmp_path / "victim", root / "part-0", root / "p=1" / "part-0", root / "_delta_log" / "note.txt"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    table = TableLog(str(root), LocalLogStore(), environment(LATER_MS * 2))
    assert sorted(table.clean_up()) == [commit_name(version) for version in range(3)]
    assert all(path.read_bytes() == b"x" for path in others)


@pytest.mark.parametrize("uri", ["../x", "x", "/x", "file://host/x", "file:x", "s3://b/x", "file:////x", "", "http:///x"])
def test_data_files_are_deleted_by_whole_local_uris_alone(uri: str, tmp_path: Path) -> None:
    victim = tmp_path / "x"
    victim.write_bytes(b"x")
    with pytest.raises(UnknownSchemeError):
        delete_files(FileAccess(kind="file"), LocalLogStore(), [f"file://{victim}", uri])
    assert victim.exists()
