"""What follows a commit: checkpoints by ``delta.checkpointInterval`` and clean-up of the log. Never what fails one."""

from __future__ import annotations

import logging

from lakelog.core.last_checkpoint import LastCheckpoint
from lakelog.core.retention import log_files_to_delete
from lakelog.core.snapshot import Snapshot
from lakelog.storage.checkpoint_io import save_checkpoint
from lakelog.storage.environment import Environment
from lakelog.storage.log_reader import LogReader
from lakelog.storage.log_store import LogStore

_LOGGER = logging.getLogger(__name__)

# Its rules say which checkpoints and commits must stay (PROTOCOL.md, "checkpointProtection"); without them, all do.
_CHECKPOINT_PROTECTION = "checkpointProtection"


# A commit may be put on a snapshot of a minute ago; what landed since must be there to be seen, whatever the table's retention is now.
_LEAST_RETENTION_MS = 5 * 60 * 1000


class Maintenance:
    """Writes checkpoints and deletes old log files. Safe to share between threads.

    Args:
        store: where the log is.
        reader: reads the same log.
        environment: the clock.
    """

    def __init__(self, store: LogStore, reader: LogReader, environment: Environment) -> None:
        self._store = store
        self._reader = reader
        self._environment = environment
        # When the oldest file of the log was written, as last listed: until that expires, no listing would find one that has.
        self._oldest_ms: int | None = None

    def after_commit(self, snapshot: Snapshot) -> None:
        """A checkpoint if the version is due one, then clean-up if the table wants it. What fails is logged and nothing more.

        An interrupt only cuts this short: the commit has landed, and a caller that saw it fail would delete live files.
        """
        try:
            interval = snapshot.properties.checkpoint_interval
            if snapshot.version == 0 or snapshot.version % interval:
                return
            self.checkpoint(snapshot)
            if snapshot.properties.enable_expired_log_cleanup and self._may_have_expired(snapshot):
                self.clean_up(snapshot)
        except (Exception, KeyboardInterrupt) as error:
            _LOGGER.warning(
                "%s: version %d is committed, but the checkpoint or the clean-up after it failed: %s",
                snapshot.root,
                snapshot.version,
                error,
            )

    def checkpoint(self, snapshot: Snapshot) -> LastCheckpoint:
        """Write the snapshot as a checkpoint.

        Raises:
            OSError: the store cannot write.
            InvalidTablePropertyError: a property that decides what to write cannot be parsed.
        """
        return save_checkpoint(self._store, self._reader.folder, snapshot, now_ms=self._environment.now_ms())

    def clean_up(self, snapshot: Snapshot, *, retention_ms: int | None = None) -> list[str]:
        """Delete the log files that ``delta.logRetentionDuration`` lets go; the names deleted. The checkpoint kept as start is read first.

        Args:
            snapshot: the table's newest version.
            retention_ms: counts in place of the property, to the millisecond and not to the day.

        Raises:
            OSError: the store cannot list or delete.
            InvalidTablePropertyError: the retention cannot be parsed.
        """
        if _CHECKPOINT_PROTECTION in (snapshot.protocol.writer_features or ()):
            return []
        files = self._reader.listing()
        self._oldest_ms = min((file.modification_time_ms for file in files), default=None)
        kept_ms = max(snapshot.properties.log_retention_ms if retention_ms is None else retention_ms, _LEAST_RETENTION_MS)
        names = log_files_to_delete(files, now_ms=self._environment.now_ms(), log_retention_ms=kept_ms, to_the_day=retention_ms is None)
        if names and not self._reader.starts_from_a_readable_checkpoint([file for file in files if file.name not in set(names)]):
            _LOGGER.warning("%s: the log is not cleaned up, since the checkpoint that would become its start cannot be read", snapshot.root)
            return []
        if names:
            self._store.delete([f"{self._reader.folder}/{name}" for name in names])
            _LOGGER.info("%s: %d expired log files deleted", snapshot.root, len(names))
        return names

    def _may_have_expired(self, snapshot: Snapshot) -> bool:
        oldest_ms = self._oldest_ms
        return oldest_ms is None or oldest_ms <= self._environment.now_ms() - snapshot.properties.log_retention_ms
