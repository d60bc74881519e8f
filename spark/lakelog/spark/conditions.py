"""Spark's resolved expressions, as the JVM tells them, in the core's predicate language.

What has no word there becomes `Unknown`: planning then keeps every file, and Spark evaluates the rows itself as it does anyway.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import cast

import orjson

from lakelog.core.predicates import (
    FALSE,
    TRUE,
    Column,
    Comparison,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Operator,
    Predicate,
    StartsWith,
    Unknown,
    Value,
    conjunction,
    disjunction,
)
from lakelog.core.schema import DataType, DecimalType, PrimitiveType

Node = Mapping[str, object]

_COMPARISONS: Mapping[str, Operator] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGRAL = frozenset({"byte", "short", "integer", "long"})
_SCALARS = _INTEGRAL | {"float", "double", "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def predicate_of(node: Node) -> Predicate:
    """One expression, as ExpressionText tells it."""
    kind, children = _kind(node), _children(node)
    if kind in ("And", "Or"):
        parts = [predicate_of(child) for child in children]
        return conjunction(*parts) if kind == "And" else disjunction(*parts)
    if kind == "Not":
        return Not(predicate_of(children[0]))
    if kind == "Literal" and node["type"] in ("boolean", "void"):
        return {"true": TRUE, "false": FALSE}.get(str(node["value"]), Constant(None))
    return _leaf(node, kind, children) or Unknown(kind)


def filters_of(nodes: Sequence[Node]) -> Predicate:
    """All of the expressions together; of none: TRUE."""
    return conjunction(*(predicate_of(node) for node in nodes))


def parse_filters(text: str) -> Predicate:
    """The filters that Spark hands to a file listing, as JSON."""
    return filters_of(cast("Sequence[Node]", orjson.loads(text)))


def _leaf(node: Node, kind: str, children: Sequence[Node]) -> Predicate | None:
    if kind in _COMPARISONS:
        left, right = children
        op = _COMPARISONS[kind]
        column, literal = _column(left), _literal(right)
        if column is None or literal is None:
            column, literal, op = _column(right), _literal(left), _MIRRORED[op]
        return None if column is None or literal is None else Comparison(op, column, literal)
    column = _column(children[0]) if children else _column(node)
    if column is None:
        return None
    if kind == "IsNull":
        return IsNull(column)
    if kind == "IsNotNull":
        return IsNotNull(column)
    if kind == "In":
        values = [_literal(child) for child in children[1:]]
        return None if any(v is None for v in values) else In(column, tuple(v for v in values if v is not None))
    if kind == "InSet":
        return _in_set(column, str(children[0]["type"]), cast("Sequence[str | None]", node["value"]))
    if kind == "StartsWith":
        prefix = _literal(children[1])
        return StartsWith(column, prefix.value) if prefix is not None and isinstance(prefix.value, str) else None
    if kind in ("AttributeReference", "GetStructField") and node["type"] == "boolean":
        return Comparison("=", column, Literal(True, PrimitiveType("boolean")))
    return None


def _in_set(column: Column, type_name: str, texts: Sequence[str | None]) -> Predicate | None:
    data_type = _data_type(type_name)
    if data_type is None:
        return None
    try:
        return In(column, tuple(Literal(_value(text, type_name), data_type) for text in texts))
    except (ValueError, InvalidOperation):
        return None


def _column(node: Node) -> Column | None:
    kind = _kind(node)
    if _data_type(str(node["type"])) is None and kind != "GetStructField" and node["type"] != "struct":
        return None
    if kind == "AttributeReference":
        return Column((str(node["name"]),))
    if kind == "GetStructField":
        parent = _column(_children(node)[0])
        return None if parent is None else Column((*parent.path, str(node["name"])))
    if kind == "Cast" and node["type"] in _INTEGRAL:
        # A wider integer holds the same number, so the comparison says the same of the column itself.
        inner = _children(node)[0]
        widens = inner["type"] in _INTEGRAL and _width(inner) <= _width(node)
        return _column(inner) if widens else None
    return None


def _width(node: Node) -> int:
    return ("byte", "short", "integer", "long").index(str(node["type"]))


def _literal(node: Node) -> Literal | None:
    if _kind(node) != "Literal":
        return None
    data_type = _data_type(str(node["type"]))
    if data_type is None:
        return None
    try:
        return Literal(_value(cast("str | None", node["value"]), str(node["type"])), data_type)
    except (ValueError, InvalidOperation):
        return None


def _data_type(name: str) -> DataType | None:
    if name in _SCALARS:
        return PrimitiveType(name)
    found = _DECIMAL.fullmatch(name)
    return DecimalType(int(found[1]), int(found[2])) if found else None


def _value(text: str | None, type_name: str) -> Value:
    if text is None:
        return None
    if type_name == "string":
        return text
    if type_name == "binary":
        return base64.b64decode(text)
    if type_name == "boolean":
        return text == "true"
    if type_name in ("float", "double"):
        return float(text)
    if type_name.startswith("decimal"):
        return Decimal(text)
    return int(text)


def _kind(node: Node) -> str:
    return str(node["node"])


def _children(node: Node) -> Sequence[Node]:
    return cast("Sequence[Node]", node["children"])
