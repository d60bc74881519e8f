"""Which engine reads and writes a table's data files: Spark's own Parquet code through Hadoop, or Arrow in the executors' Python.

`spark.lakelog.engine`, a conf of the session, is ``auto`` (the default), ``native`` or ``arrow``. ``auto`` means native where the driver's
JVM has a Hadoop filesystem for the table's scheme, as it always has for ``file`` and ``hdfs``, and Arrow elsewhere. The log is read and
written by lakelog's own LogStore either way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakelog.core.errors import InvalidOptionError, StoreConfigurationError
from lakelog.storage.registry import scheme_of

ENGINE_CONF = "spark.lakelog.engine"
AUTO = "auto"

# Hadoop's client, which Spark ships, has these itself.
_ALWAYS_THERE = frozenset({"file", "hdfs", "viewfs", "webhdfs"})
_JARS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "wasb": "hadoop-azure", "wasbs": "hadoop-azure"}


class Engine(StrEnum):
    """What reads and writes data files."""

    NATIVE = "native"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Which engine serves, and why.

    Attributes:
        engine: that serves.
        reason: half a sentence for users, such as ``the driver's JVM has org.apache.hadoop.fs.s3a.S3AFileSystem``.
    """

    engine: Engine
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HadoopFilesystem:
    """What a JVM knows of a scheme.

    Attributes:
        name: the class of its filesystem; None where there is none that loads.
        fault: why it does not load; "" where it does.
        hadoop: Hadoop's release.
    """

    name: str | None
    fault: str
    hadoop: str


def choose(asked: str, root: str, probe: Callable[[str], HadoopFilesystem]) -> EngineChoice:
    """The engine for a table.

    Args:
        asked: the conf's value.
        root: of the table, as `Context.root` gives it.
        probe: looks for the filesystem of a scheme in the driver's JVM; not called where it is known to be there or not needed.

    Raises:
        InvalidOptionError: the conf has no such value.
        StoreConfigurationError: the native engine is asked for by name, and the JVM has no filesystem for the scheme.
    """
    wanted = asked.strip().lower() or AUTO
    if wanted not in (AUTO, *Engine):
        raise InvalidOptionError(f"Delta table {root}: {ENGINE_CONF} must be {AUTO}, {' or '.join(Engine)}, not {asked!r}.")
    scheme = scheme_of(root)
    if wanted == Engine.ARROW:
        return EngineChoice(engine=Engine.ARROW, reason=f"{ENGINE_CONF} is {Engine.ARROW}")
    if scheme in _ALWAYS_THERE:
        why = f"{ENGINE_CONF} is {Engine.NATIVE}" if wanted == Engine.NATIVE else f"Spark reads {scheme} itself"
        return EngineChoice(engine=Engine.NATIVE, reason=why)
    found = probe(scheme)
    if found.name is not None:
        why = f"{ENGINE_CONF} is {Engine.NATIVE}" if wanted == Engine.NATIVE else f"the driver's JVM has {found.name}"
        return EngineChoice(engine=Engine.NATIVE, reason=why)
    if wanted == AUTO:
        return EngineChoice(engine=Engine.ARROW, reason=f"the driver's JVM has no Hadoop filesystem for {scheme}: {found.fault}")
    jar = _JARS.get(scheme)
    remedy = (
        f"Put {jar} {found.hadoop} and the jars that it needs on spark.jars"
        if jar is not None
        else "Put the jars of that filesystem's Hadoop client on spark.jars"
    )
    raise StoreConfigurationError(
        f"Delta table {root}: {ENGINE_CONF} is {Engine.NATIVE}, but the driver's JVM has no Hadoop filesystem for {scheme}: {found.fault}. "
        f"{remedy} before the session starts, or set {ENGINE_CONF}={Engine.ARROW}, which needs no jar."
    )


def missing_entries(wanted: Mapping[str, str], given: Mapping[str, str], bucket: str) -> dict[str, str]:
    """What is to be put into Hadoop's conf so that the native engine reaches a bucket as lakelog's own store does.

    Only what the user has not told Hadoop is filled in, and for this bucket alone. Who asks is one thing: where Hadoop was told of any
    credentials, none are added.

    Args:
        wanted: ``fs.s3a.*`` entries that say what lakelog was told.
        given: entries that the user gave Hadoop.
    """
    own = f"{_S3A}bucket.{bucket}."
    said = {key.removeprefix(own) if key.startswith(own) else key.removeprefix(_S3A) for key in given}
    names = {key.removeprefix(_S3A): value for key, value in wanted.items() if not key.endswith(_WAITS)}
    identified = any(_IDENTITY.match(name) for name in said)
    return {own + name: value for name, value in names.items() if not (identified if _IDENTITY.match(name) else name in said)}


_S3A = "fs.s3a."
_IDENTITY = re.compile(r"access\.key|secret\.key|session\.token|aws\.credentials\.provider|assumed\.role\.")
# How long Hadoop waits is its own affair.
_WAITS = (".timeout",)
