"""What the parts of the adapter share on one driver: table logs, sessions, and the forms of a table's path."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import cast

from pyspark.sql import SparkSession

from lakelog.spark import jvm
from lakelog.spark.delta_logs import DeltaLogs
from lakelog.spark.engine import AUTO, ENGINE_CONF, Engine, EngineChoice, choose
from lakelog.storage.environment import Environment
from lakelog.storage.file_access import FileAccess, file_access_for
from lakelog.storage.log_store import LogStore
from lakelog.storage.registry import log_store_for, scheme_of

_log = logging.getLogger(__name__)
_KEPT_ENGINES = 1024
_KEPT_FILESYSTEMS = 64
_KEPT_PATHS = 4096
_KEPT_SESSIONS = 64


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
        self._filesystems: OrderedDict[tuple[object, ...], object] = OrderedDict()
        self._roots: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._engines: OrderedDict[tuple[str, str, str], EngineChoice] = OrderedDict()
        self._said: set[tuple[str, Engine]] = set()
        self.logs = DeltaLogs(lambda: self.settings(self._first), environment)
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
        """The session's conf entries that concern LogStores and defaults."""
        return {key: value for key, value in spark.conf.getAll.items() if ".logstore." in key.lower() or ".properties.defaults." in key}

    def engine(self, spark: SparkSession, root: str) -> EngineChoice:
        """Which engine serves the data files of the table at a root, in this session and by its conf as it is now.

        Raises:
            InvalidOptionError: `spark.lakelog.engine` has no such value.
            StoreConfigurationError: it asks for the native engine, which the JVM has no filesystem for.
        """
        asked = str(spark.conf.get(ENGINE_CONF, AUTO))
        key = (jvm.session_id(spark), self._filesystem(root), asked)
        found = self._engines.get(key)
        if found is None:
            found = self._engines[key] = choose(asked, root, lambda scheme: jvm.hadoop_filesystem(spark, scheme))
            while len(self._engines) > _KEPT_ENGINES:
                self._engines.popitem(last=False)
            self._say(scheme_of(root), found)
        return found

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
        return cast(FileAccess, self._kept(file_access_for, path))

    def store(self, path: str) -> LogStore:
        """A LogStore of the path's filesystem, for what is no log. The argument is that of `access`.

        Raises:
            UnknownSchemeError: nothing serves the scheme.
        """
        return cast(LogStore, self._kept(log_store_for, path))

    def _kept(self, make: Callable[[str, Mapping[str, str]], object], path: str) -> object:
        """One per filesystem and settings."""
        settings = self.settings(self._first)
        key = (make, self._filesystem(path), tuple(sorted(settings.items())))
        found = self._filesystems.get(key)
        if found is None:
            found = self._filesystems[key] = make(path, settings)
            while len(self._filesystems) > _KEPT_FILESYSTEMS:
                self._filesystems.popitem(last=False)
        return found

    def zone(self, spark: SparkSession) -> str:
        """The session's time zone."""
        return str(spark.conf.get("spark.sql.session.timeZone"))

    def root(self, spark: SparkSession, path: str) -> str:
        """A table's root as core and storage know it: absolute, unencoded, local paths without a scheme.

        Raises:
            UnknownSchemeError: no LogStore serves the path's scheme; names the remedy.
        """
        key = (jvm.session_id(spark), path)
        found = self._roots.get(key)
        if found is None:
            if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) and not path.lower().startswith("file:"):
                # Asked first: Hadoop's own error for a filesystem that it lacks says nothing of LogStores.
                log_store_for(path, self.settings(spark))
            found = self._roots[key] = self.local_root(jvm.qualified_path(spark, path))
            while len(self._roots) > _KEPT_PATHS:
                self._roots.popitem(last=False)
        return found

    @staticmethod
    def local_root(hadoop_root: str) -> str:
        """A root as Hadoop prints it in the form of `root`."""
        return hadoop_root.removeprefix("file://").removeprefix("file:")

    @staticmethod
    def hadoop_root(root: str) -> str:
        """The root with its scheme, whatever Hadoop's default filesystem is."""
        return f"file:{root}" if root.startswith("/") else root


def _own_version() -> str:
    try:
        return version("lakelog")
    except PackageNotFoundError:
        return "unknown"
