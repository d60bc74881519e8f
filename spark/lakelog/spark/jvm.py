"""The one module that touches Spark's private classes: py4j objects come in and go out here, and what differs between minors is a table.

Everything is probed once per JVM. The Java sources in the folder ``java/`` are compiled by Spark's own compiler (Janino, which it uses for
generated code) into a private folder on the driver's class path; executors never see them.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import orjson
import py4j
import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from lakelog.core.constraints import quoted
from lakelog.core.errors import StoreConfigurationError, UnsupportedOperationError
from lakelog.spark.engine import HadoopFilesystem
from lakelog.spark.java_sources import FILE_FORMAT_WRITER, SINK_STATUS, java_sources, own_parser

SUPPORTED_MINORS = ("4.0", "4.1", "4.2", "4.3")
CATALOG_KEY = "spark.sql.catalog.spark_catalog"
CATALOG_CLASS = "lakelog.DeltaCatalog"
DELTA_SPARK_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_DELTA_SPARK_SOURCE = "org.apache.spark.sql.delta.sources.DeltaDataSource"

_EXTENSION_POINTS = {
    "statements": ("injectHintResolutionRule", "hintResolutionRuleBuilders"),
    "resolution": ("injectResolutionRule", "resolutionRuleBuilders"),
    "commands": ("injectPostHocResolutionRule", "postHocResolutionRuleBuilders"),
    "check": ("injectCheckRule", "checkRuleBuilders"),
    "pin": ("injectPreCBORule", "preCBORules"),
    "strategies": ("injectPlannerStrategy", "plannerStrategyBuilders"),
    "parser": ("injectParser", "parserBuilders"),
}
# Of Spark's conf, in lower case; of Hadoop's.
_SETTINGS = ("spark.lakelog.", "spark.hadoop.fs.s3", "fs.s3", "spark.io.delta.storage.", "io.delta.storage.")
_SETTINGS_WORDS = (".logstore.", ".properties.defaults.")
_HADOOP_SETTINGS = "fs.s3"
_DESCRIPTION = "spark.job.description"
_PARSER = "org.apache.spark.sql.catalyst.parser.ParserInterface"


def minor_of(spark: SparkSession) -> str:
    """The session's Spark minor, such as ``4.3``.

    Raises:
        UnsupportedOperationError: lakelog does not support it.
    """
    minor = ".".join(spark.version.split(".")[:2])
    if minor not in SUPPORTED_MINORS:
        raise UnsupportedOperationError(
            f"lakelog supports PySpark {SUPPORTED_MINORS[0]} to {SUPPORTED_MINORS[-1]}; this session is {spark.version}."
        )
    return minor


class Jvm:
    """The compiled shells of one driver JVM.

    Args:
        spark: a classic session; its gateway is kept.

    Raises:
        UnsupportedOperationError: the session is a Spark Connect client, or of an unsupported minor.
        StoreConfigurationError: the shells do not compile on this Spark; the message holds the compiler's.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.minor = minor_of(spark)
        self.gateway: Any = SparkContext._gateway
        cast(Any, ensure_callback_server_started)(self.gateway)
        self.jvm: Any = SparkContext._jvm
        self.has_delta_spark = self._has_class(_DELTA_SPARK_SOURCE)
        self.folder = self._compile(spark)
        self.secret = secrets.token_hex(32)
        self._extended: list[_Extended] = []
        self.package: Any = cast(Any, self.jvm).lakelog

    def _loader(self) -> Any:
        return self.jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def _has_class(self, name: str) -> bool:
        try:
            self._loader().loadClass(name)
        except py4j.protocol.Py4JJavaError:
            return False
        return True

    def _differences(self) -> list[str]:
        found = []
        if not self._has_class(SINK_STATUS):
            found.append("sink status in its old package")
        methods = self._loader().loadClass(FILE_FORMAT_WRITER + "$").getMethods()
        if any(str(m.getName()) == "write$default$12" for m in methods):
            found.append("write takes a callback")
        return found

    def _parser_methods(self) -> str:
        """Methods of this Spark's parsers that OwnParser does not write out, handed on to the parser behind it."""
        source = own_parser()
        made = []
        for method in self._loader().loadClass(_PARSER).getMethods():
            name = str(method.getName())
            if f" {name}(String text)" in source or self.jvm.java.lang.reflect.Modifier.isStatic(method.getModifiers()):
                continue
            types = [str(kind.getCanonicalName()) for kind in method.getParameterTypes()]
            thrown = ", ".join(str(kind.getCanonicalName()) for kind in method.getExceptionTypes())
            parameters = ", ".join(f"{kind} a{i}" for i, kind in enumerate(types))
            head = f"  public {method.getReturnType().getCanonicalName()} {name}({parameters}){' throws ' + thrown if thrown else ''}"
            # Spark parses by this one where it is given parameters, and on some releases always.
            own = "LogicalPlan own = own(a0); if (own != null) return own; " if name == "parsePlanWithParameters" else ""
            made.append(f"{head} {{ {own}return spark.{name}({', '.join(f'a{i}' for i in range(len(types)))}); }}")
        return "\n".join(made)

    def _compile(self, spark: SparkSession) -> Path:
        """Compile into a folder of mode 0700 below Spark's own files, which Spark removes when the application stops."""
        compiler = self.jvm.org.codehaus.janino.SimpleCompiler()
        loader = self._loader()
        compiler.setParentClassLoader(loader)
        try:
            compiler.cook(java_sources(self._differences(), self._parser_methods()))
        except py4j.protocol.Py4JJavaError as error:
            raise StoreConfigurationError(
                f"lakelog's shells do not compile on Spark {spark.version}: {root_cause(error)}. "
                "Report this with the Spark version; another patch release of the same minor may do."
            ) from None
        folder = Path(tempfile.mkdtemp(prefix="lakelog-", dir=self.jvm.org.apache.spark.SparkFiles.getRootDirectory()))
        names = []
        for name, code in dict(compiler.getBytecodes()).items():
            names.append(name)
            target = folder / (name.replace(".", "/") + ".class")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(bytes(code))
        services = folder / "META-INF" / "services"
        services.mkdir(parents=True)
        sources = ["lakelog.LakelogSource"] if self.has_delta_spark else ["lakelog.DeltaSource", "lakelog.LakelogSource"]
        (services / "org.apache.spark.sql.sources.DataSourceRegister").write_text("\n".join(sources) + "\n", encoding="utf-8")
        loader.addURL(self.jvm.java.net.URL(f"file:{folder}/"))
        for name in names:
            loader.loadClass(name)
        loader.loadClass("lakelog.Names").getField("shared").setBoolean(None, self.has_delta_spark)
        return folder

    def is_current(self) -> bool:
        """Whether PySpark still talks to this JVM."""
        return self.gateway is SparkContext._gateway

    def set_door(self, python: object | None, closed: str) -> None:
        """Open the door to a Python object with ``apply(header, first, second, third)``, or close it with a message."""
        door = self._loader().loadClass("lakelog.Door")
        door.getField("secret").set(None, self.secret)
        door.getField("closed").set(None, closed)
        if python is not None:
            _keep_proxy(self.gateway.gateway_property.pool, python)
        door.getField("python").set(None, python)

    def context_conf(self, spark: SparkSession, key: str) -> str | None:
        """An entry of the SparkContext's conf, which `newSession` starts from."""
        conf: Any = cast(Any, spark.sparkContext)._jsc.sc().conf()
        return str(conf.get(key)) if conf.contains(key) else None

    def set_context_conf(self, spark: SparkSession, key: str, value: str | None) -> None:
        """Set or, with None, remove an entry of the SparkContext's conf."""
        conf: Any = cast(Any, spark.sparkContext)._jsc.sc().conf()
        if value is None:
            conf.remove(key)
        else:
            conf.set(key, value)

    def enabled_clone(self, spark: SparkSession) -> None:
        """Point the PySpark session at a clone that has our rules. `plain_clone` takes it back."""
        extended = self._extended_by(spark)
        if not extended.sessions:
            extended.inject()
        self.point_at_clone(spark)
        extended.sessions.add(session_id(spark))

    def plain_clone(self, spark: SparkSession) -> None:
        """Point the PySpark session at a clone without our rules.

        Spark reads strategies and optimizer rules from the extensions at every plan, so as long as an enabled session shares them (one
        was made from the other by `newSession`) they stay here too; they touch no plan without a Delta table in it.
        """
        extended = self._extended_by(spark)
        extended.sessions.discard(session_id(spark))
        extended.remove()
        self.point_at_clone(spark)
        if extended.sessions:
            extended.inject()
        else:
            self._extended.remove(extended)

    def _extended_by(self, spark: SparkSession) -> _Extended:
        extensions = jsession(spark).extensions()
        for known in self._extended:
            if known.extensions.equals(extensions):
                return known
        made = _Extended(extensions, {kind: self._builder(kind) for kind in _EXTENSION_POINTS})
        self._extended.append(made)
        return made

    def _builder(self, kind: str) -> Any:
        return self.package.OwnParserBuilder() if kind == "parser" else self.package.Builder(kind)

    def forget_files(self) -> None:
        """Drop the file lists that the JVM keeps."""
        self.package.FileList.forget()

    def session(self, identity: str) -> Any:
        """The JVM session that called under this id, or None when it is gone."""
        return self.package.Door.session(identity)

    def point_at_clone(self, spark: SparkSession) -> None:
        """Clone the JVM session (conf, temporary views and functions are kept) and let the PySpark object stand for the clone."""
        private = cast(Any, spark)
        private._jsparkSession = private._jsparkSession.cloneSession()
        for owner in type(spark).__mro__:
            for name, member in vars(owner).items():
                if isinstance(member, cached_property):
                    spark.__dict__.pop(name, None)
        sessions = getattr(getattr(self.jvm.org.apache.spark.sql.classic, "SparkSession$"), "MODULE$")
        sessions.setDefaultSession(private._jsparkSession)
        sessions.setActiveSession(private._jsparkSession)


@dataclass(slots=True)
class _Extended:
    """Our rules' builders in one SparkSessionExtensions object, which sessions made from one another share."""

    extensions: Any
    builders: Mapping[str, Any]
    sessions: set[str] = field(default_factory=set)

    def inject(self) -> None:
        for kind, (inject, _) in _EXTENSION_POINTS.items():
            getattr(self.extensions, inject)(self.builders[kind])

    def remove(self) -> None:
        for kind, (_, buffer_name) in _EXTENSION_POINTS.items():
            held = self.extensions.getClass().getDeclaredField(_field_name(self.extensions, buffer_name))
            held.setAccessible(True)
            buffer = held.get(self.extensions)
            index = buffer.indexOf(self.builders[kind])
            if index >= 0:
                buffer.remove(index)


class _KeptProxies(dict[str, object]):
    """py4j's table of Python objects that the JVM may call, where one object stays until it is let go by us.

    Whoever connects to the callback port can tell py4j to drop an object; the front door must not go that way.
    """

    kept: object = None

    def __delitem__(self, key: str) -> None:
        if self.get(key) is not self.kept:
            super().__delitem__(key)


def _keep_proxy(pool: Any, python: object) -> None:
    with pool.lock:
        if not isinstance(pool.dict, _KeptProxies):
            pool.dict = _KeptProxies(pool.dict)
        pool.dict.kept = python


def _field_name(owner: Any, name: str) -> str:
    for declared in owner.getClass().getDeclaredFields():
        if str(declared.getName()).endswith(name):
            return str(declared.getName())
    raise UnsupportedOperationError(f"this Spark has no extension point {name}")


def jsession(spark: SparkSession) -> Any:
    """The JVM session behind a PySpark session.

    Raises:
        UnsupportedOperationError: the session is a Spark Connect client, which has none.
    """
    found = getattr(spark, "_jsparkSession", None)
    if found is None:
        raise UnsupportedOperationError(
            "lakelog.spark.enable needs a classic Spark session with a JVM; this one is a Spark Connect client. "
            "Create it without .remote(...)."
        )
    return found


def session_id(spark: SparkSession) -> str:
    """The JVM session's UUID."""
    return str(jsession(spark).sessionUUID())


def session_from(any_session: SparkSession, java_session: Any) -> SparkSession:
    """A PySpark session object for a JVM session that a callback came from."""
    return SparkSession(any_session.sparkContext, java_session)


def frame_from(java_dataset: JavaObject, spark: SparkSession) -> DataFrame:
    """The PySpark frame of a JVM Dataset."""
    return DataFrame(java_dataset, spark)


def dataset_of(frame: DataFrame) -> Any:
    """The JVM Dataset of a PySpark frame."""
    return cast(Any, frame)._jdf


def schema_json(frame: DataFrame) -> str:
    """A frame's schema in Spark's JSON, as the JVM prints it."""
    return str(dataset_of(frame).schema().json())


def qualified_path(spark: SparkSession, path: str) -> str:
    """A path as Hadoop qualifies it: absolute, with its scheme, not percent-encoded."""
    jvm: Any = SparkContext._jvm
    hadoop = jsession(spark).sessionState().newHadoopConf()
    found = jvm.org.apache.hadoop.fs.Path(path)
    return str(found.getFileSystem(hadoop).makeQualified(found).toString())


def settings(spark: SparkSession) -> dict[str, str]:
    """Entries of the session's conf and of Hadoop's that concern LogStores, storage and defaults, as users set them. One trip.

    Where both say ``fs.s3a.x``, the session's counts, as for Spark's own readers.
    """
    jvm: Any = SparkContext._jvm
    told = orjson.loads(jvm.lakelog.Settings.of(jsession(spark), list(_SETTINGS), list(_SETTINGS_WORDS), _HADOOP_SETTINGS))
    return {**told["hadoop"], **told["session"]}


def fill_hadoop(spark: SparkSession, entries: Mapping[str, str]) -> None:
    """Put entries into Hadoop's conf, for all sessions of the application."""
    jvm: Any = SparkContext._jvm
    jvm.lakelog.Settings.fill(jsession(spark), dict(entries))


def hadoop_filesystem(spark: SparkSession, scheme: str) -> HadoopFilesystem:
    """What the driver's JVM has for a scheme. A class whose own needs are not on the class path does not count."""
    jvm: Any = SparkContext._jvm
    hadoop = jsession(spark).sessionState().newHadoopConf()
    name, fault = None, ""
    try:
        found = jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
        # hadoop-aws without the SDK that it is written for has the class, which fails at its first use.
        found.getDeclaredMethods()
        name = str(found.getName())
    except py4j.protocol.Py4JJavaError as error:
        fault = root_cause(error)
    return HadoopFilesystem(name=name, fault=fault, hadoop=str(jvm.org.apache.hadoop.util.VersionInfo.getVersion()))


def follows(frame: DataFrame, root: str) -> bool:
    """Whether a frame reads the newest version of the table at a root as Hadoop spells it, in a subquery too."""
    jvm: Any = SparkContext._jvm
    return bool(jvm.lakelog.DeltaRelation.follows(dataset_of(frame), root))


def pinned(frame: DataFrame, spark: SparkSession, root: str, snapshot_id: str) -> DataFrame:
    """The frame with its scans of the table at a root, as Hadoop spells it, held to a snapshot that was handed out under this id."""
    jvm: Any = SparkContext._jvm
    return frame_from(jvm.lakelog.DeltaRelation.pinned(dataset_of(frame), root, snapshot_id), spark)


def table_frame(spark: SparkSession, description: str) -> DataFrame:
    """The rows of a relation as `lakelog.spark.reading.describe` tells it."""
    jvm: Any = SparkContext._jvm
    return frame_from(jvm.lakelog.Frames.of(description, jsession(spark)), spark)


def frame_alias(frame: DataFrame) -> str | None:
    """The name that a frame gave itself with ``alias``."""
    jvm: Any = SparkContext._jvm
    found = jvm.lakelog.Frames.alias(dataset_of(frame))
    return None if found is None else str(found)


def null_columns(frame: DataFrame) -> list[str]:
    """The columns that are a null by the frame's plan."""
    jvm: Any = SparkContext._jvm
    return [str(name) for name in jvm.lakelog.Frames.nullColumns(dataset_of(frame))]


def rebalanced(frame: DataFrame, spark: SparkSession, columns: Sequence[str], size: int) -> DataFrame:
    """The frame shuffled so that each task writes about ``size`` bytes, rows of equal values in ``columns`` together where that fits."""
    jvm: Any = SparkContext._jvm
    return frame_from(jvm.lakelog.Frames.rebalanced(dataset_of(frame), list(columns), size), spark)


def write_files(
    frame: DataFrame, root: str, partition_columns: int, physical: str | None, options: Mapping[str, str], description: str
) -> str:
    """Run FileFormatWriter; a line ``uri TAB size TAB modification time`` per file of the winning tasks. One trip.

    Args:
        partition_columns: so many columns from the right become folders.
        physical: the schema, as JSON, that names the others in the files; None where they keep their names.
    """
    jvm: Any = SparkContext._jvm
    return str(jvm.lakelog.DeltaWriter.write(dataset_of(frame), root, partition_columns, physical, dict(options), description))


def map_in_arrow(
    frame: DataFrame,
    spark: SparkSession,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str | StructType,
    name: str,
) -> DataFrame:
    """``frame.mapInArrow(function, schema)``, which asks for pandas without using it and takes no column whose name has a dot.

    Args:
        schema: of what the function answers; a text is DDL.
        name: of the function in plans.
    """
    made = UserDefinedFunction(function, schema, name=name, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    called: Any = made(*(F.col(quoted(column)) for column in frame.columns))
    return frame_from(dataset_of(frame).mapInArrow(called._jc, False, None), spark)


@contextmanager
def described(spark: SparkSession, description: str) -> Iterator[None]:
    """What Spark's UI calls the jobs and SQL executions of this thread meanwhile."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, cast(str, before))


def task_frame(spark: SparkSession, tasks: str) -> DataFrame:
    """One partition per line, its one row the line's text in a column ``task``; no Python worker makes it. One trip."""
    jvm: Any = SparkContext._jvm
    return frame_from(jvm.lakelog.ArrowScan.tasks(jsession(spark), tasks), spark)


def row_search(frame: DataFrame) -> Any:
    """The search behind ``table.where(condition)``, or None when the frame is no plain filter over one of our scans."""
    jvm: Any = SparkContext._jvm
    return jvm.lakelog.RowSearch.of(dataset_of(frame))


def expression_references(spark: SparkSession, texts: str) -> str:
    """For each SQL expression of a JSON array the columns that it speaks of: ``[[part of a name, ...], ...]``. One trip."""
    jvm: Any = SparkContext._jvm
    return str(jvm.lakelog.StoredExpressions.references(jsession(spark), texts))


def expression_facts(spark: SparkSession, sql: str, schema: str) -> str:
    """What an SQL expression over columns is made of, as StoredExpressions tells it in JSON."""
    jvm: Any = SparkContext._jvm
    return str(jvm.lakelog.StoredExpressions.describe(jsession(spark), sql, schema))


def select_stages(frame: DataFrame, spark: SparkSession, stages: str) -> DataFrame:
    """A frame computed in stages of SQL expressions, as StoredExpressions.select takes them in JSON. One trip."""
    jvm: Any = SparkContext._jvm
    return frame_from(jvm.lakelog.StoredExpressions.select(dataset_of(frame), stages), spark)


def violators(frame: DataFrame, condition: str, columns: str, partition: int, limit: int, description: str) -> str:
    """Rows of a checked frame that fail a condition, as Violators tells them: a JSON array of texts, ``columns`` evaluated for each."""
    jvm: Any = SparkContext._jvm
    return str(jvm.lakelog.Violators.violators(dataset_of(frame), condition, columns, partition, limit, description))


def messages(error: Exception) -> list[str]:
    """What an error of Spark's says, and every Java exception under it."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found = [str(error)]
    for _ in range(20):
        if cause is None:
            break
        found.append(str(cause.getMessage()))
        cause = cause.getCause()
    return found


def table_name(spark: SparkSession, name: str) -> str:
    """What a name of a table stands for, as Tables tells it in JSON."""
    jvm: Any = SparkContext._jvm
    return str(jvm.lakelog.Tables.describe(jsession(spark), name))


def register_table(spark: SparkSession, database: str, table: str, location: str, *, managed: bool) -> None:
    """Enter a Delta table in the session catalog by its place."""
    jvm: Any = SparkContext._jvm
    jvm.lakelog.Tables.register(jsession(spark), database, table, location, managed)


def stranger(spark: SparkSession, location: str) -> str | None:
    """The name of something in a folder that is no Delta log; None where there is nothing, or no folder."""
    jvm: Any = SparkContext._jvm
    found = jvm.lakelog.Tables.stranger(jsession(spark), location)
    return None if found is None else str(found)


def field_json(spark: SparkSession, name: str, sql_type: str) -> str:
    """A schema of one nullable field, its type given in SQL, as Spark's JSON."""
    jvm: Any = SparkContext._jvm
    return str(jvm.lakelog.Tables.field(jsession(spark), name, sql_type))


def stored_schema(schema: str) -> str:
    """A schema as tables hold it: strings with a length are strings, and the length is in their field's metadata."""
    jvm: Any = SparkContext._jvm
    return str(jvm.lakelog.Tables.stored(schema))


def install_error_translation(translate: Callable[[str], BaseException | None], foreign: Callable[[str], BaseException | None]) -> None:
    """Let errors of ours reach DataFrame and SQL calls as they were raised in Python.

    PySpark turns a Java exception into a Python one in one function; ours asks first. `translate` takes the id that our Java exception
    carries; `foreign` sees the message of any other exception, to explain those that concern our tables.
    """
    original = getattr(captured.convert_exception, "__wrapped__", captured.convert_exception)

    def convert(error: Any) -> BaseException:
        cause, depth, texts = error, 0, []
        while cause is not None and depth < 20:
            if cause.getClass().getName() == "lakelog.LakelogException":
                found = translate(str(cause.id()))
                if found is not None:
                    return found.with_traceback(None)
            texts.append(str(cause.toString()))
            cause, depth = cause.getCause(), depth + 1
        for text in texts:
            explained = foreign(text)
            if explained is not None:
                return explained
        return cast(BaseException, original(error))

    convert.__wrapped__ = original  # type: ignore[attr-defined]
    captured.convert_exception = convert  # type: ignore[assignment]


def refresh_cached(spark: SparkSession, root: str) -> None:
    """Compute cached frames over the table's files anew, as after every write.

    Args:
        root: with its scheme.
    """
    if "://" in root:
        # refreshByPath asks Hadoop for the filesystem first, which it may not have.
        jvm: Any = SparkContext._jvm
        jvm.lakelog.Frames.refreshCached(jsession(spark), root)
    else:
        spark.catalog.refreshByPath(root)


def root_cause(error: py4j.protocol.Py4JJavaError) -> str:
    """What the innermost Java exception says."""
    cause: Any = error.java_exception
    for _ in range(20):
        if cause.getCause() is None:
            break
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString())
