"""Physical names and ids: who gets them, and what is said under them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from lakelog.core.actions import Protocol
from lakelog.core.column_mapping import (
    MappingMode,
    column_id,
    mapping_mode,
    max_column_id,
    physical_columns,
    physical_name,
    physical_path,
    physical_paths,
    physical_predicate,
    physical_schema,
    with_mapping,
)
from lakelog.core.errors import ColumnNotFoundError, CorruptLogError, InvalidTablePropertyError
from lakelog.core.field_metadata import COLUMN_ID, CURRENT_DEFAULT, PARQUET_FIELD_ID, PHYSICAL_NAME, TYPE_CHANGES
from lakelog.core.predicates import (
    TRUE,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Predicate,
    StartsWith,
    Unknown,
    conjunction,
    disjunction,
)
from lakelog.core.records import JSON
from lakelog.core.schema import ArrayType, MapType, PrimitiveType, StructField, StructType, walk

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
FEATURE = ("columnMapping",)
NONE, NAME, ID = MappingMode.NONE, MappingMode.NAME, MappingMode.ID


def uuids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"u{next(numbers)}"


def fields(*pairs: tuple[str, object]) -> StructType:
    return StructType(tuple(StructField(name, data_type) for name, data_type in pairs))  # type: ignore[arg-type]


PLAIN = fields(
    ("a", LONG),
    ("s", fields(("x", LONG), ("y", STRING))),
    ("l", ArrayType(fields(("x", LONG)))),
    ("m", MapType(fields(("k", STRING)), fields(("v", ArrayType(LONG))))),
)
MAPPED, HIGHEST = with_mapping(PLAIN, max_id=0, new_uuid=uuids(), keep_names=False)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features=("columnMapping",)), NONE),
        (Protocol(min_reader_version=2, min_writer_version=5), NAME),
        (Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=()), NONE),
        (
            Protocol(min_reader_version=3, min_writer_version=7, reader_features=("columnMapping",), writer_features=("columnMapping",)),
            NAME,
        ),
    ],
)
def test_the_property_counts_where_the_protocol_supports_the_feature(protocol: Protocol, expected: MappingMode) -> None:
    assert mapping_mode(protocol, {"delta.columnMapping.mode": "name"}) is expected
    assert mapping_mode(protocol, {}) is NONE


def test_a_mode_that_is_none_is_an_error_where_it_counts() -> None:
    configuration = {"delta.columnMapping.mode": "sideways"}
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.columnMapping\.mode is .sideways"):
        mapping_mode(Protocol(min_reader_version=2, min_writer_version=5), configuration)
    assert mapping_mode(Protocol(min_reader_version=1, min_writer_version=2), configuration) is NONE


def test_every_field_gets_an_id_and_a_name_a_struct_before_its_parts() -> None:
    assert HIGHEST == max_column_id(MAPPED) == 9
    assert [(path, column_id(field), physical_name(field)) for path, field in walk(MAPPED)] == [
        (("a",), 1, "col-u1"),
        (("s",), 2, "col-u2"),
        (("s", "x"), 3, "col-u3"),
        (("s", "y"), 4, "col-u4"),
        (("l",), 5, "col-u5"),
        (("l", "element", "x"), 6, "col-u6"),
        (("m",), 7, "col-u7"),
        (("m", "key", "k"), 8, "col-u8"),
        (("m", "value", "v"), 9, "col-u9"),
    ]


def test_a_table_with_files_keeps_its_names() -> None:
    kept, highest = with_mapping(PLAIN, max_id=0, new_uuid=uuids(), keep_names=True)
    assert highest == 9
    assert all(physical_name(field) == field.name for _, field in walk(kept))
    assert [f.name for _, f in walk(physical_schema(kept, NAME))] == [f.name for _, f in walk(PLAIN)]


def test_new_fields_of_a_mapped_table_get_ids_above_all_that_were_ever_given() -> None:
    wider = StructType((*MAPPED.fields, StructField("new", LONG, True, {"comment": "c"})))
    made, highest = with_mapping(wider, max_id=20, new_uuid=lambda: "n", keep_names=False)
    assert highest == 21
    assert made.fields[:-1] == MAPPED.fields
    assert made.fields[-1].metadata == {"comment": "c", COLUMN_ID: 21, PHYSICAL_NAME: "col-n"}
    # The property lags behind, as after a write by a careless client: an id is never given twice.
    assert with_mapping(wider, max_id=0, new_uuid=lambda: "n", keep_names=False)[1] == HIGHEST + 1


def test_mapping_a_mapped_schema_changes_nothing() -> None:
    assert with_mapping(MAPPED, max_id=HIGHEST, new_uuid=uuids(), keep_names=False) == (MAPPED, HIGHEST)


def test_the_physical_schema_has_names_and_ids_at_any_depth() -> None:
    physical = physical_schema(MAPPED, NAME)
    assert [(path, dict(field.metadata)) for path, field in walk(physical)] == [
        (("col-u1",), {PARQUET_FIELD_ID: 1}),
        (("col-u2",), {PARQUET_FIELD_ID: 2}),
        (("col-u2", "col-u3"), {PARQUET_FIELD_ID: 3}),
        (("col-u2", "col-u4"), {PARQUET_FIELD_ID: 4}),
        (("col-u5",), {PARQUET_FIELD_ID: 5}),
        (("col-u5", "element", "col-u6"), {PARQUET_FIELD_ID: 6}),
        (("col-u7",), {PARQUET_FIELD_ID: 7}),
        (("col-u7", "key", "col-u8"), {PARQUET_FIELD_ID: 8}),
        (("col-u7", "value", "col-u9"), {PARQUET_FIELD_ID: 9}),
    ]
    assert physical == physical_schema(MAPPED, ID)
    assert physical_schema(MAPPED, NONE) is MAPPED


def test_of_other_metadata_only_type_changes_reach_the_files() -> None:
    changes = [{"fromType": "integer", "toType": "long"}]
    field = StructField("a", LONG, False, {CURRENT_DEFAULT: "1", TYPE_CHANGES: changes, PHYSICAL_NAME: "p", "comment": "c"})
    assert physical_schema(StructType((field,)), NAME) == StructType((StructField("p", LONG, False, {TYPE_CHANGES: changes}),))


def test_names_and_paths() -> None:
    assert physical_columns(MAPPED, ["S", "a"], NAME) == ("col-u2", "col-u1")
    assert physical_columns(MAPPED, ["S", "a"], NONE) == ("S", "a")
    assert physical_path(MAPPED, ("m", "value", "v", "element"), ID) == ("col-u7", "value", "col-u9", "element")
    assert physical_path(MAPPED, ("no", "such"), NONE) == ("no", "such")


def test_paths_in_a_users_spelling() -> None:
    asked = [("S", "X"), ("s",), ("gone",), ("a", "b"), ("m", "key"), ("A",)]
    assert physical_paths(MAPPED, asked, NAME) == (("col-u2", "col-u3"), ("col-u2",), ("col-u1",))
    assert physical_paths(MAPPED, asked, NONE) == tuple(asked)


@pytest.mark.parametrize("path", [("b",), ("s", "z"), ("a", "x"), ("l", "x"), ("m", "element")])
def test_what_is_not_there_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(ColumnNotFoundError, match=r"\.".join(path)):
        physical_path(MAPPED, path, NAME)


def test_an_unknown_column_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ColumnNotFoundError, match="no column b; there are: a, s, l, m"):
        physical_columns(MAPPED, ["a", "b"], NAME)


def test_a_predicate_speaks_physically_in_every_part() -> None:
    one, nested = Column(("a",)), Column(("s", "y"))
    predicate: Predicate = conjunction(
        Comparison("<", one, Literal(1, LONG)),
        disjunction(StartsWith(nested, "x"), Not(In(one, (Literal(2, LONG),)))),
        Not(IsNull(nested)),
        Unknown("f"),
        TRUE,
    )
    physical_one, physical_nested = Column(("col-u1",)), Column(("col-u2", "col-u4"))
    assert physical_predicate(predicate, MAPPED, NAME) == conjunction(
        Comparison("<", physical_one, Literal(1, LONG)),
        disjunction(StartsWith(physical_nested, "x"), Not(In(physical_one, (Literal(2, LONG),)))),
        Not(IsNull(physical_nested)),
        Unknown("f"),
        TRUE,
    )
    assert physical_predicate(predicate, MAPPED, NONE) is predicate
    with pytest.raises(ColumnNotFoundError):
        physical_predicate(IsNull(Column(("gone",))), MAPPED, NAME)


@pytest.mark.parametrize("key", [COLUMN_ID, PHYSICAL_NAME])
@pytest.mark.parametrize("value", [True, "", 1.5, -1, 2**31, [], {}])
def test_damaged_metadata_is_told(key: str, value: JSON) -> None:
    damaged = StructType((StructField("a", LONG, True, {key: value}),))
    with pytest.raises(CorruptLogError, match="a is "):
        physical_schema(damaged, NAME)
