"""lakelog beside plain Parquet and delta-spark, all on one PySpark, interleaved; medians and ratios as a table.

``make bench`` runs it. Each arm is a process of its own (worker.py) that lives for the whole run; every piece of work is done by the
arms in turn, the order turning with the rounds, so that what else the machine does falls on all alike. A first round on a tenth of the
rows warms the JVMs up and is not counted. delta-spark runs as its manual says, with deletion vectors off.

Environment:
    ROWS     rows of the big table, 20,000,000 by default
    ROUNDS   counted rounds, 3 by default
    FILES    files of the planning table, 10,000 by default
    ARMS     which arms, "parquet,delta-spark,lakelog" by default
    BENCH    the folder for data, jars and results.json, .bench by default; the data is removed at the end

Exits with 1 when an arm failed at some work. A missed figure is printed, not an error.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from jars import JarsNotToBeHad, delta_spark_jars
from log_only_table import ROWS_A_FILE, write_log_only_table

HERE = Path(__file__).resolve().parent
PARQUET, DELTA_SPARK, LAKELOG = "parquet", "delta-spark", "lakelog"
ONE_OF_MANY_FILES = 1000
REPEATS = 5
CHECKED_TO_PLAIN = 1.15


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the table: a piece of work, and the ratios that lakelog is meant to stay within."""

    name: str
    arms: tuple[str, ...] = (PARQUET, DELTA_SPARK, LAKELOG)
    to_parquet: float | None = None
    to_delta_spark: float | None = None


LINES = {
    "append": Line(name="append all rows", to_parquet=1.05, to_delta_spark=0.75),
    "append checked": Line(name="the same with constraints, computed columns", arms=(DELTA_SPARK, LAKELOG)),
    "append 50": Line(name="append into 50 partitions", to_parquet=1.05, to_delta_spark=0.8),
    "replace one": Line(name="replace one partition in 50", arms=(DELTA_SPARK, LAKELOG)),
    "read all": Line(name="read all rows", to_parquet=1.03),
    "read column": Line(name="read one column", to_parquet=1.03),
    "read row": Line(name="read one row by id", to_parquet=0.9, to_delta_spark=0.6),
    "append one": Line(name="append one row", to_parquet=1.0, to_delta_spark=0.6),
    "delete one": Line(name="delete one row", arms=(DELTA_SPARK, LAKELOG), to_delta_spark=0.75),
    "delete 1 %": Line(name="delete 1 %, scattered", arms=(DELTA_SPARK, LAKELOG), to_delta_spark=0.75),
    "plan": Line(name="plan a scan of {files:,} files", arms=(DELTA_SPARK, LAKELOG), to_delta_spark=0.5),
    "plan one": Line(name="plan one file of {files:,}", arms=(DELTA_SPARK, LAKELOG)),
    "one of many": Line(name=f"filter that one of {ONE_OF_MANY_FILES:,} files meets"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    rows: int
    rounds: int
    files: int
    folder: Path
    arms: tuple[str, ...]

    @classmethod
    def from_environment(cls) -> Settings:
        get = os.environ.get
        return cls(
            rows=int(get("ROWS", "20000000")),
            rounds=int(get("ROUNDS", "3")),
            files=int(get("FILES", "10000")),
            folder=Path(get("BENCH", ".bench")).resolve(),
            arms=tuple(get("ARMS", f"{PARQUET},{DELTA_SPARK},{LAKELOG}").split(",")),
        )


class Worker:
    """One arm's process, asked one thing at a time."""

    def __init__(self, arm: str, jars: Path | None, log: Path) -> None:
        self.arm = arm
        command = [sys.executable, str(HERE / "worker.py"), arm, *(["--jars", str(jars)] if jars else [])]
        self._log = log.open("w", encoding="utf-8")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.started = self._read()

    def ask(self, work: str, **arguments: object) -> dict[str, object]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"work": work, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    def _read(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"error": f"its process ended with {self._process.wait()}; see {self._log.name}"}
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


@dataclass(kw_only=True, slots=True)
class Results:
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    said: dict[str, dict[str, dict[str, object]]] = field(default_factory=lambda: defaultdict(dict))
    failed: dict[str, str] = field(default_factory=dict)

    def take(self, line: str, arm: str, answer: dict[str, object], *, counted: bool) -> None:
        if "error" in answer:
            self.failed[f"{arm}, {LINES[line].name}"] = str(answer["error"])
            return
        if counted:
            self.seconds[line][arm].append(float(str(answer.pop("seconds"))))
            self.said[line][arm] = answer

    def median(self, line: str, arm: str) -> float | None:
        taken = self.seconds[line][arm]
        return statistics.median(taken) if taken else None


class Bench:
    """The rounds, over the workers that started."""

    def __init__(self, settings: Settings, workers: list[Worker]) -> None:
        self.settings = settings
        self.workers = workers
        self.results = Results()
        self.counted = False
        self.turn = 0

    def run(self) -> Results:
        self._prepare()
        for number in range(self.settings.rounds + 1):
            self.counted = number > 0
            rows = self.settings.rows if self.counted else max(self.settings.rows // 10, 1000)
            self.turn = number
            print(f"round {number} of {self.settings.rounds}, {rows:,} rows{'' if self.counted else ' (to warm up)'}", flush=True)
            self._round(number, rows)
        return self.results

    def _prepare(self) -> None:
        write_log_only_table(self.settings.folder / "data" / "planning", self.settings.files)
        for worker in self.workers:
            answer = worker.ask("write_many", path=self._path(worker, "many"), files=ONE_OF_MANY_FILES)
            if "error" in answer:
                self.results.failed[f"{worker.arm}, writing {ONE_OF_MANY_FILES:,} files"] = str(answer["error"])
            else:
                print(f"{worker.arm} wrote {ONE_OF_MANY_FILES:,} files in {answer['seconds']:.1f} s", flush=True)

    def _round(self, number: int, rows: int) -> None:
        table = f"big-{number}"
        for worker in self.workers:
            worker.ask("seed", path=self._path(worker, table))
        self._line("append", "append", table, rows_=rows)
        for worker in self.workers:
            if worker.arm != PARQUET:
                made = worker.ask("make_demanding", path=self._path(worker, f"{table}-checked"))
                if "error" in made:
                    self.results.failed[f"{worker.arm}, a table with constraints"] = str(made["error"])
        self._line("append checked", "append", f"{table}-checked", rows_=rows)
        self._line("append 50", "append_partitioned", f"{table}-50", rows_=rows)
        for repeat in range(REPEATS):
            self._line("replace one", "replace_partition", f"{table}-50", part=repeat)
        for repeat in range(REPEATS):
            self._line("read all", "read_all", table)
            self._line("read column", "read_column", table)
            self._line("read row", "read_row", table, id=rows * (2 * repeat + 1) // (2 * REPEATS))
        for repeat in range(REPEATS):
            self._line("append one", "append_one", table, id=rows + repeat)
        self._line("delete one", "delete", table, condition=f"id = {rows // 2}")
        self._line("delete 1 %", "delete", table, condition="pmod(hash(id), 100) = 7")
        for repeat in range(REPEATS):
            middle = (repeat + 1) * self.settings.files * ROWS_A_FILE // (REPEATS + 2)
            self._line("plan", "plan", "planning", condition="id >= 0", shared=True)
            self._line("plan one", "plan", "planning", condition=f"id = {middle}", shared=True)
            self._line("one of many", "read_one_of_many", "many", id=repeat * 10_000 + 4_242)
        for worker in self.workers:
            for made in (table, f"{table}-checked", f"{table}-50"):
                shutil.rmtree(self._path(worker, made), ignore_errors=True)

    def _line(self, line: str, work: str, table: str, *, shared: bool = False, **arguments: object) -> None:
        """One piece of work by every arm that takes part in it, the first to go changing from call to call."""
        taking_part = [worker for worker in self.workers if worker.arm in LINES[line].arms]
        self.turn += 1
        for place in range(len(taking_part)):
            worker = taking_part[(place + self.turn) % len(taking_part)]
            path = str(self.settings.folder / "data" / table) if shared else self._path(worker, table)
            # What one arm left in the page cache to be written is not the next one's to wait for.
            os.sync()
            self.results.take(line, worker.arm, worker.ask(work, path=path, **arguments), counted=self.counted)

    def _path(self, worker: Worker, table: str) -> str:
        return str(self.settings.folder / "data" / worker.arm / table)


def report(settings: Settings, results: Results) -> str:
    head = ("work", *settings.arms, "to Parquet", "wanted", "to delta-spark", "wanted", "")
    body = []
    for key, line in LINES.items():
        times = {arm: results.median(key, arm) for arm in (PARQUET, DELTA_SPARK, LAKELOG)}
        to_parquet, to_delta_spark = (_ratio(times[LAKELOG], times[peer]) for peer in (PARQUET, DELTA_SPARK))
        body.append(
            (
                line.name.format(files=settings.files),
                *(_seconds(times[arm]) for arm in settings.arms),
                _text(to_parquet),
                _wanted(line.to_parquet),
                _text(to_delta_spark),
                _wanted(line.to_delta_spark),
                _verdict((to_parquet, line.to_parquet), (to_delta_spark, line.to_delta_spark)),
            )
        )
    return _table(head, body)


def counts(settings: Settings, results: Results) -> list[str]:
    """What is counted and not timed."""
    lines = []
    for arm in settings.arms:
        ratio = _ratio(results.median("append checked", arm), results.median("append", arm))
        if ratio is not None:
            wanted = f" (wanted: <= {CHECKED_TO_PLAIN})" if arm == LAKELOG else ""
            lines.append(f"{arm}, append with constraints, generated and identity columns to its plain append: {ratio:.2f}{wanted}")
    for key, what in (("plan", f"a plan of {settings.files:,} files"), ("plan one", f"a plan of one file of {settings.files:,}")):
        said = results.said[key].get(LAKELOG, {})
        if said:
            trips = said.get("trips", "not counted")
            lines.append(f"lakelog, {what}: trips to Python {trips} (wanted: 1), tasks {said['tasks']}")
    for arm in settings.arms:
        said = results.said["one of many"].get(arm, {})
        if said:
            wanted = " (wanted: 1)" if arm == LAKELOG else ""
            found = f"files opened {said['files']}{wanted}, rows found {said['rows']}"
            lines.append(f"{arm}, filter that one of {ONE_OF_MANY_FILES:,} files meets: {found}")
    return lines


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours / theirs


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} s"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _wanted(value: float | None) -> str:
    return "" if value is None else f"<= {value:.2f}"


def _verdict(*pairs: tuple[float | None, float | None]) -> str:
    judged = [ratio <= wanted for ratio, wanted in pairs if ratio is not None and wanted is not None]
    return "" if not judged else "met" if all(judged) else "MISSED"


def _table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    shown = []
    for row in (head, tuple("-" * width for width in widths), *body):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        shown.append(f"| {' | '.join(cells)} |")
    return "\n".join(shown)


def start_workers(settings: Settings) -> tuple[list[Worker], list[str]]:
    """The arms that started, and for each that did not the reason."""
    workers, absent = [], []
    for arm in settings.arms:
        jars = None
        if arm == DELTA_SPARK:
            try:
                jars = delta_spark_jars(settings.folder / "jars")
            except JarsNotToBeHad as reason:
                absent.append(f"{arm} does not take part: {reason}")
                continue
        worker = Worker(arm, jars, settings.folder / f"{arm}.log")
        if "error" in worker.started:
            absent.append(f"{arm} does not take part: {worker.started['error']}")
            worker.close()
        else:
            workers.append(worker)
    return workers, absent


def main() -> int:
    settings = Settings.from_environment()
    shutil.rmtree(settings.folder / "data", ignore_errors=True)
    settings.folder.mkdir(parents=True, exist_ok=True)
    workers, absent = start_workers(settings)
    print(
        f"{settings.rows:,} rows, {settings.rounds} rounds, {os.cpu_count()} cores, Python {platform.python_version()}",
        *absent,
        sep="\n",
        flush=True,
    )
    bench = Bench(settings, workers)
    try:
        results = bench.run()
    finally:
        for worker in workers:
            worker.close()
        shutil.rmtree(settings.folder / "data", ignore_errors=True)
    print(f"\nMedians of {settings.rounds} interleaved rounds; ratios of lakelog's time, smaller is faster\n")
    print(report(settings, results))
    print("\n".join(["", *counts(settings, results), *(f"FAILED {what}: {why}" for what, why in results.failed.items())]))
    raw = {"rows": settings.rows, "rounds": settings.rounds, "seconds": results.seconds, "counts": results.said, "failed": results.failed}
    (settings.folder / "results.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    return 1 if results.failed or all(worker.arm != LAKELOG for worker in workers) else 0


if __name__ == "__main__":
    sys.exit(main())
