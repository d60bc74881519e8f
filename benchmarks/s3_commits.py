"""Commits on S3 under latency: what one costs beyond its PUT, and how many of many writers land.

``make bench-s3`` runs it on a MinIO of its own (or the one at LAKELOG_MINIO_URL), behind a proxy in a process of its own that makes every
request take longer. Two parts:

    overhead    one writer appends one file at a time through a table log that it holds. Each append beside a bare conditional
                ``put_object`` of as many bytes by boto3 through the same proxy, the first to go changing; medians, at each latency.
                What is due besides, a checkpoint after every tenth commit, is in the 95 % and not in the median.
    contention  many writers, threads of several processes, append to one table for a fixed time. A table's versions come one after the
                other, so that 1 / latency commits a second is about what can be had. The bare PUT's own time is measured
                before and after, without the writers.

Environment:
    COMMITS    appends of each arm at each latency, 100 by default
    LATENCIES  milliseconds, "0,20,60" by default; the last is also that of the second part
    PROCESSES, THREADS  of each, 8 and 8 by default
    SECONDS    of the second part, 30 by default
    ROUNDS     of the second part, 1 by default
    HANDLES    "each" gives every thread a table log of its own, "process" one to the threads of a process; "each" by default
    STORE      the LogStore, "s3" by default

Exits with 1 when an append failed or the table is not what was acknowledged. A missed figure is printed, not an error.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from integration.servers import MinIO
from lakelog.core.actions import AddFile
from lakelog.core.commit import CommitAttempt
from lakelog.core.commit_info import write
from lakelog.storage.log_store import LogStore
from lakelog.storage.registry import log_store_for
from lakelog.storage.table_log import TableLog
from tests.processes.race import make_table
from tests.processes.table import Table

ROOT = Path(__file__).resolve().parents[1]
ENGINE = "lakelog/benchmark"
WANTED_OVERHEAD_MS, WANTED_SHARE = 5.0, 0.8
STATS = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}'


@contextmanager
def proxy(target: str, latency_ms: float) -> Iterator[str]:
    """The address of a proxy that adds so much to every request."""
    command = [sys.executable, "-m", "integration.proxy", target, "--latency-ms", str(latency_ms)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            _, counts = process.communicate()
            print(f"    requests: {counts.splitlines()[-1] if counts else 'not told'}", flush=True)


def client(minio: MinIO, endpoint: str) -> Any:
    return minio.client(endpoint_url=endpoint)


def table_at(minio: MinIO, endpoint: str, bucket: str) -> Table:
    options = {**minio.options(), "endpoint_url": endpoint, "logstore.class": os.environ.get("STORE", "s3")}
    return Table(f"s3a://{bucket}/{uuid.uuid4().hex}", {f"spark.lakelog.s3a.{name}": str(value) for name, value in options.items()})


def append(log: TableLog) -> int:
    """Commit one file that nobody wrote; the version."""
    snapshot = log.held or log.refresh()
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    file = AddFile(path=name, partition_values={}, size=1000, modification_time=time.time_ns() // 1_000_000, data_change=True, stats=STATS)
    return log.commit(CommitAttempt(read_version=snapshot.version, actions=(file,), operation=write("append"), engine_info=ENGINE)).version


# overhead -------------------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class Arm:
    """Milliseconds of each piece of work, and the CPU's share of them, which what else the machine does changes little."""

    took_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


def measure_overhead(minio: MinIO, latency_ms: float, commits: int) -> tuple[Arm, Arm]:
    """The bare put, and the append."""
    with proxy(minio.endpoint, latency_ms) as endpoint:
        bucket = minio.new_bucket()
        table = table_at(minio, endpoint, bucket)
        make_table(table)
        log, bare = table.log(), client(minio, endpoint)
        append(log)
        body = table.store().read(f"{table.root}/_delta_log/{1:020}.json")

        def put() -> None:
            bare.put_object(Bucket=bucket, Key=f"bare/_delta_log/{uuid.uuid4()}.json", Body=body, IfNoneMatch="*")

        arms = (put, lambda: append(log))
        measured = Arm(), Arm()
        for number in range(-5, commits):
            for arm in (number % 2, 1 - number % 2):
                started, cpu = time.perf_counter(), time.thread_time()
                arms[arm]()
                if number >= 0:
                    measured[arm].took_ms.append((time.perf_counter() - started) * 1000)
                    measured[arm].cpu_ms.append((time.thread_time() - cpu) * 1000)
        return measured


def overhead_report(measured: dict[float, tuple[Arm, Arm]]) -> list[str]:
    lines = [
        f"{'injected latency':>17} {'bare PUT':>10} {'commit':>10} {'beyond':>10} {'CPU beyond':>10} {'PUT 95 %':>10} {'commit 95 %':>11}"
    ]
    for latency_ms, (put, commit) in measured.items():
        beyond, cpu = (
            statistics.median(ours) - statistics.median(bare) for ours, bare in ((commit.took_ms, put.took_ms), (commit.cpu_ms, put.cpu_ms))
        )
        slow = [sorted(arm.took_ms)[len(arm.took_ms) * 95 // 100] for arm in (put, commit)]
        shown = " ".join(f"{figure:7.2f} ms" for figure in (*map(statistics.median, (put.took_ms, commit.took_ms)), beyond, cpu, *slow))
        verdict = "met" if beyond <= WANTED_OVERHEAD_MS else "MISSED"
        lines.append(f"{latency_ms:14g} ms {shown}   (wanted beyond: <= {WANTED_OVERHEAD_MS:g} ms, {verdict})")
    return lines


# contention -----------------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class Contention:
    """What all writers did.

    Attributes:
        landed: versions, as they were acknowledged within the time.
        by_writer: how many of each.
        took_ms: of each append.
        failed: errors by their first line.
        seconds: the time that was given.
        put_ms: bare PUTs before and after.
    """

    landed: list[int] = field(default_factory=list)
    by_writer: list[int] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    seconds: float
    put_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


def contend(threads: int, seconds: float) -> None:
    """One process of the second part. Says "ready", waits for a line, appends until the time is over, and says what happened as JSON."""
    table = Table.from_text(os.environ["RACE_TABLE"])
    store: LogStore = log_store_for(table.root, table.settings)
    logs = [TableLog(table.root, store) for _ in range(threads)]
    if os.environ.get("HANDLES") == "process":
        logs = logs[:1] * threads
    for log in logs:
        log.refresh()
    # Refused, since it is there; what a process does before its first write is done with it.
    store.put_if_absent(f"{table.root}/_delta_log/{0:020}.json", b"")
    told: list[dict[str, Any]] = [{"landed": [], "took_ms": [], "failed": []} for _ in logs]
    print("ready", flush=True)
    until = time.monotonic() + float(sys.stdin.readline())

    def work(log: TableLog, said: dict[str, Any]) -> None:
        while (started := time.monotonic()) < until:
            try:
                version = append(log)
            except Exception as error:
                said["failed"].append(f"{type(error).__name__}: {error}".splitlines()[0][:200])
                continue
            if time.monotonic() <= until:
                said["landed"].append(version)
                said["took_ms"].append((time.monotonic() - started) * 1000)

    before_s = time.process_time()
    working = [threading.Thread(target=work, args=pair) for pair in zip(logs, told, strict=True)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    print(json.dumps([told, time.process_time() - before_s]), flush=True)


def measure_contention(minio: MinIO, latency_ms: float, processes: int, threads: int, seconds: float) -> Contention:
    result = Contention(seconds=seconds)
    with proxy(minio.endpoint, latency_ms) as endpoint:
        bucket = minio.new_bucket()
        table = table_at(minio, endpoint, bucket)
        make_table(table)
        bare = client(minio, endpoint)

        def measure_put() -> None:
            for _ in range(10):
                started = time.perf_counter()
                bare.put_object(Bucket=bucket, Key=f"bare/{uuid.uuid4()}.json", Body=bytes(800), IfNoneMatch="*")
                result.put_ms.append((time.perf_counter() - started) * 1000)

        measure_put()
        command = [sys.executable, "-m", "benchmarks.s3_commits", "contend", str(threads), str(seconds)]
        environment = {**os.environ, "RACE_TABLE": table.to_text(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        running = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a process did not start")
        for process in running:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        for told, cpu_s in [json.loads(process.communicate()[0]) for process in running]:
            result.cpu_s += cpu_s
            for one in told:
                result.landed += one["landed"]
                result.by_writer.append(len(one["landed"]))
                result.took_ms += one["took_ms"]
                result.failed.update(one["failed"])
        measure_put()
        check(table_straight(minio, table), result)
    return result


def table_straight(minio: MinIO, table: Table) -> Table:
    return Table(table.root, {**table.settings, "spark.lakelog.s3a.endpoint_url": minio.endpoint})


def check(table: Table, result: Contention) -> None:
    """That no version was acknowledged twice, and all are there."""
    twice = [version for version, times in Counter(result.landed).items() if times > 1]
    if twice:
        result.failed[f"acknowledged twice: {twice[:5]}"] += 1
    snapshot = table.log().snapshot()
    if snapshot.version < max(result.landed, default=0) or snapshot.num_files != snapshot.version:
        result.failed[f"version {snapshot.version} has {snapshot.num_files} files"] += 1


def contention_report(result: Contention, latency_ms: float) -> list[str]:
    rate, put_ms = len(result.landed) / result.seconds, statistics.median(result.put_ms)
    ceiling = 1000 / latency_ms if latency_ms else 1000 / put_ms
    share = rate / ceiling
    verdict = "met" if share >= WANTED_SHARE else "MISSED"
    took = sorted(result.took_ms) or [0.0]
    return [
        f"landed {len(result.landed)} in {result.seconds:g} s, {rate:.1f} a second: {share:.0%} of 1 / latency ({ceiling:.1f} a second; "
        f"wanted: >= {WANTED_SHARE:.0%}, {verdict})",
        f"the bare PUT took {put_ms:.1f} ms before and after; of 1 / PUT ({1000 / put_ms:.1f} a second) it is {rate * put_ms / 1000:.0%}",
        f"an append took {took[len(took) // 2]:.0f} ms in the median, {took[len(took) * 95 // 100]:.0f} ms at 95 %, {took[-1]:.0f} at "
        f"most; a writer landed {min(result.by_writer)} to {max(result.by_writer)}; the writers' CPU {result.cpu_s:.0f} s",
        *(f"    {times} x {reason}" for reason, times in result.failed.most_common(5)),
    ]


def main() -> int:
    get = os.environ.get
    commits, processes, threads, rounds = (
        int(get(name, default)) for name, default in (("COMMITS", "100"), ("PROCESSES", "8"), ("THREADS", "8"), ("ROUNDS", "1"))
    )
    latencies, seconds = [float(text) for text in get("LATENCIES", "0,20,60").split(",")], float(get("SECONDS", "30"))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, boto3 {boto3.__version__}", flush=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="lakelog-bench-") as folder, MinIO.running(Path(folder)) as minio:
        if commits:
            measured = {latency_ms: measure_overhead(minio, latency_ms, commits) for latency_ms in latencies}
            print(
                f"\nAppend one file, {commits} times, beside a bare PUT, arms interleaved", *overhead_report(measured), sep="\n", flush=True
            )
        for _ in range(rounds):
            result = measure_contention(minio, latencies[-1], processes, threads, seconds)
            failed = failed or bool(result.failed)
            print(
                f"\n{processes} processes x {threads} threads on one table for {seconds:g} s at {latencies[-1]:g} ms",
                *contention_report(result, latencies[-1]),
                sep="\n",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["contend"]:
        contend(int(sys.argv[2]), float(sys.argv[3]))
    else:
        sys.exit(main())
