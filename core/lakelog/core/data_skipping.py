"""Which files can hold matching rows, and which hold nothing else, from partition values and statistics alone.

For every part of the predicate the three outcomes (true, false, null) are tracked that some row of the file *may* have. Each is an
over-approximation, so a file without a possible true is safe to skip, and one without a possible false or null matches wholly:

1. Partition values are exact; any part over them has one outcome per file.
2. Statistics bound (PROTOCOL.md, "Per-file Statistics"; `lakelog.core.stats_bounds`), whether tight or wide: deletion vectors only ever
   remove rows. What is missing may be anything.
3. Bounds of float and double never prove, nor does their upper bound rule out a larger value: footers hide NaN, the largest of all.
4. Null counts of structs, arrays and maps are not used: writers disagree on what they count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, cast

import pyarrow as pa

from lakelog.core.errors import UnsupportedOperationError
from lakelog.core.field_metadata import TYPE_CHANGES
from lakelog.core.partition_values import parse_partition_column
from lakelog.core.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    Family,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Scalar,
    StartsWith,
    Unknown,
    Values,
    common_family,
    evaluate_rows,
    family_of,
    literal_scalar,
    negate,
    pc,
    references,
)
from lakelog.core.schema import DataType, DecimalType, PrimitiveType, StructField, StructType
from lakelog.core.stats_bounds import ColumnBounds, read_bounds

NO_ROW, SOME_ROWS, EVERY_ROW = 0, 1, 2

# Files looked at together: bounds the memory for parsed statistics, and keeps the JSON of one round below Arrow's 2 GiB.
_BATCH = 16_384

# A longer IN list is looked at as the range from its least to its greatest value.
_LONGEST_LIST = 100


# Bounds that were parsed before, by number of batch and column; one such mapping belongs to one files table.
BoundsCache: TypeAlias = MutableMapping[tuple[int, Column], ColumnBounds]


def classify(
    files: pa.Table,
    predicate: Predicate,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    parsed: BoundsCache | None = None,
) -> pa.Int8Array:
    """For each file: `NO_ROW` (0) can match, `SOME_ROWS` (1) may match, or `EVERY_ROW` (2) surely matches.

    Args:
        files: columns ``partitionValues`` (map of string to string) and ``stats`` (string), as `replay.FILES_SCHEMA` has them.
        predicate: columns by the exact names of ``schema``.
        schema: the table's physical schema, as statistics and partition values name the columns, partition columns included.
        partition_columns: names of those of its columns that are partition columns.
        parsed: kept by the caller between calls for the same ``files``, so that the statistics of a column are parsed once.

    Raises:
        ColumnNotFoundError: the predicate names a column that the schema does not have.
        CorruptLogError: a partition value is none of its column's type.
    """
    fields = {column: schema.find(column.path) for column in references(predicate)}
    types = {column: field.type for column, field in fields.items()}
    partitions = {column: types[column] for column in types if len(column.path) == 1 and column.path[0] in partition_columns}
    measured: dict[Column, DataType] = {
        column: _type_of_statistics(field)
        for column, field in fields.items()
        if column not in partitions and isinstance(field.type, _LEAF_TYPES)
    }
    chunks = [
        _classify_batch(batch, predicate, partitions, measured, _BatchBounds(number, {} if parsed is None else parsed))
        for number, batch in enumerate(files.select(["partitionValues", "stats"]).to_batches(max_chunksize=_BATCH))
    ]
    return cast(pa.Int8Array, pa.concat_arrays(chunks) if chunks else pa.array([], pa.int8()))


def _type_of_statistics(field: StructField) -> DataType:
    """The type by which bounds must be understood: where a column was widened from float, files from before have "0.7" for the float that
    as a double is less than 0.7."""
    changes = field.metadata.get(TYPE_CHANGES)
    widened = isinstance(changes, list) and any(isinstance(change, Mapping) and change.get("fromType") == "float" for change in changes)
    return PrimitiveType("float") if widened and field.type == PrimitiveType("double") else field.type


def _classify_batch(
    batch: pa.RecordBatch,
    predicate: Predicate,
    partitions: dict[Column, DataType],
    measured: dict[Column, DataType],
    known: _BatchBounds,
) -> Values:
    maps = batch.column("partitionValues")
    values = {
        column.path[0]: parse_partition_column(pc.map_lookup(maps, column.path[0], "first"), kind) for column, kind in partitions.items()
    }
    exact = pa.RecordBatch.from_arrays(list(values.values()), names=list(values))
    code = _Files(count=batch.num_rows, partition_values=exact, bounds={}, types={}).code(predicate)
    undecided = pc.equal(code, SOME_ROWS)
    if not measured or not pc.any(undecided).as_py():
        return code
    if not values:
        bounds = known.read(batch.column("stats"), measured)
        return _Files(count=batch.num_rows, partition_values=exact, bounds=bounds, types=measured).code(predicate)
    # JSON is parsed for those files alone that partition values leave open.
    stats = batch.column("stats").filter(undecided)
    files = _Files(count=len(stats), partition_values=exact.filter(undecided), bounds=read_bounds(stats, measured), types=measured)
    return pc.replace_with_mask(code, undecided, files.code(predicate))


@dataclass(frozen=True, slots=True)
class _BatchBounds:
    number: int
    parsed: BoundsCache

    def read(self, stats: Values, columns: Mapping[Column, DataType]) -> dict[Column, ColumnBounds]:
        missing = {column: kind for column, kind in columns.items() if (self.number, column) not in self.parsed}
        if missing:
            self.parsed.update({(self.number, column): bounds for column, bounds in read_bounds(stats, missing).items()})
        return {column: self.parsed[self.number, column] for column in columns}


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """Per file, which outcomes a row may have; never null."""

    true: Values
    false: Values
    null: Values

    def inverted(self) -> _Outcomes:
        return _Outcomes(self.false, self.true, self.null)

    def either(self, other: _Outcomes) -> _Outcomes:
        return self.inverted().both(other.inverted()).inverted()

    def both(self, other: _Outcomes) -> _Outcomes:
        null = pc.or_(
            pc.and_(self.null, pc.or_(other.null, other.true)),
            pc.and_(other.null, pc.or_(self.null, self.true)),
        )
        return _Outcomes(pc.and_(self.true, other.true), pc.or_(self.false, other.false), null)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    count: int
    partition_values: pa.RecordBatch
    bounds: dict[Column, ColumnBounds]
    types: dict[Column, DataType]

    def code(self, predicate: Predicate) -> Values:
        outcomes = self.outcomes(predicate)
        partly = pc.or_(outcomes.false, outcomes.null)
        return pc.if_else(outcomes.true, pc.if_else(partly, SOME_ROWS, EVERY_ROW), NO_ROW).cast(pa.int8())

    def outcomes(self, predicate: Predicate) -> _Outcomes:
        match predicate:
            case Constant(value):
                return self._one_outcome(pa.nulls(self.count, pa.bool_()) if value is None else self._all(value))
            case Unknown():
                return self._anything()
            case And(parts):
                return reduce(_Outcomes.both, (self.outcomes(part) for part in parts), self.outcomes(Constant(True)))
            case Or(parts):
                return reduce(_Outcomes.either, (self.outcomes(part) for part in parts), self.outcomes(Constant(False)))
            case Not(part):
                pushed = negate(part)
                return self.outcomes(part).inverted() if isinstance(pushed, Not) and pushed.part == part else self.outcomes(pushed)
            case leaf if leaf.column.path[0] in self.partition_values.schema.names:
                return self._by_partition_value(leaf)
            case leaf if leaf.column in self.bounds:
                return self._by_bounds(leaf, self.bounds[leaf.column], self.types[leaf.column])
            case _:
                return self._anything()

    def _by_partition_value(self, leaf: Predicate) -> _Outcomes:
        try:
            return self._one_outcome(evaluate_rows(leaf, self.partition_values))
        except UnsupportedOperationError:
            return self._anything()

    def _by_bounds(self, leaf: Comparison | In | StartsWith | IsNull | IsNotNull, bounds: ColumnBounds, kind: DataType) -> _Outcomes:
        match leaf:
            case IsNull():
                return _Outcomes(bounds.may_be_null, bounds.may_be_value, self._all(False))
            case IsNotNull():
                return _Outcomes(bounds.may_be_value, bounds.may_be_null, self._all(False))
            case Comparison(op, column, literal) if op == "<=>":
                if literal.value is None:
                    return self._by_bounds(IsNull(column), bounds, kind)
                equal = self._by_bounds(Comparison("=", column, literal), bounds, kind)
                return _Outcomes(equal.true, pc.or_(equal.false, bounds.may_be_null), self._all(False))
            case Comparison(op, _, literal):
                if literal.value is None:
                    return self.outcomes(Constant(None))
                return self._of_values(bounds, self._compare(op, literal, bounds, kind))
            case StartsWith(_, prefix):
                return self._of_values(bounds, self._starts_with(prefix, bounds, kind))
            case In(_, literals):
                return self._in(literals, bounds, kind)

    def _of_values(self, bounds: ColumnBounds, among_values: tuple[Values, Values] | None) -> _Outcomes:
        """The outcomes of a condition that is null for null and among other values may be (true, false)."""
        if among_values is None:
            return self._anything()
        true, false = among_values
        return _Outcomes(pc.and_(true, bounds.may_be_value), pc.and_(false, bounds.may_be_value), bounds.may_be_null)

    def _compare(self, op: Operator, literal: Literal, bounds: ColumnBounds, kind: DataType) -> tuple[Values, Values] | None:
        prepared = _comparable(literal, bounds, kind)
        if prepared is None:
            return None
        family, scalar, lower, upper = prepared
        if op == "!=":
            true, false = _compare_known("=", scalar, lower, upper)[::-1]
        else:
            true, false = _compare_known(op, scalar, lower, upper)
        if family != "fractional":
            return true, false
        # Values are those without NaN here; a hidden NaN is greater than any other, and no bound of this family proves.
        return (true if op in {"=", "<", "<="} and not math.isnan(scalar.as_py()) else self._all(True)), self._all(True)

    def _starts_with(self, prefix: str, bounds: ColumnBounds, kind: DataType) -> tuple[Values, Values] | None:
        if family_of(kind) != "string" or pa.types.is_null(bounds.lower.type):
            return None
        first = prefix.encode()
        last = pa.scalar(first + b"\xff")
        before, beyond = pc.less(bounds.upper, pa.scalar(first)), pc.greater(bounds.lower, last)
        inside = pc.and_kleene(pc.greater_equal(bounds.lower, pa.scalar(first)), pc.less_equal(bounds.upper, last))
        return _unless(pc.or_kleene(before, beyond)), _unless(inside)

    def _in(self, literals: tuple[Literal, ...], bounds: ColumnBounds, kind: DataType) -> _Outcomes:
        if not literals:
            return self.outcomes(Constant(False))
        present = [literal for literal in literals if literal.value is not None]
        among_values = self._in_range(present, bounds, kind) if len(present) > _LONGEST_LIST else self._in_list(present, bounds, kind)
        result = self._of_values(bounds, among_values)
        if len(present) == len(literals) or among_values is None:
            return result
        return _Outcomes(result.true, self._all(False), pc.or_(result.null, result.false))

    def _in_list(self, literals: list[Literal], bounds: ColumnBounds, kind: DataType) -> tuple[Values, Values] | None:
        true, false = self._all(False), self._all(True)
        for literal in literals:
            outcome = self._compare("=", literal, bounds, kind)
            if outcome is None:
                return None
            true, false = pc.or_(true, outcome[0]), pc.and_(false, outcome[1])
        return true, false

    def _in_range(self, literals: list[Literal], bounds: ColumnBounds, kind: DataType) -> tuple[Values, Values] | None:
        ordered = _ordered(literals)
        least, greatest = (_comparable(end, bounds, kind) for end in (ordered[0], ordered[-1])) if ordered else (None, None)
        if least is None or greatest is None:
            return None
        reach = pc.and_(_compare_known(">=", *least[1:])[0], _compare_known("<=", *greatest[1:])[0])
        return reach, self._all(True)

    def _one_outcome(self, truth: Values) -> _Outcomes:
        return _Outcomes(pc.fill_null(truth, False), pc.fill_null(pc.invert(truth), False), pc.is_null(truth))

    def _anything(self) -> _Outcomes:
        return _Outcomes(self._all(True), self._all(True), self._all(True))

    def _all(self, value: bool) -> Values:
        return pa.repeat(pa.scalar(value), self.count)


# Statistics of these alone mean the same whoever wrote them.
_LEAF_TYPES = (PrimitiveType, DecimalType)


def _comparable(literal: Literal, bounds: ColumnBounds, kind: DataType) -> tuple[Family, Scalar, Values, Values] | None:
    """The family to compare in, and literal and bounds in it; None where statistics cannot tell."""
    column, constant = family_of(kind), family_of(literal.type)
    family = common_family(column, constant) if column is not None and constant is not None else None
    if family is None or pa.types.is_null(bounds.lower.type):
        return None
    scalar = literal_scalar(literal, family)
    if family == "string":
        return family, scalar.cast(pa.binary()), bounds.lower, bounds.upper
    return family, scalar, bounds.lower.cast(scalar.type), bounds.upper.cast(scalar.type)


def _compare_known(op: Operator, scalar: Scalar, lower: Values, upper: Values) -> tuple[Values, Values]:
    """(may be true, may be false) for values between the bounds."""
    if op == "=":
        never = pc.or_kleene(pc.greater(lower, scalar), pc.less(upper, scalar))
        return _unless(never), _unless(pc.and_kleene(pc.equal(lower, scalar), pc.equal(upper, scalar)))
    if op in {">", ">="}:
        true, false = _compare_known("<=" if op == ">" else "<", scalar, lower, upper)
        return false, true
    if op == "<":
        return _unless(pc.greater_equal(lower, scalar)), _unless(pc.less(upper, scalar))
    return _unless(pc.greater(lower, scalar)), _unless(pc.less_equal(upper, scalar))


def _unless(known: Values) -> Values:
    return pc.invert(pc.fill_null(known, False))


def _ordered(literals: list[Literal]) -> list[Literal] | None:
    """From least to greatest; None when they have no common order, or hold NaN, which Python cannot place."""
    if any(isinstance(literal.value, float) and math.isnan(literal.value) for literal in literals):
        return None
    if len({family_of(literal.type) for literal in literals}) != 1:
        return None
    return sorted(literals, key=_value_of)


def _value_of(literal: Literal) -> Any:
    return literal.value
