"""`DeltaTableBuilder`: a table described step by step, then made, under the names of delta-spark's Python class."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, overload

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from lakelog.core.errors import UnsupportedTypeError
from lakelog.core.field_metadata import (
    COMMENT,
    GENERATION_EXPRESSION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_START,
    IDENTITY_STEP,
)
from lakelog.core.records import JSON
from lakelog.core.schema import parse_schema
from lakelog.core.table_definition import CreationMode, TableDefinition
from lakelog.spark import creation, jvm
from lakelog.spark.creation import CreatedTable
from lakelog.spark.exceptions import pyspark_errors
from lakelog.spark.session import context_of

if TYPE_CHECKING:
    from lakelog.spark.table import DeltaTable

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class IdentityGenerator:
    """The numbers that an identity column gives its rows.

    Attributes:
        start: the first number.
        step: from one number to the next, not 0.
    """

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """Describes a table; `execute` makes it. Every other method returns the builder itself.

    Made by `DeltaTable.create`, `DeltaTable.createIfNotExists`, `DeltaTable.replace` and `DeltaTable.createOrReplace`. A name or a
    location is needed. With both the table is an external one: dropping its name leaves its files.

    Args:
        spark: an enabled session.
        mode: what is to happen where the table exists, and where it does not.
        opened: makes the `DeltaTable` of what was created.
    """

    def __init__(self, spark: SparkSession, mode: CreationMode, opened: Callable[[SparkSession, CreatedTable], DeltaTable]) -> None:
        self._spark = spark
        self._mode = mode
        self._opened = opened
        self._name: str | None = None
        self._location: str | None = None
        self._definition = TableDefinition()
        self._fields: list[dict[str, JSON]] = []

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """The table's name in Spark's catalog, with its database or without; or ``delta.`/path` ``."""
        if type(identifier) is not str:
            _raise_type_error("Identifier must be str.", [identifier])
        self._name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """The folder of the table, as a path or URI."""
        if type(location) is not str:
            _raise_type_error("Location must be str.", [location])
        self._location = location
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """A description of the table."""
        if type(comment) is not str:
            _raise_type_error("Table comment must be str.", [comment])
        self._definition = replace(self._definition, comment=comment)
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """Add a column after those that were added before.

        Args:
            colName: its name.
            dataType: a type, or its name in SQL such as ``DECIMAL(10, 2)``.
            nullable: whether rows may lack a value.
            generatedAlwaysAs: SQL over other columns that gives the value, or the numbers that an identity column hands out.
            generatedByDefaultAs: numbers for the rows that bring no value of their own.
            comment: a description of the column.

        Raises:
            TypeError: an argument of another type.
            ValueError: both kinds of generation, or an identity that never moves.
            pyspark.errors.ParseException: ``dataType`` is no type in SQL.
        """
        if type(colName) is not str:
            _raise_type_error("Column name must be str.", [colName])
        if type(dataType) is not str and not isinstance(dataType, DataType):
            _raise_type_error("Column data type must be str or DataType.", [dataType])
        if type(nullable) is not bool:
            _raise_type_error("Column nullable must be bool.", [nullable])
        metadata = _generation(generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            if type(comment) is not str:
                _raise_type_error("Column comment must be str.", [comment])
            metadata[COMMENT] = comment
        if isinstance(dataType, DataType):
            (field,) = _fields_of(StructType([StructField(colName, dataType)]).json())
        else:
            (field,) = _fields_of(jvm.field_json(self._spark, colName, dataType))
        known = field.get("metadata")
        self._fields.append({**field, "nullable": nullable, "metadata": {**(known if isinstance(known, dict) else {}), **metadata}})
        return self

    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder:
        """Add the columns of a schema, such as a DataFrame's, with their nullability and metadata."""
        if isinstance(cols, list):
            for col in cols:
                if type(col) is not StructField:
                    _raise_type_error("Column in existing schema must be StructField.", [col])
            cols = StructType(cols)
        if type(cols) is not StructType:
            _raise_type_error("Schema must be StructType or a list of StructField.", [cols])
        self._fields += _fields_of(cols.json())
        return self

    @overload
    def partitionedBy(self, *cols: str) -> DeltaTableBuilder: ...

    @overload
    def partitionedBy(self, __cols: list[str] | tuple[str, ...]) -> DeltaTableBuilder: ...

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """The partition columns, as arguments or as one list."""
        self._definition = replace(self._definition, partition_by=_names("Partitioning", cols))
        return self

    @overload
    def clusterBy(self, *cols: str) -> DeltaTableBuilder: ...

    @overload
    def clusterBy(self, __cols: list[str] | tuple[str, ...]) -> DeltaTableBuilder: ...

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """The clustering columns, as arguments or as one list; ``a.b`` is a field of a struct."""
        self._definition = replace(self._definition, cluster_by=_names("Clustering", cols))
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """A table property. ``delta.feature.<name>`` with the value ``supported`` asks for a table feature."""
        if type(key) is not str or type(value) is not str:
            _raise_type_error("Key and value of property must be string.", [key, value])
        self._definition = replace(self._definition, properties={**self._definition.properties, key: value})
        return self

    def execute(self) -> DeltaTable:
        """Make the table: one commit, then its entry in the catalog where it has a name.

        Raises:
            InvalidRequestError: neither name nor location; or a definition that no table can have, under the error's own class.
            TableExistsError: the table exists, or something else has its name or its folder.
            NotADeltaTableError: the table that is to be replaced does not exist.
            SchemaMismatchError: a table stands at the location and differs from the definition.
            TableNotRegisteredError: the table was made, but the catalog did not take its name.
            DeltaConcurrentModificationException: another writer committed meanwhile; run it again.
        """
        context = context_of(self._spark)
        with pyspark_errors():
            made = creation.create(context, self._spark, self._mode, self._defined(), name=self._name, location=self._location)
        return self._opened(self._spark, made)

    def _defined(self) -> TableDefinition:
        if not self._fields:
            return self._definition
        try:
            schema = parse_schema(jvm.stored_schema(json.dumps({"type": "struct", "fields": self._fields})))
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"Delta table {self._name or self._location}: {error}") from None
        return replace(self._definition, schema=schema)


def _generation(always: str | IdentityGenerator | None, by_default: IdentityGenerator | None) -> dict[str, JSON]:
    """The field metadata of a generated or an identity column."""
    if always is not None and by_default is not None:
        raise ValueError("generatedByDefaultAs and generatedAlwaysAs cannot both be set.", [by_default, always])
    if type(always) is str:
        return {GENERATION_EXPRESSION: always}
    if always is not None and not isinstance(always, IdentityGenerator):
        _raise_type_error("Generated always as expression must be str or IdentityGenerator.", [always])
    if by_default is not None and not isinstance(by_default, IdentityGenerator):
        _raise_type_error("Generated by default expression must be IdentityGenerator.", [by_default])
    numbers = by_default or always
    if not isinstance(numbers, IdentityGenerator):
        return {}
    for part, value in (("start", numbers.start), ("step", numbers.step)):
        if type(value) is not int:
            _raise_type_error(f"Column identity generation requires {part} to be int.", [value])
        if value not in _INT64:
            raise ValueError(f"Column identity generation requires {part} to fit a BIGINT, not {value}.")
    if numbers.step == 0:
        raise ValueError("Column identity generation requires step to be non-zero.")
    return {IDENTITY_START: numbers.start, IDENTITY_STEP: numbers.step, IDENTITY_ALLOWS_EXPLICIT: by_default is not None}


def _names(kind: str, columns: Iterable[str | list[str] | tuple[str, ...]]) -> tuple[str, ...]:
    given = tuple(columns)
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
    names = []
    for column in given:
        if type(column) is not str:
            _raise_type_error(f"{kind} column must be str.", [column])
        names.append(column)
    return tuple(names)


def _fields_of(schema: str) -> list[dict[str, JSON]]:
    fields: list[dict[str, JSON]] = json.loads(schema)["fields"]
    return fields


def _raise_type_error(message: str, found: Iterable[object]) -> NoReturn:
    raise TypeError(message + "".join(f" Found {value} with type {type(value)}" for value in found))
