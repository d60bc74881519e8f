"""Writers that race for one table of any store, some killed in the middle of it, and what must hold of the table afterwards."""

from __future__ import annotations

import json
import os
import random
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import deltalake

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.commit import NO_VERSION, CommitAttempt
from lakelog.core.commit_info import write
from lakelog.core.last_checkpoint import LastCheckpoint
from lakelog.core.log_files import checkpoint_name, commit_name
from lakelog.storage.environment import in_threads
from lakelog.storage.log_store import LogStore
from tests.processes.table import Table

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """What a writer said of one commit.

    Attributes:
        version: where it landed.
        took_ms: from the attempt to the acknowledgement.
    """

    version: int
    took_ms: int


@dataclass(slots=True, kw_only=True)
class Race:
    """How a race went.

    Attributes:
        acknowledged: by the file that was appended.
        seconds: from the start of the writers, when all had imported what they need, to the end of the last.
        kills: how many writers were killed.
        failures: of writers that ended otherwise, their names and exit codes.
        finished_s: for each writer that ended by itself, seconds after the start.
    """

    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    seconds: float = 0.0
    kills: int = 0
    failures: list[str] = field(default_factory=list)
    finished_s: list[float] = field(default_factory=list)


def make_table(table: Table, configuration: Mapping[str, str] | None = None, *, protocol: Protocol | None = None) -> None:
    """An empty table, version 0."""
    actions = (
        protocol or Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="race", schema_string=SCHEMA, configuration=dict(configuration or {})),
    )
    attempt = CommitAttempt(read_version=NO_VERSION, actions=actions, operation=write("append"), engine_info="lakelog/test")
    table.log().commit(attempt)


def race(
    table: Table,
    *,
    writers: int,
    appends: int,
    kill_after: int | None = None,
    clocks_apart_ms: int = 0,
    seed: int = 0,
    patience_s: float = 600,
) -> Race:
    """Let the writers append so many files each; a killed one is followed by another that appends what it had not acknowledged.

    Args:
        clocks_apart_ms: every second writer's clock is so far ahead of the others'.
        kill_after: kill a writer at random after so many acknowledgements, on average; None to kill none.
        seed: of the kills.
        patience_s: how long nothing may be heard before all are given up.
    """
    running = _Running(table, patience_s, clocks_apart_ms)
    chance = random.Random(seed)
    with running.stopped_at_the_end():
        for number in range(writers):
            running.start(f"w{number}.0", 0, appends)
        running.go()
        for _ in running.acknowledgements():
            if kill_after is not None and chance.random() < 1 / kill_after:
                running.kill(chance.choice(running.names()))
    return running.result


class _Writer:
    def __init__(self, table: Table, name: str, first: int, count: int) -> None:
        self.name = name
        self.next = first
        self.left = count
        self.started = False
        self.unread = b""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RACE_TABLE": table.to_text()}
        command = [sys.executable, "-m", "tests.processes.writer", name, str(first), str(count)]
        self.process = subprocess.Popen(command, env=environment, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def go(self) -> None:
        self.started = True
        self.input.write(b"go\n")
        self.input.flush()

    def lines(self) -> list[str] | None:
        """Whole lines that have come since; None at the end."""
        data = os.read(self.output.fileno(), 65536)
        if not data:
            return None
        *whole, self.unread = (self.unread + data).split(b"\n")
        return [line.decode() for line in whole]

    def close(self) -> int:
        self.input.close()
        self.output.close()
        return self.process.wait()


class _Running:
    """The writers that are alive, heard one line at a time."""

    def __init__(self, table: Table, patience_s: float, clocks_apart_ms: int) -> None:
        self.result = Race()
        self._table = table
        self._patience_s = patience_s
        self._clocks_apart_ms = clocks_apart_ms
        self._selector = selectors.DefaultSelector()
        self._writers: dict[str, _Writer] = {}
        self._killed: set[str] = set()
        self._began: float | None = None

    @contextmanager
    def stopped_at_the_end(self) -> Iterator[None]:
        try:
            yield
        finally:
            for writer in self._writers.values():
                writer.process.kill()
                writer.close()
            self._selector.close()

    def start(self, name: str, first: int, count: int) -> None:
        number = int(name[1:].partition(".")[0])
        table = replace(self._table, clock_shift_ms=number % 2 * self._clocks_apart_ms)
        writer = self._writers[name] = _Writer(table, name, first, count)
        self._selector.register(writer.output, selectors.EVENT_READ, writer)

    def names(self) -> list[str]:
        return [name for name, writer in self._writers.items() if writer.started and name not in self._killed]

    def go(self) -> None:
        """Let those that are ready begin together."""
        for writer in self._writers.values():
            if writer.output.readline() != b"ready\n":
                raise AssertionError(f"{writer.name} did not start: it ended with {writer.process.wait()}")
        self._began = time.monotonic()
        for writer in self._writers.values():
            writer.go()

    def kill(self, name: str) -> None:
        self._killed.add(name)
        self._writers[name].process.kill()
        self.result.kills += 1

    def acknowledgements(self) -> Iterator[str]:
        """The files as they are acknowledged, until every writer has ended."""
        assert self._began is not None
        while self._writers:
            ready = self._selector.select(self._patience_s)
            if not ready:
                raise AssertionError(f"nothing heard for {self._patience_s:.0f} s of {', '.join(self._writers)}")
            for key, _ in ready:
                writer: _Writer = key.data
                lines = writer.lines()
                if lines is None:
                    self._ended(writer)
                    continue
                for line in lines:
                    if line == "ready":
                        writer.go()
                        continue
                    path, version, took_ms = line.split()
                    self.result.acknowledged[path] = Acknowledged(version=int(version), took_ms=int(took_ms))
                    writer.next, writer.left = writer.next + 1, writer.left - 1
                    if self.names():
                        yield path
        self.result.seconds = time.monotonic() - self._began

    def _ended(self, writer: _Writer) -> None:
        assert self._began is not None
        self._selector.unregister(writer.output)
        del self._writers[writer.name]
        code = writer.close()
        if writer.name in self._killed:
            if writer.left:
                number, _, incarnation = writer.name.partition(".")
                self.start(f"{number}.{int(incarnation) + 1}", writer.next, writer.left)
        elif code or writer.left:
            self.result.failures.append(f"{writer.name} ended with {code}, {writer.left} appends left")
        else:
            self.result.finished_s.append(time.monotonic() - self._began)


def check(table: Table, result: Race, *, wanted: int) -> None:
    """That the table holds every acknowledged append once, and nothing twice.

    Args:
        wanted: how many appends were to be acknowledged.
    """
    assert result.failures == []
    assert len(result.acknowledged) == wanted
    store, log = table.store(), f"{table.root}/_delta_log"
    names = [file.name for file in store.list_from(f"{log}/")]
    versions = sorted(int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdecimal() and len(name) == 25)
    assert versions == list(range(len(versions))), "versions are not contiguous"
    found: list[tuple[str, int]] = []
    identities: list[str] = []
    times: list[int] = []
    for version, data in zip(versions, in_threads(lambda version: store.read(f"{log}/{commit_name(version)}"), versions), strict=True):
        actions = [json.loads(line) for line in data.splitlines()]
        for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
            identities.append(info["txnId"])
            times.extend([info["inCommitTimestamp"]] if "inCommitTimestamp" in info else [])
        found.extend((action["add"]["path"], version) for action in actions if "add" in action)
    assert len(identities) == len(versions)
    assert [txn_id for txn_id, count in Counter(identities).items() if count > 1] == []
    assert len(times) in (0, len(versions))
    assert times == sorted(set(times)), "in-commit timestamps do not grow"
    assert [path for path, count in Counter(path for path, _ in found).items() if count > 1] == [], "appended twice"
    assert {(path, said.version) for path, said in result.acknowledged.items()} <= set(found), "acknowledged and not there"
    # Only a killed writer leaves a commit that it could not acknowledge, and each at most one.
    assert len(found) - wanted <= result.kills
    files = {path for path, _ in found}
    snapshot = table.log().snapshot()
    assert snapshot.version == versions[-1]
    assert sorted(snapshot.files["path"].to_pylist()) == sorted(files)
    _check_hint(table, store, dict(found))
    other = deltalake.DeltaTable(table.root, storage_options=dict(table.storage_options))
    assert other.version() == versions[-1]
    assert {uri.rpartition("/")[2] for uri in other.file_uris()} == files


def _check_hint(table: Table, store: LogStore, found: Mapping[str, int]) -> None:
    """That the hint names a checkpoint which is there and holds what the commits up to it say."""
    log = f"{table.root}/_delta_log"
    hint = LastCheckpoint.from_bytes(store.read(f"{log}/_last_checkpoint"))
    assert len(store.read(f"{log}/{checkpoint_name(hint.version)}")) == hint.size_in_bytes
    held = table.log().snapshot(hint.version)
    assert sorted(held.files["path"].to_pylist()) == sorted(path for path, version in found.items() if version <= hint.version)
    assert hint.num_of_add_files == held.num_files
