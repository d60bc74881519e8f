"""What a table's own expressions read: the columns under CHECK constraints, invariants and generated columns.

The columns are read off the text. It may name too many, as the word ``date`` in ``date '2020-01-01'``, but never too few, so whoever asks
before a column changes refuses a little too much at worst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakelog.core.constraints import constraints_of
from lakelog.core.field_metadata import GENERATION_EXPRESSION
from lakelog.core.schema import StructType

ColumnPath: TypeAlias = tuple[str, ...]

# What is in double quotes is a string by default and a name under spark.sql.ansi.doubleQuotedIdentifiers.
_TOKEN = re.compile(
    r"""
      (?P<text> [rR]'[^']*' | '(?:[^'\\]|\\.)*' )
    | (?P<space> \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<name> \w+ | `(?:[^`]|``)*` | "(?:[^"\\]|\\.)*" )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression that a table holds its rows to.

    Attributes:
        what: for messages, ``the CHECK constraint positive (a > 0)``.
        constraint: the name of a CHECK constraint; None for what belongs to a column.
        columns: what it may read, paths of names in lower case.
    """

    what: str
    constraint: str | None = None
    columns: frozenset[ColumnPath]

    def reads(self, path: Sequence[str], *, fields: bool = True) -> bool:
        """Whether it may read the column at a path, by itself or as part of a struct around it, letter case aside.

        Args:
            fields: reading a field of the column counts too.
        """
        wanted = tuple(name.lower() for name in path)
        return any(wanted[: len(column)] == column or (fields and column[: len(wanted)] == wanted) for column in self.columns)


def expressions(schema: StructType, configuration: Mapping[str, str]) -> tuple[Expression, ...]:
    """The CHECK constraints, invariants and generated columns of a table.

    Raises:
        CorruptLogError: an invariant that cannot be read.
    """
    found = []
    for one in constraints_of(configuration, schema):
        if one.kind == "check":
            what = f"the CHECK constraint {one.name} ({one.expression})"
            found.append(Expression(what=what, constraint=one.name, columns=mentioned(one.expression)))
        elif one.kind == "invariant":
            what = f"the invariant of column {one.name} ({one.expression})"
            found.append(Expression(what=what, columns=mentioned(one.expression)))
    for field in schema.fields:
        if (text := field.metadata.get(GENERATION_EXPRESSION)) is not None:
            found.append(Expression(what=f"the generated column {field.name} ({text})", columns=mentioned(str(text))))
    return tuple(found)


def mentioned(expression: str) -> frozenset[ColumnPath]:
    """Every name in a SQL expression that may be a column's, a path where it is followed by fields, in lower case."""
    return frozenset(_mentioned(expression))


def _mentioned(expression: str) -> Iterator[ColumnPath]:
    tokens = [(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(expression) if m.lastgroup not in ("text", "space")]
    tokens.append(("end", ""))
    at = 0
    while at < len(tokens):
        # A name after a dot that follows no name is a field of what an index or a call gave.
        starts = tokens[at][0] == "name" and (at == 0 or tokens[at - 1][1] != ".")
        at += 1
        if not starts:
            continue
        path = [_name(tokens[at - 1][1])]
        while tokens[at][1] == "." and tokens[at + 1][0] == "name":
            path.append(_name(tokens[at + 1][1]))
            at += 2
        # What is called is a function.
        if tokens[at][1] != "(":
            yield tuple(path)


def _name(text: str) -> str:
    mark = text[0]
    return (text[1:-1].replace(mark * 2, mark) if mark in '`"' else text).lower()
