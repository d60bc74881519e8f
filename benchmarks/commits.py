"""Small commits without Spark: lakelog's table log beside deltalake (delta-rs), interleaved, on one local disk.

``make bench-commits`` runs it. Three parts:

    one row     one process appends one row at a time: a Parquet file by pyarrow, its statistics, the commit. Each append by every arm in
                turn, the first to go changing; medians. deltalake syncs nothing to disk, so that the arms that compare with it have
                ``os.fsync`` taken out of lakelog; the arm "with fsync" is lakelog as it is, which syncs a commit before it is visible.
    contention  many processes append one row at a time to one table, started together when all have imported what they need. Both as
                they come: deltalake with its default retries, lakelog with fsync (and once more without). What counts is the commits that
                landed, by the time until the last process was done.
    counts      what a commit asks of the store: PUTs of the commit file, other PUTs, GETs, LISTs.

Environment:
    COMMITS    appends of each arm in the first part, 200 by default
    PROCESSES  in the second part, 32 by default
    APPENDS    of each process, 10 by default
    ROUNDS     of the second part, 3 by default
    BENCH      the folder for data and commits.json, .bench by default; the data is removed at the end

Exits with 1 when an append of lakelog failed. A missed figure is printed, not an error.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.core.actions import AddFile, Metadata, Protocol
from lakelog.core.commit import NO_VERSION, CommitAttempt
from lakelog.core.commit_info import write
from lakelog.core.statistics import IndexedColumns, file_statistics
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome
from lakelog.storage.table_log import TableLog

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "name", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
ENGINE = "lakelog/benchmark"
LAKELOG, UNSYNCED, DELTALAKE = "lakelog", "lakelog without fsync", "deltalake"
WANTED_RATIO, WANTED_SPEEDUP = 1.0, 5.0


def one_row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "name": pa.array([f"customer-{number}"], pa.string())})


def make_table(path: Path) -> TableLog:
    """An empty table with the properties that a table has by default."""
    path.mkdir(parents=True)
    actions = (Protocol(min_reader_version=1, min_writer_version=2), Metadata(id=str(uuid.uuid4()), schema_string=SCHEMA))
    log = TableLog(str(path), LocalLogStore())
    log.commit(CommitAttempt(read_version=NO_VERSION, actions=actions, operation=write("append"), engine_info=ENGINE))
    return log


def append(log: TableLog, number: int) -> None:
    """What a writer of Parquet has to do for one row."""
    snapshot = log.held or log.refresh()
    name = f"part-{uuid.uuid4()}.snappy.parquet"
    local = f"{log.root}/{name}"
    row = one_row(number)
    with pq.ParquetWriter(local, row.schema, compression="snappy") as writer:
        writer.write_table(row)
    status = os.stat(local)
    file = AddFile(
        path=name,
        partition_values={},
        size=status.st_size,
        modification_time=status.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=file_statistics(pq.read_metadata(local), snapshot.schema, indexed=IndexedColumns()),
    )
    log.commit(CommitAttempt(read_version=snapshot.version, actions=(file,), operation=write("append"), engine_info=ENGINE))


@contextmanager
def unsynced() -> Iterator[None]:
    """deltalake's policy for durability: none."""
    real = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = real


# one row --------------------------------------------------------------------------------------------------------------------------


def measure_one_row(folder: Path, commits: int) -> dict[str, list[float]]:
    """Milliseconds of each append, by arm."""
    logs = {name: make_table(folder / name) for name in ("held", "fresh", "held-synced", "fresh-synced", "delta-held", "delta-fresh")}
    handle = deltalake.DeltaTable(str(folder / "delta-held"))

    def fresh(name: str) -> TableLog:
        return TableLog(str(folder / name), LocalLogStore())

    def without_sync(work: Callable[[int], None]) -> Callable[[int], None]:
        def run(number: int) -> None:
            with unsynced():
                work(number)

        return run

    arms: dict[str, Callable[[int], None]] = {
        f"{DELTALAKE}, handle held": lambda number: deltalake.write_deltalake(handle, one_row(number), mode="append"),
        f"{UNSYNCED}, handle held": without_sync(lambda number: append(logs["held"], number)),
        "lakelog with fsync, handle held": lambda number: append(logs["held-synced"], number),
        f"{DELTALAKE}, fresh handle": lambda number: deltalake.write_deltalake(str(folder / "delta-fresh"), one_row(number), mode="append"),
        f"{UNSYNCED}, fresh handle": without_sync(lambda number: append(fresh("fresh"), number)),
        "lakelog with fsync, fresh handle": lambda number: append(fresh("fresh-synced"), number),
    }
    names = list(arms)
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(-5, commits):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            started = time.perf_counter()
            arms[name](number)
            if number >= 0:
                took[name].append((time.perf_counter() - started) * 1000)
    return took


def one_row_report(took: dict[str, list[float]]) -> list[str]:
    lines = [f"{'':34} {'median':>10} {'90 %':>10} {'first 20':>10} {'last 20':>10}"]
    for name, times in took.items():
        figures = (statistics.median(times), sorted(times)[len(times) * 9 // 10], *map(statistics.median, (times[:20], times[-20:])))
        lines.append(f"{name:34} " + " ".join(f"{figure:7.2f} ms" for figure in figures))
    for handle in ("handle held", "fresh handle"):
        theirs = statistics.median(took[f"{DELTALAKE}, {handle}"])
        ours, synced = (statistics.median(took[f"{arm}, {handle}"]) for arm in (UNSYNCED, "lakelog with fsync"))
        verdict = "met" if ours <= WANTED_RATIO * theirs else "MISSED"
        lines.append(
            f"{handle}, the same fsync policy: {ours / theirs:.2f} x deltalake's time (wanted: <= {WANTED_RATIO}, {verdict}); "
            f"with fsync {synced / theirs:.2f} x"
        )
    return lines


# contention -----------------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class Contention:
    """What one arm's processes did in one round."""

    landed: int
    failed: Counter[str] = field(default_factory=Counter)
    seconds: float
    slowest_append_s: float


def contend(arm: str, table: str, appends: int) -> None:
    """One process of the second part. Says "ready", waits for a line, appends, and says what happened as JSON."""
    work: Callable[[int], None]
    if arm == DELTALAKE:
        handle = deltalake.DeltaTable(table)
        work = lambda number: deltalake.write_deltalake(handle, one_row(number), mode="append")  # noqa: E731
    else:
        log = TableLog(table, LocalLogStore())
        log.refresh()
        work = lambda number: append(log, number)  # noqa: E731
    # pyarrow imports pandas with the first list of Python objects that it is given, where there is one.
    pq.write_table(one_row(0), pa.BufferOutputStream())
    if arm == UNSYNCED:
        with unsynced():
            told = _contend(work, appends)
    else:
        told = _contend(work, appends)
    print(json.dumps(told), flush=True)


def _contend(work: Callable[[int], None], appends: int) -> dict[str, object]:
    print("ready", flush=True)
    sys.stdin.readline()
    failed: list[str] = []
    times = [time.monotonic()]
    for number in range(appends):
        try:
            work(number)
        except Exception as error:
            failed.append(f"{type(error).__name__}: {error}".splitlines()[0][:100])
        times.append(time.monotonic())
    slowest = max(after - before for before, after in itertools.pairwise(times))
    return {"started": times[0], "ended": times[-1], "landed": appends - len(failed), "failed": failed, "slowest": slowest}


def measure_contention(table: Path, arm: str, processes: int, appends: int) -> Contention:
    make_table(table)
    command = [sys.executable, str(Path(__file__).resolve()), "contend", arm, str(table), str(appends)]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for process in running:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a process of {arm} did not start")
    # What was written before is not theirs to wait for.
    os.sync()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [json.loads(process.communicate()[0]) for process in running]
    return Contention(
        landed=sum(one["landed"] for one in told),
        failed=Counter(reason for one in told for reason in one["failed"]),
        # The monotonic clock is the machine's, one for all processes.
        seconds=max(one["ended"] for one in told) - min(one["started"] for one in told),
        slowest_append_s=max(one["slowest"] for one in told),
    )


def contention_report(rounds: dict[str, list[Contention]]) -> list[str]:
    lines = [f"{'':24} {'landed':>8} {'failed':>8} {'a second':>9} {'slowest append':>15}"]
    speed = {}
    for arm, told in rounds.items():
        speed[arm] = statistics.median(one.landed / one.seconds for one in told)
        landed, failed = sum(one.landed for one in told), sum(one.failed.total() for one in told)
        lines.append(f"{arm:24} {landed:8} {failed:8} {speed[arm]:9.1f} {max(one.slowest_append_s for one in told):13.1f} s")
        lines.extend(f"    {times} x {reason}" for reason, times in sum((one.failed for one in told), Counter()).most_common(3))
    for arm in (LAKELOG, UNSYNCED):
        faster = [
            ours.landed / ours.seconds / (theirs.landed / theirs.seconds)
            for ours, theirs in zip(rounds[arm], rounds[DELTALAKE], strict=True)
        ]
        verdict = "met" if statistics.median(faster) >= WANTED_SPEEDUP else "MISSED"
        shown = ", ".join(f"{ratio:.1f}" for ratio in faster)
        lines.append(
            f"{arm}: {statistics.median(faster):.1f} x deltalake's commits a second in the median of the rounds ({shown}; "
            f"wanted: >= {WANTED_SPEEDUP:.0f}, {verdict})"
        )
    return lines


# counts ---------------------------------------------------------------------------------------------------------------------------


class Counting(LogStore):
    """Counts what is asked of the local store: PUTs of commit files apart from others."""

    def __init__(self) -> None:
        self.inner = LocalLogStore()
        self.asked: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        self.asked["GET"] += 1
        return self.inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.asked["PUT of the commit file"] += 1
        return self.inner.put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.asked["other PUT"] += 1
        self.inner.put(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        self.asked["LIST"] += 1
        return self.inner.list_from(path)

    def delete(self, paths: Iterable[str]) -> None:
        self.asked["DELETE"] += 1
        self.inner.delete(paths)


def counts_report(folder: Path) -> list[str]:
    make_table(folder / "counts")
    store = Counting()
    held = TableLog(str(folder / "counts"), store)
    held.refresh()
    lines = []
    for what in ("handle held", "handle held, a checkpoint due", "fresh handle"):
        store.asked.clear()
        if what.endswith("due"):
            while held.held is None or held.held.version % 10 != 9:
                append(held, 0)
            store.asked.clear()
        append(held if what.startswith("handle held") else TableLog(str(folder / "counts"), store), 0)
        lines.append(f"{what:34} " + ", ".join(f"{times} {verb}" for verb, times in sorted(store.asked.items(), reverse=True)))
    return lines


def main() -> int:
    get = os.environ.get
    commits, processes, appends, rounds = (
        int(get(name, default)) for name, default in (("COMMITS", "200"), ("PROCESSES", "32"), ("APPENDS", "10"), ("ROUNDS", "3"))
    )
    bench = Path(get("BENCH", ".bench")).resolve()
    folder = bench / "commits"
    shutil.rmtree(folder, ignore_errors=True)
    contention: dict[str, list[Contention]] = {DELTALAKE: [], LAKELOG: [], UNSYNCED: []}
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, deltalake {deltalake.__version__}", flush=True)
    try:
        one_row_took = measure_one_row(folder, commits)
        print(f"\nAppend one row, {commits} times, arms interleaved", *one_row_report(one_row_took), sep="\n", flush=True)
        for number in range(rounds):
            arms = list(contention)
            for place in range(len(arms)):
                arm = arms[(place + number) % len(arms)]
                table = folder / f"contended-{number}-{arms.index(arm)}"
                contention[arm].append(measure_contention(table, arm, processes, appends))
                shutil.rmtree(table)
        print(
            f"\n{processes} processes x {appends} appends on one table, {rounds} rounds, arms interleaved",
            *contention_report(contention),
            sep="\n",
            flush=True,
        )
        print("\nWhat one uncontended commit of lakelog asks of the store", *counts_report(folder), sep="\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raw = {
        "one row, ms": one_row_took,
        "contention": {
            arm: [{"landed": one.landed, "failed": one.failed, "seconds": one.seconds} for one in told] for arm, told in contention.items()
        },
    }
    (bench / "commits.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    return 1 if any(one.failed for arm in (LAKELOG, UNSYNCED) for one in contention[arm]) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["contend"]:
        contend(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main())
