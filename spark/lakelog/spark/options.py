"""Writer options and the session confs that stand for them."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidOptionError, InvalidTablePropertyError, UnsupportedOperationError
from lakelog.core.table_properties import COMPRESSION_CODEC, DESCRIPTORS

_log = logging.getLogger(__name__)

_PREFIXES = ("spark.databricks.delta.properties.defaults.", "spark.lakelog.properties.defaults.")
_USER_METADATA = ("spark.databricks.delta.commitInfo.userMetadata", "spark.lakelog.commitInfo.userMetadata")
_PASSED_ON = {"maxrecordsperfile": "maxRecordsPerFile", "compression": "compression"}
_OTHERS = {
    "path": "path",
    "usermetadata": "userMetadata",
    "partitionoverwritemode": "partitionOverwriteMode",
    "txnappid": "txnAppId",
    "txnversion": "txnVersion",
}
# Not for the write but for what it stands on: table properties, Hadoop's filesystems, Spark's own marks.
_OTHER_PREFIXES = ("delta.", "fs.", "dfs.", "__")
# Defaults that delta-spark takes as a wish for the protocol; lakelog gives each table the weakest that it needs.
_PROTOCOL_DEFAULTS = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults")
_PROPERTY_KEYS = {descriptor.key.lower(): descriptor.key for descriptor in DESCRIPTORS}

# option -> (values that change nothing, what to do until it is there)
_NOT_YET: Mapping[str, tuple[frozenset[str], str]] = {
    "replaceWhere": (frozenset(), "Delete the rows first, then append."),
    "replaceOn": (frozenset(), "Delete the rows first, then append."),
    "replaceUsing": (frozenset(), "Delete the rows first, then append."),
    "mergeSchema": (frozenset({"false"}), "Select the table's columns before you write."),
    "overwriteSchema": (frozenset({"false"}), "Write to a new path."),
    "dataChange": (frozenset({"true"}), "Leave it out."),
    "optimizeWrite": (frozenset({"false"}), "Repartition the DataFrame before you write."),
}
_CLUSTER_BY = "__clustering_columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One ``df.write.format("delta")`` as it arrived.

    Attributes:
        root: the table's root, unencoded.
        mode: Append, Overwrite, ErrorIfExists or Ignore.
        partition_by: what the caller named; None when not at all.
        user_metadata: free text for the commit.
        txn_app_id: of an idempotent write.
        txn_version: of an idempotent write, as it was given.
        dynamic_overwrite: whether the option partitionOverwriteMode says so; None without it.
        properties: table properties that the options name, for a new table.
        writer_options: what Spark's Parquet writer takes.
    """

    root: str
    mode: str
    partition_by: tuple[str, ...] | None = None
    user_metadata: str | None = None
    txn_app_id: str | None = None
    txn_version: str | None = None
    dynamic_overwrite: bool | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    writer_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, root: str, mode: str, options: Mapping[str, str]) -> WriteRequest:
        """From the options as Spark gives them, names in lower case.

        Raises:
            UnsupportedOperationError: an option that this lakelog does not implement; names it.
            InvalidOptionError: an option whose value makes no sense.
        """
        for name, (harmless, remedy) in _NOT_YET.items():
            value = options.get(name.lower())
            if value is not None and value.lower() not in harmless:
                raise UnsupportedOperationError(
                    f"Delta table {root}: the write option {name}={value} comes with a later release of lakelog. {remedy}"
                )
        if _CLUSTER_BY in options:
            raise UnsupportedOperationError(
                f"Delta table {root}: clusterBy comes with a later release of lakelog. Leave it out, or partition the table."
            )
        columns = options.get("__partition_columns")
        overwrite = options.get("partitionoverwritemode")
        if overwrite is not None and overwrite.lower() not in ("static", "dynamic"):
            raise InvalidOptionError(f"Delta table {root}: partitionOverwriteMode must be static or dynamic, not {overwrite!r}.")
        limit = options.get("maxrecordsperfile")
        if limit is not None and not limit.lstrip("-").isdigit():
            raise InvalidOptionError(f"Delta table {root}: maxRecordsPerFile must be a number of rows, not {limit!r}.")
        compression = options.get("compression")
        if compression is not None:
            _check_codec(root, compression)
        _warn_of_unknown(root, options)
        return cls(
            root=root,
            mode=mode,
            partition_by=tuple(_unquoted(name) for name in orjson.loads(columns)) if columns is not None else None,
            user_metadata=options.get("usermetadata"),
            txn_app_id=options.get("txnappid"),
            txn_version=options.get("txnversion"),
            dynamic_overwrite=None if overwrite is None else overwrite.lower() == "dynamic",
            properties={_PROPERTY_KEYS.get(name, name): value for name, value in options.items() if name.startswith("delta.")},
            writer_options={spelled: options[name] for name, spelled in _PASSED_ON.items() if name in options},
        )

    def check_overwrite(self, spark: SparkSession, partition_columns: tuple[str, ...]) -> None:
        """Refuse a dynamic partition overwrite, which would otherwise replace the whole table.

        Raises:
            UnsupportedOperationError: the option, or the session's conf where there is no option, says dynamic.
        """
        if self.mode != "Overwrite" or not partition_columns:
            return
        dynamic = self.dynamic_overwrite
        if dynamic is None:
            dynamic = str(spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")).lower() == "dynamic"
        if dynamic:
            raise UnsupportedOperationError(
                f"Delta table {self.root}: dynamic partition overwrite comes with a later release of lakelog. Delete the partitions "
                "first and append, or set partitionOverwriteMode to static to replace the whole table."
            )


def parquet_options(configuration: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options for Spark's Parquet writer: the write's own, else what the table's properties say.

    Args:
        configuration: of the table.
        given: `WriteRequest.writer_options`.

    Raises:
        InvalidTablePropertyError: the table's codec is none of Parquet's.
    """
    codec = COMPRESSION_CODEC.of(configuration)
    return {**({} if codec is None else {"compression": codec}), **(given or {})}


def _unquoted(name: str) -> str:
    """Spark's writer has parsed the names given to partitionBy, and asks for backticks around those with special characters."""
    return name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name


def user_metadata(spark: SparkSession, request: WriteRequest | None = None) -> str | None:
    """The commit's free text: the write's option, else the session's conf."""
    if request is not None and request.user_metadata is not None:
        return request.user_metadata
    for key in _USER_METADATA:
        found = spark.conf.get(key, None)
        if found is not None:
            return str(found)
    return None


def default_properties(settings: Mapping[str, str]) -> dict[str, str]:
    """Table properties that the session gives to new tables.

    Raises:
        InvalidTablePropertyError: the two spellings of one key disagree, or a protocol version is no number.
    """
    found: dict[str, str] = {}
    for prefix in _PREFIXES:
        for key, value in settings.items():
            if not key.startswith(prefix):
                continue
            name = "delta." + key.removeprefix(prefix)
            if found.get(name, value) != value:
                spellings = ", ".join(p + name.removeprefix("delta.") for p in _PREFIXES)
                raise InvalidTablePropertyError(
                    f"The session gives new tables two values for {name}: {found[name]!r} and {value!r}. Unset one of {spellings}."
                )
            found[name] = value
    for name in _PROTOCOL_DEFAULTS:
        value = found.pop(name, "1")
        if name != "delta.ignoreProtocolDefaults" and not value.isdecimal():
            raise InvalidTablePropertyError(f"The session's default for {name} is {value!r}, not a version number. Correct or unset it.")
    return found


def _check_codec(root: str, codec: str) -> None:
    try:
        COMPRESSION_CODEC.of({COMPRESSION_CODEC.key: codec})
    except InvalidTablePropertyError:
        raise InvalidOptionError(
            f"Delta table {root}: the option compression={codec} names no codec of Parquet. Use snappy, zstd, gzip, lz4_raw or none."
        ) from None


def _warn_of_unknown(root: str, options: Mapping[str, str]) -> None:
    known = {**_PASSED_ON, **_OTHERS, **{name.lower(): name for name in _NOT_YET}}
    for name in options:
        if name in known or name.startswith(_OTHER_PREFIXES):
            continue
        nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
        message = "Delta table %s: the write option %s is not known and was ignored; the nearest known one is %s."
        _log.warning(message, root, name, known[nearest])
