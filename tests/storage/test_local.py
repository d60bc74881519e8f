"""What the local store adds to the contract: full disks, refused links, lost answers, what crashes leave, Hadoop's checksums.

The contract itself is tested in ``tests/storage/testing/test_conformance.py``.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage import local
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import AlreadyExists, Created, Unknown
from lakelog.storage.testing import SimulatedCrash
from tests.storage.testing.dying import dying_stores

VERSION = "00000000000000000000.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "t" / "_delta_log"
    path.mkdir(parents=True)
    return path


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def refuse(code: int) -> Callable[..., None]:
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def listed(folder: Path) -> list[str]:
    return [info.name for info in LocalLogStore().list_from(f"{folder}/")]


@pytest.mark.parametrize("write", ["put", "put_if_absent"])
def test_a_writer_that_dies_leaves_hidden_temporaries_alone(tmp_path: Path, write: str) -> None:
    left: set[tuple[str, ...]] = set()
    for step, store in enumerate(dying_stores(LocalLogStore)):
        folder = tmp_path / str(step)
        folder.mkdir()
        with suppress(SimulatedCrash):
            getattr(store, write)(f"{folder}/{VERSION}", b"x" * 1000)
        left.add(tuple("T" if name.startswith(f".{VERSION}.") and name.endswith(".tmp") else name for name in names(folder)))
    steps = {(), ("T",), (VERSION,)}
    assert left == (steps if write == "put" else steps | {("T", VERSION)})


@pytest.mark.parametrize("name", ["back\\slash", "'\"\n", ".hidden", "y" * 200])
def test_names_that_only_a_filesystem_takes(folder: Path, name: str) -> None:
    store = LocalLogStore()
    assert store.put_if_absent(f"{folder}/{name}", b"data") == Created()
    assert [(info.name, store.read(info.path)) for info in store.list_from(f"{folder}/")] == [(name, b"data")]
    store.delete([f"{folder}/{name}"])
    assert names(folder) == []


def test_a_plain_path_and_either_uri_are_one_file(folder: Path) -> None:
    store = LocalLogStore()
    spellings = [f"{folder}/{VERSION}", f"file:{folder}/{VERSION}", f"file://{folder}/{VERSION}", f"FILE://{folder}/{VERSION}"]
    assert store.put_if_absent(spellings[1], b"data") == Created()
    assert [store.put_if_absent(path, b"again") for path in spellings] == [AlreadyExists()] * 4
    assert [[info.path for info in store.list_from(path)] for path in spellings] == [[path] for path in spellings]
    assert [store.read(path) for path in spellings] == [b"data"] * 4


TOO_LARGE = """
import errno, os, resource, signal, sys
from lakelog.storage.local import LocalLogStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (LocalLogStore().put_if_absent, LocalLogStore().put):
    try:
        write(sys.argv[1], b"x" * 100000)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""


def test_a_write_that_the_system_cuts_short_leaves_nothing(folder: Path) -> None:
    output, _ = start(TOO_LARGE, folder / VERSION).communicate()
    assert output.split() == ["EFBIG", "EFBIG"]
    assert names(folder) == []


@pytest.mark.parametrize("step", ["open", "fsync", "link", "replace"])
def test_a_full_disk_leaves_everything_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    (folder / "_last_checkpoint").write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, refuse(errno.ENOSPC))
        if step != "replace":
            with pytest.raises(OSError, match="No space left"):
                LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"new")
        if step != "link":
            with pytest.raises(OSError, match="No space left"):
                LocalLogStore().put(f"{folder}/_last_checkpoint", b"new")
    assert names(folder) == ["_last_checkpoint"]
    assert (folder / "_last_checkpoint").read_bytes() == b"old"


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_an_interrupt_before_the_commit_point_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"new")
    assert names(folder) == []


def test_nothing_is_visible_before_the_bytes_are_durable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], int]] = []
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append((listed(folder), os.fstat(descriptor).st_size if os.path.isfile(f"/proc/self/fd/{descriptor}") else -1))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"x" * 5000)
    assert seen == [([], 5000), ([VERSION], -1)]


def test_a_large_listing_is_read_twice_for_what_the_first_reading_missed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_listdir = os.listdir
    for version in (0, 1, 2):
        (folder / f"{version}.json").touch()
    readings = iter([["0.json", "2.json"], ["0.json", "1.json", "2.json"]])
    monkeypatch.setattr(os, "listdir", lambda path: next(readings, None) or real_listdir(path))
    assert listed(folder) == ["0.json", "1.json", "2.json"]


def test_a_listing_beside_writers_that_never_rest_has_no_gap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading misses what landed in a piece that it had read already, and sees what landed later."""
    versions = itertools.count(10, 10)

    def listdir(path: str) -> list[str]:
        newest = next(versions)
        for number in range(newest):
            (folder / f"{number:03}.json").touch()
        return ["_last_checkpoint", *(f"{number:03}.json" for number in range(newest) if number not in (newest - 2, newest - 3))]

    (folder / "_last_checkpoint").touch()
    monkeypatch.setattr(os, "listdir", listdir)
    assert listed(folder) == [*(f"{number:03}.json" for number in range(10)), "_last_checkpoint"]


def test_listings_leave_out_temporaries_folders_and_what_vanished(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / ".b.json.00ff.tmp").touch()
    (folder / ".c.json.crc").touch()
    (folder / "d.json").touch()
    (folder / "e.json").symlink_to(folder / "nowhere")
    (folder / "f.tmp").touch()
    assert listed(folder) == [".c.json.crc", "d.json", "f.tmp"]


def test_listings_say_size_and_time(folder: Path) -> None:
    (folder / VERSION).write_bytes(b"abc")
    os.utime(folder / VERSION, ns=(0, 1_700_000_000_123_999_999))
    (info,) = LocalLogStore().list_from(f"file://{folder}/")
    assert (info.path, info.size, info.modification_time_ms) == (f"file://{folder}/{VERSION}", 3, 1_700_000_000_123)


def test_every_new_folder_is_synced_into_the_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(local, "_sync_folder", synced.append)
    LocalLogStore().put_if_absent(f"{tmp_path}/a/b/1", b"")
    assert synced == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]


@pytest.mark.parametrize("write", ["put", "put_if_absent", "delete"])
def test_a_stale_hadoop_checksum_goes(folder: Path, write: str) -> None:
    checksum = folder / f".{VERSION}.crc"
    checksum.write_bytes(b"crc\0stale")
    path = f"{folder}/{VERSION}"
    if write == "delete":
        LocalLogStore().delete([path])
    else:
        getattr(LocalLogStore(), write)(path, b"new")
    assert not checksum.exists()


def test_the_checksum_of_a_file_that_stays_stays(folder: Path) -> None:
    (folder / VERSION).write_bytes(b"theirs")
    (folder / f".{VERSION}.crc").write_bytes(b"crc")
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours") == AlreadyExists()
    assert names(folder) == [f".{VERSION}.crc", VERSION]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_where_links_are_refused_a_rename_that_never_replaces_serves(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    if local._renameat2() is None:
        pytest.skip("this C library has no renameat2")
    monkeypatch.setattr(os, "link", refuse(code))
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"first") == Created()
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"second") == AlreadyExists()
    assert (folder / VERSION).read_bytes() == b"first"
    assert names(folder) == [VERSION]


@pytest.mark.parametrize("rename", [None, lambda source, target: errno.EINVAL], ids=["no renameat2", "refused renameat2"])
def test_where_nothing_excludes_others_the_write_is_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rename: Callable[[str, str], int] | None
) -> None:
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    monkeypatch.setattr(local, "_renameat2", lambda: rename)
    with pytest.raises(StorageError, match="refuses hard links") as raised:
        LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"new")
    assert f"{folder}/{VERSION}" in str(raised.value)
    assert "spark.lakelog.file.logstore.class" in str(raised.value)
    assert names(folder) == []


def test_a_rename_that_fails_for_another_reason_says_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    monkeypatch.setattr(local, "_renameat2", lambda: lambda source, target: errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"new")
    assert names(folder) == []


def test_a_rename_whose_answer_was_lost_is_known_by_its_effect(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(source: str, target: str) -> int:
        os.rename(source, target)
        return errno.EIO

    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    monkeypatch.setattr(local, "_renameat2", lambda: rename)
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours") == Created()


def test_a_rename_that_nobody_can_look_up_is_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse(errno.EPERM))
        patch.setattr(os, "lstat", refuse(errno.EIO))
        patch.setattr(local, "_renameat2", lambda: lambda source, target: errno.EIO)
        outcome = LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours")
    assert isinstance(outcome, Unknown)


def test_a_c_library_without_the_rename_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    assert local._renameat2.__wrapped__() is None


def test_a_name_too_long_to_have_a_checksum_is_deleted(folder: Path) -> None:
    name = "x" * 255
    (folder / name).touch()
    LocalLogStore().delete([f"{folder}/{name}"])
    assert names(folder) == []


@pytest.mark.parametrize("write", ["put", "put_if_absent", "delete"])
def test_a_checksum_that_cannot_be_removed_stops_the_write(folder: Path, write: str) -> None:
    (folder / f".{VERSION}.crc").mkdir()
    store, path = LocalLogStore(), f"{folder}/{VERSION}"
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: store.put(path, b"new"),
        "put_if_absent": lambda: store.put_if_absent(path, b"new"),
        "delete": lambda: store.delete([path]),
    }
    with pytest.raises(OSError, match="crc"):
        calls[write]()
    assert names(folder) == [f".{VERSION}.crc"]


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO])
def test_a_link_whose_answer_was_lost_is_known_by_its_effect(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real_link = os.link

    def link(source: str, target: str) -> None:
        real_link(source, target)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours") == Created()
    assert names(folder) == [VERSION]


def test_a_link_that_nobody_can_look_up_is_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse(errno.EIO))
        patch.setattr(os, "stat", refuse(errno.EIO))
        outcome = LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours")
    assert isinstance(outcome, Unknown)
    assert "Input/output error" in str(outcome.cause)


def refuse_folder_sync(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_folder_that_cannot_be_synced_makes_the_outcome_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_folder_sync(monkeypatch, errno.EIO)
    outcome = LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours")
    assert isinstance(outcome, Unknown)
    assert (folder / VERSION).read_bytes() == b"ours"


def test_a_put_into_a_folder_that_cannot_be_synced_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_folder_sync(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        LocalLogStore().put(f"{folder}/_last_checkpoint", b"new")
    assert names(folder) == ["_last_checkpoint"]


def test_a_filesystem_without_folder_sync_is_no_trouble(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_folder_sync(monkeypatch, errno.EINVAL)
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours") == Created()
    LocalLogStore().put(f"{folder}/_last_checkpoint", b"new")
    assert names(folder) == [VERSION, "_last_checkpoint"]


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    with pytest.raises(FileNotFoundError):
        LocalLogStore().list_from(f"{tmp_path}/data.csv/_delta_log/")
    with pytest.raises(NotADirectoryError):
        LocalLogStore().put_if_absent(f"{tmp_path}/data.csv/_delta_log/1", b"")
    LocalLogStore().delete([f"{tmp_path}/data.csv/_delta_log/1"])


@pytest.mark.parametrize("path", ["relative/1", "file:relative/1", "file://host/1", "s3://bucket/1", ""])
def test_paths_that_are_not_local_are_refused(path: str) -> None:
    with pytest.raises(StorageError, match="not an absolute local path"):
        LocalLogStore().read(path)


def test_options_are_refused_by_name() -> None:
    with pytest.raises(StoreConfigurationError, match="endpoint_url, region"):
        LocalLogStore({"region": "x", "endpoint_url": "y"})
