"""The one door through which a table's metadata is made or changed: what is given becomes what is committed.

In this order:

1. keys of ``delta.`` properties take the spelling that they are stored in; directives (``delta.feature.*``, ``delta.minReaderVersion``,
   ``delta.minWriterVersion``, ``delta.ignoreProtocolDefaults``) are taken out;
2. properties that are new or changed are checked, and those of features that are not there yet are refused by name;
3. columns get ids and physical names where the table maps columns (PROTOCOL.md, "Column Mapping");
4. names that the table does not have yet are checked: columns, and the hidden columns of row tracking get theirs;
5. the protocol is decided: the weakest one for a new table, for an existing one what it has and what became active.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from lakelog.core.actions import Action, Metadata, Protocol
from lakelog.core.column_mapping import MappingMode, mapping_mode, with_mapping
from lakelog.core.errors import (
    ColumnNotFoundError,
    InvalidRequestError,
    InvalidSchemaError,
    InvalidTablePropertyError,
    UnsupportedFeatureError,
    UnsupportedOperationError,
)
from lakelog.core.field_metadata import COLUMN_ID, NESTED_IDS, PARQUET_FIELD_ID, PHYSICAL_NAME, without_keys
from lakelog.core.property_checks import canonical, check_properties, split_directives
from lakelog.core.protocol_update import new_protocol, raised
from lakelog.core.schema import StructType, check_creatable, leaf_columns, parse_schema
from lakelog.core.snapshot import Snapshot
from lakelog.core.statistics import parse_column_names
from lakelog.core.table_features import FEATURES, feature_names
from lakelog.core.table_properties import (
    CHANGE_DATA_FEED,
    CHECKPOINT_PROTECTION_VERSION,
    COLUMN_MAPPING_MODE,
    CONSTRAINT_PREFIX,
    MATERIALIZED_ROW_COMMIT_VERSION,
    MATERIALIZED_ROW_ID,
    MAX_COLUMN_ID,
    STATS_COLUMNS,
)

# Columns of the change data feed (PROTOCOL.md, "Add CDC File").
_CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_MAPPING_KEYS = frozenset({COLUMN_ID, PHYSICAL_NAME, NESTED_IDS, PARQUET_FIELD_ID})
# Properties of features that are not there yet and that nothing else of the metadata shows.
_LATER_KEYS: Mapping[str, str] = {
    "delta.enableMaterializePartitionColumnsFeature": "materializePartitionColumns",
    "delta.writePartitionColumnsToParquet": "materializePartitionColumns",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableChange:
    """What a change of a table's metadata comes to.

    Attributes:
        metadata: as it will be in force; the very object of the snapshot where nothing changes.
        protocol: the same.
        schema: of ``metadata``, parsed.
        actions: the protocol and the metadata, those of them that are not in force already.
    """

    metadata: Metadata
    protocol: Protocol
    schema: StructType
    actions: tuple[Action, ...]


def table_change(
    current: Snapshot | None,
    metadata: Metadata,
    *,
    table: str,
    new_uuid: Callable[[], str],
    features: Collection[str] = (),
    replaced: bool = False,
) -> TableChange:
    """What must be committed so that a table has this metadata.

    Args:
        current: the table as it is, None where it is being made.
        metadata: as wanted, directives among its properties. The constraints of an existing table may have been changed; what lakelog
            keeps in properties and columns by itself (ids, hidden column names) need not be there.
        table: the table's root, for messages.
        new_uuid: unique text.
        features: to be supported whether or not the metadata calls for them.
        replaced: the table is made anew in place: nothing of its columns and properties stays but what the protocol holds on to.

    Raises:
        InvalidTablePropertyError: a property that is unknown, not the user's, or that cannot be parsed.
        UnsupportedFeatureError: something of a feature that comes with a later release.
        InvalidSchemaError, UnsupportedTypeError: columns that no such table may have.
        ColumnNotFoundError: a property names a column that there is not.
        UnsupportedOperationError: a change of ``delta.columnMapping.mode`` that cannot be made.
        InvalidRequestError: a feature that there is not, or that a column calls for and nobody asked for.
    """
    configuration, directives = split_directives(canonical(metadata.configuration, table), table)
    before = {} if current is None else current.metadata.configuration
    if any(name.lower() == "clustering" for name in directives.features):
        raise InvalidRequestError(
            f"Delta table {table}: the table feature clustering is not enabled by a property, for it needs columns to cluster by. Make or "
            "replace the table with clusterBy(...) instead."
        )
    configuration = _with_kept(configuration, current, replaced=replaced)
    _check_changed(configuration, before, table, anew=current is None or replaced)
    schema = parse_schema(metadata.schema_json)
    schema, configuration = _mapped(schema, configuration, current, table=table, new_uuid=new_uuid, replaced=replaced)
    if current is None or replaced or schema != current.schema:
        check_creatable(schema, table=table, any_name=_mode(configuration, table) is not MappingMode.NONE)
    if configuration.get(STATS_COLUMNS.key) != before.get(STATS_COLUMNS.key):
        _check_stats_columns(configuration, schema, table)
    wanted = replace(metadata, configuration=configuration)
    if current is None:
        protocol = new_protocol(wanted, schema, table=table, directives=directives, asked=features)
    else:
        protocol = raised(current.protocol, wanted, schema, table=table, directives=directives, asked=features, replaced=replaced)
    configuration = _with_row_tracking(configuration, protocol, new_uuid)
    _check_change_columns(configuration, before, schema, None if current is None else current.schema, table)
    if current is None or replaced or schema != current.schema:
        wanted = replace(wanted, schema_string=schema.to_json())
    wanted = replace(wanted, configuration=configuration)
    if current is None:
        return TableChange(metadata=wanted, protocol=protocol, schema=schema, actions=(protocol, wanted))
    actions: list[Action] = [] if protocol is current.protocol else [protocol]
    if wanted == current.metadata:
        wanted = current.metadata
    else:
        actions.append(wanted)
    return TableChange(metadata=wanted, protocol=protocol, schema=schema, actions=tuple(actions))


def _with_kept(configuration: dict[str, str], current: Snapshot | None, *, replaced: bool) -> dict[str, str]:
    """The configuration with what lakelog and other writers keep there, which a caller need not carry over."""
    if current is None:
        return configuration
    there = current.metadata.configuration
    kept = [MATERIALIZED_ROW_ID, MATERIALIZED_ROW_COMMIT_VERSION, CHECKPOINT_PROTECTION_VERSION]
    # A table that is made anew gives no id twice as long as it stays mapped; the rest of the mapping is made anew with it.
    if not replaced or COLUMN_MAPPING_MODE.key in configuration:
        kept.append(MAX_COLUMN_ID)
    return {**configuration, **{key: there[key] for key in kept if key in there}}


def _check_changed(configuration: Mapping[str, str], before: Mapping[str, str], table: str, *, anew: bool) -> None:
    changed = {key: value for key, value in configuration.items() if before.get(key) != value}
    if not anew:
        # They come from ALTER TABLE ... ADD CONSTRAINT, which has checked them.
        changed = {key: value for key, value in changed.items() if not key.startswith(CONSTRAINT_PREFIX)}
    check_properties(changed, table, beside=configuration)
    probe = Metadata(id="", configuration=changed)
    refused = {name: f"the table property {key} is set" for key, name in _LATER_KEYS.items() if changed.get(key, "false").lower() == "true"}
    for feature in FEATURES.values():
        if not feature.writable and feature.active is not None and (why := feature.active(probe, StructType())) is not None:
            refused[feature.name] = why
    if refused:
        told = ", ".join(f"{name} ({why})" for name, why in sorted(refused.items()))
        raise UnsupportedFeatureError(
            f"Delta table {table}: what was asked for takes {told}, which comes with a later release of lakelog. Leave the property out.",
            features=sorted(refused),
        )


def _mode(configuration: Mapping[str, str], table: str) -> MappingMode:
    try:
        return MappingMode(COLUMN_MAPPING_MODE.of(configuration))
    except InvalidTablePropertyError as error:
        raise InvalidTablePropertyError(f"Delta table {table}: {error}") from None


def _mapped(
    schema: StructType,
    configuration: dict[str, str],
    current: Snapshot | None,
    *,
    table: str,
    new_uuid: Callable[[], str],
    replaced: bool,
) -> tuple[StructType, dict[str, str]]:
    """The schema and the configuration with the table's column mapping."""
    wanted = _mode(configuration, table)
    there = MappingMode.NONE if current is None else mapping_mode(current.protocol, current.metadata.configuration)
    anew = current is None or replaced
    if not anew and there is not wanted and (there, wanted) != (MappingMode.NONE, MappingMode.NAME):
        raise UnsupportedOperationError(
            f"Delta table {table}: delta.columnMapping.mode cannot be changed from {there} to {wanted}. {_remedy(there, wanted)}"
        )
    if wanted is MappingMode.NONE:
        if anew:
            schema = without_keys(schema, _MAPPING_KEYS)
            configuration = {key: value for key, value in configuration.items() if key != MAX_COLUMN_ID}
        return schema, configuration
    if replaced:
        schema = without_keys(schema, _MAPPING_KEYS)
    highest = configuration.get(MAX_COLUMN_ID, "0")
    schema, given = with_mapping(
        schema,
        max_id=int(highest) if highest.isdecimal() else 0,
        new_uuid=new_uuid,
        # The data files of a table that was not mapped have the columns under their names.
        keep_names=not anew and there is MappingMode.NONE,
    )
    return schema, {**configuration, MAX_COLUMN_ID: str(given)}


def _remedy(there: MappingMode, wanted: MappingMode) -> str:
    if there is MappingMode.NONE:
        return "Data files without field ids stand already. Use name, or write the data to a new table that is made with id."
    if wanted is MappingMode.NONE:
        return 'Leave it as it is, or call dropFeatureSupport("columnMapping") on the DeltaTable.'
    return "Leave it as it is, or write the data to a new table that is made with the mode wanted."


def _with_row_tracking(configuration: dict[str, str], protocol: Protocol, new_uuid: Callable[[], str]) -> dict[str, str]:
    """The names of the hidden columns that hold row ids in rewritten files (PROTOCOL.md, "Row Tracking")."""
    if "rowTracking" not in feature_names(protocol):
        return configuration
    named = {key: f"{prefix}{new_uuid()}" for key, prefix in _HIDDEN_COLUMNS.items() if key not in configuration}
    return {**configuration, **named} if named else configuration


_HIDDEN_COLUMNS = {MATERIALIZED_ROW_ID: "_row-id-col-", MATERIALIZED_ROW_COMMIT_VERSION: "_row-commit-version-col-"}


def _check_stats_columns(configuration: Mapping[str, str], schema: StructType, table: str) -> None:
    leaves = [tuple(name.lower() for name in path) for path, _ in leaf_columns(schema)]
    known = {path[:depth] for path in leaves for depth in range(1, len(path) + 1)}
    asked = parse_column_names(configuration.get(STATS_COLUMNS.key, ""))
    absent = [".".join(path) for path in asked if tuple(name.lower() for name in path) not in known]
    if absent:
        raise ColumnNotFoundError(
            f"Delta table {table}: {STATS_COLUMNS.key} names columns that the table does not have: {', '.join(absent)}. There are: "
            f"{', '.join(schema.names)}."
        )


def _check_change_columns(
    configuration: Mapping[str, str], before: Mapping[str, str], schema: StructType, there: StructType | None, table: str
) -> None:
    """Refuse columns that a change data feed could not tell from its own, where they or the feed are new."""
    if not CHANGE_DATA_FEED.of(configuration):
        return
    known = set() if there is None or not CHANGE_DATA_FEED.or_default(before) else {name.lower() for name in there.names}
    taken = [name for name in schema.names if name.lower() in _CHANGE_COLUMNS and name.lower() not in known]
    if taken:
        raise InvalidSchemaError(
            f"Delta table {table}: the column name{'s' if len(taken) > 1 else ''} {', '.join(taken)} cannot stand beside "
            f"{CHANGE_DATA_FEED.key} = true, since the change data feed adds columns of these names: {', '.join(_CHANGE_COLUMNS)}. Rename "
            "the column, or leave the feed off."
        )
