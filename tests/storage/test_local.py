"""What the local store adds to the contract: processes, crashes, full disks, refused links, Hadoop's checksums."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage import local
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import AlreadyExists, Created, Unknown

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


RACER = """
import sys
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import Created
folder, writer, versions = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = LocalLogStore()
for version in range(versions):
    print("ready", flush=True)
    sys.stdin.readline()
    outcome = store.put_if_absent(f"{folder}/{version:020}.json", writer.encode() * 10000)
    print("won" if outcome == Created() else "lost", flush=True)
"""


def test_processes_that_race_have_one_winner(folder: Path) -> None:
    writers, versions = 5, 20
    processes = [start(RACER, folder, writer, versions) for writer in range(writers)]
    answers: list[list[str]] = []
    for _ in range(versions):
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answers.append([process.stdout.readline().strip() for process in processes if process.stdout])
    for process in processes:
        process.communicate()
    assert [sorted(answer) for answer in answers] == [["lost"] * (writers - 1) + ["won"]] * versions
    for version, answer in enumerate(answers):
        assert (folder / f"{version:020}.json").read_bytes() == str(answer.index("won")).encode() * 10000
    assert names(folder) == [f"{version:020}.json" for version in range(versions)]


VICTIM = """
import os, signal, sys
from lakelog.storage.local import LocalLogStore
path, step = sys.argv[1:]
real_link, real_fsync, real_replace = os.link, os.fsync, os.replace
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def link_then_die(source, target): real_link(source, target); die()
if step == "written": os.fsync = die
if step == "synced": os.link = os.replace = die
if step == "linked": os.link = link_then_die
store = LocalLogStore()
store.put(path, b"x" * 100000) if step == "synced" and path.endswith("_last_checkpoint") else store.put_if_absent(path, b"x" * 100000)
"""


@pytest.mark.parametrize("step", ["written", "synced"])
def test_a_writer_killed_before_the_link_leaves_nothing_visible(folder: Path, step: str) -> None:
    process = start(VICTIM, folder / VERSION, step)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert listed(folder) == []
    assert [(name[0], name[-4:]) for name in names(folder)] == [(".", ".tmp")]
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"next") == Created()


def test_a_writer_killed_after_the_link_has_committed(folder: Path) -> None:
    process = start(VICTIM, folder / VERSION, "linked")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert listed(folder) == [VERSION]
    assert (folder / VERSION).read_bytes() == b"x" * 100000
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"next") == AlreadyExists()


def test_a_writer_killed_before_the_replacement_leaves_the_old_file(folder: Path) -> None:
    (folder / "_last_checkpoint").write_bytes(b"old")
    process = start(VICTIM, folder / "_last_checkpoint", "synced")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert listed(folder) == ["_last_checkpoint"]
    assert (folder / "_last_checkpoint").read_bytes() == b"old"


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


def test_a_reader_beside_writers_meets_whole_files_alone(folder: Path) -> None:
    store, done = LocalLogStore(), threading.Event()
    size = 300_000

    def write() -> None:
        try:
            for version in range(40):
                store.put_if_absent(f"{folder}/{version:020}.json", b"%02d" % version * (size // 2))
                store.put(f"{folder}/_last_checkpoint", b"%02d" % version * (size // 2))
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    sizes, contents = set(), set()
    while not done.is_set():
        for info in list(store.list_from(f"{folder}/"))[-2:]:
            sizes.add(info.size)
            data = store.read(info.path)
            contents.add(data == data[:2] * (size // 2))
    writer.join()
    assert sizes <= {size}
    assert contents <= {True}
    assert len(listed(folder)) == 41


def test_a_large_listing_is_read_until_two_readings_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_listdir = os.listdir
    for version in (0, 1, 2):
        (folder / f"{version}.json").touch()
    readings = iter([["0.json", "2.json"], ["0.json", "1.json", "2.json"]])
    monkeypatch.setattr(os, "listdir", lambda path: next(readings, None) or real_listdir(path))
    assert listed(folder) == ["0.json", "1.json", "2.json"]


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


def test_folders_come_into_being_under_several_writers(tmp_path: Path) -> None:
    store, barrier = LocalLogStore(), threading.Barrier(6)
    outcomes: list[object] = []

    def write(number: int) -> None:
        barrier.wait()
        outcomes.append(store.put_if_absent(f"{tmp_path}/a/b/c/{number}", b""))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Created()] * 6


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


def test_a_folder_that_cannot_be_synced_makes_the_outcome_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_sync_folder", refuse(errno.EIO))
    outcome = LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours")
    assert isinstance(outcome, Unknown)
    assert (folder / VERSION).read_bytes() == b"ours"


def test_a_filesystem_without_folder_sync_is_no_trouble(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert LocalLogStore().put_if_absent(f"{folder}/{VERSION}", b"ours") == Created()


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
