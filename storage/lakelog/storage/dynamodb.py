"""The LogStore for S3 beside delta-spark's S3DynamoDBLogStore: DynamoDB says who commits a version, S3 holds the commits.

Every writer of a table takes part: those of delta-spark with its ``S3DynamoDBLogStore``, those of lakelog with this one, all naming one
DynamoDB table and calling the Delta table by one scheme. Where all writers are lakelog's, or others that put conditionally, the ``s3``
store does the same without a service.

How one creator of ``N.json`` wins. ``E(N)`` is the entry of `lakelog.storage.dynamodb_items`, ``T`` an object under a name that nobody else
has.

    1. look for N.json             it is there: taken. The entry of an old commit may have expired, so it is not asked
    2. look at E(N-1)              not complete: its commit is completed first, for only the newest entry is looked at by readers
    3. put T                       ``_delta_log/.tmp/N.json.<uuid>``, the whole commit
    4. put E(N) if absent          the commit point: of many writers one passes. From here on the commit is in the table
    5. put N.json if absent        the bytes of T
    6. put E(N), complete          with the time at which DynamoDB may drop it

Whoever dies after 4, or does not get through with 5 or 6, leaves a commit that any other writer or reader completes, by 5 and 6: who lists
the log looks at the newest entry, who wants to put N looks at E(N-1), and at E(N) when step 4 finds it taken, and who misses N.json in a
read looks at E(N).

Step 5 replaces nothing on a server that honours conditions, which is tried out before a process' first commit. delta-spark's own, and ours
on any other server, is a look followed by a put, which may replace the file by the same bytes, those of T: no reader can tell. But a writer
that goes by S3 alone may have taken N between 1 and 5. Its commit stays where there are conditions, and ours is taken as lost.

Where the answer to step 4 does not come, the entry is read: its T is ours or another's. Where that fails too, the outcome is unknown.

Complete entries whose file and T are gone are what a table leaves that was at the same place and was deleted within the last day. They are
removed when they are in the way. Where T is there, no table was deleted: the file is made again of it. So what `delete` takes away goes
with its T. Other objects T stay, as those of delta-spark do; a lifecycle rule for the prefix ``_delta_log/.tmp/`` that waits a week clears
them away.

Names that are no commits go to S3 alone, and so does ``put``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Any

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.dynamodb_items import SCHEMES, CommitEntry, LogFolder, commit_at, commit_version, log_folder
from lakelog.storage.dynamodb_objects import CommitObjects
from lakelog.storage.dynamodb_settings import DynamoDBSettings
from lakelog.storage.dynamodb_table import EntryTable, Unsettled
from lakelog.storage.environment import Environment
from lakelog.storage.log_store import AlreadyExists, Created, FileInfo, LogStore, PutOutcome, Unknown
from lakelog.storage.s3_options import without_secrets
from lakelog.storage.s3_settings import S3Settings

__all__ = ["DynamoDBLogStore"]

_LOGGER = logging.getLogger(__name__)

# How often what a commit still wants is tried; a later reader or writer tries again.
_COMPLETIONS = 6
_COMPLETION_DELAY_S = 0.1
# How long it is taken for true that nobody writes a table by another scheme.
_SCHEME_AGREES_MS = 60_000
# How often the remains of a table that was deleted are met in the way of one commit.
_REMAINS = 3


class DynamoDBLogStore(LogStore):
    """Commits by a conditional put to DynamoDB. See the module for the protocol, ``dynamodb_settings`` for the options.

    Pickles without secrets: what comes out asks with the credentials of its own machine.

    Args:
        options: of this store, and of the ``s3`` store for the objects.
        environment: time, sleep, chance and identity; by default the machine's own.
        objects: where the files are; by default S3 as the options say.
        client: makes a client of boto3 for DynamoDB that repeats nothing by itself; by default as the options say.

    Raises:
        StoreConfigurationError: an unknown option, a value that makes no sense, or two options that disagree.
    """

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        *,
        environment: Environment | None = None,
        objects: LogStore | None = None,
        client: Callable[[], Any] | None = None,
    ) -> None:
        self._options = dict(options or {})
        self._settings = DynamoDBSettings.of(self._options, S3Settings.of(self._options))
        self._environment = environment or Environment.system()
        self._objects = objects or CommitObjects({**self._options, "allow_dynamodb_writers": True}, environment=self._environment)
        self._entries = EntryTable(self._settings, self._environment, client)
        # When it was last seen that nobody writes a log by another scheme.
        self._scheme_agreed_ms: dict[str, int] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (without_secrets(self._options),)

    def read(self, path: str) -> bytes:
        try:
            return self._objects.read(path)
        except FileNotFoundError:
            commit = commit_at(path)
            entry = None if commit is None else self._entry(*commit)
            if commit is None or entry is None:
                raise
        if not entry.complete:
            try:
                self._complete(commit[0], entry)
            except PermissionError:
                # Who may not write reads the commit all the same.
                return self._objects.read(commit[0].temp_file(entry))
        # Complete by now, if it was not between the two looks.
        return self._objects.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        commit = commit_at(path)
        if commit is None:
            return self._objects.put_if_absent(path, data)
        log, name = commit
        self._check_scheme(log)
        if self._is_taken(log, name):
            return AlreadyExists()
        temp_path = f".tmp/{name}.{self._environment.new_uuid()}"
        entry = CommitEntry(table_path=log.key(self._settings.scheme), file_name=name, temp_path=temp_path)
        self._objects.put(log.temp_file(entry), data)
        for _ in range(_REMAINS):
            claim = self._entries.claim(entry)
            if isinstance(claim, Unsettled):
                return Unknown(claim.cause)
            holder = claim.entry
            if holder.temp_path == temp_path:
                return self._finish(log, entry, data)
            if not holder.complete:
                self._complete(log, holder)
                return AlreadyExists()
            if self._is_there(path) or self._restore(log, holder):
                return AlreadyExists()
            self._remove_remains(log, holder)
        raise StorageError(f"{path}: {self._entries.place} holds an entry of it again and again, and the file is not there. Try again.")

    def put(self, path: str, data: bytes) -> None:
        self._objects.put(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        log = log_folder(path)
        if log is not None:
            self._check_scheme(log)
            newest = self._entries.newest(log.key(self._settings.scheme))
            if newest is not None and not newest.complete:
                try:
                    self._complete(log, newest)
                except PermissionError as error:
                    _LOGGER.info("%s: %s is not made by this reader, who may not: %s", log.path, newest.file_name, error)
                    return self._listing_with(log, newest, path)
        return self._objects.list_from(path)

    def delete(self, paths: Iterable[str]) -> None:
        wanted = list(paths)
        commits = {commit for path in wanted if (commit := commit_at(path)) is not None}
        sources: list[str] = []
        for log in {log for log, _ in commits}:
            for entry in self._entries.entries(log.key(self._settings.scheme)):
                if (log, entry.file_name) in commits:
                    # With an entry that is not complete, or with T, the file would be made again.
                    if not entry.complete:
                        self._complete(log, entry)
                    sources.append(log.temp_file(entry))
        self._objects.delete([*sources, *wanted])

    def __repr__(self) -> str:
        return f"DynamoDBLogStore({self._settings!r})"

    # the steps of a commit --------------------------------------------------------------------------------------------

    def _is_taken(self, log: LogFolder, name: str) -> bool:
        """Steps 1 and 2: whether the commit is there; what is before it is whole afterwards.

        Raises:
            StorageError: the commit before it was completed, and its file is gone for good.
        """
        version = commit_version(name)
        before = f"{max(version - 1, 0):020d}.json"
        found = set()
        for info in self._files_from(log.file(before)):
            if info.name > name:
                break
            found.add(info.name)
        if name in found:
            return True
        if version == 0:
            self._sweep_remains(log)
            return False
        entry = self._entry(log, before)
        if entry is not None and not entry.complete:
            self._complete(log, entry)
        elif entry is not None and before not in found and not self._is_there(log.file(before)) and not self._restore_last(log, entry):
            raise StorageError(
                f"{log.file(name)} cannot be committed: the commit before it was made, and its file is gone. "
                "The table was deleted, or its log is damaged. Read the table again."
            )
        return False

    def _finish(self, log: LogFolder, entry: CommitEntry, data: bytes) -> PutOutcome:
        """Steps 5 and 6. Whatever fails, the commit is made: others will complete it."""
        path = log.file(entry.file_name)
        try:
            if self._copy(path, data):
                self._acknowledge(entry)
                return Created()
            found = self._objects.read(path)
        except (StorageError, OSError) as error:
            _LOGGER.warning("%s was committed, and its file will be made by the next reader or writer: %s", path, error)
            return Created()
        self._acknowledge(entry)
        if found == data:
            return Created()
        _LOGGER.error(
            "%s was made by a writer that does not take part in %s. Let all writers use one kind of store.", path, self._entries.place
        )
        return AlreadyExists()

    def _complete(self, log: LogFolder, entry: CommitEntry) -> None:
        """Do for a commit what its writer has not, or not yet, done.

        Raises:
            StorageError: neither the commit's file nor what it would be made of is there.
            OSError: S3 cannot be reached or refuses.
        """
        path = log.file(entry.file_name)
        if not self._is_there(path):
            try:
                data = self._objects.read(log.temp_file(entry))
            except FileNotFoundError:
                if not self._is_there(path) and self._entry(log, entry.file_name) == entry:
                    raise self._lost(log, entry) from None
                return
            self._copy(path, data)
            _LOGGER.info("%s: completed the commit of another writer", path)
        self._acknowledge(entry)

    def _copy(self, path: str, data: bytes) -> bool:
        """Whether the file was not there, and is now."""
        for attempt in range(_COMPLETIONS):
            if attempt:
                self._environment.sleep(_COMPLETION_DELAY_S * 2**attempt * self._environment.random())
            outcome = self._objects.put_if_absent(path, data)
            if not isinstance(outcome, Unknown):
                return isinstance(outcome, Created)
        assert isinstance(outcome, Unknown)
        raise OSError(f"{path}: nobody can tell whether it was made: {outcome.cause}") from outcome.cause

    def _acknowledge(self, entry: CommitEntry) -> None:
        try:
            self._entries.complete(entry, self._environment.now_ms() // 1000 + self._settings.ttl_s)
        except (StorageError, OSError) as error:
            _LOGGER.info("%s: %s is there, and its entry does not say so yet: %s", entry.table_path, entry.file_name, error)

    def _listing_with(self, log: LogFolder, entry: CommitEntry, path: str) -> Iterator[FileInfo]:
        """A listing in which a commit is whose file is not there."""
        temp_path, final_path = log.temp_file(entry), log.file(entry.file_name)
        unmade = (
            FileInfo(path=final_path, size=info.size, modification_time_ms=info.modification_time_ms)
            for info in islice(self._files_from(temp_path), 1)
            if info.path == temp_path and final_path >= path
        )
        previous = ""
        for info in merge(self._files_from(path), unmade, key=lambda info: info.name):
            if info.name != previous:
                yield info
            previous = info.name

    # commits whose files are gone -----------------------------------------------------------------------------------

    def _restore(self, log: LogFolder, entry: CommitEntry) -> bool:
        """Make the file of a complete commit again; False where that of which it is made is gone, too."""
        try:
            data = self._objects.read(log.temp_file(entry))
        except FileNotFoundError:
            return False
        self._copy(log.file(entry.file_name), data)
        _LOGGER.warning("%s was gone, although it had been committed. It was made again.", log.file(entry.file_name))
        return True

    def _restore_last(self, log: LogFolder, entry: CommitEntry) -> bool:
        """`_restore` where it leaves no gap: else whoever begins to read at the gap restores one after the other."""
        version = commit_version(entry.file_name)
        return (version == 0 or self._is_there(log.file(f"{version - 1:020d}.json"))) and self._restore(log, entry)

    # what a table left behind that was deleted ------------------------------------------------------------------------

    def _sweep_remains(self, log: LogFolder) -> None:
        """Before the first version of a table: entries of one that was here before must not be taken for this one's.

        Raises:
            StorageError: objects show that it was not deleted, and its first commit cannot be made again.
        """
        table_path = log.key(self._settings.scheme)
        if self._entries.newest(table_path) is None:
            return
        remains: list[CommitEntry] = []
        kept: CommitEntry | None = None
        for entry in self._entries.entries(table_path):
            # Looked for after the entry was read: of a table that another writer is making, a complete entry's file is there.
            if self._is_there(log.file(entry.file_name)):
                continue
            if not self._is_there(log.temp_file(entry)):
                remains.append(entry)
            else:
                kept = kept or entry
        if kept is not None and commit_version(kept.file_name) > 0:
            if self._is_there(log.file(f"{0:020d}.json")):
                return
            raise StorageError(
                f"{log.path}: there is no first commit, but {log.temp_file(kept)} shows that a table is here that was not deleted: "
                f"{kept.file_name} was committed. Restore the files of its log, or delete {log.path} with all that is below it."
            )
        for entry in remains:
            self._remove_remains(log, entry)

    def _remove_remains(self, log: LogFolder, entry: CommitEntry) -> None:
        _LOGGER.warning(
            "%s: %s holds an entry of %s, whose file is gone: a table that was here was deleted. The entry is removed.",
            log.path,
            self._entries.place,
            entry.file_name,
        )
        self._entries.remove(entry)

    def _lost(self, log: LogFolder, entry: CommitEntry) -> StorageError | FileNotFoundError:
        if next(self._files_from(f"{log.path}/"), None) is None:
            return FileNotFoundError(2, "no such folder", log.path)
        return StorageError(
            f"{log.file(entry.file_name)} was committed, and neither it nor {log.temp_file(entry)}, which it is made of, is there: "
            f"its writer died, and the object was deleted. If the table was deleted and made again since, remove the entry from "
            f"{self._entries.place}: its tablePath is {entry.table_path}, its fileName {entry.file_name}. Otherwise restore the object."
        )

    # ------------------------------------------------------------------------------------------------------------------

    def _check_scheme(self, log: LogFolder) -> None:
        """Refuse a table whose other writers call it by another scheme, so that they would exclude nobody here. Asked once a minute.

        Raises:
            StoreConfigurationError: they do.
        """
        now_ms = self._environment.now_ms()
        agreed_ms = self._scheme_agreed_ms.get(log.path)
        # A clock that was set back says nothing.
        if agreed_ms is not None and 0 <= now_ms - agreed_ms <= _SCHEME_AGREES_MS:
            return
        ours = self._settings.scheme
        for other in SCHEMES:
            if other != ours and (found := self._entries.newest(log.key(other))) is not None:
                raise StoreConfigurationError(
                    f"{log.path}: {self._entries.place} holds entries of this table as {found.table_path}, {found.file_name} being the "
                    f"newest, and this store makes them as {log.key(ours)}: the writers would not exclude each other. Set "
                    f"ddb.scheme to {other!r}, or, if nobody writes the table as {other}:// any more, delete those entries."
                )
        self._scheme_agreed_ms[log.path] = now_ms

    def _entry(self, log: LogFolder, name: str) -> CommitEntry | None:
        return self._entries.get(log.key(self._settings.scheme), name)

    def _is_there(self, path: str) -> bool:
        first = next(self._files_from(path), None)
        return first is not None and first.path == path

    def _files_from(self, path: str) -> Iterator[FileInfo]:
        try:
            return self._objects.list_from(path)
        except FileNotFoundError:
            return iter(())
