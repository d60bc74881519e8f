"""What a table demands of the rows written to it, in one pass with the write.

`enforced` turns a frame into the table's own rows: columns in shape, defaults, computed columns and identities filled in, and every row
checked. Nothing runs before the write; a row that violates a constraint makes its task fail with a message that `violations.explained`
understands.

Expressions are evaluated as the writing session would: under its ``spark.sql.ansi.enabled`` (an overflow is an error with it, null
without) and in its time zone. ``current_timestamp()`` is one instant throughout a write.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakelog.core.actions import Metadata
from lakelog.core.constraints import (
    Constraint,
    Length,
    Path,
    constraints_of,
    declared_lengths,
    generated_constraint,
    quoted,
)
from lakelog.core.errors import InvalidExpressionError
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType, parse_schema
from lakelog.core.schema_compare import ColumnPlan, CopyColumn, GeneratedColumn, IdentityColumn
from lakelog.spark import jvm
from lakelog.spark.aligning import Computed, aligned, computed, padded
from lakelog.spark.expressions import check_columns, check_condition, references_of, sql_type
from lakelog.spark.identity import identity_text, overflow_constraint

# What the message of a failed check starts with; a constraint, a partition's number and a row follow.
MARK = "lakelog constraint "
_LENGTHS_IGNORED = "spark.sql.legacy.charVarcharAsString"
# Columns that are shown beside one that must not be null, to tell the row by.
_SHOWN_BESIDE = 4


def enforced(
    spark: SparkSession,
    frame: DataFrame,
    given: StructType,
    metadata: Metadata,
    plans: Sequence[ColumnPlan],
    *,
    root: str,
    extra: Sequence[Constraint] = (),
) -> DataFrame:
    """The frame with exactly the table's columns, in their order, every row checked; the frame itself where there is nothing to do.

    Args:
        given: the frame's schema.
        metadata: the table's, as it will be.
        plans: how each of the table's columns is made, in its order.
        extra: what this write demands besides.

    Raises:
        InvalidExpressionError: an expression that the table keeps cannot be evaluated here; names it.
        ConstraintViolationError: an identity column has no number left.
        CorruptLogError: a constraint in the metadata that cannot be read.
    """
    schema = parse_schema(metadata.schema_json)
    lengths = declared_lengths(schema)
    if lengths and spark.conf.get(_LENGTHS_IGNORED) == "true":
        lengths = {}
    constraints = _constraints(metadata, schema, given, plans, lengths, extra)
    as_it_is = given.names == schema.names and all(isinstance(plan, CopyColumn) for plan in plans)
    if as_it_is and not constraints and not lengths:
        return frame
    late = {p.field.name: computed(p.expression, p.field) for p in plans if isinstance(p, GeneratedColumn) and p.given is None}
    try:
        known = _with_columns(spark, constraints, schema)
        stages = [] if as_it_is else [[_first(plan, root) for plan in plans if plan.field.name not in late]]
        padding = {f.name: text for f in schema.fields if (text := padded(f, lengths)) is not None}
        stages += _padding([f.name for f in schema.fields if f.name not in late], padding)
        if late:
            stages.append([Computed(f.name, f.name, late.get(f.name)) for f in schema.fields])
            stages += _padding(schema.names, {name: text for name, text in padding.items() if name in late})
        if known:
            # What the log cannot tell from null is null before it is checked.
            stages += _padding(
                schema.names, {name: _without_empty(schema, name) for name in metadata.partition_columns if _has_empty(schema, name)}
            )
            stages.append(_guarded(schema, known))
        told = orjson.dumps([[column.to_json() for column in stage] for stage in stages]).decode()
        return jvm.select_stages(frame, spark, told)
    except (PySparkException, InvalidExpressionError):
        # Said again for the one that is at fault, by its name.
        check_columns(spark, schema, root)
        for constraint in constraints:
            check_condition(spark, constraint.expression, schema, root, described(constraint))
        raise


def described(constraint: Constraint) -> str:
    """What messages call a constraint."""
    match constraint.kind:
        case "check":
            return f"CHECK constraint {constraint.name}"
        case "invariant":
            return f"the invariant of column {constraint.name}"
        case "generated":
            return f"generated column {constraint.name}"
        case "replaceWhere":
            return "replaceWhere"
        case _:
            return f"column {constraint.name}"


def shown_columns(columns: Sequence[str]) -> str:
    """The SQL text of a row as a message shows it: these columns in JSON, nulls too."""
    if not columns:
        return "'{}'"
    return f"to_json(STRUCT({', '.join(quoted(name) for name in columns)}), map('ignoreNullFields', 'false'))"


def _constraints(
    metadata: Metadata,
    schema: StructType,
    given: StructType,
    plans: Sequence[ColumnPlan],
    lengths: Mapping[Path, Length],
    extra: Sequence[Constraint],
) -> list[Constraint]:
    """What the rows must be checked for: neither lengths that the session ignores, nor nulls that the frame's own schema rules out."""
    copied = {plan.field.name: given.find((plan.source,)) for plan in plans if isinstance(plan, CopyColumn)}
    kept = []
    emptied = {name for name in metadata.partition_columns if _has_empty(schema, name)}
    for constraint in constraints_of(metadata.configuration, schema):
        source = copied.get(constraint.path[0]) if constraint.kind == "not null" and constraint.path[0] not in emptied else None
        promised = source is not None and not _is_nullable(source.nullable, source.type, constraint.path[1:])
        if not promised and (constraint.kind != "length" or lengths):
            kept.append(constraint)
    by_the_data = [
        generated_constraint(plan.field, plan.expression, sql_type(plan.field.type))
        for plan in plans
        if isinstance(plan, GeneratedColumn) and plan.given is not None
    ]
    return [*kept, *by_the_data, *extra]


def _is_nullable(nullable: bool, data_type: DataType, path: Path) -> bool:
    if not path:
        return nullable
    if isinstance(data_type, StructType):
        field = data_type.find(path[:1])
        return _is_nullable(field.nullable, field.type, path[1:])
    if isinstance(data_type, ArrayType):
        return _is_nullable(data_type.contains_null, data_type.element, path[1:])
    assert isinstance(data_type, MapType)
    inner = (False, data_type.key) if path[0] == "key" else (data_type.value_contains_null, data_type.value)
    return _is_nullable(*inner, path[1:])


def _with_columns(spark: SparkSession, constraints: Sequence[Constraint], schema: StructType) -> list[Constraint]:
    """The constraints, each with the columns that a message about it shows."""
    beside = [f.name for f in schema.fields if _is_plain(f.type)][:_SHOWN_BESIDE]
    texts = [c.expression for c in constraints if c.columns is None]
    spelled = {f.name.lower(): f.name for f in schema.fields}
    spoken_of = iter(references_of(spark, texts) if texts else ())
    known = []
    for constraint in constraints:
        columns = constraint.columns
        if columns is None:
            columns = tuple(dict.fromkeys(spelled[parts[0].lower()] for parts in next(spoken_of) if parts[0].lower() in spelled))
        elif constraint.kind == "not null":
            columns = tuple(dict.fromkeys((*columns, *beside)))
        known.append(replace(constraint, columns=columns))
    return known


def _first(plan: ColumnPlan, root: str) -> Computed:
    if isinstance(plan, IdentityColumn):
        return Computed(plan.field.name, plan.field.name, identity_text(plan, _failure(overflow_constraint(plan)), table=root))
    return aligned(plan)


def _padding(names: Sequence[str], texts: Mapping[str, str]) -> list[list[Computed]]:
    return [[Computed(name, name, texts.get(name)) for name in names]] if texts.keys() & set(names) else []


def _has_empty(schema: StructType, name: str) -> bool:
    return schema.find((name,)).type in (PrimitiveType("string"), PrimitiveType("binary"))


def _without_empty(schema: StructType, name: str) -> str:
    """A partition value as it is written: empty text, and the name that Spark gives the folder of null, are null in every Delta table."""
    if schema.find((name,)).type == PrimitiveType("binary"):
        return f"nullif({quoted(name)}, X'')"
    return f"nullif(nullif({quoted(name)}, ''), '__HIVE_DEFAULT_PARTITION__')"


def _guarded(schema: StructType, constraints: Sequence[Constraint]) -> list[Computed]:
    """All columns, one of them with the checks around it: what is not written the optimizer would leave out."""
    plain = (f.name for f in schema.fields if _is_plain(f.type))
    carrier = next(plain, schema.fields[0].name)
    cases = " ".join(f"WHEN (\n{c.expression}\n) IS NOT TRUE THEN {_failure(c)}" for c in constraints)
    return [Computed(f.name, f.name, f"CASE {cases} ELSE {quoted(f.name)} END" if f.name == carrier else None) for f in schema.fields]


def _failure(constraint: Constraint) -> str:
    """An expression that fails with the row. That it names its partition also keeps it where it is: the optimizer moves expressions that
    say the same everywhere below a LIMIT, where they would meet rows that are never written."""
    # In base64 whatever the session takes a backslash or a quote for.
    text = base64.b64encode(orjson.dumps(asdict(constraint))).decode()
    return f"raise_error(concat('{MARK}{text} ', CAST(spark_partition_id() AS STRING), ' ', {shown_columns(constraint.columns or ())}))"


def _is_plain(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.name not in ("string", "binary"))
