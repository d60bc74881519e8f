"""Clustering columns: which a table may have, and how the domain holds them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.actions import DomainMetadata
from lakelog.core.clustering import DOMAIN, check_clustering, clustering_columns, clustering_domain, domain_changes
from lakelog.core.errors import (
    ColumnNotFoundError,
    CorruptLogError,
    InvalidRequestError,
    LakelogError,
    PartitionColumnError,
    UnsupportedTypeError,
)
from lakelog.core.field_metadata import COLUMN_ID, PHYSICAL_NAME
from lakelog.core.schema import ArrayType, DataType, DecimalType, PrimitiveType, StructField, StructType

LONG, STRING, BOOLEAN, BINARY = (PrimitiveType(n) for n in ("long", "string", "boolean", "binary"))
ADDRESS = StructType((StructField("City", STRING), StructField("a.b", LONG), StructField("`", LONG)))
SCHEMA = StructType(
    tuple(
        StructField(name, kind)
        for name, kind in {"Id": LONG, "day": PrimitiveType("date"), "price": DecimalType(10, 2), "address": ADDRESS}.items()
    )
)


def checked(*columns: str, schema: StructType = SCHEMA, partition_columns: tuple[str, ...] = (), **configuration: str) -> object:
    properties = {f"delta.{key}": value for key, value in configuration.items()}
    return check_clustering(schema, columns, partition_columns=partition_columns, configuration=properties, table="/t")


def domain(configuration: object) -> dict[str, DomainMetadata]:
    text = configuration if isinstance(configuration, str) else json.dumps(configuration)
    return {DOMAIN: DomainMetadata(domain=DOMAIN, configuration=text, removed=False)}


def mapped(schema: StructType) -> StructType:
    """The same columns with physical names ``p-<name>``."""

    def of(data_type: DataType) -> DataType:
        return mapped(data_type) if isinstance(data_type, StructType) else data_type

    return StructType(tuple(StructField(f.name, of(f.type), True, {COLUMN_ID: 1, PHYSICAL_NAME: f"p-{f.name}"}) for f in schema.fields))


def test_columns_in_the_schemas_own_spelling() -> None:
    assert checked() == ()
    assert checked("ID", " day ", "price") == (("Id",), ("day",), ("price",))
    assert checked("Address.CITY", "address.`a.b`", "address.````") == (("address", "City"), ("address", "a.b"), ("address", "`"))


@pytest.mark.parametrize(
    ("columns", "error", "told"),
    [
        (("id", "gone"), ColumnNotFoundError, ["'gone'", "Id, day, price, address"]),
        (("address.gone",), ColumnNotFoundError, ["'address.gone'"]),
        (("id.city",), ColumnNotFoundError, ["'id.city'"]),
        (("id", "ID"), InvalidRequestError, ["Id is given twice", "Give it once"]),
        (("id,day",), InvalidRequestError, ["'id,day' is no column name", "one name an argument"]),
        (("`id",), InvalidRequestError, ["'`id' is no column name", "backticks"]),
        (("",), InvalidRequestError, ["'' is no column name"]),
        (("id", "day", "price", "address.city", "address.`a.b`"), InvalidRequestError, ["at most 4", "not 5", "address.city", "Leave out"]),
        (("address",), UnsupportedTypeError, ["address of type struct<", "numbers, dates, timestamps or strings"]),
    ],
)
def test_what_cannot_be_clustered_by(columns: tuple[str, ...], error: type[LakelogError], told: list[str]) -> None:
    with pytest.raises(error) as caught:
        checked(*columns)
    assert all(part in str(caught.value) for part in ["Delta table /t", *told])


@pytest.mark.parametrize("kind", [BOOLEAN, BINARY, ArrayType(LONG, True), PrimitiveType("variant")])
def test_types_without_bounds(kind: DataType) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"Delta table /t: it cannot be clustered by c of type .* no bounds"):
        checked("c", schema=StructType((StructField("c", kind),)))


def test_never_with_partitioning() -> None:
    with pytest.raises(PartitionColumnError, match=r"Delta table /t: .*clustered by \(id\) and partitioned by \(day\).*Leave out"):
        checked("id", partition_columns=("day",))
    assert checked(partition_columns=("day",)) == ()


def test_only_columns_with_statistics() -> None:
    with pytest.raises(InvalidRequestError, match=r"(?s)clustered by day, .*delta.dataSkippingNumIndexedCols = 1.*Move the column forward"):
        checked("id", "day", dataSkippingNumIndexedCols="1")
    with pytest.raises(InvalidRequestError, match=r"clustered by Id, .*delta.dataSkippingStatsColumns = day,address\.city"):
        checked("day", "address.city", "id", dataSkippingStatsColumns="day,address.city")
    assert checked("day", dataSkippingStatsColumns="day", dataSkippingNumIndexedCols="0") == (("day",),)
    assert checked("address.city", dataSkippingNumIndexedCols="-1") == (("address", "City"),)


def test_the_domain_as_delta_spark_writes_it() -> None:
    action = clustering_domain(SCHEMA, [("Id",), ("address", "City")])
    assert action.to_json() == {
        "domain": "delta.clustering",
        "configuration": '{"clusteringColumns":[["Id"],["address","City"]],"domainName":"delta.clustering"}',
        "removed": False,
    }
    assert clustering_domain(SCHEMA, []).configuration == '{"clusteringColumns":[],"domainName":"delta.clustering"}'


def test_physical_names_in_the_domain() -> None:
    schema = mapped(SCHEMA)
    action = clustering_domain(schema, [("address", "a.b")])
    assert json.loads(action.configuration)["clusteringColumns"] == [["p-address", "p-a.b"]]
    renamed = StructType(tuple(StructField(f"{f.name}2", f.type, True, f.metadata) for f in schema.fields))
    assert clustering_columns(renamed, {DOMAIN: action}, table="/t") == (("address2", "a.b"),)


PATHS = [("Id",), ("day",), ("price",), ("address", "City"), ("address", "a.b"), ("address", "`")]


@given(columns=st.lists(st.sampled_from(PATHS), unique=True, max_size=4), with_mapping=st.booleans())
def test_columns_come_back_as_they_went(columns: list[tuple[str, ...]], with_mapping: bool) -> None:
    schema = mapped(SCHEMA) if with_mapping else SCHEMA
    assert clustering_columns(schema, {DOMAIN: clustering_domain(schema, columns)}, table="/t") == tuple(columns)


def test_domains_of_other_writers() -> None:
    assert clustering_columns(SCHEMA, {}, table="/t") == ()
    assert clustering_columns(SCHEMA, domain({"clusteringColumns": [["day"]], "more": 1}), table="/t") == (("day",),)


@pytest.mark.parametrize("configuration", ["no json", "[]", "{}", '{"clusteringColumns":3}', '{"clusteringColumns":[["gone"]]}',
                                           '{"clusteringColumns":["Id"]}', '{"clusteringColumns":[["Id","x"]]}'])  # fmt: skip
def test_damaged_domains(configuration: str) -> None:
    with pytest.raises(CorruptLogError, match=r"Delta table /t: the domain delta\.clustering .*Restore the commit"):
        clustering_columns(SCHEMA, domain(configuration), table="/t")


def test_what_a_new_definition_says_of_clustering() -> None:
    before = {DOMAIN: clustering_domain(SCHEMA, [("Id",)]), "user.own": DomainMetadata(domain="user.own", configuration="", removed=False)}
    assert domain_changes({}, SCHEMA, ()) == ()
    assert domain_changes({}, SCHEMA, [("day",)]) == (clustering_domain(SCHEMA, [("day",)]),)
    assert domain_changes(before, SCHEMA, [("Id",)]) == ()
    assert domain_changes(before, SCHEMA, [("day",)]) == (clustering_domain(SCHEMA, [("day",)]),)
    # As delta-spark does: the domain stays, and names no column.
    assert domain_changes(before, SCHEMA, ()) == (clustering_domain(SCHEMA, ()),)
