"""What the clients do: transactions as an adapter makes them, over files of rows that exist in the simulator alone.

Every transaction looks at a snapshot, decides, and commits; a refused one deletes its data files and begins again with a new snapshot, a
bounded number of times; one whose outcome is unknown keeps them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from lakelog.core.actions import Action, AddFile, Metadata, Protocol, SetTransaction
from lakelog.core.commit import NO_VERSION, NOTHING, CommitAttempt, Reads
from lakelog.core.commit_info import Operation, delete, write
from lakelog.core.errors import (
    CommitOutcomeUnknown,
    DeltaConcurrentModificationException,
    LakelogError,
    MissingCommitError,
    NotADeltaTableError,
    UnsupportedOperationError,
    VersionNotFoundError,
)
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_features import feature_names
from lakelog.storage.commit_loop import CommitResult
from lakelog.storage.table_log import TableLog
from tests.simulation.scheduler import Process
from tests.simulation.stamps import ROW_IDS, ROW_IDS_ON, TIMES, TIMES_ON
from tests.simulation.world import IDS, PARTITIONS, ROOT, Apply, Facts, Intent, Row, State, Violation, Where, World

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_DAY_MS = 86_400_000
_ROW_IDS_DOMAIN = "delta.rowTracking"
_APPEND = write("append")
_OVERWRITE = write("overwrite")
_DELETE = delete(["id"])
_UPDATE = Operation(name="UPDATE")
_OPTIMIZE = Operation(name="OPTIMIZE")
_PROPERTIES = Operation(name="SET TBLPROPERTIES")
_COLUMNS = Operation(name="ADD COLUMNS")
_UPGRADE = Operation(name="UPGRADE PROTOCOL")
_LEGACY = ("appendOnly", "invariants")
COLUMNS = ("id", "v", "p")


@dataclass(slots=True, kw_only=True)
class Plan:
    """A transaction before its commit; fields as in `Intent` and `CommitAttempt`."""

    what: str
    operation: Operation
    apply: Apply
    removed: Iterable[Action] = ()
    written: list[AddFile]
    other: tuple[Action, ...] = ()
    reads: Reads = NOTHING
    answer: object = None
    where: Where | None = None
    application: tuple[str, int] | None = None
    joins: bool = False
    copies: bool = False


class Client:
    """One writer: a process that may crash and come back, and what it remembers when it does."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.world: World = simulation.world
        self.chance: random.Random = simulation.world.chance
        # Where two clients are one application, both try the same batch.
        self.application = "application" if simulation.seed % 3 == 0 else f"application-{number}"
        self.batch = 1
        self.name = f"client {number}"
        self.number = number
        self.lives = 0
        # Nothing changes a snapshot, so one that was noted need not be compared again.
        self.noted: Snapshot | None = None

    def live(self) -> None:
        """The body of one process, from its start until the simulation has seen enough."""
        self.lives += 1
        simulation = self.simulation
        self.process: Process = simulation.process(self.name if self.lives == 1 else f"{self.name}.{self.lives}", self)
        self.log = TableLog(ROOT, self.process.store, self.process.environment)
        while not simulation.enough():
            simulation.operations += 1
            self._choose()()

    def _choose(self) -> Callable[[], None]:
        drawn = self.chance.random() * _WEIGHTS[-1][0]
        return next(operation for limit, operation in _WEIGHTS if drawn < limit).__get__(self)

    # transactions -----------------------------------------------------------------------------------------------------

    def append(self) -> None:
        number = self.world.fresh()
        if self.simulation.features and number % 10 == 0:
            # A machine's clock is corrected.
            self.simulation.clock.advance_ms(-(7919 * number % 5000))
        self._transact(lambda snapshot: self._append(snapshot, [self.world.new_row() for _ in range(1 + int(self.chance.random() * 3))]))

    def append_once(self) -> None:
        """An idempotent writer: the same batch until it knows that the batch is there, over errors, unknown outcomes and crashes."""
        batch = self.batch

        def plan(snapshot: Snapshot) -> Plan | None:
            done = snapshot.transactions.get(self.application)
            if done is not None and done.version >= batch:
                self.batch = batch + 1
                return None
            made = self._append(snapshot, [self.world.new_row()])
            applied = made.apply

            def apply(state: State) -> None:
                if state.transactions.get(self.application, 0) >= batch:
                    raise Violation(f"batch {batch} of {self.application} was applied a second time")
                state.transactions[self.application] = batch
                applied(state)

            made.what = f"append batch {batch} of {self.application}"
            made.other = (SetTransaction(app_id=self.application, version=batch),)
            made.reads = Reads(app_ids=frozenset({self.application}))
            made.apply, made.application = apply, (self.application, batch)
            return made

        if self._transact(plan) == "acknowledged":
            self.batch = batch + 1

    def overwrite(self) -> None:
        def plan(snapshot: Snapshot) -> Plan:
            rows = [self.world.new_row() for _ in range(1 + int(self.chance.random() * 4))]
            paths = self._paths(snapshot)
            answer = len(self._rows(paths))

            def apply(state: State) -> int:
                count = len(state.rows)
                state.rows.clear()
                _insert(state, rows)
                return count

            return Plan(
                what="overwrite",
                operation=_OVERWRITE,
                apply=apply,
                removed=self._removes(paths),
                written=self._write(snapshot, rows),
                reads=Reads(whole_table=True),
                where=Where(),
                answer=answer,
            )

        self._transact(plan)

    def delete(self) -> None:
        where = self._where()
        self._transact(lambda snapshot: self._rewrite(snapshot, where, "delete", _DELETE, None))

    def delete_partition(self) -> None:
        where = Where(partition=self._partition())
        self._transact(lambda snapshot: self._rewrite(snapshot, where, "delete", _DELETE, None))

    def update(self) -> None:
        where = self._where()
        self._transact(lambda snapshot: self._rewrite(snapshot, where, "update", _UPDATE, lambda row: row._replace(v=row.v + 1)))

    def replace_partition(self) -> None:
        """What an overwrite with a condition does."""
        partition = self._partition()
        where = Where(partition=partition)

        def plan(snapshot: Snapshot) -> Plan | None:
            made = self._rewrite(snapshot, where, "replace", _OVERWRITE, None, empty=True)
            rows = [self.world.new_row(partition)]
            made.written += self._write(snapshot, rows)
            deleted = made.apply

            def apply(state: State) -> object:
                answer = deleted(state)
                _insert(state, rows)
                return answer

            made.apply = apply
            return made

        self._transact(plan)

    def derive(self) -> None:
        """Reads some rows and appends one that says what it saw, so that a row it should have seen, or should not have, shows."""
        where = self._where()

        def plan(snapshot: Snapshot) -> Plan:
            looked = [path for path in self._paths(snapshot) if self.world.may_match(path, where)]
            answer = _summary(row for row in self._rows(looked) if where.matches(row))
            derived = self.world.new_row()._replace(v=answer[0] * 1_000_000 + answer[1])

            def apply(state: State) -> tuple[int, int]:
                found = _summary(row for row in state.rows.values() if where.matches(row))
                _insert(state, [derived])
                return found

            return Plan(
                what=f"append the summary of {where}",
                operation=_APPEND,
                apply=apply,
                written=self._write(snapshot, [derived]),
                reads=Reads(predicates=(where.predicate(),), files=pa.array(looked, pa.string())),
                answer=answer,
                where=where,
            )

        self._transact(plan)

    def rearrange(self) -> None:
        """Two or three files of one partition become one; no row changes."""

        def plan(snapshot: Snapshot) -> Plan | None:
            paths = self._paths(snapshot)
            self.chance.shuffle(paths)
            chosen = [path for path in paths if path.rpartition("/")[0] == paths[0].rpartition("/")[0]][: 2 + int(self.chance.random() * 2)]
            if len(chosen) < 2:
                return None
            now = self.process.environment.now_ms()
            return Plan(
                what="rearrange",
                operation=_OPTIMIZE,
                apply=lambda state: None,
                removed=[self.world.remove(path, now, data_change=False) for path in chosen],
                written=self._write(snapshot, self._rows(chosen), data_change=False),
                reads=Reads(files=pa.array(chosen, pa.string())),
                copies=True,
            )

        self._transact(plan)

    def set_property(self) -> None:
        key, value = _PROPERTY_CHOICES[int(self.chance.random() * len(_PROPERTY_CHOICES))]
        text = value if value is not None else str(self.world.fresh())

        def plan(snapshot: Snapshot) -> Plan:
            configuration = {**snapshot.metadata.configuration, key: text}

            def apply(state: State) -> None:
                state.configuration[key] = text

            return Plan(
                what=f"set {key} to {text}",
                operation=_PROPERTIES,
                apply=apply,
                written=[],
                other=(replace(snapshot.metadata, configuration=configuration),),
            )

        self._transact(plan)

    def add_column(self) -> None:
        name = f"c{self.world.fresh()}"

        def plan(snapshot: Snapshot) -> Plan | None:
            fields = orjson.loads(snapshot.metadata.schema_json)
            if len(fields["fields"]) > 5:
                return None
            fields["fields"].append({"name": name, "type": "long", "nullable": True, "metadata": {}})

            def apply(state: State) -> None:
                state.columns = (*state.columns, name)

            return Plan(
                what=f"add column {name}",
                operation=_COLUMNS,
                apply=apply,
                written=[],
                other=(replace(snapshot.metadata, schema_string=orjson.dumps(fields).decode()),),
            )

        self._transact(plan)

    def upgrade(self) -> None:
        """Features are added to the protocol, and those that a property turns on are turned on."""
        more = self.simulation.upgrades_to

        def plan(snapshot: Snapshot) -> Plan | None:
            features = snapshot.protocol.writer_features
            if features is not None and "vacuumProtocolCheck" in features:
                return None
            protocol = Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=("vacuumProtocolCheck",),
                writer_features=(*(features or _LEGACY), "vacuumProtocolCheck", *_listed(more)),
            )
            metadata = replace(snapshot.metadata, configuration={**snapshot.metadata.configuration, **enabling(more)})

            def apply(state: State) -> None:
                if "vacuumProtocolCheck" in state.features:
                    raise Violation("two transactions upgraded the protocol unseen by each other")
                state.features |= {"vacuumProtocolCheck", *_listed(more)}
                state.configuration |= enabling(more)

            return Plan(
                what="upgrade the protocol",
                operation=_UPGRADE,
                apply=apply,
                written=[],
                other=(protocol, metadata) if more else (protocol,),
            )

        self._transact(plan)

    def create(self) -> None:
        """Create the table where none is seen."""
        simulation = self.simulation
        configuration = dict(simulation.configuration)
        if self.chance.random() < 0.2:
            configuration["owner"] = self.name
        metadata = Metadata(
            id=str(self.world.fresh()),
            schema_string=_SCHEMA,
            partition_columns=("p",) if simulation.partitioned else (),
            configuration=configuration,
            created_time=self.process.environment.now_ms(),
        )
        rows = [self.world.new_row()]

        def apply(state: State) -> None:
            if not state.columns:
                state.columns, state.configuration = COLUMNS, dict(configuration)
                state.features = frozenset({*_LEGACY, *_listed(simulation.features)})
            elif state.configuration.get("owner") != configuration.get("owner") or state.columns != COLUMNS:
                # Other properties, and the protocol's features, may have changed between the join and the commit.
                raise Violation("a transaction that creates a table joined a table that is another")
            _insert(state, rows)

        self._commit(
            Plan(
                what="create",
                operation=_APPEND,
                apply=apply,
                written=self.world.write(rows, partitioned=simulation.partitioned),
                other=(_protocol(simulation.features), metadata),
                joins=self.chance.random() < 0.7,
            ),
            NO_VERSION,
        )

    # what commits nothing ---------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        self._try(self.log.checkpoint)

    def clean_up(self) -> None:
        self._try(self.log.clean_up)

    def travel(self) -> None:
        """Look at an old version."""
        newest = max(self.simulation.recorder.commits, default=-1)
        snapshot = self._try(lambda: self.log.snapshot(int(self.chance.random() * (newest + 1))))
        if isinstance(snapshot, Snapshot):
            self._note(snapshot)

    def history(self) -> None:
        commits = self.simulation.recorder.commits
        entries = self._try(lambda: self.log.history(5))
        for entry in entries or ():
            told = None if entry.commit_info is None else entry.commit_info.txn_id
            if told is None or told.encode() not in commits[entry.version]:
                raise Violation(f"the history shows {told} at version {entry.version}, which holds another commit")

    def wait_for_days(self) -> None:
        """Days go by, unless a request is under way: no network holds one for days, and no commit takes as long as the log is kept."""
        simulation = self.simulation
        if not simulation.busy:
            simulation.faults.settle()
            simulation.clock.advance_ms(int((1 + self.chance.random() * 3) * _DAY_MS))

    # parts of them ----------------------------------------------------------------------------------------------------

    def _transact(self, plan: Callable[[Snapshot], Plan | None]) -> str | None:
        """The outcome, None where there was nothing to do, or no way to find out."""
        outcome: str | None = None
        for _ in range(1 + int(self.chance.random() * 4)):
            was_there = bool(self.simulation.recorder.commits)
            try:
                snapshot = self.log.snapshot()
            except NotADeltaTableError as error:
                if was_there:
                    raise Violation("a table that is there is not seen") from error
                self.create()
                return None
            except (LakelogError, OSError) as error:
                self._tolerate(error)
                return None
            self._note(snapshot)
            made = plan(snapshot)
            if made is None:
                return outcome
            if self.chance.random() < 0.1:
                for _ in range(int(self.chance.random() * 30)):
                    self.simulation.scheduler.stop()
            outcome = self._commit(made, snapshot.version)
            if outcome != "refused":
                break
        return outcome

    def _commit(self, plan: Plan, read_version: int) -> str:
        simulation = self.simulation
        intent = Intent(
            name=f"i{self.world.fresh()}",
            what=plan.what,
            client=self.process.name,
            read_version=read_version,
            apply=plan.apply,
            answer=plan.answer,
            where=plan.where,
            application=plan.application,
        )
        self.world.intents[intent.name] = intent
        attempt = CommitAttempt(
            read_version=read_version,
            actions=(*plan.other, *plan.removed, *plan.written),
            operation=plan.operation,
            engine_info="lakelog/simulated",
            reads=plan.reads,
            user_metadata=intent.name,
            joins=plan.joins,
            keeps_row_ids=None if plan.copies else True,
        )
        simulation.busy.add(self.number)
        try:
            result = self.log.commit(attempt)
        except CommitOutcomeUnknown as error:
            if not simulation.has_faults:
                raise Violation("an outcome is unknown though every request was answered") from error
            self._resolve(intent, plan, error)
        except (LakelogError, OSError) as error:
            self._refused(intent, plan, error)
        else:
            self._landed(intent, result.version)
            self._note_result(result)
        simulation.busy.discard(self.number)
        return intent.outcome

    def _resolve(self, intent: Intent, plan: Plan, error: CommitOutcomeUnknown) -> None:
        if self.chance.random() < 0.5:
            return
        try:
            version = error.resolve()
        except (CommitOutcomeUnknown, LakelogError, OSError):
            return
        if version is None:
            self._refused(intent, plan, None)
        else:
            self._landed(intent, version)

    def _landed(self, intent: Intent, version: int) -> None:
        intent.outcome, intent.version = "acknowledged", version
        self.simulation.acknowledged += 1
        self.simulation.tell(intent.client, intent.what, intent.name, f"landed as version {version}")

    def _refused(self, intent: Intent, plan: Plan, error: Exception | None) -> None:
        intent.outcome = "refused"
        self.simulation.tell(intent.client, intent.what, intent.name, f"refused: {error}")
        self.world.discard(plan.written)
        if error is not None and not isinstance(error, DeltaConcurrentModificationException | UnsupportedOperationError):
            self._tolerate(error)

    def _try(self, request: Callable[[], object]) -> object:
        try:
            return request()
        except NotADeltaTableError:
            return None
        except (LakelogError, OSError) as error:
            self._tolerate(error)
            return None

    def _tolerate(self, error: Exception) -> None:
        """Object to an error that nothing explains."""
        simulation = self.simulation
        if simulation.has_faults or (simulation.recorder.deleted and isinstance(error, MissingCommitError | VersionNotFoundError)):
            return
        raise Violation(f"{type(error).__name__} though every request was answered: {error}") from error

    def _note_result(self, result: CommitResult) -> None:
        if result.snapshot.version != result.version:
            raise Violation(f"a commit landed as version {result.version} and gave the snapshot of version {result.snapshot.version}")
        self._note(result.snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        if snapshot is not self.noted:
            self.noted = snapshot
            self.world.seen.append((self.process.name, snapshot.version, facts_of(snapshot)))

    def _paths(self, snapshot: Snapshot) -> list[str]:
        paths: list[str] = snapshot.files["path"].to_pylist()
        return paths

    def _rows(self, paths: Iterable[str]) -> list[Row]:
        files = self.world.files
        try:
            return [row for path in paths for row in files[path]]
        except KeyError as error:
            raise Violation(f"the data file {error} of a snapshot was deleted") from error

    def _write(self, snapshot: Snapshot, rows: Iterable[Row], *, data_change: bool = True) -> list[AddFile]:
        return self.world.write(rows, partitioned=bool(snapshot.partition_columns), data_change=data_change)

    def _removes(self, paths: Iterable[str]) -> list[Action]:
        now = self.process.environment.now_ms()
        return [self.world.remove(path, now) for path in paths]

    def _partition(self) -> str:
        return PARTITIONS[int(self.chance.random() * len(PARTITIONS))]

    def _where(self) -> Where:
        low = int(self.chance.random() * IDS)
        return Where(low, low + int(self.chance.random() * 12), self._partition() if self.chance.random() < 0.3 else None)

    def _append(self, snapshot: Snapshot, rows: list[Row]) -> Plan:
        return Plan(
            what="append",
            operation=_APPEND,
            apply=lambda state: _insert(state, rows),
            written=self._write(snapshot, rows),
        )

    def _rewrite(
        self,
        snapshot: Snapshot,
        where: Where,
        what: str,
        operation: Operation,
        change: Callable[[Row], Row] | None,
        *,
        empty: bool = False,
    ) -> Plan | None:
        """Copy on write: files that hold matches are removed, their other rows written again, the matches changed or left out."""
        looked = [path for path in self._paths(snapshot) if self.world.may_match(path, where)]
        hit: list[str] = []
        kept: list[Row] = []
        answer = 0
        for path in looked:
            rows = self._rows([path])
            matches = [row for row in rows if where.matches(row)]
            if matches:
                hit.append(path)
                answer += len(matches)
                kept += [row for row in rows if not where.matches(row)]
                if change is not None:
                    kept += map(change, matches)
        if not hit and not empty:
            return None

        def apply(state: State) -> int:
            found = [row for row in state.rows.values() if where.matches(row)]
            for row in found:
                if change is None:
                    del state.rows[row.uid]
                else:
                    state.rows[row.uid] = change(row)
            return len(found)

        return Plan(
            what=f"{what} {where}",
            operation=operation,
            apply=apply,
            removed=self._removes(hit),
            written=self._write(snapshot, kept),
            reads=Reads(predicates=(where.predicate(),), files=pa.array(looked, pa.string())),
            answer=answer,
            where=where,
            copies=bool(kept),
        )


def facts_of(snapshot: Snapshot) -> Facts:
    protocol = snapshot.protocol
    return Facts(
        paths=frozenset(snapshot.files["path"].to_pylist()),
        configuration=snapshot.metadata.configuration,
        schema=snapshot.metadata.schema_string,
        features=_features(protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features, protocol.writer_features),
        transactions={name: action.version for name, action in snapshot.transactions.items()},
        row_ids=_row_ids(snapshot.files),
        row_id_mark=snapshot.domains[_ROW_IDS_DOMAIN].configuration if _ROW_IDS_DOMAIN in snapshot.domains else None,
        in_commit_timestamp=snapshot.state.in_commit_timestamp,
    )


def enabling(features: Iterable[str]) -> dict[str, str]:
    """The properties that turn them on."""
    switches = {TIMES: TIMES_ON, ROW_IDS: ROW_IDS_ON}
    return {switches[feature]: "true" for feature in features}


def _listed(features: Iterable[str]) -> tuple[str, ...]:
    """As a protocol lists them, with what they depend on."""
    features = tuple(features)
    return (*features, "domainMetadata") if ROW_IDS in features else features


def _protocol(features: Iterable[str]) -> Protocol:
    if not features:
        return Protocol(min_reader_version=1, min_writer_version=2)
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=(*_LEGACY, *_listed(features)))


def _row_ids(files: pa.Table) -> dict[str, tuple[int | None, int | None]]:
    if files["baseRowId"].null_count == files.num_rows:
        return {}
    rows = files.select(["path", "baseRowId", "defaultRowCommitVersion"]).to_pylist()
    return {row["path"]: (row["baseRowId"], row["defaultRowCommitVersion"]) for row in rows if row["baseRowId"] is not None}


@lru_cache(maxsize=16)
def _features(reader: int, writer: int, reader_features: tuple[str, ...] | None, writer_features: tuple[str, ...] | None) -> frozenset[str]:
    protocol = Protocol(
        min_reader_version=reader, min_writer_version=writer, reader_features=reader_features, writer_features=writer_features
    )
    return frozenset(feature_names(protocol))


def _insert(state: State, rows: Iterable[Row]) -> None:
    for row in rows:
        if row.uid in state.rows:
            raise Violation(f"row {row.uid} was inserted a second time")
        state.rows[row.uid] = row


def _summary(rows: Iterable[Row]) -> tuple[int, int]:
    values = [row.v for row in rows]
    return len(values), sum(values) % 1_000_000


_SCHEMA = orjson.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in zip(COLUMNS, ("long", "long", "string"), strict=True)
        ],
    }
).decode()

_PROPERTY_CHOICES = (
    ("delta.targetFileSize", None),
    ("delta.targetFileSize", None),
    ("delta.appendOnly", "true"),
    ("delta.appendOnly", "false"),
    ("delta.appendOnly", "false"),
    ("owner", None),
)


def _weights() -> list[tuple[float, Callable[[Client], None]]]:
    shares: list[tuple[float, Callable[[Client], None]]] = [
        (30, Client.append),
        (12, Client.append_once),
        (3, Client.overwrite),
        (14, Client.delete),
        (3, Client.delete_partition),
        (10, Client.update),
        (4, Client.replace_partition),
        (9, Client.derive),
        (6, Client.rearrange),
        (4, Client.set_property),
        (1, Client.add_column),
        (1, Client.upgrade),
        (2, Client.checkpoint),
        (4, Client.clean_up),
        (2, Client.travel),
        (1, Client.history),
        (4, Client.wait_for_days),
    ]
    total = 0.0
    cumulative = []
    for share, operation in shares:
        total += share
        cumulative.append((total, operation))
    return cumulative


_WEIGHTS = _weights()
