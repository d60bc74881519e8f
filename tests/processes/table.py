"""A table on trial, as it is handed from process to process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelog.storage.environment import Environment
from lakelog.storage.log_store import LogStore
from lakelog.storage.registry import log_store_for
from lakelog.storage.table_log import TableLog


@dataclass(frozen=True, slots=True)
class Table:
    """A table and how it is reached.

    Attributes:
        root: unencoded.
        settings: of its store, as a Spark conf has them.
        storage_options: deltalake's, for the same.
        clock_shift_ms: how far the clock of who holds this is ahead of the machine's.
    """

    root: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock_shift_ms: int = 0

    def store(self) -> LogStore:
        return log_store_for(self.root, self.settings)

    def log(self) -> TableLog:
        machine = Environment.system()
        return TableLog(self.root, self.store(), replace(machine, now_ms=lambda: machine.now_ms() + self.clock_shift_ms))

    def to_text(self) -> str:
        """For the environment of a process that goes on with it."""
        return json.dumps([self.root, dict(self.settings), {}, self.clock_shift_ms])

    @classmethod
    def from_text(cls, text: str) -> Table:
        return cls(*json.loads(text))
