"""A thread has one active transaction; what it wrote is removed when the commit is known to have failed, and only then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lakelog.core.commit import CommitAttempt
from lakelog.core.errors import CommitOutcomeUnknown, LakelogError, StorageError, TransactionActiveError
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.storage.data_files import delete_files

_log = logging.getLogger(__name__)
_active = threading.local()


@contextmanager
def transaction(operation: str, root: str) -> Iterator[None]:
    """Mark the thread as being inside a transaction.

    Raises:
        TransactionActiveError: the thread is inside one already.
    """
    before = getattr(_active, "what", None)
    if before is not None:
        raise nested(f"{operation} on Delta table {root}", before)
    _active.what = f"{operation} on {root}"
    try:
        yield
    finally:
        _active.what = None


def nested(operation: str, outer: str) -> TransactionActiveError:
    """The error of an operation that was started while another one of its thread runs."""
    return TransactionActiveError(
        f"{operation} was started inside another transaction of the same thread ({outer}). Let that one finish first, or run this one in "
        "another thread."
    )


@contextmanager
def written_files(context: Context, uris: Sequence[str]) -> Iterator[None]:
    """Data files that no commit was tried for yet: any failure inside removes them."""
    try:
        yield
    except BaseException:
        discard(context, uris)
        raise


def commit(context: Context, root: str, attempt: CommitAttempt, written: Sequence[str], landed: Callable[[], None]) -> HeldSnapshot:
    """Commit, and remove the written files when the attempt is known not to have landed.

    Args:
        written: absolute URIs of the data files that the attempt adds.
        landed: what follows a commit whose outcome was unknown, once ``resolve()`` learns that it is there.

    Raises:
        DeltaConcurrentModificationException: another commit stands in the way; the files are removed.
        CommitOutcomeUnknown: nobody could tell; the files stay. Its ``resolve()`` removes them when it learns that the commit is not there.
        LakelogError, OSError: the commit was refused; the files are removed.
    """
    try:
        result = context.logs.log(root).commit(attempt)
    except CommitOutcomeUnknown as unknown:
        raise _settling(context, unknown, written, landed) from unknown.__cause__
    except (LakelogError, OSError):
        # What a table log raises beside the unknown outcome says that nothing was committed. Of an interrupt or a bug nothing is known.
        discard(context, written)
        raise
    return context.logs.hold(result.snapshot)


def _settling(context: Context, unknown: CommitOutcomeUnknown, written: Sequence[str], landed: Callable[[], None]) -> CommitOutcomeUnknown:
    """The error with a ``resolve()`` that removes the written files once it is known that no version names them."""

    def settle() -> int | None:
        try:
            version = unknown.resolve()
        except CommitOutcomeUnknown as still:
            raise _settling(context, still, written, landed) from still.__cause__
        if version is None:
            discard(context, written)
        else:
            landed()
        return version

    return CommitOutcomeUnknown(str(unknown), version=unknown.version, txn_id=unknown.txn_id, settle=settle)


def discard(context: Context, uris: Sequence[str]) -> None:
    """Delete files that no version names. Best effort: what stays is garbage that no reader sees."""
    if not uris:
        return
    try:
        delete_files(context.access(uris[0]), context.store(uris[0]), uris)
    except (OSError, StorageError) as error:
        _log.warning("could not delete %d unused data files: %s", len(uris), error)
