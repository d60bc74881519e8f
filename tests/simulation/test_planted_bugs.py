"""Bugs are put into the code one by one, and each must be found: by the simulator, by the Nth-call sweep, or by the store's own tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import LogStore
from lakelog.storage.testing import Fault, LogStoreConformance
from tests.simulation import world
from tests.simulation.planted import BUGS, Bug
from tests.simulation.simulation import simulate
from tests.storage import test_nth_system_call as system_calls
from tests.storage.operations import OPERATIONS
from tests.storage.sweep import FaultInjectingLogStore, LineCuttingLogStore, Violation, calls, forget_calls, sweep

_SEEDS = 120
_BY_NAME = {operation.name: operation for operation in OPERATIONS}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The commit loop warns of every unknown outcome, and pytest keeps each warning."""
    logger = logging.getLogger("lakelog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Where the bug goes, and from where it is gone afterwards."""
    for operation in OPERATIONS:
        # A table that the bug itself had made would be another test.
        operation.world()
    forget_calls()
    yield monkeypatch
    forget_calls()


def found_by_simulator(seeds: int) -> str | None:
    for seed in range(seeds):
        try:
            simulate(seed)
        except world.Violation as violation:
            return f"seed {seed}: {violation}"
    return None


def found_by_sweep(name: str) -> str | None:
    operation = _BY_NAME[name]
    try:
        calls(operation)
        sweep(operation, Fault.TORN, LineCuttingLogStore)
        for fault in Fault:
            sweep(operation, fault, FaultInjectingLogStore)
    except Violation as violation:
        return str(violation)
    return None


class Suite(LogStoreConformance):
    """The contract's tests on a local folder, to be called one by one."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make_store(self) -> LogStore:
        return LocalLogStore()

    def make_folder(self) -> str:
        return f"{self.folder}/table/_delta_log"


def found_by_contract(name: str, folder: Path) -> str | None:
    try:
        if hasattr(Suite, name):
            getattr(Suite(folder), name)()
        else:
            for number, failure in enumerate(system_calls.FAILURES):
                getattr(system_calls, name)(folder / str(number), failure)
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.simulated], ids=lambda bug: bug.name)
def test_the_simulator_finds(bug: Bug, plant: pytest.MonkeyPatch) -> None:
    bug.plant(plant)
    assert found_by_simulator(_SEEDS) is not None


def named(item: Bug | str) -> str:
    return item if isinstance(item, str) else item.name


@pytest.mark.parametrize(("bug", "operation"), [(bug, name) for bug in BUGS for name in bug.swept], ids=named)
def test_the_sweep_finds(bug: Bug, operation: str, plant: pytest.MonkeyPatch) -> None:
    bug.plant(plant)
    assert found_by_sweep(operation) is not None


@pytest.mark.parametrize(("bug", "test"), [(bug, name) for bug in BUGS for name in bug.contract], ids=named)
def test_the_contract_of_the_store_finds(bug: Bug, test: str, plant: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bug.plant(plant)
    assert found_by_contract(test, tmp_path) is not None


def test_every_bug_is_found_by_somebody() -> None:
    assert len(BUGS) >= 16
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert all(bug.simulated or bug.swept or bug.contract for bug in BUGS)


def test_without_a_bug_nothing_is_found(plant: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = sorted({name for bug in BUGS for name in bug.contract})
    assert [found_by_contract(name, tmp_path / name) for name in names] == [None] * len(names)
    assert found_by_simulator(10) is None
    assert found_by_sweep("append") is None
