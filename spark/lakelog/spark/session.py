"""Serving Delta in a Spark session: `enable` and `disable`."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from lakelog.core.errors import SessionNotEnabledError, StoreConfigurationError
from lakelog.spark import jvm
from lakelog.spark.context import Context
from lakelog.spark.front_door import CLOSED, FrontDoor
from lakelog.storage.environment import Environment


@dataclass(slots=True)
class _Driver:
    """What one JVM holds: the shells, the door and the sessions that are enabled."""

    jvm: jvm.Jvm
    context: Context
    door: FrontDoor
    application: str
    enabled: dict[str, _Enabled] = field(default_factory=dict)


@dataclass(slots=True)
class _Enabled:
    session: weakref.ref[SparkSession]
    builders: list[tuple[str, Any]]
    catalog: str | None
    contexts_catalog: str | None


_lock = threading.RLock()
_driver: _Driver | None = None


def enable(spark: SparkSession) -> SparkSession:
    """Serve Delta tables in this session: ``format("delta")``, ``delta.`path` `` in SQL, time travel, DELETE.

    The session may already be in use: conf, temporary views and functions are kept. Calling it again changes nothing. Settings of
    delta-spark (``spark.sql.extensions`` and ``spark.sql.catalog.spark_catalog``) are replaced where its jar is absent; where it is
    present the name ``delta`` stays its own and lakelog serves ``format("lakelog")``.

    Args:
        spark: a classic Spark session, 4.0 to 4.3.

    Returns:
        The same session object.

    Raises:
        UnsupportedOperationError: a Spark Connect session, or an unsupported Spark minor.
        StoreConfigurationError: another extension holds ``spark_catalog``.
    """
    with _lock:
        jvm.jsession(spark)
        driver = _driver_of(spark)
        if jvm.session_id(spark) in driver.enabled:
            return spark
        catalog = _catalog_to_replace(spark, driver.jvm)
        contexts = driver.jvm.context_conf(spark, jvm.CATALOG_KEY)
        if not driver.jvm.has_delta_spark:
            spark.conf.set(jvm.CATALOG_KEY, jvm.CATALOG_CLASS)
            driver.jvm.set_context_conf(spark, jvm.CATALOG_KEY, jvm.CATALOG_CLASS)
        driver.jvm.set_door(driver.door, CLOSED)
        builders = driver.jvm.enabled_clone(spark)
        driver.context.add(spark)
        driver.enabled[jvm.session_id(spark)] = _Enabled(
            session=weakref.ref(spark), builders=builders, catalog=catalog, contexts_catalog=contexts
        )
        return spark


def disable(spark: SparkSession) -> SparkSession:
    """Take `enable` back: rules, strategies and catalog are as before, and ``delta`` fails with one message.

    Conf, temporary views and functions of the session are kept. A session that is not enabled is left as it is.
    """
    with _lock:
        driver = _driver
        identity = jvm.session_id(spark)
        if driver is None or identity not in driver.enabled:
            return spark
        enabled = driver.enabled.pop(identity)
        _restore(spark, enabled)
        driver.jvm.set_context_conf(spark, jvm.CATALOG_KEY, enabled.contexts_catalog)
        driver.jvm.take_back(spark, enabled.builders)
        driver.jvm.point_at_clone(spark)
        driver.context.remove(identity)
        if not driver.enabled:
            driver.jvm.set_door(None, CLOSED)
            driver.door.close()
        return spark


def context_of(spark: SparkSession) -> Context:
    """The shared parts behind an enabled session.

    Raises:
        SessionNotEnabledError: the session is not enabled.
    """
    with _lock:
        if _driver is None or not _driver.enabled or _driver.application != spark.sparkContext.applicationId:
            raise SessionNotEnabledError(CLOSED)
        return _driver.context


def _driver_of(spark: SparkSession) -> _Driver:
    """The driver's shells, made at the first call and again for a new application, whose class folder is a new one."""
    global _driver
    application = str(spark.sparkContext.applicationId)
    if _driver is None or _driver.application != application or not _driver.jvm.is_current():
        shells = jvm.Jvm(spark)
        context = Context(spark, Environment.system())
        door = FrontDoor(context, shells.secret)
        _driver = _Driver(jvm=shells, context=context, door=door, application=application)
        jvm.install_error_translation(door.error, door.missing_file)
    return _driver


def _catalog_to_replace(spark: SparkSession, shells: jvm.Jvm) -> str | None:
    """The session's catalog setting, to be put back by `disable`.

    Raises:
        StoreConfigurationError: it names another extension's catalog.
    """
    found = spark.conf.get(jvm.CATALOG_KEY, None)
    if shells.has_delta_spark or found in (None, "builtin", jvm.CATALOG_CLASS, jvm.DELTA_SPARK_CATALOG):
        return found
    raise StoreConfigurationError(
        f"{jvm.CATALOG_KEY} is set to {found}; lakelog does not displace another extension's catalog. "
        "Give that extension a catalog name of its own (spark.sql.catalog.<name>), unset the key, and call enable again."
    )


def _restore(spark: SparkSession, enabled: _Enabled) -> None:
    if enabled.catalog is None:
        spark.conf.unset(jvm.CATALOG_KEY)
    else:
        spark.conf.set(jvm.CATALOG_KEY, enabled.catalog)
