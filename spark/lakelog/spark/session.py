"""Serving Delta in a Spark session: `enable` and `disable`."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from lakelog.core.errors import SessionNotEnabledError, StoreConfigurationError
from lakelog.spark import jvm
from lakelog.spark.context import Context
from lakelog.spark.front_door import CLOSED, Channel, FrontDoor
from lakelog.storage.environment import Environment


@dataclass(slots=True)
class _Driver:
    """What one JVM holds: the shells, the door and the sessions that are enabled.

    Attributes:
        enabled: ids of the enabled sessions, each with its setting of the session catalog before.
        contexts_catalog: the same setting of the SparkContext, from which new sessions start, before any session was enabled.
    """

    jvm: jvm.Jvm
    context: Context
    door: FrontDoor
    channel: Channel
    application: str
    enabled: dict[str, str | None] = field(default_factory=dict)
    contexts_catalog: str | None = None


_log = logging.getLogger(__name__)
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
        if not driver.enabled:
            driver.contexts_catalog = driver.jvm.context_conf(spark, jvm.CATALOG_KEY)
        if catalog == jvm.CATALOG_CLASS:
            # a session made after another one was enabled starts from what that one told the SparkContext
            catalog = driver.contexts_catalog
        if driver.jvm.has_delta_spark:
            _log.warning('delta-spark\'s jar is in this session and keeps the name delta; lakelog serves format("lakelog") and DeltaTable')
        else:
            spark.conf.set(jvm.CATALOG_KEY, jvm.CATALOG_CLASS)
            driver.jvm.set_context_conf(spark, jvm.CATALOG_KEY, jvm.CATALOG_CLASS)
        driver.door.open = True
        driver.jvm.set_door(driver.channel, CLOSED)
        driver.jvm.enabled_clone(spark)
        driver.context.add(spark)
        driver.enabled[jvm.session_id(spark)] = catalog
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
        catalog = driver.enabled.pop(identity)
        if not driver.enabled:
            driver.jvm.set_context_conf(spark, jvm.CATALOG_KEY, driver.contexts_catalog)
        driver.jvm.plain_clone(spark)
        # after the clone, which takes over what the SparkContext says
        _restore(spark, catalog)
        driver.context.remove(identity)
        driver.door.disabled.add(jvm.session_id(spark))
        if not driver.enabled:
            driver.jvm.set_door(None, CLOSED)
            driver.jvm.forget_files()
            driver.door.close()
        return spark


def context_of(spark: SparkSession) -> Context:
    """The shared parts behind an enabled session.

    Raises:
        SessionNotEnabledError: the session is not enabled.
    """
    with _lock:
        driver = _driver
        if driver is None or not driver.enabled or driver.application != spark.sparkContext.applicationId:
            raise SessionNotEnabledError(CLOSED)
        if jvm.session_id(spark) in driver.door.disabled:
            raise SessionNotEnabledError(CLOSED)
        return driver.context


def _driver_of(spark: SparkSession) -> _Driver:
    """The driver's shells, made at the first call and again for a new application, whose class folder is a new one."""
    global _driver
    application = str(spark.sparkContext.applicationId)
    if _driver is None or _driver.application != application or not _driver.jvm.is_current():
        shells = jvm.Jvm(spark)
        context = Context(spark, Environment.system(), shells.session)
        door = FrontDoor(context, shells.secret)
        _driver = _Driver(jvm=shells, context=context, door=door, channel=Channel(door), application=application)
        jvm.install_error_translation(door.error, door.explained)
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


def _restore(spark: SparkSession, catalog: str | None) -> None:
    if catalog is None:
        spark.conf.unset(jvm.CATALOG_KEY)
    else:
        spark.conf.set(jvm.CATALOG_KEY, catalog)
