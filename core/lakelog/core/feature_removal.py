"""Taking a feature out of a table's protocol: what of it must go first, and whether versions that are kept still use it.

A feature of writers alone goes in one commit with its traces. One of readers too goes in two steps, since clients that do not know it
would read the versions that use it wrongly: the traces first, and the protocol once the log keeps no version that has any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from lakelog.core.actions import Action, Metadata
from lakelog.core.column_mapping import MappingMode, max_column_id, physical_name
from lakelog.core.errors import InvalidRequestError, InvalidSchemaError, UnsupportedFeatureError
from lakelog.core.field_metadata import COLUMN_ID, NESTED_IDS, PARQUET_FIELD_ID, PHYSICAL_NAME, TYPE_CHANGES, without_keys
from lakelog.core.protocol_update import protocol_text, without_feature
from lakelog.core.schema import StructType, check_creatable, parse_schema, walk
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_features import FEATURES, TableFeature, feature_named, feature_names
from lakelog.core.table_properties import (
    CHANGE_DATA_FEED,
    COLUMN_MAPPING_MODE,
    CONSTRAINT_PREFIX,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
    IN_COMMIT_TIMESTAMPS,
    MATERIALIZED_ROW_COMMIT_VERSION,
    MATERIALIZED_ROW_ID,
    MAX_COLUMN_ID,
    ROW_TRACKING,
    TYPE_WIDENING,
)

_MAPPING_KEYS = frozenset({COLUMN_ID, PHYSICAL_NAME, NESTED_IDS, PARQUET_FIELD_ID})
_DOMAINS: Mapping[str, str] = {"rowTracking": "delta.rowTracking", "clustering": "delta.clustering"}
# Either is enough for what both stand for.
_TWINS: Mapping[str, str] = {"typeWidening": "typeWidening-preview", "typeWidening-preview": "typeWidening"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Removal:
    """How a feature is taken out of a table.

    Attributes:
        feature: its name.
        before: what must be committed first, by itself; empty when there is nothing.
        actions: of the commit that takes it out. The metadata is always among them, changed or not, so that the commit follows none that
            changes it.
        reads_history: versions that the log keeps must not use it.
    """

    feature: str
    before: tuple[Action, ...]
    actions: tuple[Action, ...]
    reads_history: bool


def removal(snapshot: Snapshot, name: str, *, truncate_history: bool = False) -> Removal:
    """What takes a feature out of a table.

    Args:
        snapshot: the table's newest version.
        name: the feature's, in any letter case.
        truncate_history: the history is to be cut off for it.

    Raises:
        InvalidRequestError: no such feature, the table does not have it, another one depends on it, something that only the user may take
            away calls for it, or history is to be truncated for a feature of writers alone.
        UnsupportedFeatureError: it is one that comes later, or data files would have to be rewritten.
    """
    table, protocol = snapshot.root, snapshot.protocol
    feature = feature_named(name, table)
    there = feature_names(protocol)
    if feature.name not in there:
        raise InvalidRequestError(
            f"Delta table {table}: its protocol {protocol_text(protocol)} does not have the table feature {feature.name}, so there is "
            f"nothing to drop. It has: {', '.join(there) or 'none'}."
        )
    dependents = sorted(f.name for f in FEATURES.values() if f.name in there and feature.name in f.dependencies)
    if dependents:
        raise InvalidRequestError(
            f"Delta table {table}: the table feature {feature.name} cannot be dropped, since {', '.join(dependents)} depends on it. Drop "
            f"{' and '.join(dependents)} first."
        )
    for_readers = feature.kind == "reader_writer"
    if truncate_history and not for_readers:
        raise InvalidRequestError(
            f"Delta table {table}: the table feature {feature.name} concerns writers alone, so no history need be truncated to drop it. "
            "Leave out truncateHistory (TRUNCATE HISTORY)."
        )
    metadata, others = _without_traces(snapshot, feature)
    lowered = without_feature(protocol, feature.name)
    reads_history = for_readers and feature.name in _USES and _TWINS.get(feature.name) not in there
    if reads_history:
        before = () if metadata is snapshot.metadata else (metadata,)
        return Removal(feature=feature.name, before=before, actions=(lowered, metadata), reads_history=True)
    # A domain may be written only where the protocol has metadata domains.
    apart = feature.name == "domainMetadata"
    return Removal(
        feature=feature.name,
        before=others if apart else (),
        actions=(lowered, metadata, *(() if apart else others)),
        reads_history=False,
    )


def last_use(feature: str, history: Iterable[tuple[int, Metadata]]) -> int | None:
    """The newest version at which metadata was in force that uses the feature; None for none.

    Args:
        feature: one for which `Removal.reads_history`.
        history: metadata with the version since which it is in force, ascending; the last does not use the feature.

    Raises:
        CorruptLogError: a schema cannot be parsed.
        InvalidTablePropertyError: a property that decides cannot be parsed.
    """
    uses = _USES[feature]
    last: int | None = None
    used = False
    for version, metadata in history:
        if used:
            last = version - 1
        used = uses(metadata, parse_schema(metadata.schema_json))
        last = version if used else last
    return last


def _maps_columns(metadata: Metadata, schema: StructType) -> bool:
    return COLUMN_MAPPING_MODE.of(metadata.configuration) != "none"


def _has_type_changes(metadata: Metadata, schema: StructType) -> bool:
    return any(TYPE_CHANGES in field.metadata for _, field in walk(schema))


def _holds_ntz(metadata: Metadata, schema: StructType) -> bool:
    active = FEATURES["timestampNtz"].active
    return active is not None and active(metadata, schema) is not None


_USES: Mapping[str, Callable[[Metadata, StructType], bool]] = {
    "columnMapping": _maps_columns,
    "typeWidening": _has_type_changes,
    "typeWidening-preview": _has_type_changes,
    "timestampNtz": _holds_ntz,
}

# What the user must do first where something of the metadata calls for a feature and is not lakelog's to take away.
_REMEDIES: Mapping[str, str] = {
    "appendOnly": "Unset the property first.",
    "invariants": "Let the column be null first: ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL.",
    "checkConstraints": "Drop the constraints first: ALTER TABLE ... DROP CONSTRAINT.",
    "generatedColumns": "Drop the column first, or write the data to a new table.",
    "identityColumns": "Drop the column first, or write the data to a new table.",
    "timestampNtz": "Drop the column first, or write the data to a new table.",
    "allowColumnDefaults": "Drop the default first: ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT.",
}

_Traces = tuple[Metadata, tuple[Action, ...]]


def _without_traces(snapshot: Snapshot, feature: TableFeature) -> _Traces:
    """The metadata without what calls for the feature, the same object where nothing does; and the other actions that it takes."""
    metadata = snapshot.metadata
    match feature.name:
        case "changeDataFeed":
            return _without_properties(metadata, CHANGE_DATA_FEED.key, CHANGE_DATA_FEED.legacy_key or ""), ()
        case "inCommitTimestamp":
            since = (IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION, IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP)
            return _without_properties(metadata, IN_COMMIT_TIMESTAMPS.key, *since), ()
        case "rowTracking":
            keys = (ROW_TRACKING.key, MATERIALIZED_ROW_ID, MATERIALIZED_ROW_COMMIT_VERSION, "delta.rowTrackingSuspended")
            return _without_properties(metadata, *keys), (*_tombstones(snapshot, _DOMAINS[feature.name]), *_files_without_ids(snapshot))
        case "clustering":
            return metadata, _tombstones(snapshot, _DOMAINS[feature.name])
        case "domainMetadata":
            return metadata, _all_domains(snapshot)
        case "typeWidening" | "typeWidening-preview":
            return _without_type_changes(snapshot, feature), ()
        case "columnMapping":
            return _without_mapping(snapshot), ()
    if feature.active is not None and (why := feature.active(metadata, snapshot.schema)) is not None:
        constraints = sorted(key.removeprefix(CONSTRAINT_PREFIX) for key in metadata.configuration if key.startswith(CONSTRAINT_PREFIX))
        named = f" They are: {', '.join(constraints)}." if feature.name == "checkConstraints" else ""
        raise InvalidRequestError(
            f"Delta table {snapshot.root}: the table feature {feature.name} cannot be dropped while the table uses it: {why}. "
            f"{_REMEDIES[feature.name]}{named}"
        )
    return metadata, ()


def _without_properties(metadata: Metadata, *keys: str) -> Metadata:
    kept = {key: value for key, value in metadata.configuration.items() if key not in keys}
    return metadata if len(kept) == len(metadata.configuration) else replace(metadata, configuration=kept)


def _tombstones(snapshot: Snapshot, *domains: str) -> tuple[Action, ...]:
    return tuple(replace(snapshot.domains[name], removed=True) for name in domains if name in snapshot.domains)


def _files_without_ids(snapshot: Snapshot) -> tuple[Action, ...]:
    """The files that have row ids, once more without: a table that tracks rows again later begins again with the ids."""
    files = snapshot.files
    if files["baseRowId"].null_count == files.num_rows and files["defaultRowCommitVersion"].null_count == files.num_rows:
        return ()
    numbered = (add for add in snapshot.add_files() if add.base_row_id is not None or add.default_row_commit_version is not None)
    return tuple(replace(add, base_row_id=None, default_row_commit_version=None, data_change=False) for add in numbered)


def _all_domains(snapshot: Snapshot) -> tuple[Action, ...]:
    """Tombstones for the domains of features; those of users hold what nobody else may throw away."""
    users = sorted(name for name in snapshot.domains if not name.startswith("delta."))
    if users:
        raise InvalidRequestError(
            f"Delta table {snapshot.root}: the table feature domainMetadata cannot be dropped while the table uses it: it has the metadata "
            f"domains {', '.join(users)}. Let the applications that wrote them remove them first."
        )
    return _tombstones(snapshot, *sorted(snapshot.domains))


def _without_type_changes(snapshot: Snapshot, feature: TableFeature) -> Metadata:
    if _TWINS[feature.name] in feature_names(snapshot.protocol):
        return snapshot.metadata
    metadata = _without_properties(snapshot.metadata, TYPE_WIDENING.key)
    changed = [".".join(path) for path, field in walk(snapshot.schema) if TYPE_CHANGES in field.metadata]
    if not changed:
        return metadata
    if snapshot.num_files:
        raise UnsupportedFeatureError(
            f"Delta table {snapshot.root}: the table feature {feature.name} cannot be dropped yet: data files may hold "
            f"{', '.join(changed)} in the narrower type of before. Overwrite the table with its own rows first, by "
            'mode("overwrite") with overwriteSchema, which writes them in the type of now; or keep the feature.',
            features=(feature.name,),
        )
    return replace(metadata, schema_string=without_keys(snapshot.schema, {TYPE_CHANGES}).to_json())


def _without_mapping(snapshot: Snapshot) -> Metadata:
    metadata, schema, table = snapshot.metadata, snapshot.schema, snapshot.root
    bare = without_keys(schema, _MAPPING_KEYS)
    mode = MappingMode(COLUMN_MAPPING_MODE.of(metadata.configuration))
    if mode is not MappingMode.NONE and snapshot.num_files:
        renamed = [".".join(path) for path, field in walk(schema) if physical_name(field) != field.name]
        if renamed:
            raise _needs_rewrite(snapshot, "columnMapping", f"in the data files these columns have another name: {', '.join(renamed)}")
        # A column that was dropped is in the files still, and one of its name that is added later would show its values.
        told = metadata.configuration.get(MAX_COLUMN_ID, "")
        complete = told == str(max_column_id(schema)) == str(sum(1 for _ in walk(schema)))
        if mode is MappingMode.ID or not complete:
            raise _needs_rewrite(snapshot, "columnMapping", "data files may hold columns that the table does not have any more")
    try:
        check_creatable(bare, table=table)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"{error} Without column mapping the table cannot have such a name.") from None
    without = _without_properties(metadata, COLUMN_MAPPING_MODE.key, MAX_COLUMN_ID)
    return without if bare is schema else replace(without, schema_string=bare.to_json())


def _needs_rewrite(snapshot: Snapshot, feature: str, why: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Delta table {snapshot.root}: the table feature {feature} cannot be dropped yet: {why}, and rewriting data files for it comes "
        "with a later release of lakelog. Write the data to a new table, or keep the feature.",
        features=(feature,),
    )
