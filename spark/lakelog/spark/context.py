"""What the parts of the adapter share on one driver: table logs, sessions, and the forms of a table's path."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from pyspark.sql import SparkSession

from lakelog.core.log_files import LOG_FOLDER
from lakelog.core.paths import object_store_root
from lakelog.spark import jvm
from lakelog.spark.delta_logs import DeltaLogs
from lakelog.spark.engine import AUTO, ENGINE_CONF, Engine, EngineChoice, choose, missing_entries
from lakelog.storage.data_files import first_beside
from lakelog.storage.environment import Environment
from lakelog.storage.file_access import FileAccess, file_access_for, hadoop_entries_for
from lakelog.storage.log_store import LogStore
from lakelog.storage.registry import SHORT_NAMES, family_of, log_store_for, options_for, scheme_of, store_name_for

_log = logging.getLogger(__name__)
_KEPT_ENGINES = 1024
_KEPT_FILESYSTEMS = 64
_KEPT_PATHS = 4096
_KEPT_SESSIONS = 64
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Context:
    """One per JVM.

    Args:
        spark: the session that was enabled first.
        environment: clock, sleep and randomness.
        find: the JVM session for an id, or None when it is gone.
    """

    def __init__(self, spark: SparkSession, environment: Environment, find: Callable[[str], object]) -> None:
        self._first = spark
        self._find = find
        self._sessions: dict[str, SparkSession] = {}
        self._met: OrderedDict[str, SparkSession] = OrderedDict()
        self._stores: OrderedDict[str, tuple[_Told, LogStore]] = OrderedDict()
        self._named: dict[str, SparkSession] = {}
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._filled: dict[str, _Told] = {}
        self._lock = threading.Lock()
        self._roots: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._engines: OrderedDict[tuple[str, str, str], EngineChoice] = OrderedDict()
        self._said: set[tuple[str, Engine]] = set()
        self.logs = DeltaLogs(self.settings_of, environment)
        self.environment = environment
        self.engine_info = f"Apache-Spark/{spark.version} lakelog/{_own_version()}"

    def add(self, spark: SparkSession) -> None:
        """Let callbacks from the JVM session behind this PySpark session find it."""
        self._sessions[jvm.session_id(spark)] = spark

    def remove(self, session_id: str) -> None:
        """Forget a session."""
        self._sessions.pop(session_id, None)

    def session(self, session_id: str) -> SparkSession:
        """The PySpark session for a JVM session's id; one is made for a session that Spark cloned or that `newSession` made."""
        found = self._sessions.get(session_id) or self._met.get(session_id)
        if found is None:
            java_session = self._find(session_id)
            if java_session is None:
                return self._first
            found = self._met[session_id] = jvm.session_from(self._first, java_session)
            while len(self._met) > _KEPT_SESSIONS:
                self._met.popitem(last=False)
        return found

    def settings(self, spark: SparkSession) -> Mapping[str, str]:
        """What the session and Hadoop's conf say of LogStores, of storage and of defaults. Values may be secrets."""
        return jvm.settings(spark)

    def settings_of(self, path: str) -> Mapping[str, str]:
        """The settings by which a table on the path's filesystem is opened: those of the session that named one there last.

        A driver holds one log for a table, whichever of its sessions ask, so where sessions differ the latest one decides.
        """
        filesystem = self._filesystem(path)
        told = self._told.get(filesystem)
        return told.settings if told is not None else self.settings(self._named.get(filesystem, self._first))

    def engine(self, spark: SparkSession, root: str) -> EngineChoice:
        """Which engine serves the data files of the table at a root, in this session and by its conf as it is now.

        Raises:
            InvalidOptionError: `spark.lakelog.engine` has no such value.
            StoreConfigurationError: it asks for the native engine, which the JVM has no filesystem for.
        """
        asked = str(spark.conf.get(ENGINE_CONF, AUTO))
        filesystem = self._filesystem(root)
        # Sessions differ in what Hadoop is told of other filesystems; Spark has the local one itself.
        key = (jvm.session_id(spark) if filesystem else "", filesystem, asked)
        found = self._engines.get(key)
        if found is None:
            found = self._engines[key] = choose(asked, root, lambda scheme: jvm.hadoop_filesystem(spark, scheme))
            while len(self._engines) > _KEPT_ENGINES:
                self._engines.popitem(last=False)
            self._say(scheme_of(root), found)
        if found.engine is Engine.NATIVE and scheme_of(root) == "s3a":
            self._fill(spark, root)
        return found

    def _fill(self, spark: SparkSession, root: str) -> None:
        """Let Hadoop's client reach the bucket as lakelog's own store does, also where that was told of it under lakelog's own names."""
        filesystem = self._filesystem(root)
        told = self._told.get(filesystem)
        if told is None or told.store not in SHORT_NAMES or self._filled.get(filesystem) == told:
            return
        entries = missing_entries(hadoop_entries_for(root, told.settings), told.settings, filesystem.partition("://")[2])
        if entries:
            jvm.fill_hadoop(spark, entries)
        self._filled[filesystem] = told

    def _say(self, scheme: str, choice: EngineChoice) -> None:
        if (scheme, choice.engine) not in self._said:
            self._said.add((scheme, choice.engine))
            _log.info("the %s engine serves data files of %s tables: %s", choice.engine, scheme, choice.reason)

    @staticmethod
    def _filesystem(path: str) -> str:
        """``scheme://authority`` of a path or URI; "" for a local one."""
        return "/".join(path.split("/", 3)[:3]) if "://" in path else ""

    def access(self, path: str) -> FileAccess:
        """How data files of the path's filesystem are opened.

        Args:
            path: a table's root as `root` gives it, or the URI of one of its files.

        Raises:
            UnknownSchemeError: lakelog's own Parquet access does not cover the scheme.
        """
        if scheme_of(path) == "file":
            # Asked at every write; the conf, which takes a while to read, says nothing of local files.
            return file_access_for(path)
        # Not kept: keys of a profile or a role end, and are then others.
        return file_access_for(path, self.settings_of(path))

    def store(self, path: str) -> LogStore:
        """A LogStore of the path's filesystem, for what is no log. The argument is that of `access`.

        Raises:
            UnknownSchemeError: nothing serves the scheme.
        """
        settings = self.settings_of(path)
        filesystem, wanted = self._filesystem(path), _Told.of(path, settings)
        made = self._stores.get(filesystem)
        if made is None or made[0] != wanted:
            made = self._stores[filesystem] = (wanted, log_store_for(path, settings))
            while len(self._stores) > _KEPT_FILESYSTEMS:
                self._stores.popitem(last=False)
        return made[1]

    def stranger(self, spark: SparkSession, root: str) -> str | None:
        """The name of something in a folder that is no Delta log; None where there is nothing, or no folder."""
        if family_of(scheme_of(root)) == "s3":
            return first_beside(self.access(root), root, LOG_FOLDER)
        return jvm.stranger(spark, self.hadoop_root(root))

    def zone(self, spark: SparkSession) -> str:
        """The session's time zone."""
        return str(spark.conf.get("spark.sql.session.timeZone"))

    def root(self, spark: SparkSession, path: str) -> str:
        """A table's root as core and storage know it: absolute, unencoded, local paths without a scheme, all S3 as ``s3a``.

        Raises:
            UnknownSchemeError: no LogStore serves the path's scheme; names the remedy.
            StoreConfigurationError: the settings of its LogStore disagree.
            InvalidRequestError: the path names no place in a bucket.
        """
        on_s3 = object_store_root(path)
        if on_s3 is not None:
            self._tell(spark, on_s3)
            return on_s3
        key = (jvm.session_id(spark), path)
        found = self._roots.get(key)
        if found is None:
            if _ABSOLUTE.match(path) and scheme_of(path) != "file":
                # Asked first: Hadoop's own error for a filesystem that it lacks says nothing of LogStores.
                log_store_for(path, self.settings(spark))
            found = self._roots[key] = self.local_root(jvm.qualified_path(spark, path))
            while len(self._roots) > _KEPT_PATHS:
                self._roots.popitem(last=False)
        self._tell(spark, found)
        return found

    def _tell(self, spark: SparkSession, path: str) -> None:
        """The session names a path: its settings are those of the path's filesystem from now on."""
        filesystem = self._filesystem(path)
        if not filesystem:
            # Where nothing but the LogStore's class can be set, a log that is open stays open.
            self._named[filesystem] = spark
            return
        told = _Told.of(path, self.settings(spark))
        with self._lock:
            before = self._told.get(filesystem)
            self._told[filesystem] = told
            while len(self._told) > _KEPT_FILESYSTEMS:
                self._told.popitem(last=False)
        if before is not None and before != told:
            self.logs.forget_all(filesystem)

    @staticmethod
    def local_root(hadoop_root: str) -> str:
        """A root as Hadoop prints it in the form of `root`."""
        return hadoop_root.removeprefix("file://").removeprefix("file:")

    @staticmethod
    def hadoop_root(root: str) -> str:
        """The root with its scheme, whatever Hadoop's default filesystem is."""
        return f"file:{root}" if root.startswith("/") else root


@dataclass(frozen=True, slots=True)
class _Told:
    """What settings say of one filesystem; two that make the same store are equal.

    Attributes:
        store: its name or class.
        options: that the store is made with.
        settings: that said so, among others.
    """

    store: str
    options: Mapping[str, object] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False, compare=False)

    @classmethod
    def of(cls, path: str, settings: Mapping[str, str]) -> _Told:
        return cls(store_name_for(path, settings), options_for(path, settings), settings)


def _own_version() -> str:
    try:
        return version("lakelog")
    except PackageNotFoundError:
        return "unknown"
