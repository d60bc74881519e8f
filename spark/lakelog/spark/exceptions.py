"""delta-spark's eight conflict exceptions by name, for users of PySpark.

Each is core's class of the same name and a `pyspark.errors.PySparkException` with delta-spark's error condition and SQLSTATE, so a clause
that names either catches it; the first is the root of the other seven. Where a program has imported delta-spark's ``delta.exceptions``
(the wheel may lie beside lakelog), what is raised is an instance of that module's class of the same name too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, cast

from pyspark.errors import PySparkException

from lakelog.core import errors as core

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]

_DELTA_SPARKS = "delta.exceptions"


class DeltaConcurrentModificationException(core.DeltaConcurrentModificationException, PySparkException):
    """Another writer committed something that this transaction must not ignore: read again, run again.

    Has no condition of its own, as delta-spark's has none.

    Args:
        message: what the user reads.
        winner_version: the version of the commit that stands in the way.
        rule: the rule of the conflict check that objected.
        partition: the partition in which both met, as the message spells it.
    """

    _condition: ClassVar[str | None] = None
    _has_hints: ClassVar[bool] = False

    def __init__(self, message: str, *, winner_version: int | None = None, rule: str | None = None, partition: str | None = None) -> None:
        super().__init__(message, winner_version=winner_version, rule=rule, partition=partition)
        # PySpark's constructor does not hand the message on to Exception's.
        self.args = (message,)

    def getCondition(self) -> str | None:
        """delta-spark's error condition, such as ``DELTA_CONCURRENT_APPEND.WITHOUT_HINT``."""
        if not self._has_hints:
            return self._condition
        return f"{self._condition}.{'WITHOUT_HINT' if self.partition is None else 'WITH_PARTITION_HINT'}"

    def getSqlState(self) -> str:
        """The SQLSTATE that delta-spark gives every conflict."""
        return "2D521"

    def getMessageParameters(self) -> dict[str, str]:
        """What is known of the winner, under delta-spark's names: ``version`` and ``partitionValues``."""
        known = {"version": self.winner_version, "partitionValues": self.partition}
        return {name: str(value) for name, value in known.items() if value is not None}

    def getMessage(self) -> str:
        """The message behind its condition in brackets, as PySpark shows its own: programs look for the condition in the text."""
        condition, told = self.getCondition(), str(self.args[0])
        return told if condition is None else f"[{condition}] {told}"

    def __str__(self) -> str:
        return self.getMessage()

    def __reduce__(self) -> tuple[object, ...]:
        kept = {name: value for name, value in vars(self).items() if name not in _PYSPARKS_STATE}
        return _remade, (_twin_of(type(self)), self.args), kept


class ConcurrentWriteException(core.ConcurrentWriteException, DeltaConcurrentModificationException):
    """Another commit landed since this transaction's snapshot, and it cannot be reconciled."""

    _condition = "DELTA_CONCURRENT_WRITE"


class MetadataChangedException(core.MetadataChangedException, DeltaConcurrentModificationException):
    """Another commit changed the table's metadata."""

    _condition = "DELTA_METADATA_CHANGED"


class ProtocolChangedException(core.ProtocolChangedException, DeltaConcurrentModificationException):
    """Another commit changed the table's protocol."""

    _condition = "DELTA_PROTOCOL_CHANGED"


class ConcurrentAppendException(core.ConcurrentAppendException, DeltaConcurrentModificationException):
    """Another commit added files that this transaction would have read."""

    _condition = "DELTA_CONCURRENT_APPEND"
    _has_hints = True


class ConcurrentDeleteReadException(core.ConcurrentDeleteReadException, DeltaConcurrentModificationException):
    """Another commit removed files that this transaction read."""

    _condition = "DELTA_CONCURRENT_DELETE_READ"
    _has_hints = True


class ConcurrentDeleteDeleteException(core.ConcurrentDeleteDeleteException, DeltaConcurrentModificationException):
    """Another commit removed files that this transaction removes."""

    _condition = "DELTA_CONCURRENT_DELETE_DELETE"
    _has_hints = True


class ConcurrentTransactionException(core.ConcurrentTransactionException, DeltaConcurrentModificationException):
    """Another commit of the same application id landed first."""

    _condition = "DELTA_CONCURRENT_TRANSACTION"


_Twin = type[DeltaConcurrentModificationException]

_TWINS: dict[type, _Twin] = {
    core.DeltaConcurrentModificationException: DeltaConcurrentModificationException,
    core.ConcurrentWriteException: ConcurrentWriteException,
    core.MetadataChangedException: MetadataChangedException,
    core.ProtocolChangedException: ProtocolChangedException,
    core.ConcurrentAppendException: ConcurrentAppendException,
    core.ConcurrentDeleteReadException: ConcurrentDeleteReadException,
    core.ConcurrentDeleteDeleteException: ConcurrentDeleteDeleteException,
    core.ConcurrentTransactionException: ConcurrentTransactionException,
}

# The classes that are delta-spark's too, by ours and theirs.
_JOINED: dict[tuple[type, type], _Twin] = {}

# What PySpark's constructor makes anew: a reader with Spark's whole table of errors among it, which no pickle should carry.
_PYSPARKS_STATE = frozenset(vars(PySparkException("")))


def pyspark_error(error: BaseException) -> BaseException:
    """The error as a user of PySpark meets it: one of core's conflicts as its twin with the same message, any other as it is."""
    if not isinstance(error, core.DeltaConcurrentModificationException) or isinstance(error, PySparkException):
        return error
    made = _remade(_twin_of(type(error)), error.args)
    vars(made).update(vars(error))
    return made


@contextmanager
def pyspark_errors() -> Iterator[None]:
    """Around a call of the user's that does not come through the JVM: what leaves is `pyspark_error`."""
    try:
        yield
    except core.DeltaConcurrentModificationException as error:
        raise pyspark_error(error).with_traceback(error.__traceback__) from None


def _twin_of(kind: type) -> _Twin:
    return next(_TWINS[base] for base in kind.__mro__ if base in _TWINS)


def _remade(twin: _Twin, args: tuple[str]) -> DeltaConcurrentModificationException:
    """A twin that is also delta-spark's class, if its module is loaded: without that no clause can name the class."""
    theirs = getattr(sys.modules.get(_DELTA_SPARKS), twin.__name__, None)
    if isinstance(theirs, type) and issubclass(theirs, PySparkException) and not issubclass(twin, theirs):
        return _joined(twin, theirs)(*args)
    return twin(*args)


def _joined(twin: _Twin, theirs: type[PySparkException]) -> _Twin:
    known = _JOINED.get((twin, theirs))
    if known is None:
        made = type(twin.__name__, (twin, theirs), {"__module__": twin.__module__, "__doc__": twin.__doc__})
        known = _JOINED.setdefault((twin, theirs), cast(_Twin, made))
    return known
