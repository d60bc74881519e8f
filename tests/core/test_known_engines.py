from __future__ import annotations

import re

import pytest

from lakelog.core.actions import Protocol
from lakelog.core.known_engines import ENGINES, EngineSupport, who_can_read
from lakelog.core.protocol_update import protocol_of
from lakelog.core.table_features import FEATURES

LISTED = [name for name, feature in FEATURES.items() if feature.kind == "reader_writer"]


def told(protocol: Protocol) -> dict[str, EngineSupport]:
    return {support.engine.split()[0].lower(): support for support in who_can_read(protocol)}


def can(protocol: Protocol) -> tuple[set[str], set[str]]:
    support = told(protocol)
    return {name for name, s in support.items() if s.reads}, {name for name, s in support.items() if s.writes}


ALL = {"delta-spark", "databricks", "microsoft", "deltalake", "polars", "duckdb", "trino", "flink"}


def test_a_plain_table_is_everybodys() -> None:
    assert all(support.reads for support in who_can_read(protocol_of({"appendOnly", "invariants"})))
    not_writing = [s.engine for s in who_can_read(protocol_of({"appendOnly", "invariants"})) if not s.writes]
    assert not_writing == ["Microsoft Fabric SQL analytics endpoint 2026-08"]
    assert all(s.missing == () for s in who_can_read(Protocol(min_reader_version=1, min_writer_version=2)))


@pytest.mark.parametrize(
    ("features", "cannot_read", "cannot_write"),
    [
        ({"appendOnly", "invariants", "checkConstraints"}, set(), {"duckdb", "flink"}),
        ({"appendOnly", "invariants", "rowTracking", "domainMetadata"}, set(), {"deltalake", "polars", "trino", "flink"}),
        ({"identityColumns"}, set(), {"deltalake", "polars", "duckdb", "trino", "flink"}),
        ({"columnMapping"}, {"polars", "flink"}, {"polars", "duckdb", "flink"}),
        ({"typeWidening"}, {"deltalake", "polars", "flink"}, {"deltalake", "polars", "duckdb", "trino", "flink"}),
        ({"timestampNtz"}, {"flink"}, {"flink"}),
    ],
)
def test_features_shut_engines_out(features: set[str], cannot_read: set[str], cannot_write: set[str]) -> None:
    # Of the two of Microsoft the endpoint, which comes second, says less than the runtime.
    support = {s.engine.split()[0].lower(): s for s in reversed(who_can_read(protocol_of(features)))}
    del support["microsoft"]
    assert {name for name, s in support.items() if not s.reads} == cannot_read
    assert {name for name, s in support.items() if not s.writes} == cannot_write
    assert all(set(s.missing) & features or "version" in s.missing[0] for s in support.values() if not s.writes)


def test_legacy_versions_are_written_by_who_knows_most_of_them() -> None:
    readers, writers = can(Protocol(min_reader_version=1, min_writer_version=4))
    assert readers == ALL
    assert {"delta-spark", "deltalake", "trino"} <= writers
    assert "flink" not in writers
    assert told(Protocol(min_reader_version=1, min_writer_version=6))["trino"].missing == (
        "generatedColumns",
        "identityColumns",
    )


def test_a_protocol_from_the_future_is_nobodys() -> None:
    for protocol in (protocol_of({"fromTheFuture"}), Protocol(min_reader_version=4, min_writer_version=8)):
        assert not any(support.writes for support in who_can_read(protocol))
    support = who_can_read(Protocol(min_reader_version=4, min_writer_version=8))
    assert not any(s.reads for s in support)
    assert all("reader version 4" in s.missing for s in support)


def test_every_fact_has_a_date_and_a_source() -> None:
    for engine in ENGINES:
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", engine.as_of)
        assert engine.source
        assert engine.reads <= FEATURES.keys()
        assert engine.writes <= FEATURES.keys()
    assert len({engine.name for engine in ENGINES}) == len(ENGINES)
