"""Options of Spark's Parquet writer as pyarrow's writer takes them.

What only makes files smaller or faster to read, such as bloom filters, is left aside where pyarrow has nothing like it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidOptionError, UnsupportedOperationError

_log = logging.getLogger(__name__)

_EXTENSIONS = {"none": "", "snappy": ".snappy", "gzip": ".gz", "zstd": ".zstd", "brotli": ".br", "lz4": ".lz4raw"}
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
# Those that Spark's writer takes where nobody says another; Arrow's own are 9 and 1.
_LEVELS = {"gzip": 6, "zstd": 3}
_CODEC_CONF = "spark.sql.parquet.compression.codec"
_MAX_ROWS_CONF = "spark.sql.files.maxRecordsPerFile"
_GROUP_BYTES = 128 << 20
# pyarrow's own limit.
_GROUP_ROWS = 64 << 20
# To write in the clear what somebody wants encrypted would be worse than not to write it.
_ENCRYPTION = ("parquet.encryption.footer.key", "parquet.encryption.column.keys", "parquet.encryption.uniform.key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    """How files are written.

    Attributes:
        extension: of their names.
        parquet: arguments of `pq.ParquetWriter`.
        group_bytes: of a row group, in memory.
        group_rows: of a row group.
        max_rows: of a file; None where there is no limit.
    """

    extension: str
    parquet: Mapping[str, Any]
    group_bytes: int
    group_rows: int
    max_rows: int | None

    @classmethod
    def of(cls, spark: SparkSession, root: str, options: Mapping[str, str]) -> ParquetSettings:
        """From the write's options, else the session's and Hadoop's conf, as Spark's writer finds them."""
        session = spark.conf.getAll
        confs = {name.removeprefix("spark.hadoop.").lower(): value for name, value in session.items()}
        told = {
            **{name: value for name, value in confs.items() if name.startswith("parquet.")},
            **{name.lower(): value for name, value in options.items()},
        }
        refused = next((name for name in _ENCRYPTION if told.get(name)), None)
        if refused is not None:
            raise UnsupportedOperationError(
                f"Delta table {root}: {refused} asks for encrypted Parquet files, which the Arrow engine does not write. Set "
                "spark.lakelog.engine=native where Hadoop has a client for the table's filesystem, or unset it."
            )
        codec = _codec(root, told.get("compression") or options.get("parquet.compression") or str(session.get(_CODEC_CONF, "snappy")))
        found: dict[str, Any] = {}
        for name, value in told.items():
            target = _TARGETS.get(name)
            if target is not None:
                found[target[0]] = _parsed(root, name, value, target[1])
            elif name in options and name not in ("compression", "parquet.compression", "maxrecordsperfile"):
                _log.debug("Delta table %s: the Arrow engine has nothing like the option %s, which is left aside", root, name)
        levels = {**_LEVELS, "zstd": found.pop("zstd_level", _LEVELS["zstd"])}
        limit = int(told.get("maxrecordsperfile") or session.get(_MAX_ROWS_CONF, "0"))
        group_bytes, group_rows = found.pop("group_bytes", _GROUP_BYTES), found.pop("group_rows", _GROUP_ROWS)
        if "max_rows_per_page" in found and "max_rows_per_page" not in _KNOWN_ARGUMENTS:
            del found["max_rows_per_page"]
        return cls(
            extension=f"{_EXTENSIONS[codec]}.parquet",
            parquet={
                "compression": codec,
                "compression_level": levels.get(codec),
                "store_decimal_as_integer": True,
                "write_page_index": True,
                "write_page_checksum": True,
                **found,
            },
            group_bytes=group_bytes,
            group_rows=min(group_rows, _GROUP_ROWS),
            max_rows=limit if limit > 0 else None,
        )


_KNOWN_ARGUMENTS = inspect.signature(pq.ParquetWriter.__init__).parameters


def _codec(root: str, given: str) -> str:
    """A codec under pyarrow's name for it."""
    codec = _CODECS.get(given.lower(), given.lower())
    if codec not in _EXTENSIONS or (codec != "none" and not cast(Any, pa.Codec).is_available(codec)):
        raise UnsupportedOperationError(
            f"Delta table {root}: the Arrow engine has no codec {given}. Choose snappy, zstd, gzip, lz4_raw or none by the option "
            "compression or delta.parquet.compression.codec."
        )
    return codec


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _page_version(text: str) -> str:
    return {"v1": "1.0", "parquet_1_0": "1.0", "v2": "2.0", "parquet_2_0": "2.0"}[text.strip().lower()]


# Option in lower case -> what it is for pyarrow, and how it is read.
_TARGETS: dict[str, tuple[str, Callable[[str], object]]] = {
    "parquet.block.size": ("group_bytes", _positive),
    "parquet.block.row.count.limit": ("group_rows", _positive),
    "parquet.page.size": ("data_page_size", _positive),
    "parquet.page.row.count.limit": ("max_rows_per_page", _positive),
    "parquet.dictionary.page.size": ("dictionary_pagesize_limit", _positive),
    "parquet.enable.dictionary": ("use_dictionary", _flag),
    "parquet.writer.version": ("data_page_version", _page_version),
    "parquet.page.write-checksum.enabled": ("write_page_checksum", _flag),
    "parquet.column.statistics.enabled": ("write_statistics", _flag),
    "parquet.compression.codec.zstd.level": ("zstd_level", int),
}


def _parsed(root: str, name: str, value: str, parse: Callable[[str], object]) -> object:
    try:
        return parse(value)
    except (ValueError, KeyError):
        raise InvalidOptionError(
            f"Delta table {root}: {name} has the value {value!r}, which Parquet writers do not understand. Correct or unset it."
        ) from None
