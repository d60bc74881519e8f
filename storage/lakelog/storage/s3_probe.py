"""What is looked at before the first write: does the server refuse to create what is there, and do writers of another kind share the table?

Both are asked by writers alone: the first of a server's bucket, once in a process; the second of a folder, and again where the last look is
a minute old, since such writers may come while this one runs.

The probe, on a name ``.probe-<uuid>`` in the folder that is about to be written, which nobody else has and no listing shows:

    1. create it      it is there, whether this answer or a lost one said so
    2. create it      must be refused with 412. If it is not, the server ignores ``If-None-Match``, and commits would replace each other
    3. delete it      whatever came before

A server that says in 1 or 2 that it does not know the header is refused as well. Any other failure proves nothing: it is the error of this
write, and the next write asks again.

Writers that exclude each other through DynamoDB put their commits under ``.tmp/`` first and copy them, each trusting that the others look
into DynamoDB. Who only creates the commit file is replaced by such a copy.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.s3_errors import Failure, Kind
from lakelog.storage.s3_requests import S3Requests, bucket_and_key, listing

__all__ = [
    "PROBE_PREFIX",
    "TEMPORARY_FOLDER",
    "UnconditionalWrites",
    "refuse_dynamodb_writers",
    "require_conditional_writes",
    "unconditional",
]

PROBE_PREFIX = ".probe-"
"""How the names of probes begin; one that a killed writer left behind may be deleted at any time."""

TEMPORARY_FOLDER = ".tmp/"
"""Where writers that use DynamoDB leave their commits first, in the folder of the log."""

_LOGGER = logging.getLogger(__name__)
# What servers answer that take the header for a mistake.
_UNKNOWN_HEADER = frozenset({"InvalidArgument", "InvalidRequest", "UnsupportedHeader", "UnsupportedOperation"})
_LOOK_LASTS_MS = 60_000
_NOTHING_WRITTEN = frozenset({Kind.UNSUPPORTED, Kind.DENIED, Kind.REFUSED, Kind.ABSENT, Kind.UNREACHABLE})


class UnconditionalWrites(StoreConfigurationError):
    """The server replaces what it is told to create, or does not know how to be told."""


def require_conditional_writes(requests: S3Requests, folder: str, new_uuid: Callable[[], str]) -> None:
    """Return once it is proven that the server of ``folder`` creates no object that is there.

    Args:
        requests: to the server.
        folder: of the log store, with the slash at its end.
        new_uuid: a fresh UUID.

    Raises:
        UnconditionalWrites: it does.
        StoreConfigurationError: the server or who asks it is wrong.
        StorageError, OSError: the server did not answer to the point.
    """
    bucket, prefix = bucket_and_key(folder)
    fact = ("conditional writes", requests.settings.endpoint_url, bucket)
    if fact not in _known:
        with _lock_of(fact):
            if fact not in _known:
                _probe(requests, folder, bucket, f"{prefix}{PROBE_PREFIX}{new_uuid()}")
                _known.add(fact)


def refuse_dynamodb_writers(requests: S3Requests, folder: str, now_ms: int) -> None:
    """Return once it is known that nobody commits to the log in ``folder`` by way of DynamoDB, as far as its objects tell and told less
    than a minute ago.

    Args:
        requests: to the server.
        folder: of the log store, with the slash at its end.
        now_ms: the time.

    Raises:
        StoreConfigurationError: somebody does.
        StorageError, OSError: the server did not answer to the point.
    """
    bucket, prefix = bucket_and_key(folder)
    fact = ("no writers through DynamoDB", requests.settings.endpoint_url, bucket, prefix)
    # A clock that was put back says nothing of when that was.
    if (looked_ms := _looked.get(fact)) is not None and 0 <= now_ms - looked_ms <= _LOOK_LASTS_MS:
        return
    found = requests.ask(
        "list_objects_v2",
        lambda answer: bool(listing(answer).get("Contents")),
        path=folder,
        Bucket=bucket,
        Prefix=prefix + TEMPORARY_FOLDER,
        MaxKeys=1,
    )
    if found:
        raise StoreConfigurationError(
            f"{folder}{TEMPORARY_FOLDER} shows that other writers commit to this table through DynamoDB, as delta-spark's "
            "S3DynamoDBLogStore does. They would replace commits of the s3 store. Choose the store that excludes them, "
            "spark.lakelog.s3a.logstore.class=dynamodb with their DynamoDB table; or, if no such writer is left, delete these objects, or "
            "set spark.lakelog.s3a.allow_dynamodb_writers=true."
        )
    _looked[fact] = now_ms


def unconditional(requests: S3Requests, path: str, seen: str) -> StorageError:
    """The error of a server on which the s3 store cannot be safe.

    Args:
        requests: to it.
        path: of the log store.
        seen: what it did.
    """
    server = requests.settings.endpoint_url or "AWS"
    return UnconditionalWrites(
        f"{path}: {server} {seen}, so that two writers could replace each other's commits. Nothing was committed. Use a server that "
        "honours If-None-Match: * of PutObject, or the store that excludes writers through DynamoDB, "
        "spark.lakelog.s3a.logstore.class=dynamodb."
    )


def _probe(requests: S3Requests, folder: str, bucket: str, key: str) -> None:
    outcome: Failure | None = None
    try:
        outcome = _create(requests, bucket, key)
        if outcome is None:
            again = _create(requests, bucket, key)
            if again is None:
                raise unconditional(requests, folder, "created an object that was there already, although told not to")
            if again.kind is not Kind.EXISTS:
                raise _failed(requests, folder, again)
        elif outcome.kind is not Kind.EXISTS:
            raise _failed(requests, folder, outcome)
    finally:
        if outcome is None or (outcome.kind not in _NOTHING_WRITTEN and not outcome.unknown_server):
            removed = requests.repeated("delete_object", lambda _: True, Bucket=bucket, Key=key)
            if isinstance(removed, Failure) and (outcome is None or outcome.kind is Kind.EXISTS):
                name = key.rpartition("/")[2]
                _LOGGER.warning("%s%s stays behind, and may be deleted: %s", folder, name, removed.error(folder, requests.settings))


def _create(requests: S3Requests, bucket: str, key: str) -> Failure | None:
    """None where it was created; a request that was repeated may find what its first sending made."""
    return requests.repeated("put_object", lambda _: None, Bucket=bucket, Key=key, Body=b"", IfNoneMatch="*")


def _failed(requests: S3Requests, path: str, failure: Failure) -> Exception:
    if failure.kind is Kind.UNSUPPORTED or failure.code in _UNKNOWN_HEADER:
        return unconditional(requests, path, f"does not know how to create an object only if it is absent ({failure.code})")
    return failure.error(path, requests.settings)


_known: set[Hashable] = set()
_looked: dict[Hashable, int] = {}
_locks: dict[Hashable, threading.Lock] = {}
_locks_lock = threading.Lock()


def _lock_of(fact: Hashable) -> threading.Lock:
    with _locks_lock:
        return _locks.setdefault(fact, threading.Lock())


def _forget_locks() -> None:
    """In a process that was forked: another thread of the parent may have held one. What is known stays true."""
    global _locks_lock
    _locks_lock = threading.Lock()
    _locks.clear()


os.register_at_fork(after_in_child=_forget_locks)
