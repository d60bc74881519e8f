"""Every operation of a table log with a fault at its first, second, ... store call, until it completes without meeting the fault."""

from __future__ import annotations

import pytest

from lakelog.storage.testing import Fault
from tests.storage.operations import OPERATIONS
from tests.storage.sweep import LineCuttingLogStore, Operation, calls, sweep


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_whatever_goes_wrong_at_any_call(operation: Operation) -> None:
    cases = {fault: sweep(operation, fault) for fault in Fault}
    # Once at each call, and once from each call on.
    assert cases[Fault.FAIL_BEFORE] == cases[Fault.CRASH_BEFORE] == 2 * len(calls(operation)) >= 2
    changes = any(call.verb not in ("read", "list_from") for call in calls(operation))
    assert min(cases.values()) >= (2 if changes else 0)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_commit_file_of_which_whole_lines_are_missing_is_not_taken_for_the_whole(operation: Operation) -> None:
    assert sweep(operation, Fault.TORN, LineCuttingLogStore) == 2 * len(calls(operation))


def test_the_sweep_meets_every_kind_of_call() -> None:
    asked = {operation.name: [call.verb for call in calls(operation)] for operation in OPERATIONS}
    assert {verb for verbs in asked.values() for verb in verbs} == {"read", "put_if_absent", "put", "list_from", "delete"}
    assert asked["append"].count("put_if_absent") == 1
    assert asked["append with clean-up"].count("delete") == 4
    assert all(not {"put_if_absent", "put", "delete"} & set(asked[operation.name]) for operation in OPERATIONS if operation.reads)
