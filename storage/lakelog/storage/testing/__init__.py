"""What the author of a LogStore tests it with, and what tests of a table log run on. Nothing here is for production.

A store for a medium that lakelog does not know is a subclass of ``lakelog.storage.log_store.LogStore``. Its test is a subclass of
`LogStoreConformance`, collected by pytest or, beside ``unittest.TestCase``, by unittest::

    import functools

    import pytest
    from lakelog.storage.testing import LogStoreConformance
    from mycompany.lake import VaultLogStore


    class TestVaultLogStore(LogStoreConformance):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path):
            self.folder = f"{tmp_path}/table/_delta_log"   # nothing there yet, another for every test

        def make_store(self):
            return VaultLogStore({"url": "http://localhost:9000"})

        def make_folder(self):
            return self.folder

        def store_factory(self):                          # pickled for the child processes that race and are killed
            return functools.partial(VaultLogStore, {"url": "http://localhost:9000"})

A failure begins with the guarantee that is broken, by its number in ``lakelog.storage.log_store``. A store that lives in one process
leaves ``store_factory`` out, and the tests over processes are skipped. ``crashing_stores`` is for a store that writes in several steps.
Where a request takes long, lower ``rounds``, ``files_per_process`` and ``long_listing``.

Beside it: `MemoryLogStore`, the contract in a dictionary; `FaultInjectingLogStore`, which fails before or after the effect, loses answers,
delivers late or twice, tears bodies, delays and crashes, by the schedule `SeededFaults` or `NthCall` or one's own; and `VirtualClock`.
"""

from lakelog.storage.testing.clock import VirtualClock
from lakelog.storage.testing.conformance import LogStoreConformance
from lakelog.storage.testing.faults import Call, Fault, FaultInjectingLogStore, NthCall, Schedule, SeededFaults, SimulatedCrash, Verb
from lakelog.storage.testing.memory import MemoryLogStore

__all__ = [
    "Call",
    "Fault",
    "FaultInjectingLogStore",
    "LogStoreConformance",
    "MemoryLogStore",
    "NthCall",
    "Schedule",
    "SeededFaults",
    "SimulatedCrash",
    "Verb",
    "VirtualClock",
]
