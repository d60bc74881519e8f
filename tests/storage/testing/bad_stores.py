"""Stores that break one promise each, as stores in use have."""

from __future__ import annotations

import itertools
import os
import threading
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import AlreadyExists, Created, FileInfo, PutOutcome, Unknown


def write_in_pieces(path: str, data: bytes, mode: str) -> None:
    with open(path, mode, buffering=0) as file:
        for start in range(0, max(len(data), 1), 7_000):
            file.write(data[start : start + 7_000])


def with_folder(path: str) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


class LooksThenPuts(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if os.path.lexists(path):
            return AlreadyExists()
        self.put(path, data)
        return Created()


class LocksInItsProcess(LooksThenPuts):
    lock = threading.Lock()

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        with self.lock:
            return super().put_if_absent(path, data)


class RenamesOver(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        temporary = with_folder(f"{os.path.dirname(path)}/.{uuid.uuid4().hex}.tmp")
        write_in_pieces(temporary, data, "xb")
        os.rename(temporary, path)
        return Created()


class CreatesThenWrites(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        try:
            write_in_pieces(with_folder(path), data, "xb")
        except FileExistsError:
            return AlreadyExists()
        return Created()


class WritesInPlace(LocalLogStore):
    def put(self, path: str, data: bytes) -> None:
        write_in_pieces(with_folder(path), data, "wb")


class DeletesThenPuts(LocalLogStore):
    def put(self, path: str, data: bytes) -> None:
        self.delete([path])
        super().put(path, data)


class ShowsTemporaries(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        temporary = with_folder(f"{path}.{uuid.uuid4().hex}")
        with open(os.open(temporary, os.O_CREAT | os.O_WRONLY), "wb") as file:
            file.write(data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return AlreadyExists()
        finally:
            os.unlink(temporary)
        return Created()


class LeavesItsLock(LocalLogStore):
    """A lock in the medium that dies with nobody."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        folder, name = os.path.split(with_folder(path))
        try:
            os.mkdir(f"{folder}/.{name}.lock")
        except FileExistsError:
            return AlreadyExists()
        outcome = super().put_if_absent(path, data)
        os.rmdir(f"{folder}/.{name}.lock")
        return outcome


class AnswersBeforeItWrites(LocalLogStore):
    def __init__(self) -> None:
        super().__init__()
        self.later: list[tuple[str, bytes]] = []

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if os.path.lexists(path) or any(path == known for known, _ in self.later):
            return AlreadyExists()
        self.later.append((path, data))
        if len(self.later) > 2:
            return super().put_if_absent(*self.later.pop(0))
        return Created()

    def read(self, path: str) -> bytes:
        return next((data for known, data in self.later if known == path), None) or super().read(path)


class SaysCreatedToItsOwnBytes(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = super().put_if_absent(path, data)
        return Created() if outcome == AlreadyExists() and self.read(path) == data else outcome


class AnswersTrue(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return super().put_if_absent(path, data) == Created()  # type: ignore[return-value]


class NeverKnows(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return Unknown(TimeoutError())


class PutsNothing(LocalLogStore):
    def put(self, path: str, data: bytes) -> None:
        self.put_if_absent(path, data)


class CutsLargeBodies(LocalLogStore):
    def put(self, path: str, data: bytes) -> None:
        super().put(path, data[: 5 << 20])


class ReadsNothingWhereNothingIs(LocalLogStore):
    def read(self, path: str) -> bytes:
        try:
            return super().read(path)
        except FileNotFoundError:
            return b""


class ReadsBuffers(LocalLogStore):
    def read(self, path: str) -> bytes:
        return bytearray(super().read(path))


class SwallowsDeletes(LocalLogStore):
    def delete(self, paths: Iterable[str]) -> None:
        list(paths)


class DeletesAPage(LocalLogStore):
    def delete(self, paths: Iterable[str]) -> None:
        super().delete(itertools.islice(paths, 1000))


class InsistsOnWhatItDeletes(LocalLogStore):
    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            os.unlink(path)


class DecodesPaths(LocalLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return super().put_if_absent(urllib.parse.unquote(path), data)

    def read(self, path: str) -> bytes:
        return super().read(urllib.parse.unquote(path))


class CutsPathsAtTheQuery(LocalLogStore):
    def put(self, path: str, data: bytes) -> None:
        super().put(path.partition("?")[0], data)


class ListsUnsorted(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return reversed(list(super().list_from(path)))


class ListsByUtf16(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return iter(sorted(super().list_from(path), key=lambda info: info.name.encode("utf-16-be")))


class ListsFromAfterTheBound(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return (info for info in super().list_from(path) if info.path != path)


class ListsByPrefix(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return (info for info in super().list_from(path) if info.path.startswith(path))


class ListsRecursively(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        infos, folder = list(super().list_from(path)), path.rpartition("/")[0]
        below = [os.path.join(under, name) for under, _, names in os.walk(folder) if under != folder for name in names]
        infos.extend(FileInfo(path=name, size=0, modification_time_ms=0) for name in below if name >= path)
        return iter(sorted(infos, key=lambda info: info.path))


class ListsFolders(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        infos, folder = list(super().list_from(path)), path.rpartition("/")[0]
        infos.extend(FileInfo(path=entry.path, size=0, modification_time_ms=0) for entry in os.scandir(folder) if entry.is_dir())
        return iter(sorted(infos, key=lambda info: info.path))


class ListsAPage(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return itertools.islice(super().list_from(path), 1000)


class ListsLazily(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        yield from super().list_from(path)


class ListsNothingWhereNothingIs(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        try:
            return super().list_from(path)
        except FileNotFoundError:
            return iter(())


class ListsAList(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return list(super().list_from(path))  # type: ignore[return-value]


class ListsWhatItRemembers(LocalLogStore):
    def __init__(self) -> None:
        super().__init__()
        self.listings: dict[str, list[FileInfo]] = {}

    def list_from(self, path: str) -> Iterator[FileInfo]:
        if path not in self.listings:
            self.listings[path] = list(super().list_from(path))
        return iter(self.listings[path])


class ReadsWhatItRemembers(LocalLogStore):
    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        if path not in self.files:
            self.files[path] = super().read(path)
        return self.files[path]

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        self.files[path] = data

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.pop(path, None)
            super().delete([path])


class ListsSeconds(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return (replace(info, modification_time_ms=info.modification_time_ms // 1000) for info in super().list_from(path))


class ListsBareNames(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return (replace(info, path=info.name) for info in super().list_from(path))


class ListsNoSizes(LocalLogStore):
    def list_from(self, path: str) -> Iterator[FileInfo]:
        return (replace(info, size=0) for info in super().list_from(path))
