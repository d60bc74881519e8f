"""The table logs that a driver holds, one per table root, and the snapshots that its plans refer to by id."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakelog.core.data_skipping import BoundsCache
from lakelog.core.errors import NotADeltaTableError
from lakelog.core.snapshot import Snapshot
from lakelog.storage.environment import Environment
from lakelog.storage.registry import log_store_for
from lakelog.storage.table_log import TableLog

_KEPT_LOGS = 256
_KEPT_SNAPSHOTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSnapshot:
    """A snapshot with the id by which the JVM asks for it; ids are never used twice, also for a table made anew at the same path.

    Attributes:
        id: unique in this process.
        snapshot: the version.
        parsed_bounds: statistics that earlier plans have parsed.
    """

    id: str
    snapshot: Snapshot
    parsed_bounds: BoundsCache = field(default_factory=dict, compare=False, repr=False)


class DeltaLogs:
    """Table logs by root, each refreshed incrementally.

    Args:
        settings: answers, for a root, the conf entries that choose a LogStore.
        environment: clock, sleep and randomness.
    """

    def __init__(self, settings: Callable[[str], Mapping[str, str]], environment: Environment) -> None:
        self.environment = environment
        self._settings = settings
        self._logs: OrderedDict[str, TableLog] = OrderedDict()
        self._held: OrderedDict[str, HeldSnapshot] = OrderedDict()
        self._serial = itertools.count(1)
        self._lock = threading.RLock()

    def log(self, root: str) -> TableLog:
        """The table log at a root, unencoded: ``/tmp/x y`` or ``scheme://...``.

        Raises:
            UnknownSchemeError: no LogStore serves the root's scheme.
        """
        with self._lock:
            found = self._logs.get(root)
            if found is None:
                found = self._logs[root] = TableLog(root, log_store_for(root, self._settings(root)), self.environment)
                while len(self._logs) > _KEPT_LOGS:
                    self._logs.popitem(last=False)
            self._logs.move_to_end(root)
            return found

    def newest(self, root: str) -> HeldSnapshot:
        """The newest snapshot, with one listing and the commits that are new since the last call.

        Raises:
            NotADeltaTableError: there is no table.
        """
        return self.hold(self.log(root).snapshot())

    def at(self, root: str, version: int) -> HeldSnapshot:
        """The snapshot of a version, read anew."""
        return self.hold(self.log(root).snapshot(version))

    def exists(self, root: str) -> bool:
        """Whether a Delta table is at the root."""
        try:
            self.newest(root)
        except NotADeltaTableError:
            return False
        return True

    def find(self, snapshot_id: str) -> HeldSnapshot | None:
        """A snapshot that was handed out under this id, while it is held."""
        with self._lock:
            return self._held.get(snapshot_id)

    def pinned(self, root: str, version: int) -> HeldSnapshot:
        """A version as it was handed out last, read where it is not held."""
        with self._lock:
            for held in reversed(self._held.values()):
                if held.snapshot.root == root and held.snapshot.version == version:
                    return held
        return self.at(root, version)

    def hold(self, snapshot: Snapshot) -> HeldSnapshot:
        """Give a snapshot its id, the same as before for the same object."""
        with self._lock:
            for held in self._held.values():
                if held.snapshot is snapshot:
                    self._held.move_to_end(held.id)
                    return held
            made = HeldSnapshot(id=f"{snapshot.root}@{snapshot.version}#{next(self._serial)}", snapshot=snapshot)
            self._held[made.id] = made
            while len(self._held) > _KEPT_SNAPSHOTS:
                self._held.popitem(last=False)
            return made

    def all_held(self) -> list[HeldSnapshot]:
        """What is held, newest use last."""
        with self._lock:
            return list(self._held.values())

    def forget(self, root: str) -> None:
        """Drop what is held of a root; the next use chooses its LogStore anew and reads the log from scratch."""
        with self._lock:
            self._logs.pop(root, None)

    def forget_all(self, filesystem: str) -> None:
        """Drop what is held of all roots on a filesystem, such as ``s3a://bucket``, as `forget` does."""
        with self._lock:
            for root in [root for root in self._logs if root == filesystem or root.startswith(f"{filesystem}/")]:
                del self._logs[root]
