"""Every error that lakelog raises, as one tree. Leaves are split by what the caller does next.

    LakelogError
    ├── InvalidRequestError             fix what was asked
    │   ├── NotADeltaTableError         (also FileNotFoundError)
    │   ├── TableExistsError            (also FileExistsError)
    │   ├── VersionNotFoundError
    │   ├── ChangeDataNotRecordedError
    │   ├── SchemaMismatchError
    │   ├── InvalidSchemaError
    │   ├── UnsupportedTypeError
    │   ├── PartitionColumnError
    │   ├── ColumnNotFoundError
    │   ├── InvalidOptionError
    │   ├── InvalidTablePropertyError
    │   ├── InvalidExpressionError
    │   ├── ConstraintViolationError
    │   ├── UnsupportedOperationError
    │   └── TransactionActiveError
    ├── UnsupportedFeatureError         use a newer lakelog, or drop the feature from the table
    ├── FeatureInHistoryError           wait, then drop the feature again
    ├── CorruptLogError                 repair the table
    │   ├── MissingCommitError
    │   ├── PathEscapesTableError
    │   └── PathOutsideTableError
    ├── WriteFailedError                mend what made the job fail, write again
    ├── DataFileMissingError            (also FileNotFoundError) restore the file or read another version
    ├── StorageError                    fix the configuration or the store
    │   ├── UnknownSchemeError
    │   ├── StoreConfigurationError
    │   └── TableNotRegisteredError
    ├── SessionNotEnabledError          call lakelog.spark.enable(spark)
    ├── DeltaConcurrentModificationException   read again, run again
    │   ├── ConcurrentWriteException
    │   ├── MetadataChangedException
    │   ├── ProtocolChangedException
    │   ├── ConcurrentAppendException
    │   ├── ConcurrentDeleteReadException
    │   ├── ConcurrentDeleteDeleteException
    │   └── ConcurrentTransactionException
    └── CommitOutcomeUnknown            ask the log later; delete nothing

A message names the table, what was asked, and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class LakelogError(Exception):
    """Root of every error raised by lakelog. Errors copy and pickle with all that they carry."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own way calls the class with the message alone, which those that must be told more refuse.
        return _rebuilt, (type(self), self.args), self.__getstate__()


def _rebuilt(kind: type[LakelogError], args: tuple[object, ...]) -> LakelogError:
    return kind.__new__(kind, *args)


class InvalidRequestError(LakelogError):
    """What was asked cannot be done; the table is untouched."""


class NotADeltaTableError(InvalidRequestError, FileNotFoundError):
    """There is no Delta table at the path."""


class TableExistsError(InvalidRequestError, FileExistsError):
    """Something is already at the path, and the save mode says to stop then."""


class VersionNotFoundError(InvalidRequestError):
    """The version or time asked for is not in the log.

    Args:
        message: what the user reads.
        asked: the version asked for, None when a time was asked for.
        earliest: the oldest version that can be rebuilt.
        latest: the newest version.
    """

    def __init__(self, message: str, *, asked: int | None = None, earliest: int | None = None, latest: int | None = None) -> None:
        super().__init__(message)
        self.asked = asked
        self.earliest = earliest
        self.latest = latest


class ChangeDataNotRecordedError(InvalidRequestError):
    """A version of the range whose changes were asked for did not record them.

    Args:
        message: what the user reads.
        version: the first version that did not, None where only the message is at hand.
    """

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class SchemaMismatchError(InvalidRequestError):
    """The data's schema does not fit the table's.

    Args:
        message: what the user reads.
        differences: one sentence per column that differs.
    """

    def __init__(self, message: str, *, differences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


class InvalidSchemaError(InvalidRequestError):
    """A schema that no table may have: duplicate names, forbidden characters, no column."""


class UnsupportedTypeError(InvalidRequestError):
    """A data type that Delta cannot hold, or that lakelog does not know."""


class PartitionColumnError(InvalidRequestError):
    """Partition columns that are absent, of a type that cannot partition, all columns, or other than the table's."""


class ColumnNotFoundError(InvalidRequestError):
    """A column that the table does not have."""


class InvalidOptionError(InvalidRequestError):
    """A reader or writer option with a value that makes no sense, or two that exclude each other."""


class InvalidTablePropertyError(InvalidRequestError):
    """A table property whose value cannot be parsed."""


class InvalidExpressionError(InvalidRequestError):
    """SQL of a constraint, a generated column or a default that cannot be parsed, or speaks of what a table's own row does not tell."""


class ConstraintViolationError(InvalidRequestError):
    """Rows that the table's constraints refuse."""


class UnsupportedOperationError(InvalidRequestError):
    """A statement or an API call that lakelog refuses by name."""


class TransactionActiveError(InvalidRequestError):
    """A transaction was started inside another one of the same thread."""


class UnsupportedFeatureError(LakelogError):
    """The table uses features that this lakelog does not implement.

    Args:
        message: what the user reads.
        features: their names as PROTOCOL.md spells them, or ``minReaderVersion=N``.
    """

    def __init__(self, message: str, *, features: Sequence[str]) -> None:
        super().__init__(message)
        self.features = tuple(features)


class FeatureInHistoryError(LakelogError):
    """A feature is out of use, but stays in the protocol as long as the log keeps versions that use it.

    Args:
        message: what the user reads.
        version: the newest version that uses it.
    """

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class CorruptLogError(LakelogError):
    """The log holds what the protocol does not allow."""


class MissingCommitError(CorruptLogError):
    """A commit file between two others, or after the checkpoint, is gone."""


class PathEscapesTableError(CorruptLogError):
    """A file path in the log leaves the table's folder by ``..``."""


class PathOutsideTableError(CorruptLogError):
    """An absolute file path in the log lies on another filesystem than the table."""


class WriteFailedError(LakelogError):
    """Spark's job that writes data files failed; the table is untouched."""


class DataFileMissingError(LakelogError, FileNotFoundError):
    """A data file that the log names is gone."""


class StorageError(LakelogError):
    """The store under the table cannot do what was asked."""


class UnknownSchemeError(StorageError):
    """No LogStore is registered for the path's scheme."""


class StoreConfigurationError(StorageError):
    """Settings of a LogStore that are missing or disagree."""


class TableNotRegisteredError(StorageError):
    """A table was created at its path, but Spark's catalog did not take its name."""


class SessionNotEnabledError(LakelogError):
    """The Spark session does not serve Delta through lakelog."""


class DeltaConcurrentModificationException(LakelogError):
    """Another writer committed something that this transaction must not ignore.

    Args:
        message: what the user reads.
        winner_version: the version of the commit that stands in the way.
        rule: the rule of the conflict check that objected.
        partition: the partition in which both met, as the message spells it.
    """

    def __init__(self, message: str, *, winner_version: int | None = None, rule: str | None = None, partition: str | None = None) -> None:
        super().__init__(message)
        self.winner_version = winner_version
        self.rule = rule
        self.partition = partition


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Another commit landed since this transaction's snapshot, and it cannot be reconciled."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """Another commit changed the table's metadata."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """Another commit changed the table's protocol."""


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Another commit added files that this transaction would have read."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """Another commit removed files that this transaction read."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """Another commit removed files that this transaction removes."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Another commit of the same application id landed first."""


class CommitOutcomeUnknown(LakelogError):
    """Nobody could tell whether the commit landed; its data files must stay until `resolve` has told.

    Args:
        message: what the user reads.
        version: the version that was attempted.
        txn_id: the attempt's ``commitInfo.txnId``.
        settle: what `resolve` does; None where only the message is at hand, as after pickling.
    """

    def __init__(self, message: str, *, version: int, txn_id: str, settle: Callable[[], int | None] | None = None) -> None:
        super().__init__(message)
        self.version = version
        self.txn_id = txn_id
        self._settle = settle

    def resolve(self) -> int | None:
        """Settle the outcome now: the same bytes go to the same version again, and what is there is read.

        Returns:
            The version, if the commit landed or has landed now. None, if another writer's commit holds the version: nothing of this
            one is or will be in the table, and the operation may be run again.

        Raises:
            CommitOutcomeUnknown: the store still does not tell; call it again later.
            UnsupportedOperationError: this error was pickled, and what it would have to repeat is gone with its process.
        """
        if self._settle is None:
            raise UnsupportedOperationError(
                f"Only the process that attempted version {self.version} can settle it. Look for txnId {self.txn_id} in the commit "
                "file of that version instead: if it is there, the commit landed; if another commit is there, run the operation again."
            )
        return self._settle()

    def __getstate__(self) -> object:
        return {**self.__dict__, "_settle": None}
