"""Which row groups of a file, and which rows of a batch, cannot match what a scan's query asks for. Spark applies the filters itself after.

Runs on executors: no pyspark, nothing of the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from lakelog.core.errors import ColumnNotFoundError, UnsupportedOperationError
from lakelog.core.footer_bounds import FooterBounds
from lakelog.core.predicates import (
    FALSE,
    TRUE,
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    common_family,
    conjunction,
    disjunction,
    evaluate_rows,
    family_of,
    has_unknown,
    negate,
    references,
)
from lakelog.core.schema import DataType, DecimalType

# Rows are taken out here only where enough of them go: Spark looks at the others once more.
_WORTH = 0.75

Bounds = Callable[[Column], tuple[DataType, FooterBounds] | None]


def weakened(predicate: Predicate, columns: Collection[str]) -> Predicate:
    """What must hold of every row for which the predicate is true, said in columns of these names and words that this language has."""
    match predicate:
        case And(parts):
            kept = [part for part in (weakened(part, columns) for part in parts) if part != TRUE]
            return conjunction(*kept)
        case Or(parts):
            either = [weakened(part, columns) for part in parts]
            return TRUE if TRUE in either else disjunction(*either)
        case Not(part):
            opposite = negate(part)
            if not isinstance(opposite, Not):
                return weakened(opposite, columns)
            known = not has_unknown(opposite) and all(column.path[0] in columns for column in references(opposite))
            return opposite if known else TRUE
        case Unknown():
            return TRUE
        case Constant(value):
            return TRUE if value else FALSE
        case leaf:
            return leaf if leaf.column.path[0] in columns else TRUE


def matching(predicate: Predicate, batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The rows of a batch without many that cannot match; None where none can, the batch itself where few cannot or nobody can tell."""
    try:
        truth = evaluate_rows(predicate, batch)
    except (ColumnNotFoundError, UnsupportedOperationError, pa.ArrowException):
        return batch
    hits = truth.true_count
    if hits == 0:
        return None
    if hits > _WORTH * batch.num_rows:
        return batch
    return batch.filter(truth)


def may_match(predicate: Predicate, bounds: Bounds, rows: int) -> bool:
    """Whether a row group can hold a row for which the predicate is true.

    Args:
        predicate: as `weakened` gives it.
        bounds: a column's type and its bounds in the row group; None where nobody knows.
        rows: in the row group.
    """
    match predicate:
        case And(parts):
            return all(may_match(part, bounds, rows) for part in parts)
        case Or(parts):
            return any(may_match(part, bounds, rows) for part in parts)
        case Constant(value):
            return bool(value)
        case IsNull(column):
            known = bounds(column)
            return known is None or known[1].nulls != 0
        case IsNotNull(column):
            known = bounds(column)
            return known is None or known[1].nulls is None or known[1].nulls < rows
        case Comparison() | In() | StartsWith():
            known = bounds(predicate.column)
            return known is None or _leaf_may(predicate, *known)
        case _:
            return True


def _leaf_may(leaf: Comparison | In | StartsWith, data_type: DataType, bounds: FooterBounds) -> bool:
    lower, upper = _value(bounds.lower, data_type), _value(bounds.upper, data_type)
    if lower is None or upper is None:
        return True
    match leaf:
        case In(_, literals):
            return any(_compared("=", literal, data_type, lower, upper) for literal in literals)
        case StartsWith(_, prefix):
            text = prefix.encode()
            return not isinstance(lower, bytes) or (lower[: len(text)] <= text <= cast(bytes, upper)[: len(text)])
        case Comparison(op, _, literal):
            return _compared(op, literal, data_type, lower, upper)


def _compared(op: str, literal: Literal, data_type: DataType, lower: Any, upper: Any) -> bool:
    ours, theirs = family_of(data_type), family_of(literal.type)
    if ours is None or theirs is None or common_family(ours, theirs) is None or ours == "fractional":
        return True
    if literal.value is None:
        # null = null by <=> alone; the other comparisons with null are never true
        return op == "<=>"
    value: Any = literal.value.encode() if isinstance(literal.value, str) else literal.value
    match op:
        case "=" | "<=>":
            return bool(lower <= value <= upper)
        case "<":
            return bool(lower < value)
        case "<=":
            return bool(lower <= value)
        case ">":
            return bool(upper > value)
        case ">=":
            return bool(upper >= value)
        case _:
            return True


def _value(raw: object, data_type: DataType) -> object:
    # From text, for Decimal's own arithmetic rounds to 28 digits.
    return Decimal(f"{raw}E-{data_type.scale}") if isinstance(data_type, DecimalType) and isinstance(raw, int) else raw
