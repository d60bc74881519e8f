"""What a table demands of every row (PROTOCOL.md, "CHECK Constraints", "Column Invariants", "Generated Columns"), as SQL conditions.

A condition is over the table's columns by their logical names and must be true: a row for which it is false or null is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lakelog.core.actions import Metadata
from lakelog.core.errors import CorruptLogError
from lakelog.core.field_metadata import CHAR_VARCHAR_TYPE, INVARIANTS
from lakelog.core.records import shown
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, walk
from lakelog.core.table_properties import CONSTRAINT_PREFIX

ConstraintKind: TypeAlias = Literal["not null", "length", "generated", "invariant", "check", "identity", "replaceWhere"]
Path: TypeAlias = tuple[str, ...]

_LENGTH = re.compile(r"(char|varchar)\(\s*([0-9]{1,9})\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A condition that every row must meet.

    Attributes:
        name: of a CHECK constraint its name; else the column's path, with dots.
        expression: SQL; what the table keeps of a CHECK constraint or an invariant, made here for the others.
        columns: the top-level columns that it refers to; None when nobody has looked.
        path: the column that it is about, which may lie in others; empty where it is about the row.
        limit: characters that a string may have, of kind ``length``.
    """

    name: str
    expression: str
    kind: ConstraintKind
    columns: tuple[str, ...] | None = None
    path: Path = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Length:
    """The declared length of a string: ``fixed`` for char(n), padded with spaces, else varchar(n)."""

    fixed: bool
    limit: int

    def __str__(self) -> str:
        return f"{'char' if self.fixed else 'varchar'}({self.limit})"


def constraints_of(configuration: Mapping[str, str], schema: StructType) -> tuple[Constraint, ...]:
    """All that a table demands but for generated columns, whose given values `generated_constraint` checks: NOT NULL and lengths at any
    depth, invariants, CHECK constraints.

    Raises:
        CorruptLogError: an invariant or a declared length that cannot be read.
    """
    checks = (Constraint(name=name, expression=sql, kind="check") for name, sql in check_constraints(configuration).items())
    return (*not_null_constraints(schema), *length_constraints(schema), *_invariants(schema), *checks)


def check_constraints_readable(metadata: Metadata, schema: StructType, table: str) -> None:
    """That the invariants and the declared lengths of a table's columns can be read.

    Raises:
        CorruptLogError: one cannot; names the table and the column.
    """
    # Most tables have none, and a walk over thousands of columns is more than a search of their text.
    if INVARIANTS in metadata.schema_json or CHAR_VARCHAR_TYPE in metadata.schema_json:
        try:
            declared_lengths(schema)
            for _ in _invariants(schema):
                pass
        except CorruptLogError as error:
            raise CorruptLogError(f"Delta table {table}: {error}") from None


def check_constraints(configuration: Mapping[str, str]) -> dict[str, str]:
    """The conditions of a table's CHECK constraints by the constraints' names, in the letters of the table property."""
    found = sorted(key for key in configuration if key.lower().startswith(CONSTRAINT_PREFIX))
    return {key[len(CONSTRAINT_PREFIX) :]: configuration[key] for key in found}


def generated_constraint(field: StructField, expression: str, sql_type: str) -> Constraint:
    """That the given values of a generated column are those that the table would compute.

    Args:
        sql_type: the column's type as SQL writes it, which the expression is cast to.
    """
    name = quoted(field.name)
    condition = f"{name} <=> CAST((\n{expression}\n) AS {sql_type})"
    return Constraint(name=field.name, expression=condition, kind="generated", path=(field.name,))


def not_null_constraints(schema: StructType) -> tuple[Constraint, ...]:
    """A constraint for every field that is NOT NULL; of a field inside a struct, an array or a map it speaks where those are there."""
    return tuple(
        Constraint(name=".".join(path), expression=_somewhere(schema, path, _is_not_null), kind="not null", columns=path[:1], path=path)
        for path in _required(schema, ())
    )


def length_constraints(schema: StructType) -> tuple[Constraint, ...]:
    """A constraint for every string of a declared length.

    Raises:
        CorruptLogError: a declared length that cannot be read.
    """
    return tuple(
        Constraint(
            name=".".join(path),
            expression=_somewhere(schema, path, _is_within(length)),
            kind="length",
            columns=path[:1],
            path=path,
            limit=length.limit,
        )
        for path, length in declared_lengths(schema).items()
    )


def declared_lengths(schema: StructType) -> dict[Path, Length]:
    """The char and varchar columns by their paths, which go through arrays and maps by element, key and value.

    Spark declares them on the top-level column, by the text of its whole type.

    Raises:
        CorruptLogError: a declaration that is not of the column's type.
    """
    found: dict[Path, Length] = {}
    for path, field in walk(schema):
        declared = field.metadata.get(CHAR_VARCHAR_TYPE)
        if declared is not None:
            try:
                _Declaration(str(declared)).read(field.type, path, found)
            except ValueError:
                raise CorruptLogError(
                    f"Column {'.'.join(path)} is of type {field.type} but declared as {shown(declared)}. Restore the log."
                ) from None
    return found


def invariant_expression(field: StructField, path: Path) -> str:
    """The condition of a field's invariant.

    Raises:
        CorruptLogError: it tells none.
    """
    told = field.metadata[INVARIANTS]
    try:
        return str(json.loads(str(told))["expression"]["expression"])
    except (ValueError, KeyError, TypeError):
        raise CorruptLogError(
            f"The invariant of column {'.'.join(path)} is {shown(told)}, which says no expression. Restore the log."
        ) from None


def enclosed(expression: str) -> str:
    """An expression in parentheses, the last of which a comment at its end does not swallow."""
    return f"({expression}\n)" if "--" in expression else f"({expression})"


def quoted(name: str) -> str:
    """A name in backticks, as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def _invariants(schema: StructType) -> Iterator[Constraint]:
    for path, field in walk(schema):
        if INVARIANTS in field.metadata:
            yield Constraint(name=".".join(path), expression=invariant_expression(field, path), kind="invariant", path=path)


def _required(data_type: DataType, path: Path) -> Iterator[Path]:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            if not field.nullable:
                yield (*path, field.name)
            yield from _required(field.type, (*path, field.name))
    elif isinstance(data_type, ArrayType):
        if not data_type.contains_null:
            yield (*path, "element")
        yield from _required(data_type.element, (*path, "element"))
    elif isinstance(data_type, MapType):
        yield from _required(data_type.key, (*path, "key"))
        if not data_type.value_contains_null:
            yield (*path, "value")
        yield from _required(data_type.value, (*path, "value"))


def _is_not_null(value: str) -> str:
    return f"{value} IS NOT NULL"


def _is_within(length: Length) -> Callable[[str], str]:
    return lambda value: f"{value} IS NULL OR length({value}) <= {length.limit}"


def _somewhere(schema: StructType, path: Path, condition: Callable[[str], str]) -> str:
    """The condition of the value at a path, wherever there is one."""
    column = next(f for f in schema.fields if f.name == path[0])
    return _inside(column.type, path[1:], quoted(path[0]), condition)


def _inside(data_type: DataType, path: Path, value: str, condition: Callable[[str], str]) -> str:
    if not path:
        return condition(value)
    if isinstance(data_type, StructType):
        field = next(f for f in data_type.fields if f.name == path[0])
        return f"{value} IS NULL OR ({_inside(field.type, path[1:], f'{value}.{quoted(field.name)}', condition)})"
    item = f"lakelog_item_{len(path)}"
    if isinstance(data_type, ArrayType):
        part, items = data_type.element, value
    else:
        assert isinstance(data_type, MapType)
        part, items = (data_type.key, f"map_keys({value})") if path[0] == "key" else (data_type.value, f"map_values({value})")
    return f"{value} IS NULL OR forall({items}, {item} -> {_inside(part, path[1:], item, condition)})"


class _Declaration:
    """A reader of a type's text beside the type itself, whose field names it expects: Spark does not quote them all."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self, data_type: DataType, path: Path, found: dict[Path, Length]) -> None:
        self._part(data_type, path, found)
        if self._at != len(self._text):
            raise ValueError(self._text)

    def _part(self, data_type: DataType, path: Path, found: dict[Path, Length]) -> None:
        if isinstance(data_type, StructType):
            self._take("struct<")
            for i, field in enumerate(data_type.fields):
                if i:
                    self._take(",")
                self._take(field.name, quoted(field.name))
                self._take(":")
                self._part(field.type, (*path, field.name), found)
            self._take(">")
        elif isinstance(data_type, ArrayType):
            self._take("array<")
            self._part(data_type.element, (*path, "element"), found)
            self._take(">")
        elif isinstance(data_type, MapType):
            self._take("map<")
            self._part(data_type.key, (*path, "key"), found)
            self._take(",")
            self._part(data_type.value, (*path, "value"), found)
            self._take(">")
        elif length := _LENGTH.match(self._text, self._at):
            found[path] = Length(length[1] == "char", int(length[2]))
            self._at = length.end()
        else:
            plain = re.compile(r"[a-z_0-9]+(\([^)]*\))?( collate \w+)?").match(self._text, self._at)
            if plain is None:
                raise ValueError(self._text)
            self._at = plain.end()

    def _take(self, *choices: str) -> None:
        for choice in choices:
            if self._text.startswith(choice, self._at):
                self._at += len(choice)
                return
        raise ValueError(self._text)
