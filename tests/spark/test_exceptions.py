"""delta-spark's exceptions by name: who catches them, what they tell, and on which road they come."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelog.core import errors as core
from lakelog.spark import DeltaTable, exceptions
from lakelog.spark import delete as delete_module
from lakelog.spark import write as write_module
from lakelog.spark.exceptions import pyspark_error, pyspark_errors
from tests.spark.tables import commit_path, rows, save, versions
from tests.spark.told import check_ours

README = Path(__file__).resolve().parents[2] / "README.md"
NAMES = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]
ROOT = "DeltaConcurrentModificationException"
SAID = "Delta table /t: version 3 (WRITE) added files that DELETE read. Run it again."
ROUTES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]

each_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has not imported delta-spark, also where its wheel is installed and another test did."""
    monkeypatch.delitem(sys.modules, "delta.exceptions", raising=False)


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module shaped as delta-spark's: eight siblings, each right below PySpark's root."""
    module = ModuleType("delta.exceptions")
    for name in NAMES:
        setattr(module, name, type(name, (PySparkException,), {"__module__": "delta.exceptions.base"}))
    monkeypatch.setitem(sys.modules, "delta.exceptions", module)
    return module


def conflict(name: str, **told: Any) -> Any:
    """One of core's conflicts as the user meets it."""
    return pyspark_error(getattr(core, name)(SAID, **told))


# who catches ---------------------------------------------------------------------------------------------------------


def test_the_names_are_core_s_and_delta_spark_s() -> None:
    conflicts = [
        name
        for name, value in vars(core).items()
        if isinstance(value, type) and issubclass(value, core.DeltaConcurrentModificationException)
    ]
    assert sorted(exceptions.__all__) == sorted(conflicts) == NAMES


@each_name
def test_a_clause_of_either_side_catches(name: str) -> None:
    error = conflict(name)
    ours = {other for other in NAMES if isinstance(error, getattr(exceptions, other))}
    cores = {other for other in NAMES if isinstance(error, getattr(core, other))}
    assert ours == cores == {name, ROOT}
    assert type(error) is getattr(exceptions, name)
    assert isinstance(error, core.LakelogError)
    assert isinstance(error, PySparkException)


@pytest.mark.parametrize("error", [core.CommitOutcomeUnknown("?", version=3, txn_id="t"), core.CorruptLogError("?"), ValueError("?")])
def test_what_is_no_conflict_stays_what_it_is(error: Exception) -> None:
    assert pyspark_error(error) is error
    with pytest.raises(type(error)) as caught, pyspark_errors():
        raise error
    assert caught.value is error


def test_a_twin_is_not_made_twice() -> None:
    error = conflict("ConcurrentWriteException")
    assert pyspark_error(error) is error
    with pytest.raises(exceptions.ConcurrentWriteException) as caught, pyspark_errors():
        raise error
    assert caught.value is error


def test_a_class_below_core_s_is_met_as_the_nearest_of_the_eight() -> None:
    class NarrowerException(core.ConcurrentAppendException):
        pass

    assert type(pyspark_error(NarrowerException(SAID))) is exceptions.ConcurrentAppendException


# what they tell ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "partition", "condition"),
    [
        ("ConcurrentAppendException", None, "DELTA_CONCURRENT_APPEND.WITHOUT_HINT"),
        ("ConcurrentAppendException", "day=1", "DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT"),
        ("ConcurrentDeleteReadException", None, "DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT"),
        ("ConcurrentDeleteReadException", "day=1", "DELTA_CONCURRENT_DELETE_READ.WITH_PARTITION_HINT"),
        ("ConcurrentDeleteDeleteException", None, "DELTA_CONCURRENT_DELETE_DELETE.WITHOUT_HINT"),
        ("ConcurrentDeleteDeleteException", "day=1", "DELTA_CONCURRENT_DELETE_DELETE.WITH_PARTITION_HINT"),
        ("ConcurrentTransactionException", None, "DELTA_CONCURRENT_TRANSACTION"),
        ("ConcurrentWriteException", "day=1", "DELTA_CONCURRENT_WRITE"),
        ("MetadataChangedException", None, "DELTA_METADATA_CHANGED"),
        ("ProtocolChangedException", None, "DELTA_PROTOCOL_CHANGED"),
        (ROOT, "day=1", None),
    ],
)
def test_condition_sqlstate_and_parameters_are_delta_spark_s(name: str, partition: str | None, condition: str | None) -> None:
    error = conflict(name, winner_version=3, rule="added files", partition=partition)
    assert error.getCondition() == condition
    with pytest.warns(FutureWarning, match="getCondition"):
        assert error.getErrorClass() == condition
    assert error.getSqlState() == "2D521"
    assert error.getMessageParameters() == {"version": "3"} | ({} if partition is None else {"partitionValues": partition})
    assert (error.winner_version, error.rule, error.partition) == (3, "added files", partition)


@each_name
def test_the_message_is_core_s(name: str) -> None:
    error = conflict(name)
    assert (str(error), error.args) == (error.getMessage(), (SAID,))
    assert error.getMessage() == (SAID if name == ROOT else f"[{error.getCondition()}] {SAID}")
    assert error.getMessageParameters() == {}


@pytest.mark.filterwarnings("ignore:Deprecated in 4.0.0:FutureWarning")
@each_name
def test_every_question_that_this_pyspark_knows_has_an_answer(name: str) -> None:
    error = conflict(name)
    questions = [question for question in dir(PySparkException) if question.startswith("get")]
    assert len(questions) >= 6
    for question in questions:
        getattr(error, question)()
    assert error.getQueryContext() == []


def test_they_are_made_as_any_exception() -> None:
    error = exceptions.ConcurrentAppendException(message=SAID, partition="day=1")
    assert (error.args, error.partition, error.winner_version) == ((SAID,), "day=1", None)


def test_what_was_noted_comes_along() -> None:
    error = core.ConcurrentWriteException(SAID)
    error.add_note("the third try")
    assert pyspark_error(error).__notes__ == ["the third try"]


# copies --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
@each_name
def test_they_arrive_whole(name: str, route: Callable[[Any], Any]) -> None:
    error = conflict(name, winner_version=3, rule="added files", partition="day=1")
    error.add_note("the third try")
    arrived = route(error)
    assert type(arrived) is type(error)
    assert (str(arrived), arrived.args, arrived.__notes__) == (str(error), (SAID,), ["the third try"])
    assert (arrived.winner_version, arrived.rule, arrived.partition) == (3, "added files", "day=1")
    assert (arrived.getCondition(), arrived.getMessage()) == (error.getCondition(), error.getMessage())
    assert arrived.getQueryContext() == []


def test_a_pickle_holds_the_error_alone() -> None:
    # Spark's table of its own errors is a hundred times that.
    assert len(pickle.dumps(conflict("ConcurrentWriteException"))) < 1000


# beside delta-spark --------------------------------------------------------------------------------------------------


@each_name
def test_old_code_catches_by_delta_spark_s_class(theirs: ModuleType, name: str) -> None:
    error = conflict(name, winner_version=3)
    assert [other for other in NAMES if isinstance(error, getattr(theirs, other))] == [name]
    assert {other for other in NAMES if isinstance(error, getattr(exceptions, other))} == {name, ROOT}
    assert isinstance(error, getattr(core, name))
    assert (error.args, error.winner_version, error.getSqlState()) == ((SAID,), 3, "2D521")
    assert type(error) is type(conflict(name))
    assert f"{type(error).__module__}.{type(error).__qualname__}" == f"lakelog.spark.exceptions.{name}"


@pytest.mark.parametrize("route", ROUTES)
def test_their_copies_too(theirs: ModuleType, route: Callable[[Any], Any]) -> None:
    arrived = route(conflict("ConcurrentAppendException", partition="day=1"))
    assert isinstance(arrived, theirs.ConcurrentAppendException)
    assert (arrived.args, arrived.getCondition()) == ((SAID,), "DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT")


def test_a_pickle_is_read_without_delta_spark(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(conflict("ConcurrentAppendException", winner_version=3))
    assert b"delta.exceptions" not in pickled
    monkeypatch.delitem(sys.modules, "delta.exceptions")
    arrived = pickle.loads(pickled)
    assert type(arrived) is exceptions.ConcurrentAppendException
    assert (arrived.args, arrived.winner_version) == ((SAID,), 3)


@pytest.mark.parametrize(
    "found",
    [
        None,
        type("ConcurrentWriteException", (Exception,), {}),
        "ConcurrentWriteException",
        exceptions.ConcurrentWriteException,
        exceptions.DeltaConcurrentModificationException,
        PySparkException,
    ],
)
def test_another_module_of_that_name_changes_nothing(monkeypatch: pytest.MonkeyPatch, found: object) -> None:
    module = ModuleType("delta.exceptions")
    if found is not None:
        vars(module)["ConcurrentWriteException"] = found
    monkeypatch.setitem(sys.modules, "delta.exceptions", module)
    assert type(conflict("ConcurrentWriteException")) is exceptions.ConcurrentWriteException


def test_delta_spark_is_never_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Watch:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            asked.append(name)

    monkeypatch.setattr(sys, "meta_path", [Watch, *sys.meta_path])
    for name in NAMES:
        pickle.loads(pickle.dumps(conflict(name)))
    assert [name for name in asked if name.partition(".")[0] == "delta"] == []


# the roads -----------------------------------------------------------------------------------------------------------


def test_a_traceback_shows_one_error_and_where_it_was_raised() -> None:
    def deep_inside() -> None:
        raise core.ConcurrentWriteException(SAID)

    with pytest.raises(exceptions.ConcurrentWriteException) as caught, pyspark_errors():
        deep_inside()
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count(SAID) == shown.count("Traceback") == 1
    assert shown.rstrip().endswith(f"lakelog.spark.exceptions.ConcurrentWriteException: [DELTA_CONCURRENT_WRITE] {SAID}")
    assert "deep_inside" in shown


@pytest.fixture
def table(delta: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "the table")
    save(delta.range(5), path)
    return path


def by_python(delta: SparkSession, table: str) -> None:
    DeltaTable.forPath(delta, table).delete("id = 3")


def by_sql(delta: SparkSession, table: str) -> None:
    delta.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")


def by_frame(delta: SparkSession, table: str) -> None:
    save(delta.range(50, 60), table, "overwrite")


@pytest.fixture
def overtaken(delta: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first change's work and its commit another writer overwrites the table."""
    won = False

    def late(committed: Callable[..., object]) -> Callable[..., object]:
        def commit(*args: object, **named: object) -> object:
            nonlocal won
            if not won:
                won = True
                # In a thread of its own, as the other writer is: within one, this would be a transaction inside another.
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(save, delta.range(100, 105), table, "overwrite").result()
            return committed(*args, **named)

        return commit

    for module in (delete_module, write_module):
        monkeypatch.setattr(module, "commit", late(module.commit))


@pytest.mark.usefixtures("overtaken")
@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("change", [by_python, by_sql, by_frame])
def test_a_change_that_lost_to_an_overwrite(
    delta: SparkSession,
    table: str,
    change: Callable[[SparkSession, str], None],
    imported: bool,
    request: pytest.FixtureRequest,
) -> None:
    theirs = request.getfixturevalue("theirs") if imported else None
    with pytest.raises(exceptions.DeltaConcurrentModificationException) as caught:
        change(delta, table)
    error = caught.value
    assert isinstance(error, core.DeltaConcurrentModificationException)
    assert isinstance(error, PySparkException)
    assert str(error.getCondition()).startswith("DELTA_CONCURRENT_")
    assert error.getSqlState() == "2D521"
    assert table in check_ours(caught)
    assert theirs is None or isinstance(error, getattr(theirs, type(error).__name__))
    assert (versions(table), rows(delta, table)) == ([0, 1], [(i,) for i in range(100, 105)])


@pytest.mark.usefixtures("overtaken")
def test_the_readme_s_loop_tells_of_the_conflict_and_wins_the_second_time(
    delta: SparkSession, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"### Catching a conflict.*?```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    loop = found.group(1)
    assert "price > 8.5" in loop
    assert "/tmp/orders" in loop
    code = loop.replace("price > 8.5", "id IN (3, 103, 104)").replace("/tmp/orders", table)
    exec(compile(code, str(README), "exec"), {"spark": delta, "DeltaTable": DeltaTable})
    assert re.fullmatch(r"\[DELTA_CONCURRENT_\S+\] Delta table .*\n", capsys.readouterr().out)
    assert (versions(table), rows(delta, table)) == ([0, 1, 2], [(100,), (101,), (102,)])


def test_a_read_that_no_longer_fits(delta: SparkSession, table: str) -> None:
    frame = delta.read.format("delta").load(table)
    first = commit_path(table, 0).read_text(encoding="utf-8").splitlines()
    metadata = next(line for line in first if '"metaData"' in line)
    commit_path(table, 1).write_text(metadata.replace('\\"long\\"', '\\"string\\"') + "\n", encoding="utf-8")
    with pytest.raises(exceptions.MetadataChangedException) as caught:
        frame.collect()
    assert caught.value.getCondition() == "DELTA_METADATA_CHANGED"
    assert table in check_ours(caught)
