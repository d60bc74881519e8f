"""`DeltaTable`, under the names of delta-spark's Python class."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.core.clustering import clustering_columns
from lakelog.core.commit_info import parameter_texts
from lakelog.core.errors import InvalidOptionError, InvalidRequestError, UnsupportedOperationError
from lakelog.core.known_engines import who_can_read
from lakelog.core.schema_changes import column_text
from lakelog.core.table_definition import CreationMode
from lakelog.core.table_features import feature_names
from lakelog.spark import catalog_names, delete, features, jvm
from lakelog.spark.builder import DeltaTableBuilder
from lakelog.spark.creation import CreatedTable
from lakelog.spark.exceptions import pyspark_errors
from lakelog.spark.options import check_storage
from lakelog.spark.session import context_of
from lakelog.storage.registry import store_name_for
from lakelog.storage.table_log import HistoryEntry

_STRINGS = MapType(StringType(), StringType(), True)
_JOB = ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")
HISTORY_SCHEMA = StructType(
    [
        StructField("version", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("userId", StringType()),
        StructField("userName", StringType()),
        StructField("operation", StringType()),
        StructField("operationParameters", _STRINGS),
        StructField("job", StructType([StructField(name, StringType()) for name in _JOB])),
        StructField("notebook", StructType([StructField("notebookId", StringType())])),
        StructField("clusterId", StringType()),
        StructField("readVersion", LongType()),
        StructField("isolationLevel", StringType()),
        StructField("isBlindAppend", BooleanType()),
        StructField("operationMetrics", _STRINGS),
        StructField("userMetadata", StringType()),
        StructField("engineInfo", StringType()),
    ]
)
DETAIL_SCHEMA = StructType(
    [
        StructField("format", StringType()),
        StructField("id", StringType()),
        StructField("name", StringType()),
        StructField("description", StringType()),
        StructField("location", StringType()),
        StructField("createdAt", TimestampType()),
        StructField("lastModified", TimestampType()),
        StructField("partitionColumns", ArrayType(StringType())),
        StructField("clusteringColumns", ArrayType(StringType())),
        StructField("numFiles", LongType()),
        StructField("sizeInBytes", LongType()),
        StructField("properties", _STRINGS),
        StructField("minReaderVersion", IntegerType()),
        StructField("minWriterVersion", IntegerType()),
        StructField("tableFeatures", ArrayType(StringType())),
        # delta-spark's columns end here.
        StructField("readableBy", ArrayType(StringType())),
        StructField("writableBy", ArrayType(StringType())),
        StructField("engine", StringType()),
        StructField("engineReason", StringType()),
        StructField("logStore", StringType()),
    ]
)


class DeltaTable:
    """A Delta table. `forPath` and `forName` find one, `create` and its like make one.

    Args:
        spark: an enabled session.
        path: of the table.
        hadoop_conf: entries for the table's files.
        alias: what its columns can be qualified by.
        name: its entry in Spark's catalog, qualified; None for a table by path.
    """

    def __init__(
        self, spark: SparkSession, path: str, hadoop_conf: Mapping[str, str], alias: str | None = None, name: str | None = None
    ) -> None:
        self._spark = spark
        self._path = path
        self._hadoop_conf = dict(hadoop_conf)
        self._alias = alias
        self._name = name

    @classmethod
    def forPath(cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None) -> DeltaTable:
        """The table at a path.

        Args:
            sparkSession: a session that is enabled.
            path: a path or URI.
            hadoopConf: entries ``fs.*`` and ``dfs.*`` for this table's files.

        Raises:
            NotADeltaTableError: no Delta table is there.
            InvalidOptionError: another entry in hadoopConf.
        """
        _check_type("sparkSession", sparkSession, SparkSession)
        _check_type("path", path, str)
        if hadoopConf is not None:
            _check_type("hadoopConf", hadoopConf, Mapping)
        conf = dict(hadoopConf or {})
        for key in conf:
            if not key.startswith(("fs.", "dfs.")):
                raise InvalidOptionError(f"Delta table {path}: hadoopConf takes entries fs.* and dfs.* alone, not {key!r}.")
        context = context_of(sparkSession)
        check_storage(path, conf)
        context.logs.newest(context.root(sparkSession, path))
        return cls(sparkSession, path, conf)

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table of a name in Spark's catalog, with its database and catalog or without; or ``delta.`/path` ``.

        It stays the table that the name means now, whatever becomes of the name.

        Raises:
            NotADeltaTableError: the name stands for a view, for a table of another format or for nothing; or no Delta log is at the
                table's place.
            InvalidRequestError: the text is no name.
        """
        _check_type("sparkSession", sparkSession, SparkSession)
        _check_type("tableOrViewName", tableOrViewName, str)
        context = context_of(sparkSession)
        found = catalog_names.delta_table(sparkSession, tableOrViewName)
        context.logs.newest(context.root(sparkSession, found.location))
        return cls(sparkSession, found.location, {}, name=None if found.database is None else found.qualified)

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder of a table that must not exist yet.

        Args:
            sparkSession: a session that is enabled; the active one by default.
        """
        return cls._builder(sparkSession, CreationMode.CREATE)

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder of a table that is left as it is where it exists already."""
        return cls._builder(sparkSession, CreationMode.CREATE_IF_NOT_EXISTS)

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder of a table in place of one that exists: its rows go, its history stays."""
        return cls._builder(sparkSession, CreationMode.REPLACE)

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """A builder of a table that is replaced where it exists already."""
        return cls._builder(sparkSession, CreationMode.CREATE_OR_REPLACE)

    @classmethod
    def _builder(cls, spark: SparkSession | None, mode: CreationMode) -> DeltaTableBuilder:
        if spark is not None:
            _check_type("sparkSession", spark, SparkSession)
        found = spark or SparkSession.getActiveSession()
        if found is None:
            raise InvalidRequestError(f"{mode.value}: there is no active Spark session. Give one that is enabled.")
        context_of(found)
        return DeltaTableBuilder(found, mode, cls._created)

    @classmethod
    def _created(cls, spark: SparkSession, made: CreatedTable) -> DeltaTable:
        return cls(spark, made.path, {}, name=made.name)

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether a Delta table is at the path."""
        _check_type("sparkSession", sparkSession, SparkSession)
        _check_type("identifier", identifier, str)
        context = context_of(sparkSession)
        return context.logs.exists(context.root(sparkSession, identifier))

    def toDF(self) -> DataFrame:
        """The table's rows; each action sees the newest version."""
        frame = self._spark.read.format("lakelog").options(**self._hadoop_conf).load(self._path)
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table; its columns can be named ``aliasName.column``."""
        _check_type("aliasName", aliasName, str)
        return DeltaTable(self._spark, self._path, self._hadoop_conf, aliasName, self._name)

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows for which the condition is true; all rows without one.

        Raises:
            UnsupportedOperationError: the table is append-only.
            DeltaConcurrentModificationException: another writer committed meanwhile; run it again.
        """
        frame = self.toDF()
        if condition is not None:
            _check_type("condition", condition, (str, Column))
            frame = frame.where(F.expr(condition) if isinstance(condition, str) else condition)
        context = context_of(self._spark)
        search = jvm.row_search(frame)
        if search is None:
            raise UnsupportedOperationError(f"Delta table {self._path}: the condition {condition} cannot be used to delete rows.")
        with pyspark_errors():
            delete.delete(context, self._spark, context.root(self._spark, self._path), str(search.describe()), search)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first, in delta-spark's columns.

        Args:
            limit: how many; all that the log holds by default.
        """
        if limit is not None:
            _check_type("limit", limit, int)
        context = context_of(self._spark)
        log = context.logs.log(context.root(self._spark, self._path))
        rows = [_history_row(entry) for entry in log.history(limit)]
        return self._spark.createDataFrame(rows, HISTORY_SCHEMA)

    def addFeatureSupport(self, featureName: str) -> None:
        """Let the table have a feature, by its name in any letter case. Clients that do not know the feature lose the table.

        Raises:
            ValueError: the name is no text.
            InvalidRequestError: there is no such feature, or it comes with a clause of its own.
            UnsupportedFeatureError: it comes with a later release.
        """
        _check_value("featureName", featureName, str, "a string")
        context = context_of(self._spark)
        with pyspark_errors():
            features.add_feature_support(context, self._spark, context.root(self._spark, self._path), featureName)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Let the table have all features that these protocol versions imply; it loses none.

        Raises:
            ValueError: a version is no number.
            InvalidRequestError: there are no such versions.
        """
        _check_value("The readerVersion", readerVersion, int, "an integer")
        _check_value("The writerVersion", writerVersion, int, "an integer")
        context = context_of(self._spark)
        with pyspark_errors():
            features.upgrade_protocol(context, self._spark, context.root(self._spark, self._path), readerVersion, writerVersion)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Take a feature out of the table, with what it left there, so that clients without it can use the table again.

        A feature of readers takes two calls: the first takes it out of use, another one, when the log keeps no version that used it,
        out of the protocol.

        Args:
            featureName: in any letter case.
            truncateHistory: whether to delete the older history, without which the second call need not wait.

        Raises:
            ValueError: an argument of another type.
            FeatureInHistoryError: versions that the log keeps use the feature; says when to call again.
            InvalidRequestError: the table does not have it, or something of the table calls for it.
            UnsupportedFeatureError: it comes with a later release, or data files would have to be rewritten.
        """
        _check_value("featureName", featureName, str, "a string")
        if truncateHistory is not None:
            _check_value("truncateHistory", truncateHistory, bool, "a boolean")
        context = context_of(self._spark)
        with pyspark_errors():
            features.drop_feature_support(
                context, self._spark, context.root(self._spark, self._path), featureName, truncate_history=bool(truncateHistory)
            )

    def detail(self) -> DataFrame:
        """One row about the table as it is: delta-spark's columns, the known engines that can read and write it, and how this session does.

        ``engine`` is what reads and writes data files here, ``engineReason`` says why, and ``logStore`` commits.
        """
        context = context_of(self._spark)
        root = context.root(self._spark, self._path)
        snapshot = context.logs.newest(root).snapshot
        metadata, protocol = snapshot.metadata, snapshot.protocol
        engines = who_can_read(protocol)
        choice = context.engine(self._spark, root)
        row = Row(
            format="delta",
            id=metadata.id,
            name=metadata.name if self._name is None else self._name,
            description=metadata.description,
            location=context.hadoop_root(root),
            createdAt=_instant(metadata.created_time),
            lastModified=_instant(snapshot.timestamp_ms),
            partitionColumns=list(metadata.partition_columns),
            clusteringColumns=[column_text(path) for path in clustering_columns(snapshot.schema, snapshot.domains, table=root)],
            numFiles=snapshot.num_files,
            sizeInBytes=snapshot.size_in_bytes,
            properties=dict(metadata.configuration),
            minReaderVersion=protocol.min_reader_version,
            minWriterVersion=protocol.min_writer_version,
            tableFeatures=list(feature_names(protocol)),
            readableBy=[engine.engine for engine in engines if engine.reads],
            writableBy=[engine.engine for engine in engines if engine.writes],
            engine=choice.engine.value,
            engineReason=choice.reason,
            logStore=store_name_for(root, context.settings_of(root)),
        )
        return self._spark.createDataFrame([row], DETAIL_SCHEMA)


def _history_row(entry: HistoryEntry) -> tuple[object, ...]:
    told = {} if entry.commit_info is None else entry.commit_info.to_json()
    return (
        entry.version,
        _instant(entry.timestamp_ms),
        told.get("userId"),
        told.get("userName"),
        told.get("operation"),
        _texts(told.get("operationParameters")),
        _record(told.get("job"), _JOB),
        _record(told.get("notebook"), ("notebookId",)),
        told.get("clusterId"),
        told.get("readVersion"),
        told.get("isolationLevel"),
        told.get("isBlindAppend"),
        _texts(told.get("operationMetrics")),
        told.get("userMetadata"),
        told.get("engineInfo"),
    )


def _texts(value: object) -> dict[str, str | None] | None:
    if not isinstance(value, Mapping):
        return None
    return parameter_texts(value)


def _record(value: object, fields: tuple[str, ...]) -> tuple[str | None, ...] | None:
    return tuple(None if value.get(f) is None else str(value[f]) for f in fields) if isinstance(value, Mapping) else None


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _check_type(name: str, value: object, wanted: type | tuple[type, ...]) -> None:
    if not isinstance(value, wanted):
        names = " or ".join(t.__name__ for t in (wanted if isinstance(wanted, tuple) else (wanted,)))
        raise TypeError(f"{name} must be a {names}, not {type(value).__name__}")


def _check_value(name: str, value: object, wanted: type, told: str) -> None:
    """delta-spark's check of these methods' arguments, which raises a ValueError where its other methods raise a TypeError."""
    if not isinstance(value, wanted):
        raise ValueError(f"{name} needs to be {told} but got '{type(value)}'.")
