"""One run: a table, a few clients, faults, and the check of what came of it; all of it decided by one number."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.core.errors import LakelogError
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing.clock import VirtualClock
from lakelog.storage.testing.faults import Call, Fault, FaultInjectingLogStore, Schedule, SeededFaults
from lakelog.storage.testing.memory import MemoryLogStore
from tests.simulation.checker import check, check_facts
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.stamps import ROW_IDS, TIMES
from tests.simulation.workload import Client, enabling, facts_of
from tests.simulation.world import LOG, ROOT, Recorder, Violation, World

COMMITS = 20

_LIGHT = {
    Fault.FAIL_BEFORE: 0.003,
    Fault.FAIL_AFTER: 0.003,
    Fault.LOST_REQUEST: 0.003,
    Fault.LOST_ANSWER: 0.003,
    Fault.LATE: 0.003,
    Fault.DUPLICATE: 0.003,
    Fault.TORN: 0.002,
    Fault.DELAY: 0.003,
    Fault.CRASH_BEFORE: 0.002,
    Fault.CRASH_AFTER: 0.002,
}
_UNSURE = {Fault.LATE: 0.05, Fault.LOST_ANSWER: 0.03, Fault.LOST_REQUEST: 0.03, Fault.DUPLICATE: 0.05, Fault.FAIL_AFTER: 0.03}
_CRASHES = {Fault.CRASH_BEFORE: 0.02, Fault.CRASH_AFTER: 0.02, Fault.LATE: 0.02}
# The rates while one lasts: nearly everybody who puts is left in doubt, again and again.
_OUTAGE = {Fault.LOST_REQUEST: 0.4, Fault.LOST_ANSWER: 0.3, Fault.LATE: 0.2, Fault.FAIL_BEFORE: 0.05}
_OUTAGES = "outages"
_LONGEST_OUTAGE = 60
MIXES: tuple[tuple[str, Mapping[Fault, float]], ...] = (
    ("no faults", {}),
    ("few faults", _LIGHT),
    ("unsure answers", _UNSURE),
    ("crashes", _CRASHES),
    (_OUTAGES, _OUTAGE),
    ("many faults", {fault: 4 * rate for fault, rate in _LIGHT.items()}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a good run was.

    Attributes:
        acknowledged: commits that their clients know to have landed.
        landed: commits in the log.
        refused: commit attempts of which nothing was committed.
        checkpoints: how many were written.
        deleted: commit files that clean-up deleted.
        trace: one line for each request and each outcome, where it was asked for.
    """

    acknowledged: int
    landed: int
    refused: int
    checkpoints: int
    deleted: int
    trace: tuple[str, ...]


class Simulation:
    """A run that has not begun.

    Args:
        seed: decides everything. Even ones make Serializable tables, odd ones WriteSerializable.
        commits: the run ends when so many have been acknowledged, or four times as many operations tried.
        traced: keep a line for every request.
    """

    def __init__(self, seed: int, commits: int = COMMITS, *, traced: bool = False) -> None:
        self.seed = seed
        chance = random.Random(seed)
        self.serializable = seed % 2 == 0
        self.partitioned = chance.random() < 0.5
        self.mix, rates = MIXES[int(chance.random() * len(MIXES))]
        self.has_faults = bool(rates)
        # Of five seeds one has in-commit timestamps, one row ids, one both, and one gets both by an upgrade.
        self.features = {1: (ROW_IDS,), 2: (TIMES,), 3: (ROW_IDS, TIMES)}.get(seed % 5, ())
        self.upgrades_to = (ROW_IDS, TIMES) if seed % 5 == 4 else ()
        self.configuration = {
            "delta.checkpointInterval": str(chance.choice((8, 100, 100, 100))),
            "delta.isolationLevel": "Serializable" if self.serializable else "WriteSerializable",
            "delta.logRetentionDuration": chance.choice(("interval 1 days", "interval 30 days")),
        }
        self.configuration |= enabling(self.features)
        self.clock = VirtualClock(seed=seed)
        self.recorder = Recorder(MemoryLogStore(self.clock.now_ms))
        schedule: Schedule = SeededFaults(seed, rates)
        schedule = _in_outages(schedule, random.Random(seed)) if self.mix == _OUTAGES else schedule
        self.faults = FaultInjectingLogStore(self.recorder, schedule, seed=seed, clock=self.clock)
        self.scheduler = Scheduler(chance, chance.choice((1.0, 0.5, 0.2, 0.05)))
        self.world = World(chance, counted=ROW_IDS in (*self.features, *self.upgrades_to))
        self.acknowledged = 0
        self.operations = 0
        self.busy: set[int] = set()
        self.trace: list[str] | None = [] if traced else None
        self._commits = commits
        self._environment = self.clock.environment()
        self._clients = [Client(self, number) for number in range(1, 1 + chance.choice((1, 2, 2, 2, 3, 3, 4)))]

    def run(self) -> Report:
        """Let the clients work, then check.

        Raises:
            Violation: a promise was broken.
        """
        try:
            for client in self._clients:
                self.scheduler.start(client.live)
            self.scheduler.run()
            self.faults.settle()
        except BaseException:
            self.scheduler.abandon()
            raise
        self._check()
        intents = self.world.intents.values()
        return Report(
            acknowledged=self.acknowledged,
            landed=len(self.recorder.commits),
            refused=sum(intent.outcome == "refused" for intent in intents),
            checkpoints=self.recorder.checkpoints,
            deleted=len(self.recorder.deleted),
            trace=tuple(self.trace or ()),
        )

    def describe(self) -> str:
        """What the seed chose."""
        isolation, table = self.configuration["delta.isolationLevel"], "partitioned" if self.partitioned else "unpartitioned"
        return f"seed {self.seed}: {len(self._clients)} clients, {isolation}, {table}, {self.mix}, {self.configuration}"

    def enough(self) -> bool:
        """Whether the clients may stop."""
        return self.acknowledged >= self._commits or self.operations >= 4 * self._commits

    def process(self, name: str, client: Client) -> Process:
        """A new process for a client; when it crashes, the client comes back as another."""

        def on_death() -> None:
            self.busy.discard(client.number)
            self.scheduler.start(client.live)

        tell = None if self.trace is None else self.tell
        return Process(name, self.scheduler, self.faults, self.clock, self._environment, tell, on_death)

    def tell(self, client: str, verb: str, path: str, answer: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{len(self.trace) + 1:5} {client:12} {verb} {path.removeprefix(LOG)}: {answer}")

    def _check(self) -> None:
        recorder, world = self.recorder, self.world
        present = {info.name: info.path for info in recorder.list_from(LOG)} if recorder.commits else {}
        for version, data in recorder.commits.items():
            name = f"{version:020d}.json"
            if (name in present) == (version in recorder.deleted):
                raise Violation(f"the commit file of version {version} went, or came back, without clean-up")
            if name in present and recorder.read(present[name]) != data:
                raise Violation(f"the commit file of version {version} changed")
        history = check(recorder.commits, files=world.files, intents=world.intents, seen=world.seen, serializable=self.serializable)
        if not history:
            if not self.has_faults:
                raise Violation("no commit ever landed")
            return
        if not self.has_faults and self.acknowledged != len(history):
            raise Violation(f"{len(history)} commits landed and {self.acknowledged} were acknowledged though every request was answered")
        if 0 in recorder.deleted or self.seed % 4 < 2:
            self._check_reader(self.recorder, history[-1].facts, "a new reader at the end")
        else:
            bare = MemoryLogStore(self.clock.now_ms)
            for name, path in present.items():
                if name.endswith(".json"):
                    bare.put_if_absent(path, recorder.read(path))
            self._check_reader(bare, history[-1].facts, "a reader of the commits alone")

    def _check_reader(self, store: Recorder | MemoryLogStore, facts: object, who: str) -> None:
        try:
            snapshot = TableLog(ROOT, store, self._environment).snapshot()
        except LakelogError as error:
            raise Violation(f"the table cannot be read by {who}: {error}") from error
        check_facts(facts_of(snapshot), facts, who)


def _in_outages(faults: Schedule, chance: random.Random) -> Schedule:
    """The schedule's faults, but only now and then, for a while."""
    left = 0

    def schedule(call: Call) -> Fault | None:
        nonlocal left
        fault = faults(call)
        if left:
            left -= 1
            return fault
        if chance.random() < 0.01:
            left = chance.randint(10, _LONGEST_OUTAGE)
        return None

    return schedule


def simulate(seed: int, commits: int = COMMITS, *, traced: bool = False) -> Report:
    """Run one seed to its end. Raises a `Violation` where a promise was broken."""
    return Simulation(seed, commits, traced=traced).run()
