"""What a commit says about itself, compared with what delta-spark wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakelog.core.actions import CommitInfo, action_to_json, parse_commit
from lakelog.core.commit_info import Operation, commit_info, delete, parameter_texts, write
from lakelog.core.errors import InvalidOptionError


def info_of(operation: Operation, *, read_version: int | None = 3, user_metadata: str | None = None) -> CommitInfo:
    return commit_info(
        operation,
        timestamp_ms=1_700_000_000_000,
        read_version=read_version,
        isolation_level="Serializable",
        is_blind_append=True,
        txn_id="0d7d28b8-55c2-4d8b-b48e-88b22c90aed1",
        engine_info="Apache-Spark/4.3.0 lakelog/0.1.0",
        user_metadata=user_metadata,
    )


def test_an_append_reads_as_delta_sparks() -> None:
    operation = write("append", ["month", "ort"], metrics={"numFiles": 2, "numOutputRows": "7"})
    assert action_to_json(info_of(operation, user_metadata="nightly")) == {
        "commitInfo": {
            "timestamp": 1_700_000_000_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": '["month","ort"]'},
            "readVersion": 3,
            "isolationLevel": "Serializable",
            "isBlindAppend": True,
            "operationMetrics": {"numFiles": "2", "numOutputRows": "7"},
            "userMetadata": "nightly",
            "engineInfo": "Apache-Spark/4.3.0 lakelog/0.1.0",
            "txnId": "0d7d28b8-55c2-4d8b-b48e-88b22c90aed1",
        }
    }


@pytest.mark.parametrize("read_version", [None, -1])
def test_the_first_commit_names_no_read_version(read_version: int | None) -> None:
    assert "readVersion" not in info_of(write("error"), read_version=read_version).to_json()
    assert info_of(write("error"), read_version=0).to_json()["readVersion"] == 0


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("append", "Append"),
        ("Overwrite", "Overwrite"),
        ("error", "ErrorIfExists"),
        ("errorifexists", "ErrorIfExists"),
        ("ErrorIfExists", "ErrorIfExists"),
        ("ignore", "Ignore"),
    ],
)
def test_save_modes_have_delta_sparks_names(mode: str, name: str) -> None:
    assert write(mode).parameters == {"mode": name, "partitionBy": "[]"}


def test_an_unknown_save_mode_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no save mode 'upsert'; use append"):
        write("upsert")


def test_optional_parameters_appear_when_given() -> None:
    operation = write("overwrite", predicate="a = 1", is_dynamic_partition_overwrite=False, can_merge_schema=True)
    assert operation.parameters == {
        "mode": "Overwrite",
        "partitionBy": "[]",
        "predicate": "a = 1",
        "isDynamicPartitionOverwrite": False,
        "canMergeSchema": True,
    }


def test_a_delete_holds_its_condition_as_a_list_in_text() -> None:
    assert delete(['(größe > "x")']).parameters == {"predicate": '["(größe > \\"x\\")"]'}
    assert delete().parameters == {"predicate": "[]"}


def test_metrics_add_up() -> None:
    operation = delete(metrics={"numRemovedFiles": 1, "scanTimeMs": 2}).with_metrics({"scanTimeMs": 3, "numDeletedRows": 4})
    assert operation.metrics == {"numRemovedFiles": 1, "scanTimeMs": 3, "numDeletedRows": 4}


def test_parameters_become_the_historys_text() -> None:
    assert parameter_texts({"mode": "Append", "auto": False, "version": 1, "description": None, "list": ["é"]}) == {
        "mode": "Append",
        "auto": "false",
        "version": "1",
        "description": None,
        "list": '["é"]',
    }


def test_delta_sparks_writes_and_deletes_are_spelled_the_same(golden: Path) -> None:
    checked = 0
    for file in golden.rglob("_delta_log/*.json"):
        for action in parse_commit(file.read_bytes(), str(file)):
            if not isinstance(action, CommitInfo) or not (action.engine_info or "").startswith("Apache-Spark"):
                continue
            parameters = action.operation_parameters or {}
            if action.operation == "WRITE" and set(parameters) == {"mode", "partitionBy"}:
                mode, columns = parameters["mode"], parameters["partitionBy"]
                assert isinstance(mode, str)
                assert isinstance(columns, str)
                assert write(mode, json.loads(columns)).parameters == parameters
            elif action.operation == "DELETE":
                predicate = parameters["predicate"]
                assert isinstance(predicate, str)
                assert delete(json.loads(predicate)).parameters == parameters
            else:
                continue
            checked += 1
            assert all(isinstance(value, str) for value in (action.operation_metrics or {}).values())
    assert checked > 100
