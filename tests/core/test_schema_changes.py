"""A schema with a column added, dropped, renamed, moved or changed, at any depth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core import schema_changes as changes
from lakelog.core.column_replacement import replaced
from lakelog.core.errors import ColumnNotFoundError, InvalidRequestError, InvalidSchemaError, SchemaMismatchError, UnsupportedOperationError
from lakelog.core.field_metadata import CHAR_VARCHAR_TYPE, COLUMN_ID, COMMENT, IDENTITY_START
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType, walk
from lakelog.core.schema_changes import Position

LONG, INT, SHORT, STRING = PrimitiveType("long"), PrimitiveType("integer"), PrimitiveType("short"), PrimitiveType("string")


def struct(*fields: StructField) -> StructType:
    return StructType(fields)


def column(name: str, kind: DataType = LONG, nullable: bool = True, **metadata: object) -> StructField:
    return StructField(name, kind, nullable, metadata)  # type: ignore[arg-type]


ITEM = struct(column("x", INT), column("Y y"))
SCHEMA = struct(
    column("id", LONG, **{COLUMN_ID: 1}),
    column("Place", struct(column("City", STRING), column("zip.code", STRING))),
    column("items", ArrayType(ITEM, False)),
    column("by_name", MapType(struct(column("k", INT)), struct(column("v", SHORT, False), column("w", INT)))),
)


def names(schema: StructType) -> list[str]:
    return [".".join(path) for path, _ in walk(schema)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("ID", ("id",)),
        ("place.CITY", ("Place", "City")),
        ("place|zip.CODE", ("Place", "zip.code")),
        ("items.Element.y Y", ("items", "element", "Y y")),
        ("BY_NAME.KEY.K", ("by_name", "key", "k")),
        ("by_name.value", ("by_name", "value")),
    ],
)
def test_paths_are_found_in_any_letter_case_and_told_in_the_schema_s(asked: str, found: tuple[str, ...]) -> None:
    path = asked.split("|") if "|" in asked else asked.split(".")
    assert changes.resolved(SCHEMA, path, table="/t") == found
    assert changes.field_at(SCHEMA, found).name == found[-1]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        (("nope",), "id, Place, items, by_name"),
        (("place", "nope"), "in Place: City, zip.code"),
        (("items", "x"), "in items: element"),
        (("by_name", "element"), "in by_name: key, value"),
        (("id", "x"), "in id: none"),
    ],
)
def test_a_path_to_nothing_names_what_there_is(path: tuple[str, ...], there: str) -> None:
    with pytest.raises(ColumnNotFoundError) as caught:
        changes.resolved(SCHEMA, path, table="/t")
    assert str(caught.value).startswith("Delta table /t: there is no column ")
    assert there in str(caught.value)


@pytest.mark.parametrize(
    ("parent", "position", "order"),
    [
        ((), None, ["id", "Place", "items", "by_name", "new"]),
        ((), Position(after=None), ["new", "id", "Place", "items", "by_name"]),
        ((), Position(after="PLACE"), ["id", "Place", "new", "items", "by_name"]),
        (("place",), Position(after="city"), ["City", "new", "zip.code"]),
        (("items", "element"), None, ["x", "Y y", "new"]),
        (("by_name", "key"), Position(after=None), ["new", "k"]),
        (("by_name", "value"), Position(after="v"), ["v", "new", "w"]),
    ],
)
def test_adding(parent: tuple[str, ...], position: Position | None, order: list[str]) -> None:
    made = changes.added(SCHEMA, parent, column("new"), position, table="/t")
    inside = changes.field_at(made, changes.resolved(made, parent, table="/t")).type if parent else made
    assert isinstance(inside, StructType)
    assert list(inside.names) == order
    assert changes.dropped(made, (*parent, "NEW"), table="/t") == SCHEMA


@pytest.mark.parametrize(
    ("parent", "name", "position", "error", "told"),
    [
        ((), "ID", None, InvalidSchemaError, "there is a column ID already"),
        (("place",), "city", None, InvalidSchemaError, "there is a column Place.city already"),
        ((), "new", Position(after="nope"), ColumnNotFoundError, "after nope, which is not there; there are: id, Place"),
        (("items",), "new", None, UnsupportedOperationError, "those in an array are below items.element"),
        (("id",), "new", None, UnsupportedOperationError, "id is of type long, not a struct"),
        (("nope",), "new", None, ColumnNotFoundError, "there is no column nope"),
    ],
)
def test_what_cannot_be_added(
    parent: tuple[str, ...], name: str, position: Position | None, error: type[InvalidRequestError], told: str
) -> None:
    with pytest.raises(error) as caught:
        changes.added(SCHEMA, parent, column(name), position, table="/t")
    assert str(caught.value).startswith("Delta table /t: ")
    assert told in str(caught.value)


def test_dropping_leaves_a_struct_with_one_field_at_least() -> None:
    assert "Place.zip.code" not in names(changes.dropped(SCHEMA, ("PLACE", "zip.code"), table="/t"))
    with pytest.raises(
        UnsupportedOperationError, match=r"Delta table /t: by_name\.key\.k is the last column left of by_name\.key, .* Drop by_name"
    ):
        changes.dropped(SCHEMA, ("by_name", "key", "k"), table="/t")
    with pytest.raises(UnsupportedOperationError, match="Delta table /t: a is the last column left of the table, which must keep one"):
        changes.dropped(struct(column("a")), ("a",), table="/t")
    with pytest.raises(UnsupportedOperationError, match=r"column items\.element cannot be dropped, for items is of type array"):
        changes.dropped(SCHEMA, ("items", "element"), table="/t")


def test_a_renamed_column_keeps_its_place_and_all_that_it_carries() -> None:
    made = changes.renamed(SCHEMA, ("ID",), "ident", table="/t")
    assert made.fields == (replace(SCHEMA.fields[0], name="ident"), *SCHEMA.fields[1:])
    nested = changes.renamed(SCHEMA, ("items", "element", "X"), "x", table="/t")
    assert nested == SCHEMA
    with pytest.raises(InvalidSchemaError, match=r"column id cannot be renamed to place, for there is such a column already\. Choose"):
        changes.renamed(SCHEMA, ("id",), "place", table="/t")
    with pytest.raises(UnsupportedOperationError, match=r"column by_name\.value cannot be renamed, for by_name is of type map"):
        changes.renamed(SCHEMA, ("by_name", "value"), "v", table="/t")


@given(st.permutations(["a", "b", "c", "d"]), st.sampled_from("abcd"), st.sampled_from([None, *"abcd"]))
def test_moving_puts_a_column_behind_another_and_leaves_the_others_in_order(order: list[str], name: str, after: str | None) -> None:
    schema = struct(*(column(each) for each in order))
    made = list(changes.moved(schema, (name.upper(),), Position(after=after and after.upper()), table="/t").names)
    others = [each for each in order if each != name]
    assert [each for each in made if each != name] == others
    if after is None:
        assert made[0] == name
    elif after == name:
        assert made == order
    else:
        assert made[made.index(name) - 1] == after


@pytest.mark.parametrize(
    ("old", "new", "widen"),
    [
        (SHORT, INT, False),
        (PrimitiveType("byte"), SHORT, False),
        (INT, LONG, True),
        (PrimitiveType("float"), PrimitiveType("double"), True),
        (DecimalType(10, 2), DecimalType(12, 3), True),
        (INT, DecimalType(10, 0), True),
    ],
)
def test_types_that_widen(old: DataType, new: DataType, widen: bool) -> None:
    before = column("c", old, **{COLUMN_ID: 3})
    assert changes.retyped(before, column("c", new), ("c",), widen=widen, table="/t") == replace(before, type=new)


@pytest.mark.parametrize(
    ("old", "new", "widen", "told"),
    [
        (INT, LONG, False, "'delta.enableTypeWidening' = 'true'"),
        (LONG, INT, True, "Add a column of the new type"),
        (LONG, STRING, True, "would make old files unreadable"),
        (DecimalType(10, 2), DecimalType(10, 3), True, "would make old files unreadable"),
        (ITEM, struct(column("x")), True, "one by one: ALTER COLUMN c.d.x TYPE"),
        (ArrayType(INT), ArrayType(LONG), True, "one by one: ALTER COLUMN c.d.element TYPE"),
        (INT, ArrayType(INT), True, "cannot change from integer to array<integer> as a whole"),
    ],
)
def test_types_that_do_not(old: DataType, new: DataType, widen: bool, told: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        changes.retyped(column("d", old), column("d", new), ("c", "d"), widen=widen, table="/t")
    assert str(caught.value).startswith("Delta table /t: ")
    assert "column c.d " in str(caught.value)
    assert told in str(caught.value)
    assert caught.value.differences == (f"c.d: {old} -> {new}",)


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("varchar(3)", "varchar(3)", True),
        ("varchar(3)", "varchar(9)", True),
        ("char(3)", "varchar(3)", True),
        ("varchar(3)", None, True),
        ("varchar(3)", "varchar(2)", False),
        ("varchar(3)", "char(3)", False),
        ("char(3)", "char(4)", False),
        (None, "varchar(99)", False),
    ],
)
def test_lengths_of_strings_only_grow(old: str | None, new: str | None, fits: bool) -> None:
    before, after = (column("c", STRING, **({} if told is None else {CHAR_VARCHAR_TYPE: told})) for told in (old, new))
    if fits:
        assert changes.retyped(before, after, ("c",), widen=False, table="/t") == after
    else:
        with pytest.raises(SchemaMismatchError, match=r"Delta table /t: column c cannot become .* Give it a length"):
            changes.retyped(before, after, ("c",), widen=False, table="/t")


def test_changes_reach_into_arrays_and_maps() -> None:
    made = changes.changed(SCHEMA, ("items", "element", "x"), lambda field: replace(field, nullable=False))
    assert changes.field_at(made, ("items", "element", "x")).nullable is False
    widened = changes.changed(SCHEMA, ("by_name", "value", "v"), lambda field: replace(field, type=INT))
    assert changes.field_at(widened, ("by_name", "value", "v")).type == INT
    whole = changes.changed(struct(column("m", MapType(INT, SHORT))), ("m", "key"), lambda field: replace(field, type=LONG, nullable=True))
    assert whole.fields[0].type == MapType(LONG, SHORT)


@pytest.mark.parametrize(
    ("reference", "path", "depends"),
    [
        ("ID", "id", True),
        ("place.city", "Place", True),
        ("place.city", "Place.City", True),
        ("place", "Place.City", False),
        ("place.zip", "Place.City", False),
        ("identity", "id", False),
        ("items", "items.element.x", True),
        ("by_name.k", "by_name.value.v", True),
        ("id", "items.element.x", False),
    ],
)
def test_what_an_expression_depends_on(reference: str, path: str, depends: bool) -> None:
    assert changes.depends_on(reference.split("."), SCHEMA, tuple(path.split("."))) is depends


def test_the_list_of_columns_with_statistics_follows() -> None:
    text = "id, place.city, `zip.code`, Place.x"
    assert changes.statistics_columns(text, ("Place",), ("the place",)) == "id,`the place`.city,`zip.code`,`the place`.x"
    assert changes.statistics_columns(text, ("place", "City"), None) == "id,`zip.code`,Place.x"
    assert changes.statistics_columns(text, ("other",), None) == "id,place.city,`zip.code`,Place.x"


@pytest.mark.parametrize(
    ("path", "condition"),
    [
        (("id",), "`id` IS NULL"),
        (("Place", "zip.code"), "(`Place` IS NOT NULL AND `Place`.`zip.code` IS NULL)"),
        (
            ("items", "element", "Y y"),
            "coalesce(exists(`items`, x0 -> (x0 IS NOT NULL AND x0.`Y y` IS NULL)), false)",
        ),
        (
            ("by_name", "value", "w"),
            "coalesce(exists(map_values(`by_name`), x0 -> (x0 IS NOT NULL AND x0.`w` IS NULL)), false)",
        ),
        (("by_name", "key", "k"), "coalesce(exists(map_keys(`by_name`), x0 -> (x0 IS NOT NULL AND x0.`k` IS NULL)), false)"),
    ],
)
def test_rows_with_a_null_inside_what_is_no_null(path: tuple[str, ...], condition: str) -> None:
    assert changes.violation(SCHEMA, path) == condition


def test_replacing_all_columns_keeps_what_they_carry() -> None:
    given_ = struct(
        column("by_name", SCHEMA.fields[3].type),
        column("PLACE", struct(column("zip.code", STRING), column("City", STRING), column("country", STRING)), comment="where"),
        column("items", ArrayType(ITEM)),
        column("ID", LONG),
    )
    made = replaced(SCHEMA, given_, mapped=False, widen=False, table="/t")
    assert made.names == ("by_name", "Place", "items", "id")
    assert made.fields[3] == SCHEMA.fields[0]
    assert made.fields[2] == SCHEMA.fields[2]
    assert made.fields[1].metadata == {COMMENT: "where"}
    assert names(struct(made.fields[1])) == ["Place", "Place.zip.code", "Place.City", "Place.country"]


@pytest.mark.parametrize(
    ("given_", "mapped", "error", "told"),
    [
        (struct(column("a"), column("b", INT)), False, UnsupportedOperationError, "without c needs column mapping"),
        (struct(column("a"), column("b", INT), column("d")), True, UnsupportedOperationError, "leaves out c and adds d"),
        (struct(column("a", INT), column("b", INT), column("c")), True, SchemaMismatchError, "column a from long to integer"),
        (struct(column("a"), column("b", LONG), column("c")), True, SchemaMismatchError, "delta.enableTypeWidening"),
        (struct(column("a", LONG, False), column("b", INT), column("c")), True, SchemaMismatchError, "ALTER COLUMN a SET NOT NULL"),
        (
            struct(*(column(n, k) for n, k in zip("abcd", (LONG, INT, LONG, LONG), strict=True)), column("e", LONG, False)),
            True,
            UnsupportedOperationError,
            "column e cannot be added as NOT NULL",
        ),
    ],
)
def test_what_columns_cannot_be_replaced_by(given_: StructType, mapped: bool, error: type[InvalidRequestError], told: str) -> None:
    schema = struct(column("a"), column("b", INT), column("c"))
    with pytest.raises(error) as caught:
        replaced(schema, given_, mapped=mapped, widen=False, table="/t")
    assert str(caught.value).startswith("Delta table /t: ")
    assert told in str(caught.value)


def test_columns_of_a_table_with_identity_are_not_replaced() -> None:
    schema = struct(column("a", LONG, **{IDENTITY_START: 1}))
    with pytest.raises(
        UnsupportedOperationError, match=r"Delta table /t: REPLACE COLUMNS is not possible with an identity column\. Use ADD"
    ):
        replaced(schema, struct(column("a")), mapped=True, widen=True, table="/t")
