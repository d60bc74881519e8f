"""Which known engines can read or write a table: facts about releases, each with its date and its source, held against a protocol.

A fact says what an engine accepts, not how well it does. An engine that is not listed is one of which nothing was found in writing.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.core.actions import Protocol
from lakelog.core.table_features import MAX_READER_VERSION, MAX_WRITER_VERSION, reader_features, writer_features


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a release of an engine accepts.

    Attributes:
        name: as its makers spell it.
        release: the one of which the facts are, and later ones until somebody says otherwise.
        as_of: year and month in which the source said so.
        source: where.
        reads: features for readers that it knows, beside reader version 1.
        writes: features for writers that it knows.
        legacy_writer: the highest writer version below 7 that it accepts as long as what it does not know of it is not in use.
        lists: it understands lists of features, reader version 3 and writer version 7.
        is_writer: it writes Delta tables at all.
        note: what the features do not say; empty for nothing.
    """

    name: str
    release: str
    as_of: str
    source: str
    reads: frozenset[str]
    writes: frozenset[str] = frozenset()
    legacy_writer: int = 1
    lists: bool = True
    is_writer: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSupport:
    """What an engine can do with a table.

    Attributes:
        engine: its name and release: ``Trino 476``.
        reads: it can read the table.
        writes: it can write it.
        missing: what of the protocol it does not know, sorted; empty where it can do both.
        note: of the engine.
        as_of: year and month of the facts.
        source: of the facts.
    """

    engine: str
    reads: bool
    writes: bool
    missing: tuple[str, ...]
    note: str
    as_of: str
    source: str


def who_can_read(protocol: Protocol) -> tuple[EngineSupport, ...]:
    """What each known engine can do with a table of this protocol, in the order of `ENGINES`."""
    return tuple(_support(engine, protocol) for engine in ENGINES)


def _support(engine: Engine, protocol: Protocol) -> EngineSupport:
    to_read = {name for name in reader_features(protocol) if name not in engine.reads}
    if protocol.min_reader_version > MAX_READER_VERSION or (protocol.min_reader_version == MAX_READER_VERSION and not engine.lists):
        to_read.add(f"reader version {protocol.min_reader_version}")
    to_write = {name for name in writer_features(protocol) if name not in engine.writes}
    if protocol.min_writer_version > MAX_WRITER_VERSION or (protocol.min_writer_version == MAX_WRITER_VERSION and not engine.lists):
        to_write.add(f"writer version {protocol.min_writer_version}")
    if protocol.min_writer_version <= engine.legacy_writer:
        to_write = set()
    if not engine.is_writer:
        to_write = {"writing"}
    return EngineSupport(
        engine=f"{engine.name} {engine.release}",
        reads=not to_read,
        writes=not to_read and not to_write,
        missing=tuple(sorted(to_read | (to_write - {"writing"}))),
        note=engine.note,
        as_of=engine.as_of,
        source=engine.source,
    )


_LEGACY = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping", "identityColumns"}
)
_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
_VARIANT = frozenset({"variantType", "variantType-preview"})
# What delta-spark and the runtimes built on it have in common.
_OF_DELTA_3_2 = _LEGACY | {
    *("deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "domainMetadata", "clustering", "rowTracking"),
    *("allowColumnDefaults", "icebergCompatV1", "icebergCompatV2", "typeWidening-preview"),
}
_OF_DELTA_4_4 = (
    _OF_DELTA_3_2
    | _WIDENING
    | _VARIANT
    | {
        *("inCommitTimestamp", "icebergCompatV3", "checkpointProtection", "materializePartitionColumns", "catalogManaged"),
        *("coordinatedCommits-preview", "variantShredding", "variantShredding-preview", "geospatial", "geospatial-dev"),
        "adaptiveMetadata-preview",
    }
)
_OF_DELTALAKE_READERS = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}) | _VARIANT
_OF_DELTALAKE_WRITERS = _OF_DELTALAKE_READERS | {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
_OF_KERNEL_READERS = (
    frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding-preview"})
    | _WIDENING
    | _VARIANT
)

ENGINES: tuple[Engine, ...] = (
    Engine(
        name="delta-spark",
        release="4.4",
        as_of="2026-11",
        source="TableFeature.allSupportedFeaturesMap of delta-spark_4.2_2.13 4.4.0",
        reads=_OF_DELTA_4_4,
        writes=_OF_DELTA_4_4,
        legacy_writer=6,
    ),
    Engine(
        name="Databricks Runtime",
        release="16.4 LTS",
        as_of="2026-08",
        source="https://docs.databricks.com/aws/en/delta/feature-compatibility and https://docs.databricks.com/delta/drop-feature",
        reads=_OF_DELTA_3_2 | _WIDENING | _VARIANT | {"inCommitTimestamp", "checkpointProtection"},
        writes=_OF_DELTA_3_2 | _WIDENING | _VARIANT | {"inCommitTimestamp", "checkpointProtection"},
        legacy_writer=6,
    ),
    Engine(
        name="Microsoft Fabric Spark",
        release="Runtime 1.3 (Delta Lake 3.2)",
        as_of="2026-08",
        source="https://learn.microsoft.com/fabric/fundamentals/delta-lake-interoperability and https://docs.delta.io/3.2.1/versioning.html",
        reads=_OF_DELTA_3_2,
        writes=_OF_DELTA_3_2 - {"identityColumns"},
        legacy_writer=6,
    ),
    Engine(
        name="Microsoft Fabric SQL analytics endpoint",
        release="2026-08",
        as_of="2026-08",
        source="https://learn.microsoft.com/fabric/fundamentals/delta-lake-interoperability",
        reads=frozenset({"columnMapping", "deletionVectors"}),
        is_writer=False,
        note="Reads column mapping by name, not by id; writes no lakehouse table.",
    ),
    Engine(
        name="deltalake (delta-rs)",
        release="1.6",
        as_of="2026-11",
        source="deltalake 1.6.6 run on a table of each feature: QueryBuilder, write_deltalake",
        reads=_OF_DELTALAKE_READERS,
        writes=_OF_DELTALAKE_WRITERS,
        note="to_pyarrow_table, to_pyarrow_dataset and to_pandas refuse deletionVectors, v2Checkpoint and listed columnMapping; "
        "QueryBuilder reads them.",
    ),
    Engine(
        name="Polars",
        release="2.1",
        as_of="2026-11",
        source="polars 2.1.0 with deltalake 1.6.6 run on a table of each feature, and its polars/io/delta/_dataset.py",
        reads=frozenset({"deletionVectors", "timestampNtz"}) | _VARIANT,
        writes=_OF_DELTALAKE_WRITERS,
        note="Writes through deltalake.",
    ),
    Engine(
        name="DuckDB",
        release="1.5 (delta extension)",
        as_of="2026-08",
        source="https://github.com/duckdb/duckdb-delta README and delta-kernel-rs kernel/src/table_features/mod.rs, on which it is built",
        reads=_OF_KERNEL_READERS,
        writes=frozenset(
            {
                *("appendOnly", "invariants", "changeDataFeed", "domainMetadata", "inCommitTimestamp", "rowTracking"),
                *("deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
            }
        ),
        note="Writes by INSERT alone, and no table whose columns carry invariants.",
    ),
    Engine(
        name="Trino",
        release="Delta Lake connector",
        as_of="2026-08",
        source="https://trino.io/docs/current/connector/delta-lake.html#delta-lake-table-features and its DeltaLakeTableFeatures.java",
        reads=frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}) | _WIDENING | _VARIANT,
        writes=frozenset(
            {
                *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "columnMapping", "deletionVectors"),
                *("timestampNtz", "vacuumProtocolCheck"),
            }
        ),
        # Its MAX_WRITER_VERSION before it knew lists of features.
        legacy_writer=4,
    ),
    Engine(
        name="Flink",
        release="delta-flink 3 (Delta Standalone)",
        as_of="2026-08",
        source="https://github.com/delta-io/delta/issues/2254 and https://github.com/delta-io/delta/issues/2874",
        reads=frozenset(),
        writes=frozenset({"appendOnly", "invariants"}),
        lists=False,
        note="Appends alone.",
    ),
)
