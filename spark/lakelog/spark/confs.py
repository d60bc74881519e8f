"""Session confs under delta-spark's names, and under our own: ``spark.databricks.delta.X`` and ``spark.lakelog.X``."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidOptionError

PREFIXES = ("spark.databricks.delta.", "spark.lakelog.")


def session_conf(spark: SparkSession, root: str, name: str) -> str | None:
    """The session's value for a conf, by its name after the prefix: ``schema.autoMerge.enabled``.

    Args:
        root: the table that it is asked for, for the message.

    Raises:
        InvalidOptionError: the two spellings give two values.
    """
    found = [str(value) for prefix in PREFIXES if (value := spark.conf.get(prefix + name, None)) is not None]
    if len(set(found)) > 1:
        raise InvalidOptionError(
            f"Delta table {root}: the session gives two values for {name}, {found[0]!r} and {found[1]!r}. "
            f"Unset one of {', '.join(prefix + name for prefix in PREFIXES)}."
        )
    return found[0] if found else None


def session_flag(spark: SparkSession, root: str, name: str) -> bool | None:
    """A conf that is on or off; None where the session does not say. The arguments are those of `session_conf`.

    Raises:
        InvalidOptionError: the value is neither true nor false, or the two spellings give two values.
    """
    text = session_conf(spark, root, name)
    return None if text is None else parse_flag(text, f"Delta table {root}: the session conf {PREFIXES[0]}{name}")


def parse_flag(text: str, what: str) -> bool:
    """``true`` or ``false`` in any letter case.

    Raises:
        InvalidOptionError: it is neither.
    """
    if text.lower() not in ("true", "false"):
        raise InvalidOptionError(f"{what} must be true or false, not {text!r}.")
    return text.lower() == "true"


def unset(spark: SparkSession, name: str) -> None:
    """Unset a conf under both spellings."""
    for prefix in PREFIXES:
        spark.conf.unset(prefix + name)
