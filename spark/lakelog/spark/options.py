"""Writer options and the session confs that stand for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidOptionError, InvalidTablePropertyError, UnsupportedOperationError

_PREFIXES = ("spark.databricks.delta.properties.defaults.", "spark.lakelog.properties.defaults.")
_USER_METADATA = ("spark.databricks.delta.commitInfo.userMetadata", "spark.lakelog.commitInfo.userMetadata")
_PASSED_ON = {"maxrecordsperfile": "maxRecordsPerFile", "compression": "compression"}

# option (lower case) -> (values that change nothing, what to do until it is there)
_NOT_YET: Mapping[str, tuple[frozenset[str], str]] = {
    "replacewhere": (frozenset(), "Delete the rows first, then append."),
    "replaceon": (frozenset(), "Delete the rows first, then append."),
    "replaceusing": (frozenset(), "Delete the rows first, then append."),
    "mergeschema": (frozenset({"false"}), "Select the table's columns before you write."),
    "overwriteschema": (frozenset({"false"}), "Write to a new path."),
    "datachange": (frozenset({"true"}), "Leave it out."),
    "optimizewrite": (frozenset({"false"}), "Repartition the DataFrame before you write."),
    "txnappid": (frozenset(), "Leave it out."),
    "txnversion": (frozenset(), "Leave it out."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One ``df.write.format("delta")`` as it arrived.

    Attributes:
        root: the table's root, unencoded.
        mode: Append, Overwrite, ErrorIfExists or Ignore.
        partition_by: what the caller named; None when not at all.
        user_metadata: free text for the commit.
        writer_options: what Spark's Parquet writer takes.
    """

    root: str
    mode: str
    partition_by: tuple[str, ...] | None = None
    user_metadata: str | None = None
    dynamic_overwrite: bool | None = None
    writer_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, root: str, mode: str, options: Mapping[str, str]) -> WriteRequest:
        """From the options as Spark gives them, names in lower case.

        Raises:
            UnsupportedOperationError: an option that this lakelog does not implement; names it.
            InvalidOptionError: an option whose value makes no sense.
        """
        for name, (harmless, remedy) in _NOT_YET.items():
            if name in options and options[name].lower() not in harmless:
                raise UnsupportedOperationError(
                    f"Delta table {root}: the write option {name}={options[name]} comes with a later release of lakelog. {remedy}"
                )
        columns = options.get("__partition_columns")
        overwrite = options.get("partitionoverwritemode")
        if overwrite is not None and overwrite.lower() not in ("static", "dynamic"):
            raise InvalidOptionError(f"Delta table {root}: partitionOverwriteMode must be static or dynamic, not {overwrite!r}.")
        limit = options.get("maxrecordsperfile")
        if limit is not None and not limit.lstrip("-").isdigit():
            raise InvalidOptionError(f"Delta table {root}: maxRecordsPerFile must be a number of rows, not {limit!r}.")
        return cls(
            root=root,
            mode=mode,
            partition_by=tuple(orjson.loads(columns)) if columns is not None else None,
            user_metadata=options.get("usermetadata"),
            dynamic_overwrite=None if overwrite is None else overwrite.lower() == "dynamic",
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
                f"Delta table {self.root}: dynamic partition overwrite comes with a later release of lakelog. Delete the partitions first and "
                "append, or set partitionOverwriteMode to static to replace the whole table."
            )


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
        InvalidTablePropertyError: the two spellings of one key disagree.
    """
    found: dict[str, str] = {}
    for prefix in _PREFIXES:
        for key, value in settings.items():
            if not key.startswith(prefix):
                continue
            name = "delta." + key.removeprefix(prefix)
            if found.get(name, value) != value:
                raise InvalidTablePropertyError(
                    f"The session gives new tables two values for {name}: {found[name]!r} and {value!r}. Unset one of {', '.join(p + name[6:] for p in _PREFIXES)}."
                )
            found[name] = value
    return found
