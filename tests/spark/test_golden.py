"""The tables that other implementations wrote, read through Spark at every version that their manifest lists.

The manifest stands in ../shared/golden beside a maintainer's clone; without it these tests skip and say so.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelog.core.errors import LakelogError, UnsupportedFeatureError, VersionNotFoundError

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"

# Tables that need a reader feature which is not implemented: refused by exactly these names. The list shrinks; an entry whose
# table reads at every version fails until it is struck off.
NOT_YET: dict[str, set[str]] = {}

Table = dict[str, Any]


def load_tables() -> list[Any]:
    if not (GOLDEN / "manifest.json").is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"{GOLDEN} is absent: it stands beside a maintainer's clone only"))]
    return [pytest.param(table, id=table["name"]) for table in json.loads((GOLDEN / "manifest.json").read_text())["tables"]]


TABLES = load_tables()


@pytest.fixture(scope="module")
def session(delta: SparkSession) -> Iterator[SparkSession]:
    """In UTC, as the manifest's hashes are."""
    before = str(delta.conf.get("spark.sql.session.timeZone"))
    delta.conf.set("spark.sql.session.timeZone", "UTC")
    yield delta
    delta.conf.set("spark.sql.session.timeZone", before)


def plain(value: object, kind: pa.DataType) -> object:
    """A value in the manifest's JSON form."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        number = cast(float, value)
        return number if math.isfinite(number) else "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if pa.types.is_decimal(kind):
        exact = cast(Decimal, value)
        return f"{abs(exact) if exact == 0 else exact:.{kind.scale}f}"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return cast(bytes, value).hex()
    if pa.types.is_date(kind):
        return (cast(date, value) - date(1970, 1, 1)).days
    if pa.types.is_timestamp(kind):
        stamp = cast(datetime, value)
        since = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if pa.types.is_struct(kind):
        parts = cast(dict[str, object], value)
        return [plain(parts[field.name], field.type) for field in kind]
    if pa.types.is_map(kind):
        pairs = [[plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in cast(list[tuple[object, object]], value)]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0], separators=(",", ":")))
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in cast(list[object], value)]
    return value


def texts(table: pa.Table) -> list[bytes]:
    columns = [[plain(v, column.type) for v in column.to_pylist()] for column in table.columns]
    return sorted(json.dumps(row, separators=(",", ":")).encode() for row in zip(*columns, strict=True))


def sha256(rows: list[bytes]) -> str:
    return hashlib.sha256(b"".join(row + b"\n" for row in rows)).hexdigest()


def read(session: SparkSession, table: Table, version: str) -> pa.Table:
    return session.read.format("delta").option("versionAsOf", version).load(str(GOLDEN / table["folder"])).toArrow()


def check_version(session: SparkSession, table: Table, version: str, expected: dict[str, Any]) -> None:
    """One version against the manifest.

    Raises:
        UnsupportedFeatureError: the version is refused.
    """
    if expected["expect"] == "rows":
        rows = texts(read(session, table, version))
        assert (len(rows), sha256(rows)) == (expected["rows"], expected["sha256"]), f"version {version}"
        return
    try:
        read(session, table, version)
    except UnsupportedFeatureError:
        raise
    except (LakelogError, PySparkException):
        return
    pytest.fail(f"version {version}: its data files are not all there, yet it read")


@pytest.mark.parametrize("table", TABLES)
def test_every_listed_version(session: SparkSession, table: Table) -> None:
    if table["expect"] == "error":
        with pytest.raises(LakelogError) as caught:
            session.read.format("delta").load(str(GOLDEN / table["folder"])).toArrow()
        if "feature" in table["error"]["why"]:
            assert isinstance(caught.value, UnsupportedFeatureError)
            assert any(feature in table["error"]["why"] for feature in caught.value.features)
        return
    refused: set[str] = set()
    for version, expected in table["versions"].items():
        try:
            check_version(session, table, version, expected)
        except UnsupportedFeatureError as error:
            refused |= set(error.features)
    assert refused == NOT_YET.get(table["name"], set())


@pytest.mark.parametrize("table", TABLES)
def test_versions_that_cannot_be_rebuilt(session: SparkSession, table: Table) -> None:
    latest = table["latest_version"]
    if table["expect"] == "error":
        pytest.skip("the table is refused at every version")
    for version in [latest + 1, *(version for low, high in table.get("unavailable_versions", []) for version in range(low, high + 1))]:
        with pytest.raises(VersionNotFoundError) as caught:
            read(session, table, str(version))
        assert (caught.value.asked, caught.value.latest) == (version, latest)


def test_every_entry_of_the_list_is_a_table(golden: Path) -> None:
    names = {table["name"] for table in json.loads((golden / "manifest.json").read_text())["tables"]}
    assert NOT_YET.keys() <= names
