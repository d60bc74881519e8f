"""Rows that a table refused, told: which constraint, what it says, the rows, and what to do."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Sequence
from typing import TypeAlias, cast

import orjson
from pyspark.sql import DataFrame

from lakelog.core.constraints import Constraint, Path
from lakelog.core.errors import ConstraintViolationError
from lakelog.core.schema_changes import quoted
from lakelog.spark import jvm
from lakelog.spark.checks import MARK, shown_columns
from lakelog.spark.identity import overflow

_log = logging.getLogger(__name__)

_Row: TypeAlias = dict[str, object]
_FAILED = re.compile(re.escape(MARK) + r"([A-Za-z0-9+/=]+) ([0-9]+) ")
_SAMPLES = 5
_LONGEST_VALUE = 200


def explained(error: Exception, root: str, description: str, frame: DataFrame | None = None) -> ConstraintViolationError | None:
    """What an error of Spark's means for a table's constraints; None when it is about something else.

    Args:
        description: what the UI calls the job, should there be one.
        frame: what was written, from `checks.enforced`: its rows are looked at again for more samples, in the one partition that
            failed and where that takes no other job's output. Without it the message shows the one row that the task fell over.
    """
    for message in jvm.messages(error):
        found = _FAILED.search(message)
        if found is not None:
            told = orjson.loads(base64.b64decode(found[1]))
            constraint = Constraint(**{**told, "columns": tuple(told["columns"] or ()), "path": tuple(told["path"])})
            if constraint.kind == "identity":
                return overflow(constraint.name, root)
            rows = _rows_of(message[found.end() :])
            if frame is not None:
                rows = _distinct([*rows, *_more(frame, constraint, int(found[2]), description)])
            return ConstraintViolationError(f"Delta table {root}: {_said(constraint, rows, root)}")
    return None


def _said(constraint: Constraint, rows: Sequence[_Row], root: str) -> str:
    name, expression = constraint.name, constraint.expression
    values = "".join(f"\n - {', '.join(f'{column} : {_value(value)}' for column, value in row.items())}" for row in rows)
    values = values or "\n - (a row without columns that the condition speaks of)"
    nothing = "\nNothing was committed. "
    match constraint.kind:
        case "not null":
            return (
                f"NOT NULL constraint violated for column: {name}. The data holds a null in column {name}, which is NOT NULL; rows with "
                f"values:{values}{nothing}Fill it or filter those rows."
            )
        case "length":
            longest = max((text for row in rows for text in _texts(row, constraint.path)), key=len, default="")
            return (
                f'Value "{_value(longest)}" exceeds char/varchar type length limitation: {constraint.limit}. Column {name} may hold no '
                f"more characters than that, {len(longest)} are given.{nothing}Shorten the value, or give the column a longer type."
            )
        case "generated":
            return (
                f"the data's values of generated column {name} are not those that the table computes (constraint {_line(expression)}), "
                f"in rows with values:{values}{nothing}Leave the column out of the data, then the table computes it."
            )
        case "invariant":
            return (
                f"the invariant of column {name} ({_line(expression)}) is violated by row with values:{values}{nothing}Correct or filter "
                "such rows."
            )
        case "replaceWhere":
            return (
                f"the data does not conform to the partial table overwrite condition, replaceWhere {_line(expression)}, in rows with "
                f"values:{values}{nothing}Filter the data by the condition, or write another one."
            )
        case _:
            return (
                f"CHECK constraint {name} {_line(expression)} violated by row with values:{values}{nothing}Correct or filter such rows, "
                f"or drop the constraint: ALTER TABLE delta.`{root}` DROP CONSTRAINT {quoted(name)}."
            )


def _rows_of(text: str) -> list[_Row]:
    """The row at the start of a text, in a list; none where it cannot be read."""
    try:
        # Numbers in the digits that they came with.
        row, _ = json.JSONDecoder(parse_float=str, parse_int=str).raw_decode(text)
    except ValueError:
        return []
    return [row] if isinstance(row, dict) and row else []


def _more(frame: DataFrame, constraint: Constraint, partition: int, description: str) -> list[_Row]:
    columns = shown_columns(constraint.columns or ())
    try:
        told = jvm.violators(
            frame, constraint.expression, columns, partition, _SAMPLES, f"{description}: rows that violate {constraint.name}"
        )
    except Exception as error:
        # The one row that is known says enough; the violation is what must be told.
        _log.info("rows that violate %s could not be looked for: %s", constraint.name, error)
        return []
    return [row for text in cast("list[str]", orjson.loads(told)) for row in _rows_of(text)]


def _distinct(rows: Sequence[_Row]) -> list[_Row]:
    return list({json.dumps(row, sort_keys=True): row for row in rows}.values())[:_SAMPLES]


def _texts(value: object, path: Path) -> list[str]:
    """The strings at a path in a row's JSON."""
    if not path:
        return [value] if isinstance(value, str) else []
    if isinstance(value, list):
        return [text for item in value for text in _texts(item, path[1:])]
    if not isinstance(value, dict):
        return []
    # JSON does not tell a struct from a map.
    inner = [value[path[0]]] if path[0] in value else []
    inner += [*value] if path[0] == "key" else [*value.values()] if path[0] == "value" else []
    return [text for item in inner for text in _texts(item, path[1:])]


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


def _line(expression: str) -> str:
    return " ".join(expression.split())
