"""Bugs that a commit protocol could have, each as a change of the code that can be undone.

Every plant takes a ``pytest.MonkeyPatch`` and turns the production code into what it would be with the bug.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelog.core import conflicts, in_commit_timestamps, row_tracking
from lakelog.core.actions import Metadata, Protocol
from lakelog.core.commit import CommitAttempt, Isolation, PreparedCommit
from lakelog.core.errors import StorageError
from lakelog.core.file_columns import FILES_SCHEMA
from lakelog.core.log_files import ClassicCheckpoint, CommitFile, parse_log_file
from lakelog.core.log_segment import LogListing
from lakelog.core.replay import Fold
from lakelog.core.snapshot import Snapshot
from lakelog.storage import checkpoint_io, commit_loop, local, maintenance, table_log
from lakelog.storage.checkpoint_io import save_checkpoint
from lakelog.storage.commit_loop import CommitLoop
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_reader import CommitData, HeldLog, LogReader
from lakelog.storage.log_store import AlreadyExists, Created, FileInfo, LogStore, PutOutcome, Unknown
from lakelog.storage.maintenance import Maintenance
from tests.simulation.workload import Client
from tests.storage import sweep

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A bug and who must find it.

    Attributes:
        name: what is wrong.
        plant: puts it into the code.
        simulated: the simulator finds it within a number of seeds.
        swept: operations of the Nth-call sweep that find it, each alone.
        contract: the tests of the local store that find it, by name.
    """

    name: str
    plant: Plant
    simulated: bool = True
    swept: Sequence[str] = ()
    contract: Sequence[str] = ()


class Passing(LogStore):
    """A store as the commit loop sees it, for plants to override."""

    def __init__(self, inner: LogStore) -> None:
        self.inner = inner

    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self.inner.put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.inner.put(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        return self.inner.list_from(path)

    def delete(self, paths: Any) -> None:
        self.inner.delete(paths)


def _commits_through(kind: type[Passing]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        original = CommitLoop.__init__

        def init(self: CommitLoop, store: LogStore, reader: LogReader, environment: Any) -> None:
            original(self, kind(store), reader, environment)

        patch.setattr(CommitLoop, "__init__", init)

    return plant


class _PlainPut(Passing):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.inner.put(path, data)
        return Created()


class _LookThenPut(Passing):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        try:
            self.inner.read(path)
        except FileNotFoundError:
            self.inner.put(path, data)
            return Created()
        return AlreadyExists()


class _NextVersionWhileUnknown(Passing):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = self.inner.put_if_absent(path, data)
        if isinstance(outcome, Unknown):
            folder, _, name = path.rpartition("/")
            return self.inner.put_if_absent(f"{folder}/{int(name[:20]) + 1:020d}.json", data)
        return outcome


class _FreshIdentities(Passing):
    def __init__(self, inner: LogStore) -> None:
        super().__init__(inner)
        self._puts = 0

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._puts += 1
        mark = b'"txnId":"'
        start = data.index(mark) + len(mark)
        return self.inner.put_if_absent(path, data[:start] + b"%08d" % self._puts + data[start + 8 :])


def _exists_is_a_conflict(patch: pytest.MonkeyPatch) -> None:
    def other(self: CommitLoop, version: int, prepared: PreparedCommit, *, doubted: bool) -> bytes | None:
        return self._store.read(self._reader.commit_path(version))

    patch.setattr(CommitLoop, "_other", other)


def _exists_is_ours(patch: pytest.MonkeyPatch) -> None:
    def other(self: CommitLoop, version: int, prepared: PreparedCommit, *, doubted: bool) -> bytes | None:
        self._store.read(self._reader.commit_path(version))
        return None

    patch.setattr(CommitLoop, "_other", other)


def _unknown_is(answer: Callable[[Exception], bool]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        original = CommitLoop._settle

        def settle(self: CommitLoop, version: int, prepared: PreparedCommit, doubts: list[Exception]) -> bytes | None:
            if doubts:
                return original(self, version, prepared, doubts)
            outcome = self._store.put_if_absent(self._reader.commit_path(version), prepared.data)
            if isinstance(outcome, Unknown):
                return None if answer(outcome.cause) else b""
            return None if isinstance(outcome, Created) else self._other(version, prepared, doubted=True)

        patch.setattr(CommitLoop, "_settle", settle)

    return plant


def _failure(cause: Exception) -> bool:
    raise StorageError(f"the commit failed: {cause}")


def _nothing_there_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    def settle(self: CommitLoop, version: int, prepared: PreparedCommit, doubts: list[Exception]) -> bytes | None:
        if isinstance(self._store.put_if_absent(self._reader.commit_path(version), prepared.data), Created):
            return None
        try:
            return self._other(version, prepared, doubted=True)
        except FileNotFoundError as error:
            raise StorageError(f"version {version} is not there") from error

    patch.setattr(CommitLoop, "_settle", settle)


def _in_doubt_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLoop, "_unknown", lambda self, version, prepared, cause: StorageError(f"version {version}: {cause}"))


def _deleted_in_doubt(patch: pytest.MonkeyPatch) -> None:
    """Not in the code of core or storage but in that of an adapter, of which the simulator and the sweep have a model each."""
    patch.setattr(Client, "_resolve", lambda self, intent, plan, error: self.world.discard(plan.written))
    original = sweep.World.commit

    def commit(self: sweep.World, *arguments: Any) -> Any:
        try:
            return original(self, *arguments)
        except sweep.Pending as pending:
            self.data -= pending.written
            raise

    patch.setattr(sweep.World, "commit", commit)


def _never_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conflicts.Trial, "pass_by", lambda self, winner, before: None)


def _never_caught_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLoop, "_catch_up", lambda self, prepared, trial, base: None)


def _without_rule(rule: conflicts.Rule) -> Plant:
    return lambda patch: patch.setattr(conflicts, "RULES", tuple(other for other in conflicts.RULES if other is not rule))


def _joins_any_table(patch: pytest.MonkeyPatch) -> None:
    def joined(attempt: CommitAttempt, snapshot: Snapshot) -> CommitAttempt:
        actions = tuple(action for action in attempt.actions if not isinstance(action, Protocol | Metadata))
        return replace(attempt, read_version=snapshot.version, actions=actions)

    patch.setattr(commit_loop, "joined", joined)


def _creates_unlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLoop, "_table_is_there", lambda self: False)


def _isolation_is(weaker: Mapping[Isolation, Isolation]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for module in (table_log, commit_loop):
            original = module.isolation_of
            patch.setattr(module, "isolation_of", lambda *arguments, original=original: weaker.get(found := original(*arguments), found))

    return plant


def _every_commit_is_blind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitAttempt, "is_blind_append", property(lambda self: True))


def _follows_by_number_alone(patch: pytest.MonkeyPatch) -> None:
    original = CommitLoop._follow

    def follow(
        self: CommitLoop, prepared: PreparedCommit, trial: conflicts.Trial, current: Snapshot, passed: Sequence[CommitData], winners: Any
    ) -> tuple[Snapshot, list[CommitData]]:
        newest, since = original(self, prepared, trial, current, passed, winners)
        return replace(current, state=replace(current.state, version=newest.version + len(since))), []

    patch.setattr(CommitLoop, "_follow", follow)


def _checkpoint_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    original = CommitLoop._put

    def put(self: CommitLoop, version: int, prepared: PreparedCommit) -> bool:
        if version and version % 4 == 0:
            base = self._reader.load(version - 1).snapshot
            own = CommitData(version=version, data=prepared.data, timestamp_ms=prepared.timestamp_ms)
            save_checkpoint(self._store, self._reader.folder, self._reader.advance(base, [own]), now_ms=prepared.timestamp_ms)
        return original(self, version, prepared)

    patch.setattr(CommitLoop, "_put", put)


def _checkpoint_without(column: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        original = checkpoint_io.checkpoint_table

        def checkpoint_table(snapshot: Snapshot, *, now_ms: int) -> Any:
            table = original(snapshot, now_ms=now_ms)
            return table.filter(pc.is_null(table[column]))

        patch.setattr(checkpoint_io, "checkpoint_table", checkpoint_table)

    return plant


def _clean_up_takes_the_start(patch: pytest.MonkeyPatch) -> None:
    original = maintenance.log_files_to_delete

    def log_files_to_delete(files: Sequence[LogListing], **arguments: int) -> list[str]:
        names = original(files, **arguments)
        return names and [*names, *(file.name for file in files if isinstance(parse_log_file(file.name), ClassicCheckpoint))]

    patch.setattr(maintenance, "log_files_to_delete", log_files_to_delete)
    patch.setattr(LogReader, "starts_from_a_readable_checkpoint", lambda self, files: True)


def _clean_up_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    original = Maintenance.after_commit

    def after_commit(self: Maintenance, snapshot: Snapshot) -> None:
        if snapshot.version and snapshot.version % snapshot.properties.checkpoint_interval == 0:
            names = (file.name for file in self._reader.listing())
            older = [name for name in names if isinstance(file := parse_log_file(name), CommitFile) and file.version < snapshot.version]
            self._store.delete([f"{self._reader.folder}/{name}" for name in older])
        original(self, snapshot)

    patch.setattr(Maintenance, "after_commit", after_commit)


def _clean_up_trusts_any_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogReader, "starts_from_a_readable_checkpoint", lambda self, files: True)


def _refresh_skips_a_commit(patch: pytest.MonkeyPatch) -> None:
    original = LogReader.refresh

    def refresh(self: LogReader, held: HeldLog) -> HeldLog:
        found = original(self, held)
        skipped = held.snapshot.version + 1
        if found.snapshot.version <= skipped:
            return found
        commits = [CommitData(version=skipped, data=b'{"commitInfo":{}}', timestamp_ms=0)]
        for version in range(skipped + 1, found.snapshot.version + 1):
            commits.append(CommitData(version=version, data=self._store.read(self.commit_path(version)), timestamp_ms=0))
        return replace(found, snapshot=self.advance(held.snapshot, commits))

    patch.setattr(LogReader, "refresh", refresh)


def _listing_hides_the_newest(patch: pytest.MonkeyPatch) -> None:
    original = LogReader.listing

    def listing(self: LogReader, from_version: int = 0) -> list[LogListing]:
        files = original(self, from_version)
        commits = [file for file in files if isinstance(parse_log_file(file.name), CommitFile)]
        return [file for file in files if len(commits) < 2 or file is not commits[-1]]

    patch.setattr(LogReader, "listing", listing)


def _states_share_their_transactions(patch: pytest.MonkeyPatch) -> None:
    original = Fold.__init__

    def init(self: Fold, base: Any, *, root: str) -> None:
        original(self, base, root=root)
        self._transactions = base.transactions

    patch.setattr(Fold, "__init__", init)


def _a_part_is_the_whole(patch: pytest.MonkeyPatch) -> None:
    original = LogReader._read_commit
    patch.setattr(LogReader, "_read_commit", lambda self, version, timestamps, sizes: original(self, version, timestamps, {}))


def _bytes_of_the_first_version_tried(patch: pytest.MonkeyPatch) -> None:
    original = commit_loop.placed

    def placed(prepared: PreparedCommit, *arguments: Any, **more: Any) -> PreparedCommit:
        return prepared if prepared.data else original(prepared, *arguments, **more)

    patch.setattr(commit_loop, "placed", placed)


def _what_passed_is_not_folded(patch: pytest.MonkeyPatch) -> None:
    original = CommitLoop._placed

    def place(self: CommitLoop, prepared: PreparedCommit, asked: Any, version: int, before: Snapshot | None, now_ms: int) -> PreparedCommit:
        read = prepared.attempt.read_version
        stale = before if before is None or read < 0 or read == before.version else self._reader.load(read).snapshot
        return original(self, prepared, asked, version, stale, now_ms)

    patch.setattr(CommitLoop, "_placed", place)


def _without_own_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogReader, "_with_own_time", lambda self, state: state)


def _with(module: Any, name: str, other: Callable[..., Any]) -> Plant:
    return lambda patch: patch.setattr(module, name, other)


def _checkpoint_without_row_ids(patch: pytest.MonkeyPatch) -> None:
    original = checkpoint_io.checkpoint_table

    def checkpoint_table(snapshot: Snapshot, *, now_ms: int) -> Any:
        state, field = snapshot.state, FILES_SCHEMA.field("baseRowId")
        files = state.files.set_column(FILES_SCHEMA.get_field_index(field.name), field, pa.nulls(state.files.num_rows, field.type))
        return original(replace(snapshot, state=replace(state, files=files)), now_ms=now_ms)

    patch.setattr(checkpoint_io, "checkpoint_table", checkpoint_table)


def _rename_overwrites(patch: pytest.MonkeyPatch) -> None:
    def link(temporary: str, target: str) -> bool:
        os.replace(temporary, target)
        return True

    patch.setattr(local, "_link", link)


def _create_then_write(patch: pytest.MonkeyPatch) -> None:
    def put_if_absent(self: LocalLogStore, path: str, data: bytes) -> PutOutcome:
        local._make_folder(os.path.dirname(path))
        try:
            descriptor = local.os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return AlreadyExists()
        with getattr(local, "open", open)(descriptor, "wb") as file:
            file.write(data)
        return Created()

    patch.setattr(LocalLogStore, "put_if_absent", put_if_absent)


def _temporary_names_are_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(local, "_names", lambda folder, first: sorted(name for name in os.listdir(folder) if name >= first))


BUGS = (
    Bug(name="a plain put instead of put-if-absent", plant=_commits_through(_PlainPut), swept=["append after others", "delete too late"]),
    Bug(name="a look and then a put", plant=_commits_through(_LookThenPut)),
    Bug(name="what exists is a conflict, the txnId is not looked at", plant=_exists_is_a_conflict, swept=["append", "create"]),
    Bug(name="what exists is ours, whatever its txnId", plant=_exists_is_ours, swept=["append after others", "delete too late"]),
    Bug(name="a fresh txnId for every put", plant=_commits_through(_FreshIdentities), swept=["append"]),
    Bug(name="an unknown answer is a failure", plant=_unknown_is(_failure), swept=["append", "overwrite"]),
    Bug(name="an unknown answer is a success", plant=_unknown_is(lambda cause: True), swept=["append", "delete too late"]),
    Bug(name="a request that has not arrived never will", plant=_nothing_there_is_a_failure, swept=["append", "overwrite"]),
    Bug(name="what stays unknown is told as a failure", plant=_in_doubt_is_a_failure, swept=["append", "create with joins"]),
    Bug(
        name="the next version is tried while one is unknown", plant=_commits_through(_NextVersionWhileUnknown), swept=["append", "delete"]
    ),
    Bug(name="data files are deleted on an unknown outcome", plant=_deleted_in_doubt, swept=["append", "overwrite"]),
    Bug(name="nothing that landed is a conflict", plant=_never_refused, swept=["delete too late", "append once too late"]),
    Bug(
        name="what landed before the newest snapshot is not looked at",
        plant=_never_caught_up,
        simulated=False,
        swept=["delete by an old snapshot"],
    ),
    Bug(name="no rule protocol", plant=_without_rule(conflicts.protocol), simulated=False, swept=["upgrade too late"]),
    Bug(name="no rule metadata", plant=_without_rule(conflicts.metadata), swept=["append after a change of metadata"]),
    Bug(name="no rule domains", plant=_without_rule(conflicts.domains), simulated=False, swept=["set a domain too late"]),
    Bug(name="no rule transactions", plant=_without_rule(conflicts.transactions), simulated=False, swept=["append once too late"]),
    Bug(name="no rule rows_read", plant=_without_rule(conflicts.rows_read), swept=["delete too late"]),
    Bug(name="no rule write_order", plant=_without_rule(conflicts.write_order)),
    Bug(name="no rule files_read", plant=_without_rule(conflicts.files_read), simulated=False, swept=["summarise what is gone"]),
    Bug(name="no rule files_removed", plant=_without_rule(conflicts.files_removed), simulated=False, swept=["remove unread what is gone"]),
    Bug(name="a table made first is joined, be it another", plant=_joins_any_table, swept=["create over a log that was cleaned up"]),
    Bug(
        name="a table is created without a look", plant=_creates_unlooked, simulated=False, swept=["create over a log that was cleaned up"]
    ),
    Bug(name="WriteSerializable is SnapshotIsolation", plant=_isolation_is({Isolation.WRITE_SERIALIZABLE: Isolation.SNAPSHOT})),
    Bug(
        name="Serializable is WriteSerializable",
        plant=_isolation_is({Isolation.SERIALIZABLE: Isolation.WRITE_SERIALIZABLE}),
        swept=["delete too late"],
    ),
    Bug(name="every commit calls itself a blind append", plant=_every_commit_is_blind),
    Bug(name="a rebase keeps the stale snapshot", plant=_follows_by_number_alone, swept=["append after others", "delete"]),
    Bug(name="a checkpoint before its commit has landed", plant=_checkpoint_before_the_commit, swept=["append with a checkpoint"]),
    Bug(name="a checkpoint without tombstones", plant=_checkpoint_without("remove"), simulated=False, swept=["checkpoint"]),
    Bug(name="a checkpoint without transactions", plant=_checkpoint_without("txn"), swept=["checkpoint", "append with a checkpoint"]),
    Bug(
        name="a checkpoint without domains",
        plant=_checkpoint_without("domainMetadata"),
        simulated=False,
        swept=["append with a checkpoint"],
    ),
    Bug(name="clean-up takes the newest checkpoint too", plant=_clean_up_takes_the_start, swept=["clean up", "append with clean-up"]),
    Bug(name="clean-up before the checkpoint is written", plant=_clean_up_before_the_checkpoint, swept=["append with a checkpoint"]),
    Bug(name="a refresh skips a commit", plant=_refresh_skips_a_commit, swept=["refresh", "append after others"]),
    Bug(name="a listing hides the newest commit", plant=_listing_hides_the_newest, swept=["append", "load"]),
    Bug(name="a snapshot changes with its successor", plant=_states_share_their_transactions),
    Bug(
        name="a part of a commit file is the whole",
        plant=_a_part_is_the_whole,
        simulated=False,
        swept=["load", "history", "delete by an old snapshot"],
    ),
    Bug(
        name="the bytes of the first version that was tried go to the next",
        plant=_bytes_of_the_first_version_tried,
        swept=["append after others with times and row ids"],
    ),
    Bug(
        name="times and row ids follow what was read, not what landed",
        plant=_what_passed_is_not_folded,
        swept=["append after others with times and row ids", "turn on times and row ids"],
    ),
    Bug(
        name="a commit's time is the clock's",
        plant=_with(in_commit_timestamps, "next_timestamp", lambda now_ms, previous_ms, table: now_ms),
    ),
    Bug(
        name="nothing tells since when commits have times",
        plant=_with(in_commit_timestamps, "with_enablement", lambda metadata, before, **more: metadata),
    ),
    Bug(name="a version that is a checkpoint has no time", plant=_without_own_time),
    Bug(name="row ids begin anew with each commit", plant=_with(row_tracking, "high_water_mark", lambda snapshot: -1)),
    Bug(
        name="a removal forgets the ids of its file",
        plant=_with(row_tracking, "_known", lambda actions, before, table: {}),
        swept=["delete with times and row ids"],
    ),
    Bug(
        name="row tracking begins without the files that are there",
        plant=_with(row_tracking, "files_without_ids", lambda *arguments: ()),
        swept=["turn on times and row ids"],
    ),
    Bug(name="a checkpoint without row ids", plant=_checkpoint_without_row_ids),
    Bug(
        name="a rename that overwrites",
        plant=_rename_overwrites,
        simulated=False,
        contract=["test_of_threads_that_race_exactly_one_creates_the_file"],
    ),
    Bug(
        name="a file that is created and then written",
        plant=_create_then_write,
        simulated=False,
        contract=["test_put_if_absent_shows_the_whole_file_or_none"],
    ),
    Bug(
        name="temporary names are listed",
        plant=_temporary_names_are_shown,
        simulated=False,
        contract=["test_put_if_absent_shows_the_whole_file_or_none"],
    ),
)
