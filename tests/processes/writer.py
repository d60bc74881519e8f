"""A writer in a process of its own: appends one file after another to a table and acknowledges each on standard output.

    RACE_TABLE=... python -m tests.processes.writer NAME FIRST COUNT

RACE_TABLE is what `Table.to_text` gives. It says ``ready`` once it has imported everything, waits for a line on standard input, and then
appends the files ``NAME-FIRST``, ``NAME-(FIRST + 1)``, ... COUNT of them. ``FILE VERSION MILLISECONDS`` is printed after the commit of a
file has returned. The files themselves are not there: what is on trial is the log.
"""

from __future__ import annotations

import os
import sys
import time

from lakelog.core.actions import AddFile
from lakelog.core.commit import CommitAttempt
from lakelog.core.commit_info import write
from lakelog.storage.table_log import TableLog
from tests.processes.table import Table


def append(log: TableLog, path: str) -> int:
    """Commit one file; the version at which it landed."""
    read = log.held or log.refresh()
    file = AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True, stats='{"numRecords":1}')
    attempt = CommitAttempt(read_version=read.version, actions=(file,), operation=write("append"), engine_info="lakelog/test")
    return log.commit(attempt).version


def main(name: str, first: str, count: str) -> None:
    log = Table.from_text(os.environ["RACE_TABLE"]).log()
    print("ready", flush=True)
    sys.stdin.readline()
    for sequence in range(int(first), int(first) + int(count)):
        path = f"{name}-{sequence}"
        started = time.perf_counter()
        version = append(log, path)
        print(path, version, round((time.perf_counter() - started) * 1000), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
