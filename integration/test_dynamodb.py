"""lakelog's DynamoDB store beside a writer that follows the reference's protocol step by step, on MinIO and DynamoDB Local."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.dying import dying_stores
from integration.mixed_writer import STEPS, MixedWriter, Stopped, Taken
from integration.proxy import Fault, FaultProxy, Plan, Rule
from integration.servers import DynamoDBLocal, MinIO
from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.dynamodb import DynamoDBLogStore
from lakelog.storage.log_store import AlreadyExists, Created, LogStore
from lakelog.storage.registry import log_store_for
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing import SimulatedCrash
from tests.processes.race import make_table, race
from tests.processes.table import Table
from tests.processes.writer import append

PREFIX = "some folder/t"
DELTA = "spark.io.delta.storage.S3DynamoDBLogStore"


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, a DynamoDB table, and both kinds of writers over them."""

    minio: MinIO
    dynamodb: DynamoDBLocal
    bucket: str
    table: str

    @property
    def log(self) -> str:
        return f"s3a://{self.bucket}/{PREFIX}/_delta_log"

    def path(self, version: int) -> str:
        return f"{self.log}/{version:020d}.json"

    def options(self, **changes: object) -> dict[str, object]:
        ours = {"ddb.endpoint_url": self.dynamodb.endpoint, "ddb.table_name": self.table}
        return {**self.minio.options(), **ours, **changes}

    def store(self) -> DynamoDBLogStore:
        return DynamoDBLogStore(self.options())

    def lakelog(self) -> Table:
        settings = {f"spark.lakelog.s3a.{name}": str(value) for name, value in self.options().items()}
        return Table(f"s3a://{self.bucket}/{PREFIX}", {**settings, "spark.lakelog.s3a.logstore.class": "dynamodb"})

    def writer_arguments(self) -> dict[str, Any]:
        key, secret = self.minio.access_key, self.minio.secret_key
        identity = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        return {
            "s3": {"endpoint_url": self.minio.endpoint, "region_name": self.minio.region, **identity},
            "dynamodb": {"endpoint_url": self.dynamodb.endpoint, "region_name": self.dynamodb.region, **identity},
            "bucket": self.bucket,
            "prefix": PREFIX,
            "table": self.table,
        }

    def writer(self) -> MixedWriter:
        return MixedWriter(**self.writer_arguments())


@pytest.fixture
def place(minio: MinIO, dynamodb: DynamoDBLocal, bucket: str) -> Place:
    return Place(minio, dynamodb, bucket, dynamodb.new_table_name())


def body(file: str) -> bytes:
    """A commit that appends one file, as another engine writes it."""
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {}, "isBlindAppend": True, "txnId": f"of {file}"}}
    add = {"add": {"path": file, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    return f"{json.dumps(info)}\n{json.dumps(add)}\n".encode()


def appended(store: LogStore, log: str) -> dict[str, int]:
    """The files that the table's commits append and where; versions are contiguous, and none appends what another did."""
    names = [info.name for info in store.list_from(f"{log}/") if len(info.name) == 25 and info.name.endswith(".json")]
    assert names == [f"{version:020d}.json" for version in range(len(names))]
    found: list[tuple[str, int]] = []
    for version, name in enumerate(names):
        actions = [json.loads(line) for line in store.read(f"{log}/{name}").splitlines()]
        found += [(action["add"]["path"], version) for action in actions if "add" in action]
    assert [file for file, count in Counter(file for file, _ in found).items() if count > 1] == []
    return dict(found)


# one stops, the other goes on -----------------------------------------------------------------------------------------


def lists(store: LogStore, log: str) -> None:
    list(store.list_from(f"{log}/"))


def reads(store: LogStore, log: str) -> None:
    try:
        store.read(f"{log}/{2:020d}.json")
    except FileNotFoundError:
        return


@pytest.mark.parametrize("first", [None, lists, reads])
@pytest.mark.parametrize("step", STEPS)
def test_where_the_other_writer_stops_lakelog_completes_its_commit(
    place: Place, step: str, first: Callable[[LogStore, str], None] | None
) -> None:
    table = place.lakelog()
    make_table(table)
    log = table.log()
    assert append(log, "ours-1") == 1
    other = place.writer()
    with pytest.raises(Stopped):
        other.commit(2, body("theirs"), stop_after=step)
    if first is not None:
        first(place.store(), place.log)
    # This one has read version 1, and nothing tells it of 2.
    landed = STEPS.index(step) >= STEPS.index("entered")
    assert append(log, "ours-2") == (3 if landed else 2)
    files = appended(place.store(), place.log)
    assert files == ({"ours-1": 1, "theirs": 2, "ours-2": 3} if landed else {"ours-1": 1, "ours-2": 2})
    for version in range(1, max(files.values()) + 1):
        entry = other.entry(version)
        assert entry is not None
        assert entry["complete"] == "true"
    assert sorted(table.log().snapshot().files["path"].to_pylist()) == sorted(files)
    # And it goes on from there.
    assert other.append(body("theirs-2")) == max(files.values()) + 1


@pytest.mark.parametrize("goes_on", ["lists", "appends"])
def test_where_lakelog_dies_the_other_writer_completes_its_commit(place: Place, goes_on: str) -> None:
    make_table(place.lakelog())
    other = place.writer()
    died = 0
    for number, store in enumerate(dying_stores(place.store)):
        version, ours = len(other.list()), body(f"ours-{number}")
        try:
            assert store.put_if_absent(place.path(version), ours) == Created()
            landed = True
        except SimulatedCrash:
            died += 1
            landed = other.entry(version) is not None
        if goes_on == "lists":
            assert len(other.list()) == version + landed
        theirs = body(f"theirs-{number}")
        if landed:
            with pytest.raises((Taken, RuntimeError)):
                other.commit(version, theirs)
        assert other.append(theirs) == version + landed
        if landed:
            assert other.read(version) == ours
            entry = other.entry(version)
            assert entry is not None
            assert entry["complete"] == "true"
        assert other.read(version + landed) == theirs
    assert died >= 6, "a commit takes a look, an entry, a temporary object, an entry, a file and an entry"
    files = appended(place.store(), place.log)
    assert {f"theirs-{number}" for number in range(died + 1)} <= files.keys()


def test_both_leave_the_same_items(place: Place) -> None:
    ours, theirs = place.store(), place.writer()
    assert ours.put_if_absent(place.path(0), body("ours")) == Created()
    theirs.commit(1, body("theirs"))
    items = place.dynamodb.client().scan(TableName=place.table, ConsistentRead=True)["Items"]
    first, second = sorted(items, key=lambda item: str(item["fileName"]["S"]))
    shape = {name: list(value) for name, value in first.items()}
    assert shape == {name: list(value) for name, value in second.items()}
    assert shape == {"tablePath": ["S"], "fileName": ["S"], "tempPath": ["S"], "complete": ["S"], "expireTime": ["N"]}
    assert first["tablePath"] == second["tablePath"] == {"S": f"s3a://{place.bucket}/{PREFIX}"}
    assert abs(int(first["expireTime"]["N"]) - int(second["expireTime"]["N"])) < 600
    for item, version in ((first, 0), (second, 1)):
        temporary = item["tempPath"]["S"]
        assert temporary.startswith(f".tmp/{version:020d}.json.")
        assert str(uuid.UUID(temporary.rpartition(".")[2])) == temporary.rpartition(".")[2]
        key = f"{PREFIX}/_delta_log/{temporary}"
        kept = place.minio.client().get_object(Bucket=place.bucket, Key=key)["Body"].read()
        assert kept == ours.read(place.path(version))


@pytest.mark.parametrize("step", ["looked", "previous", "temporary", "entered", "copied"])
def test_lakelog_commits_between_any_two_steps_of_the_other(place: Place, step: str) -> None:
    ours, theirs = place.store(), place.writer()
    assert ours.put_if_absent(place.path(0), body("first")) == Created()
    answers: list[object] = []

    def pause(reached: str) -> None:
        if reached == step:
            answers.append(ours.put_if_absent(place.path(1), body("ours")))

    before_entry = STEPS.index(step) < STEPS.index("entered")
    if before_entry:
        with pytest.raises(Taken):
            theirs.commit(1, body("theirs"), pause=pause)
    else:
        theirs.commit(1, body("theirs"), pause=pause)
    assert answers == [Created() if before_entry else AlreadyExists()]
    assert appended(place.store(), place.log) == {"first": 0, "ours" if before_entry else "theirs": 1}


def test_the_other_writers_that_race_with_lakelogs_lose_nothing(place: Place) -> None:
    table = place.lakelog()
    make_table(table)
    writers, appends = 2, 12
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    others = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "integration.mixed_writer",
                json.dumps({"writer": place.writer_arguments(), "commits": appends, "body": body(f"other{number}-NUMBER").decode()}),
            ],
            env=environment,
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
        )
        for number in range(writers)
    ]
    try:
        result = race(table, writers=writers, appends=appends)
        said = [json.loads(other.communicate(timeout=300)[0]) for other in others]
    finally:
        for other in others:
            other.kill()
            other.communicate()
    assert result.failures == []
    acknowledged = {file: one.version for file, one in result.acknowledged.items()}
    for number, versions in enumerate(said):
        acknowledged |= {f"other{number}-{commit}": version for commit, version in enumerate(versions)}
    assert len(acknowledged) == 2 * writers * appends
    assert appended(place.store(), place.log) == acknowledged
    log = table.log()
    assert log.snapshot().version == len(acknowledged)
    assert sorted(log.snapshot().files["path"].to_pylist()) == sorted(acknowledged)


def test_lakelogs_own_writers_lose_nothing_where_answers_are_lost(place: Place) -> None:
    make_table(place.lakelog())
    writers, appends = 3, 8
    plan = Plan(Rule(Fault.LOSE_ANSWER, probability=0.05), Rule(Fault.RESET_BEFORE, probability=0.02), seed=1)
    with FaultProxy(place.minio.endpoint, plan) as s3, FaultProxy(place.dynamodb.endpoint, plan) as entries:
        settings = {
            **place.lakelog().settings,
            "spark.lakelog.s3a.endpoint_url": s3.url,
            "spark.lakelog.s3a.ddb.endpoint_url": entries.url,
        }
        result = race(Table(place.lakelog().root, settings), writers=writers, appends=appends, kill_after=8)
        assert s3.struck
        assert entries.struck
    assert result.failures == []
    assert len(result.acknowledged) == writers * appends
    files = appended(place.store(), place.log)
    assert {file: one.version for file, one in result.acknowledged.items()}.items() <= files.items()
    # A killed writer may have landed what it could not acknowledge.
    assert len(files) - writers * appends <= result.kills


# the DynamoDB table, and what is wrong with settings --------------------------------------------------------------------


def test_the_table_that_is_made_is_the_one_that_is_promised(place: Place) -> None:
    client = place.dynamodb.client()
    with pytest.raises(FileNotFoundError):
        place.store().list_from(f"{place.log}/")
    assert place.table not in client.list_tables()["TableNames"], "a reader made it"
    with pytest.raises(StoreConfigurationError, match=rf"{place.table} .* is not there, and ddb\.create_table"):
        DynamoDBLogStore(place.options(**{"ddb.create_table": False})).put_if_absent(place.path(0), b"0")
    assert place.store().put_if_absent(place.path(0), b"0") == Created()
    made = client.describe_table(TableName=place.table)["Table"]
    assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert made["KeySchema"] == [{"AttributeName": "tablePath", "KeyType": "HASH"}, {"AttributeName": "fileName", "KeyType": "RANGE"}]
    expiry = client.describe_time_to_live(TableName=place.table)["TimeToLiveDescription"]
    assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expireTime"}


def test_delta_sparks_own_conf_serves(place: Place) -> None:
    settings = {
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore",
        f"{DELTA}.ddb.tableName": place.table,
        f"{DELTA}.ddb.region": "us-east-1",
        f"{DELTA}.ddb.ttl": "172800",
        f"{DELTA}.read.retries": "3",
        "spark.lakelog.s3a.ddb.endpoint_url": place.dynamodb.endpoint,
        **{f"spark.hadoop.{name}": value for name, value in place.minio.hadoop().items()},
    }
    store = log_store_for(f"s3a://{place.bucket}/{PREFIX}", settings)
    assert isinstance(store, DynamoDBLogStore)
    assert store.put_if_absent(place.path(0), b"0") == Created()
    entry = place.writer().entry(0)
    assert entry is not None
    assert abs(int(entry["expireTime"]) - time.time() - 172_800) < 600


def test_entries_by_another_scheme_are_an_error_on_real_servers(place: Place) -> None:
    MixedWriter(**place.writer_arguments(), scheme="s3").commit(0, body("theirs"))
    with pytest.raises(StoreConfigurationError, match=r"ddb\.scheme to 's3'"):
        place.store().list_from(f"{place.log}/")
    agreeing = DynamoDBLogStore(place.options(**{"ddb.scheme": "s3"}))
    assert agreeing.put_if_absent(place.path(1), body("ours")) == Created()
    assert appended(agreeing, place.log) == {"theirs": 0, "ours": 1}


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        # DynamoDB Local takes any key that looks like one.
        ({"ddb.key": "not-a-key!", "ddb.secret": "planted-secret"}, r"refused the credentials.*ddb\.key"),
        ({"ddb.endpoint_url": "http://127.0.0.1:9"}, r"127\.0\.0\.1:9\) cannot be reached.*ddb\.endpoint_url"),
        ({"ddb.endpoint_url": None, "ddb.region": "nowhere-1"}, r"region nowhere-1\).*ddb\.region"),
        ({"ddb.endpoint_url": "minio"}, r"is no DynamoDB.*ddb\.endpoint_url"),
    ],
    ids=["key", "endpoint", "region", "no DynamoDB"],
)
def test_what_is_wrong_with_dynamodb_is_said_at_once(place: Place, changes: dict[str, object], says: str, writes: bool) -> None:
    if changes.get("ddb.endpoint_url") == "minio":
        changes = {"ddb.endpoint_url": place.minio.endpoint}
    store = DynamoDBLogStore(place.options(**changes))
    ask = (lambda: store.put_if_absent(place.path(0), b"0")) if writes else (lambda: store.list_from(f"{place.log}/"))
    began = time.monotonic()
    with pytest.raises((StorageError, OSError), match=says) as raised:
        ask()
    assert time.monotonic() - began < 10
    assert "planted-secret" not in str(raised.value)


def test_a_wrong_setting_is_said_by_a_table_log_at_once(place: Place) -> None:
    log = TableLog(place.lakelog().root, DynamoDBLogStore(place.options(**{"ddb.endpoint_url": "http://127.0.0.1:9"})))
    began = time.monotonic()
    with pytest.raises(StorageError, match="cannot be reached"):
        log.snapshot()
    assert time.monotonic() - began < 10
