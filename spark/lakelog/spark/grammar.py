"""Statements that Spark does not parse, or not on every minor, read from the tokens of Spark's own lexer.

    ALTER TABLE t ADD CONSTRAINT name CHECK (condition) [ENFORCED]
    ALTER TABLE t DROP CONSTRAINT [IF EXISTS] name [RESTRICT | CASCADE]
    ALTER TABLE t DROP FEATURE name [TRUNCATE HISTORY]
    ALTER TABLE t (ALTER | CHANGE) [COLUMN] column SET NOT NULL
    ALTER TABLE t (ALTER | CHANGE) [COLUMN] column SYNC IDENTITY

Whether a name means a Delta table is not decided here; a statement that is none of these, or is written otherwise, is Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lakelog.core.records import JSON

_QUOTED = "BACKQUOTED_IDENTIFIER"
# May begin with a digit.
_PLAIN = "IDENTIFIER"


class Token(NamedTuple):
    """One token of Spark's lexer: its symbolic name (None for a sign without one), its text, and where it stands in the statement, both
    ends inclusive, in characters."""

    kind: str | None
    text: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement on one table.

    Attributes:
        table: the parts of the table's name.
        command: what messages call it.
        change: what `lakelog.spark.alter` is told.
    """

    table: tuple[str, ...]
    command: str
    change: Mapping[str, JSON]


def parse(text: str, tokens: Sequence[Token]) -> Statement | None:
    """The statement, or None where it is not one of ours.

    Args:
        text: of the statement.
        tokens: without spaces and comments.
    """
    reader = _Reader(text, [*tokens[:-1]] if tokens and tokens[-1].text == ";" else tokens)
    if not reader.words("ALTER", "TABLE"):
        return None
    table = reader.path()
    if not table:
        return None
    found = _add_constraint(reader) or _drop(reader) or _change_column(reader)
    if found is None or not reader.done:
        return None
    command, change = found
    return Statement(table=table, command=f"ALTER TABLE ... {command}", change=change)


_Change = tuple[str, Mapping[str, JSON]]


def _add_constraint(reader: _Reader) -> _Change | None:
    if not reader.words("ADD", "CONSTRAINT"):
        return None
    name = reader.name()
    if name is None or not reader.words("CHECK"):
        return None
    condition = reader.parenthesised()
    if condition is None:
        return None
    reader.words("ENFORCED")
    return "ADD CONSTRAINT ... CHECK", {"kind": "AddConstraint", "name": name, "expression": condition}


def _drop(reader: _Reader) -> _Change | None:
    if reader.words("DROP", "CONSTRAINT"):
        if_exists = reader.words("IF", "EXISTS")
        name = reader.name()
        if name is None:
            return None
        if not reader.words("RESTRICT"):
            reader.words("CASCADE")
        return "DROP CONSTRAINT", {"kind": "DropConstraint", "name": name, "ifExists": if_exists}
    if reader.words("DROP", "FEATURE"):
        name = reader.name() or reader.string()
        if name is None:
            return None
        return "DROP FEATURE", {"kind": "DropFeature", "name": name, "truncateHistory": reader.words("TRUNCATE", "HISTORY")}
    return None


def _change_column(reader: _Reader) -> _Change | None:
    if not reader.words("ALTER") and not reader.words("CHANGE"):
        return None
    reader.words("COLUMN")
    column = reader.path()
    if not column:
        return None
    if reader.words("SET", "NOT", "NULL"):
        return "ALTER COLUMN", {"kind": "UpdateColumnNullability", "column": list(column), "nullable": False}
    if reader.words("SYNC", "IDENTITY"):
        return "ALTER COLUMN ... SYNC IDENTITY", {"kind": "SyncIdentity", "column": list(column)}
    return None


class _Reader:
    """Tokens with a place among them. What does not match leaves the place where it was."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0

    @property
    def done(self) -> bool:
        return self._next == len(self._tokens)

    def words(self, *wanted: str) -> bool:
        """Whether the next tokens are these words; they are taken then."""
        tokens = self._tokens[self._next : self._next + len(wanted)]
        if len(tokens) < len(wanted) or any(t.kind == _QUOTED or t.text.upper() != word for t, word in zip(tokens, wanted, strict=True)):
            return False
        self._next += len(wanted)
        return True

    def name(self) -> str | None:
        """One identifier, without its backticks."""
        token = self._peek()
        if token is None or not _is_name(token):
            return None
        self._next += 1
        return token.text[1:-1].replace("``", "`") if token.kind == _QUOTED else token.text

    def path(self) -> tuple[str, ...]:
        """Identifiers with dots between them; empty where there is none."""
        parts: list[str] = []
        while (name := self.name()) is not None:
            parts.append(name)
            token = self._peek()
            if token is None or token.text != ".":
                return tuple(parts)
            self._next += 1
        return ()

    def string(self) -> str | None:
        """A string without escapes."""
        token = self._peek()
        if token is None or len(token.text) < 2 or token.text[0] not in "'\"" or token.text[-1] != token.text[0]:
            return None
        self._next += 1
        return token.text[1:-1]

    def parenthesised(self) -> str | None:
        """The text between a parenthesis and the one that closes it, as it was written."""
        token = self._peek()
        if token is None or token.text != "(":
            return None
        depth = 0
        for index in range(self._next, len(self._tokens)):
            depth += {"(": 1, ")": -1}.get(self._tokens[index].text, 0)
            if not depth:
                inside = self._text[token.stop + 1 : self._tokens[index].start].strip()
                self._next = index + 1
                return inside or None
        return None

    def _peek(self) -> Token | None:
        return None if self.done else self._tokens[self._next]


def _is_name(token: Token) -> bool:
    """Identifiers, and words of SQL, which Spark lets be names too."""
    return token.kind in (_QUOTED, _PLAIN) or (token.text.replace("_", "a").isalnum() and not token.text[0].isdigit())
