"""Predicates as people read them in messages: SQL-like, cut where they are long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from lakelog.core.predicates import (
    And,
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
)
from lakelog.core.schema import type_to_json

_MOST_VALUES = 5
_MOST_PARTS = 8
_LONGEST = 60


def predicate_text(predicate: Predicate) -> str:
    """``id = 5 AND (name IS NULL OR day IN (date'2022-01-08', date'2022-01-09'))``; what has no words is shown by its reason in
    angle brackets."""
    match predicate:
        case Constant(value):
            return {True: "true", False: "false", None: "null"}[value]
        case Unknown(reason):
            return f"<{reason}>"
        case Comparison(op, column, literal):
            return f"{column} {op} {_literal(literal)}"
        case In(column, values):
            return f"{column} IN ({', '.join(_cut([_literal(value) for value in values[: _MOST_VALUES + 1]], _MOST_VALUES))})"
        case StartsWith(column, prefix):
            return f"{column} LIKE {_quoted(prefix + '%')}"
        case IsNull(column):
            return f"{column} IS NULL"
        case IsNotNull(column):
            return f"{column} IS NOT NULL"
        case Not(part):
            return f"NOT {_nested(part)}"
        case And(parts):
            return "true" if not parts else " AND ".join(_cut([_nested(part) for part in parts[: _MOST_PARTS + 1]], _MOST_PARTS))
        case Or(parts):
            return "false" if not parts else " OR ".join(_cut([_nested(part) for part in parts[: _MOST_PARTS + 1]], _MOST_PARTS))


def _nested(predicate: Predicate) -> str:
    text = predicate_text(predicate)
    return f"({text})" if isinstance(predicate, And | Or) and predicate.parts else text


def _cut(texts: Sequence[str], most: int) -> list[str]:
    return [*texts[:most], "..."] if len(texts) > most else list(texts)


def _literal(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"X'{_shortened(value.hex())}'"
    kind = type_to_json(literal.type)
    return f"{kind}'{_instant(value, days=kind == 'date')}'" if kind in ("date", "timestamp", "timestamp_ntz") else str(value)


def _instant(value: object, *, days: bool) -> str:
    """As SQL writes it; outside the years that Python counts, the number since 1970."""
    since = timedelta(days=1) if days else timedelta(microseconds=1)
    try:
        told = datetime(1970, 1, 1) + since * int(str(value))
    except OverflowError:
        return f"{value} {'days' if days else 'microseconds'} since 1970"
    return told.date().isoformat() if days else told.isoformat(" ")


def _quoted(text: str) -> str:
    escaped = _shortened(text).replace("'", "\\'")
    return f"'{escaped}'"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
