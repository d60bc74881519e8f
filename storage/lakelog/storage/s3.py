"""The LogStore for S3 and for servers that speak like it: many writers on many machines, and no service beside the bucket.

Assumptions: a PutObject with ``If-None-Match: *`` creates the object or is refused with 412, whoever asks at the same time; a PutObject is
seen wholly or not at all; once it has answered, every GetObject and ListObjectsV2 shows it. AWS says so of S3 since 2024 and 2020. Of any
other server the first is tried out before the first write, see `lakelog.storage.s3_probe`.

How one creator wins. ``N`` is the name of the commit.

    1. before a process' first write to a bucket the probe, and before that to a table a look for writers of another kind, which is
       repeated when it is a minute old
    2. one PutObject of N with If-None-Match: *         the commit point

A request is sent once: the SDK's own repetitions are off, since the second sending would be refused because of the first. What is answered:

    200 with an ETag                  Created
    412                               AlreadyExists: another's, or an earlier sending of ours, as the reader's txnId tells
    409                               another conditional request was under way; nothing was written, so it is sent again, a few times
    no answer, half an answer, 5xx    Unknown: it may be there, or may come to be there still
    2xx without an ETag               Unknown: no S3 said so, but a portal or a proxy on the way
    501                               nothing was written, and the store is refused by name
    any other 4xx                     an error; nothing was written

No connection is Unknown as well, although nothing was sent: whoever commits then finds the file absent and sends the same bytes again.

A crash before 2 is answered leaves N absent or whole. Readers send no probe and never write.

Listings are pages of 1000 from the bound on; StartAfter is exclusive, so that it names something below the bound, and what comes before the
bound is passed over. A listing that breaks off, or that does not come on, is an error. S3 Express (bucket names that end in ``--x-s3``)
lists in no order and knows no StartAfter: it is listed whole and sorted. Names that begin with ``.probe-`` are not shown.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from itertools import chain, islice
from typing import Any

from lakelog.core.errors import StorageError
from lakelog.storage.environment import Environment
from lakelog.storage.log_store import AlreadyExists, Created, FileInfo, LogStore, PutOutcome, Unknown
from lakelog.storage.s3_errors import Failure, Kind, is_folderless
from lakelog.storage.s3_options import as_bool, without_secrets
from lakelog.storage.s3_probe import PROBE_PREFIX, refuse_dynamodb_writers, require_conditional_writes, unconditional
from lakelog.storage.s3_requests import S3Requests, bucket_and_key, listing
from lakelog.storage.s3_settings import S3Settings

__all__ = ["S3LogStore"]

_PAGE = 1000
_CONFLICTS = 6
_EMPTY_PAGES = 1000
# What servers answer that do not take many keys in one request, or want a checksum of it that newer SDKs do not send.
_NO_BATCHES = frozenset(
    {"MissingContentMD5", "InvalidDigest", "MalformedXML", "MethodNotAllowed", "InvalidRequest", "InvalidArgument", "NotImplemented"}
    | {"MissingRequestBodyError", "XAmzContentChecksumMismatch"}
)


class S3LogStore(LogStore):
    """Commits by conditional PutObject; safe across threads, processes and machines. See the module for the proof.

    Pickles without secrets: what comes out asks with the credentials of its own machine.

    A subclass that excludes writers by other means overrides `put_if_absent` and `_before_creation`, and builds on `_create`, `_head`
    and the verbs.

    Args:
        options: how the server is reached and as whom, by the names of `lakelog.storage.s3_options`; ``allow_dynamodb_writers`` (false)
            writes tables on which writers of another kind were seen.
        environment: sleep, randomness, UUIDs and threads; by default the machine's own.

    Raises:
        StoreConfigurationError: options are unknown, make no sense or disagree.
    """

    def __init__(self, options: Mapping[str, object] | None = None, *, environment: Environment | None = None) -> None:
        self._options = dict(options or {})
        self._environment = environment or Environment.system()
        self._allow_dynamodb_writers = as_bool("allow_dynamodb_writers", self._options.get("allow_dynamodb_writers", False))
        self._requests_by_bucket: dict[str, S3Requests] = {}
        # Of servers that delete one by one.
        self._without_batches: set[str] = set()
        # What is wrong with the options is said now, and not at the first request.
        S3Settings.of(self._options)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (without_secrets(self._options),)

    def read(self, path: str) -> bytes:
        bucket, key = bucket_and_key(path)
        requests = self._requests(bucket)
        # A body that ends too early is an error of the SDK, by its Content-Length.
        answer = requests.repeated("get_object", _body, Bucket=bucket, Key=key)
        if isinstance(answer, Failure):
            if is_folderless(answer):
                raise _absent(path)
            raise answer.error(path, requests.settings)
        return answer

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._before_creation(path.rpartition("/")[0] + "/")
        return self._create(path, data)

    def put(self, path: str, data: bytes) -> None:
        bucket, key = bucket_and_key(path)
        self._requests(bucket).ask("put_object", _nothing, path=path, Bucket=bucket, Key=key, Body=bytes(data))

    def list_from(self, path: str) -> Iterator[FileInfo]:
        folder, _, first = path.rpartition("/")
        if _is_unordered(bucket_and_key(folder + "/")[0]):
            whole = sorted(self._files(folder, ""), key=lambda file: file.name)
            files: Iterator[FileInfo] = (file for file in whole if file.name >= first)
        else:
            files = self._files(folder, first)
        head = next(files, None)
        if head is None:
            self._require_folder(folder)
            return iter(())
        return chain((head,), files)

    def delete(self, paths: Iterable[str]) -> None:
        left = iter(paths)
        while batch := list(dict.fromkeys(islice(left, _PAGE))):
            by_bucket: dict[str, dict[str, str]] = {}
            for path in batch:
                bucket, key = bucket_and_key(path)
                by_bucket.setdefault(bucket, {})[key] = path
            for bucket, keys in by_bucket.items():
                self._delete(bucket, keys)

    # for subclasses ---------------------------------------------------------------------------------------------------

    def _before_creation(self, folder: str) -> None:
        """Called before each `put_if_absent` in a folder; asks what is not known, or not any more.

        Args:
            folder: with the slash at its end.

        Raises:
            StoreConfigurationError: it must not be written by this store.
            StorageError, OSError: the server did not answer to the point.
        """
        requests = self._requests(bucket_and_key(folder)[0])
        require_conditional_writes(requests, folder, self._environment.new_uuid)
        if not self._allow_dynamodb_writers:
            refuse_dynamodb_writers(requests, folder, self._environment.now_ms())

    def _create(self, path: str, data: bytes) -> PutOutcome:
        """One conditional PutObject, sent again only where the server says that it did nothing and to come again.

        Raises: as `put_if_absent`.
        """
        bucket, key = bucket_and_key(path)
        requests, body = self._requests(bucket), bytes(data)
        failure: Failure | None = None
        for attempt in range(_CONFLICTS):
            if failure is not None:
                requests.wait(attempt, failure)
            answer = requests.once("put_object", _nothing, Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")
            if not isinstance(answer, Failure):
                return Created()
            failure = answer
            if failure.kind is not Kind.BUSY:
                break
        assert failure is not None, "at least one request was sent"
        if failure.kind is Kind.EXISTS:
            return AlreadyExists()
        error = failure.error(path, requests.settings)
        if failure.kind in (Kind.TRANSIENT, Kind.TIMEOUT, Kind.UNREACHABLE, Kind.BUSY):
            return Unknown(error, retry_after_s=failure.retry_after_s)
        if failure.kind is Kind.UNSUPPORTED:
            raise unconditional(requests, path, f"does not know how to create an object only if it is absent ({failure.code})")
        raise error

    def _head(self, path: str) -> FileInfo | None:
        """What a listing would say of one file, by one HeadObject; None where there is none.

        Raises:
            StorageError, OSError: the server did not answer to the point.
        """
        bucket, key = bucket_and_key(path)
        requests = self._requests(bucket)
        answer = requests.repeated("head_object", _of_head, Bucket=bucket, Key=key)
        if not isinstance(answer, Failure):
            size, time_ms = answer
            return FileInfo(path=path, size=size, modification_time_ms=time_ms)
        if answer.kind is Kind.ABSENT or is_folderless(answer):
            return None
        raise answer.error(path, requests.settings)

    def _requests(self, bucket: str) -> S3Requests:
        """Requests with the settings that hold for a bucket.

        Raises:
            StoreConfigurationError: options of this bucket make no sense.
        """
        found = self._requests_by_bucket.get(bucket)
        if found is None:
            found = S3Requests(S3Settings.of(self._options, bucket=bucket), self._environment)
            self._requests_by_bucket[bucket] = found
        return found

    # listings ---------------------------------------------------------------------------------------------------------

    def _files(self, folder: str, first: str) -> Iterator[FileInfo]:
        """The files of a folder from a name on, a page in memory at a time, in the server's order."""
        bucket, prefix = bucket_and_key(folder + "/")
        ordered = not _is_unordered(bucket)
        start = {"StartAfter": _before(prefix, first)} if first else {}
        shown: set[str] = set()
        last = ""
        for page in self._pages(folder, bucket, prefix, start):
            found: dict[str, FileInfo] = {}
            for item in page:
                name = item["Key"][len(prefix) :]
                if name >= first and name and name not in shown and not name.startswith(PROBE_PREFIX):
                    found[name] = FileInfo(
                        path=f"{folder}/{name}",
                        size=item["Size"],
                        modification_time_ms=_ms(item["LastModified"]),
                        # Of an object that was put in one piece, unless it is encrypted with a key of KMS.
                        content_md5=item.get("ETag", "").strip('"') or None,
                    )
            if ordered and found:
                # Within a page a server's disorder is mended, over pages it cannot be.
                if min(found) < last:
                    raise StorageError(
                        f"{folder}/: the server lists {min(found)} after {last}. A log can only be read from one that lists in order."
                    )
                last = max(found)
            shown = set(found)
            yield from (found[name] for name in sorted(found))

    def _pages(self, folder: str, bucket: str, prefix: str, start: Mapping[str, str]) -> Iterator[list[dict[str, Any]]]:
        more: Mapping[str, str] | None = start
        ordered, tokens, seen, idle = not _is_unordered(bucket), set[str | None](), set[str](), 0
        while more is not None:
            answer = self._requests(bucket).ask(
                "list_objects_v2", listing, path=f"{folder}/", Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=_PAGE, **more
            )
            token = answer.get("NextContinuationToken")
            truncated = bool(answer.get("IsTruncated"))
            if truncated != bool(token):
                said = "says that there is more, and not how to go on" if truncated else "says how to go on, and that there is no more"
                raise _no_listing(folder, said)
            if token in tokens:
                raise _no_listing(folder, "wants to go on with the same page again")
            tokens.add(token)
            more = {"ContinuationToken": token} if token else None
            items = answer.get("Contents", [])
            # What is marked as deleted, and what is in folders, may fill a few pages.
            idle = 0 if _brings_more(items, ordered, seen) else idle + 1
            if more is not None and (idle > _EMPTY_PAGES or (items and idle)):
                raise _no_listing(folder, "sends pages that bring nothing new, or not in order, and says that there is more")
            yield items

    def _require_folder(self, folder: str) -> None:
        """Of a folder that showed nothing from some name on.

        Raises:
            FileNotFoundError: there is nothing in it.
        """
        bucket, prefix = bucket_and_key(folder + "/")
        requests = self._requests(bucket)
        answer = requests.ask("list_objects_v2", _keys, path=f"{folder}/", Bucket=bucket, Prefix=prefix, MaxKeys=2)
        if all(key[len(prefix) :].startswith(PROBE_PREFIX) for key in answer):
            raise _absent(f"{folder}/")

    # deletion ---------------------------------------------------------------------------------------------------------

    def _delete(self, bucket: str, keys: Mapping[str, str]) -> None:
        if len(keys) > 1 and bucket not in self._without_batches and self._delete_at_once(bucket, keys):
            return
        # All of them are tried; the first error is the one that is raised.
        for _ in list(self._environment.parallel(lambda key: self._delete_one(bucket, key, keys[key]), list(keys))):
            pass

    def _delete_one(self, bucket: str, key: str, path: str) -> None:
        requests = self._requests(bucket)
        answer = requests.repeated("delete_object", _nothing, Bucket=bucket, Key=key)
        if isinstance(answer, Failure) and answer.code != "NoSuchKey" and not is_folderless(answer):
            raise answer.error(path, requests.settings)

    def _delete_at_once(self, bucket: str, keys: Mapping[str, str]) -> bool:
        """False where the server takes no such request."""
        requests = self._requests(bucket)
        objects = [{"Key": key} for key in keys]
        answer = requests.repeated("delete_objects", _errors, Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        if isinstance(answer, Failure):
            if answer.kind is Kind.UNSUPPORTED or answer.code in _NO_BATCHES:
                self._without_batches.add(bucket)
                return False
            raise answer.error(next(iter(keys.values())), requests.settings)
        # What failed within an answer is asked for by itself: it says the same again, or was the server's trouble of a moment.
        for error in answer:
            if error.get("Code") != "NoSuchKey":
                self._delete_one(bucket, error["Key"], keys.get(error["Key"], f"s3a://{bucket}/{error['Key']}"))
        return True


def _brings_more(items: Iterable[Mapping[str, Any]], ordered: bool, seen: set[str]) -> bool:
    """Whether a page has what the pages before it have not: in order, what is above; else what is not in ``seen``. Adds to ``seen``."""
    keys = {item["Key"] for item in items}
    if ordered and keys:
        last = max(keys)
        more = all(last > before for before in seen)
        seen.clear()
        seen.add(last)
        return more
    more = not keys <= seen
    seen |= keys
    return more


def _no_listing(folder: str, said: str) -> StorageError:
    return StorageError(
        f"{folder}/: the server's listing cannot be gone by: it {said}. Commits would be missed. Use a server, or a proxy before it, that "
        "lists by pages as S3 does (ListObjectsV2)."
    )


def _is_unordered(bucket: str) -> bool:
    return bucket.endswith("--x-s3")


def _before(prefix: str, name: str) -> str:
    """Something below every key that is not below ``prefix + name``, and above as much as possible of what is."""
    last = ord(name[-1]) - 1
    if last == ord("/"):
        # Servers take it for the end of a folder, and a name of dots for a folder above.
        last = ord("-")
    # Not what XML cannot hold, nor a half of a character.
    if last <= 0x20 or 0xD800 <= last <= 0xDFFF:
        return prefix + (name[:-1] if name[:-1].strip(".") else "")
    return prefix + name[:-1] + chr(last)


def _absent(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _body(answer: Mapping[str, Any]) -> bytes:
    # Entered by itself it gives the raw stream, whose errors are not the SDK's.
    with closing(answer["Body"]) as body:
        data: bytes = body.read()
        return data


def _nothing(_: object) -> None:
    return None


def _keys(answer: dict[str, Any]) -> list[str]:
    return [item["Key"] for item in listing(answer).get("Contents", [])]


def _errors(answer: Mapping[str, Any]) -> list[dict[str, str]]:
    return list(answer.get("Errors", []))


def _of_head(answer: Mapping[str, Any]) -> tuple[int, int]:
    return answer["ContentLength"], _ms(answer["LastModified"])


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
