"""Writer options and the session confs that stand for them."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import orjson
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidOptionError, InvalidTablePropertyError, UnsupportedOperationError
from lakelog.core.paths import object_store_root
from lakelog.core.table_properties import COMPRESSION_CODEC, DESCRIPTORS
from lakelog.spark.confs import PREFIXES, parse_flag, session_conf, session_flag

_log = logging.getLogger(__name__)

_DEFAULTS = ".properties.defaults."
_OPTIMIZED_BYTES = 512 * 1024 * 1024
# Option in lower case -> as it is written.
_PASSED_ON = {"maxrecordsperfile": "maxRecordsPerFile", "compression": "compression"}
_KNOWN = {
    name.lower(): name
    for name in (
        *("path", "userMetadata", "partitionOverwriteMode", "txnAppId", "txnVersion", "replaceWhere", "replaceOn", "replaceUsing"),
        *("targetAlias", "mergeSchema", "overwriteSchema", "dataChange", "optimizeWrite", "useNullIntolerantEqualityWithDPO"),
        *("writePartitionColumns", *_PASSED_ON.values()),
    )
}
# Not for the write but for what it stands on: table properties, Hadoop's filesystems and Parquet's writer, Spark's own marks.
_OTHER_PREFIXES = ("delta.", "fs.", "dfs.", "parquet.", "__")
# How a bucket is reached, and as whom.
_STORAGE = re.compile(r"fs\.s3a\.(access\.key|secret\.key|session\.token|aws\.cred|assumed\.role|endpoint|path\.style)", re.IGNORECASE)
# Defaults that delta-spark takes as a wish for the protocol; lakelog gives each table the weakest that it needs.
_PROTOCOL_DEFAULTS = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults")
_PROPERTY_KEYS = {descriptor.key.lower(): descriptor.key for descriptor in DESCRIPTORS}
_BYTES = re.compile(r"([0-9]{1,18})\s*([kmgt]?)i?b?")


class Kind(StrEnum):
    """What an overwrite takes out of an existing table."""

    ALL = "all"
    WHERE = "replaceWhere"
    ON = "replaceOn"
    USING = "replaceUsing"
    PARTITIONS = "partitionOverwriteMode=dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Which rows an overwrite replaces.

    Attributes:
        kind: by what they are told.
        text: the option's value: a predicate, a condition, or names of columns; empty for the kinds without one.
        target_alias: the table's name in ``text``.
        checked: rows of the new data that do not match replaceWhere are refused.
        null_intolerant: a dynamic overwrite leaves partitions with a null in a partition column alone.
    """

    kind: Kind
    text: str = ""
    target_alias: str | None = None
    checked: bool = True
    null_intolerant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One ``df.write.format("delta")`` as it arrived, options and the session confs that stand for them.

    Attributes:
        root: the table's root, unencoded.
        mode: Append, Overwrite, ErrorIfExists or Ignore.
        replacement: what an overwrite replaces; None for other modes.
        partition_by: what the caller named; None when not at all.
        cluster_by: what the caller named for clustering; None when not at all.
        merge_schema: columns may be added to the table.
        overwrite_schema: an overwrite may replace the schema and the partitioning.
        data_change: False where the write only rearranges rows that the table holds.
        optimized_bytes: shuffle before the write for files of about so many bytes in memory; None where the options and the session say
            nothing or no.
        optimize_write: what option or session say; None where they say nothing and the table's property decides.
        user_metadata: free text for the commit.
        txn_app_id: of an idempotent write.
        txn_version: of an idempotent write, as it was given.
        properties: table properties that the options name, for a new table.
        writer_options: what Spark's Parquet writer takes.
    """

    root: str
    mode: str
    replacement: Replacement | None = None
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    data_change: bool = True
    optimize_write: bool | None = None
    optimized_bytes: int = _OPTIMIZED_BYTES
    user_metadata: str | None = None
    txn_app_id: str | None = None
    txn_version: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    writer_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, spark: SparkSession, root: str, mode: str, options: Mapping[str, str]) -> WriteRequest:
        """From the options as Spark gives them, names in lower case.

        Raises:
            UnsupportedOperationError: an option that this lakelog does not implement; names it.
            InvalidOptionError: an option whose value makes no sense, or options that contradict each other.
        """
        table = f"Delta table {root}: the write option"
        limit = options.get("maxrecordsperfile")
        if limit is not None and re.fullmatch("-?[0-9]{1,18}", limit, re.ASCII) is None:
            raise InvalidOptionError(f"Delta table {root}: maxRecordsPerFile must be a number of rows, not {limit!r}.")
        compression = options.get("compression")
        if compression is not None:
            _check_codec(root, compression)
        if _flag(options, "writePartitionColumns", table):
            raise UnsupportedOperationError(
                f"{table} writePartitionColumns=true comes with a later release of lakelog. Leave it out: readers take the values from "
                "the log."
            )
        _warn_of_unknown(root, options)
        merge = _flag(options, "mergeSchema", table)
        optimize = _flag(options, "optimizeWrite", table)
        return cls(
            root=root,
            mode=mode,
            replacement=_replacement(spark, root, mode, options),
            partition_by=_columns(options, "__partition_columns"),
            cluster_by=_columns(options, "__clustering_columns"),
            merge_schema=bool(session_flag(spark, root, "schema.autoMerge.enabled") if merge is None else merge),
            overwrite_schema=bool(_flag(options, "overwriteSchema", table)),
            data_change=_flag(options, "dataChange", table) is not False,
            optimize_write=session_flag(spark, root, "optimizeWrite.enabled") if optimize is None else optimize,
            optimized_bytes=_bytes(session_conf(spark, root, "optimizeWrite.binSize"), root),
            user_metadata=options.get("usermetadata"),
            txn_app_id=options.get("txnappid"),
            txn_version=options.get("txnversion"),
            properties={_PROPERTY_KEYS.get(name, name): value for name, value in options.items() if name.startswith("delta.")},
            writer_options={
                _PASSED_ON.get(name, name): value for name, value in options.items() if name in _PASSED_ON or name.startswith("parquet.")
            },
        )


def check_storage(path: str, names: Iterable[str]) -> None:
    """That options do not say how one table's filesystem is reached, which would be passed over.

    Args:
        path: of the table.
        names: of options.

    Raises:
        UnsupportedOperationError: one says so. Its value is not repeated.
        InvalidRequestError: the path names no place in a bucket.
    """
    root = object_store_root(path)
    for name in names if root is not None else ():
        if _STORAGE.match(name):
            raise UnsupportedOperationError(
                f"Delta table {root}: the option {name} would hold for one table, which lakelog does not do. Give it to the session before "
                f"it starts, as spark.hadoop.{name}, or for the bucket alone, as spark.hadoop.fs.s3a.bucket.<bucket>.{name[7:]}."
            )


def _replacement(spark: SparkSession, root: str, mode: str, options: Mapping[str, str]) -> Replacement | None:
    """Which rows an overwrite replaces; an option outside mode overwrite, which would be passed over without a word, is refused."""
    table = f"Delta table {root}: the write option"
    given = [kind for kind in (Kind.WHERE, Kind.ON, Kind.USING) if kind.lower() in options]
    overwrite = options.get("partitionoverwritemode")
    if overwrite is not None and overwrite.lower() not in ("static", "dynamic"):
        raise InvalidOptionError(f"Delta table {root}: partitionOverwriteMode must be static or dynamic, not {overwrite!r}.")
    dynamic = (overwrite or str(spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static"))).lower() == "dynamic"
    null_intolerant = _flag(options, "useNullIntolerantEqualityWithDPO", table)
    if mode != "Overwrite":
        if given:
            raise InvalidOptionError(f'{table} {given[0]} replaces rows, which needs mode("overwrite"), not {mode}.')
        return None
    if given:
        if len(given) > 1:
            raise InvalidOptionError(f"{table}s {given[0]} and {given[1]} both say which rows are replaced. Give one of them.")
        if overwrite is not None and dynamic:
            raise InvalidOptionError(
                f"{table}s {given[0]} and partitionOverwriteMode=dynamic both say which rows are replaced. Give one of them."
            )
        kind, text = given[0], options[given[0].lower()]
        if not text.strip():
            raise InvalidOptionError(f"{table} {kind} is empty. Say which rows are replaced, or leave it out to replace the whole table.")
        checked = kind is not Kind.WHERE or session_flag(spark, root, "replaceWhere.constraintCheck.enabled") is not False
        return Replacement(kind=kind, text=text, target_alias=options.get("targetalias"), checked=checked)
    if null_intolerant is not None and not dynamic:
        raise InvalidOptionError(
            f"{table} useNullIntolerantEqualityWithDPO needs partitionOverwriteMode=dynamic. Set that, or leave it out."
        )
    return Replacement(kind=Kind.PARTITIONS if dynamic else Kind.ALL, null_intolerant=bool(null_intolerant))


def _flag(options: Mapping[str, str], name: str, table: str) -> bool | None:
    text = options.get(name.lower())
    return None if text is None else parse_flag(text, f"{table} {name}")


def _columns(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    columns = options.get(name)
    return None if columns is None else tuple(_unquoted(column) for column in orjson.loads(columns))


def _bytes(text: str | None, root: str) -> int:
    """A size such as ``512m``, as Spark's confs take it; a plain number is megabytes, as in delta-spark."""
    if text is None:
        return _OPTIMIZED_BYTES
    found = _BYTES.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise InvalidOptionError(
            f"Delta table {root}: the session conf {PREFIXES[0]}optimizeWrite.binSize must be a size such as 512m, not {text!r}."
        )
    return int(found[1]) << 10 * ("bkmgt".index(found[2]) if found[2] else 2)


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


def user_metadata(spark: SparkSession, root: str, request: WriteRequest | None = None) -> str | None:
    """The commit's free text: the write's option, else the session's conf."""
    if request is not None and request.user_metadata is not None:
        return request.user_metadata
    return session_conf(spark, root, "commitInfo.userMetadata")


def default_properties(settings: Mapping[str, str]) -> dict[str, str]:
    """Table properties that the session gives to new tables.

    Raises:
        InvalidTablePropertyError: the two spellings of one key disagree, or a protocol version is no number.
    """
    found: dict[str, str] = {}
    prefixes = [prefix.removesuffix(".") + _DEFAULTS for prefix in PREFIXES]
    for prefix in prefixes:
        for key, value in settings.items():
            if not key.startswith(prefix):
                continue
            name = "delta." + key.removeprefix(prefix)
            if found.get(name, value) != value:
                spellings = ", ".join(p + name.removeprefix("delta.") for p in prefixes)
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
    for name in options:
        if name in _KNOWN or name.startswith(_OTHER_PREFIXES):
            continue
        nearest = difflib.get_close_matches(name, sorted(_KNOWN), n=1, cutoff=0.0)[0]
        message = "Delta table %s: the write option %s is not known and was ignored; the nearest known one is %s."
        _log.warning(message, root, name, _KNOWN[nearest])
