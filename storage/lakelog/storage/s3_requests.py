"""Requests to S3: the clients that a process shares, and how often a request is repeated.

Clients are costly to make and safe to share, sessions are neither: each process makes one of each per settings, under a lock. A process
that was forked makes its own; it must not write to the connections that it was born with, which are its parent's.

The SDK repeats nothing. What may be repeated without harm is repeated here: a few times, with waits that grow by chance, and with those
that the server asks for, as long as they are short. What nobody has ever answered is given up sooner, since it is likely a wrong address.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import botocore.exceptions
import botocore.parsers

from lakelog.core.errors import StorageError
from lakelog.storage.environment import Environment
from lakelog.storage.s3_errors import SDK_ERRORS, WIRE_ERRORS, CredentialsUnreachable, Failure, Kind
from lakelog.storage.s3_redaction import hide, hide_environment, watch_loggers
from lakelog.storage.s3_settings import S3Settings

__all__ = ["S3Requests", "bucket_and_key", "listing"]

_T = TypeVar("_T")

_ATTEMPTS = {Kind.UNREACHABLE: 3, Kind.TIMEOUT: 3, Kind.TRANSIENT: 6, Kind.BUSY: 6}
# What a server that is none of S3's makes of a request, if not a mishap on the way.
_NO_S3 = frozenset({"ResponseParserError", "SSLError"})
_OF_OBJECTS = frozenset({"put_object", "get_object", "head_object"})
_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0
_MOST_CLIENTS = 32
# By which the SDK finds credentials where none were given.
_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


def bucket_and_key(path: str) -> tuple[str, str]:
    """The parts of ``s3a://bucket/key``, whatever of S3's schemes it has. Nothing is decoded.

    Raises:
        StorageError: the path is no such thing.
    """
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme.lower() not in ("s3", "s3a", "s3n") or not bucket or not key:
        raise StorageError(f"{path!r} is no path of an object; write it as s3a://bucket/folder/name.")
    return bucket, key


def listing(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of ListObjectsV2, which even of an empty folder says how many keys it has.

    Raises:
        ResponseParserError: it is some other page that a web server gave.
    """
    if "KeyCount" not in answer and "IsTruncated" not in answer:
        raise botocore.parsers.ResponseParserError("the answer to ListObjectsV2 is no listing")
    return answer


def _of_object(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of PutObject, GetObject or HeadObject, which has the object's ETag.

    Raises:
        ResponseParserError: it was no S3 that said 200, but a proxy, a portal or a web server; nothing is known of the object.
    """
    if not answer.get("ETag"):
        raise botocore.parsers.ResponseParserError("the answer has no ETag")
    return answer


def _no_page(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of another verb, of which some have nothing to be known by.

    Raises:
        ResponseParserError: it is a page for people to read.
    """
    said = answer.get("ResponseMetadata", {})
    headers = said.get("HTTPHeaders", {})
    # Some servers of S3 call their answers so, too, if there is nothing in them; but they have numbers.
    is_html = headers.get("content-type", "").lower().startswith("text/html")
    if is_html and said.get("HTTPStatusCode") == 200 and "x-amz-request-id" not in headers:
        raise botocore.parsers.ResponseParserError("the answer is a page of HTML")
    return answer


class S3Requests:
    """Asks one server as one identity. Holds no connection itself; safe to share between threads and over forks.

    Args:
        settings: which server, as whom.
        environment: sleep and randomness for the waits.
    """

    def __init__(self, settings: S3Settings, environment: Environment) -> None:
        self.settings = settings
        self._environment = environment

    def once(self, operation: str, take: Callable[[Any], _T], /, **arguments: object) -> _T | Failure:
        """Send one request, once.

        Args:
            operation: a method of boto3's client.
            take: makes the result of the SDK's answer, reading its body if there is one.
            arguments: of the method.

        Raises:
            StoreConfigurationError: no client can be made.
        """
        shared: _Shared | None = None
        try:
            shared = _shared(self.settings)
            said = getattr(shared.client, operation)(**arguments)
            answer = take(_of_object(said) if operation in _OF_OBJECTS else _no_page(said))
        except SDK_ERRORS as error:
            failure = Failure.of(error, _api_name(operation))
        else:
            shared.answered = True
            return answer
        if shared is None:
            return failure
        # A server that speaks S3 gives a code of its own.
        shared.answered |= failure.status is not None and failure.code != str(failure.status)
        if not shared.answered:
            failure = replace(failure, unknown_server=True, silent=failure.kind is Kind.TIMEOUT)
        if failure.code == "404" and failure.message and failure.operation != "HeadObject":
            # The status' own words are botocore's for a body that it cannot parse: of a server that speaks S3, half of an answer.
            return replace(failure, kind=Kind.TRANSIENT)
        return failure

    def repeated(self, operation: str, take: Callable[[Any], _T], /, **arguments: object) -> _T | Failure:
        """Send a request that does no harm when it is done twice, until there is an answer to go by or it was sent often enough.

        Raises:
            StoreConfigurationError: no client can be made.
        """
        attempt = 0
        while True:
            answer = self.once(operation, take, **arguments)
            if not isinstance(answer, Failure):
                return answer
            attempt += 1
            if attempt >= self._attempts(answer):
                return answer
            self.wait(attempt, answer)

    def ask(self, operation: str, take: Callable[[Any], _T], /, path: str, **arguments: object) -> _T:
        """`repeated`, where any failure is an error.

        Args:
            path: of the log store, for the message.

        Raises:
            FileNotFoundError: there is no such object.
            StoreConfigurationError, StorageError, OSError: as `Failure.error` says.
        """
        answer = self.repeated(operation, take, **arguments)
        if isinstance(answer, Failure):
            raise answer.error(path, self.settings)
        return answer

    def _attempts(self, failure: Failure) -> int:
        """How often a request is sent that ends like this."""
        most = _ATTEMPTS.get(failure.kind, 1)
        if most == 1 or _shared(self.settings).answered:
            return most
        if failure.silent or failure.code in _NO_S3:
            return 1
        # A failure without a code of S3: something before the server, or a page of another server, of which botocore makes a 500.
        return min(most, _ATTEMPTS[Kind.UNREACHABLE]) if failure.code == str(failure.status) else most

    def wait(self, attempt: int, failure: Failure) -> None:
        """Before the next attempt.

        Args:
            attempt: how many there were.
            failure: of the last one.
        """
        # Full jitter: writers that met once do not meet in step again.
        delay_s = _DELAY_S * 2**attempt * self._environment.random()
        self._environment.sleep(min(_LONGEST_DELAY_S, max(delay_s, failure.retry_after_s or 0.0)))


@dataclass(slots=True)
class _Shared:
    """What the requests of one process with the same settings share."""

    client: Any
    # Whether anything at the endpoint ever spoke.
    answered: bool = field(default=False)


_lock = threading.Lock()
_clients: OrderedDict[Hashable, _Shared] = OrderedDict()


def _key(settings: S3Settings) -> Hashable:
    """What a client is made of: of settings without credentials also what the SDK takes for such, which may change."""
    if settings.credentials or settings.anonymous:
        return settings, ()
    return settings, tuple(os.environ.get(name) for name in _VARIABLES)


def _shared(settings: S3Settings) -> _Shared:
    key = _key(settings)
    shared = _clients.get(key)
    if shared is not None:
        return shared
    with _lock:
        shared = _clients.get(key)
        if shared is None:
            shared = _clients[key] = _Shared(_client(settings))
            while len(_clients) > _MOST_CLIENTS:
                _clients.popitem(last=False)
        return shared


def _client(settings: S3Settings) -> Any:
    hide_environment()
    hide(settings.secrets())
    session = settings.session()
    credentials = None if settings.anonymous else session.get_credentials()
    if credentials is None and not settings.anonymous:
        # Said before a client looks for them again, which takes as long as a machine's metadata service does not answer. Nothing is
        # kept, so that those are found that are given later.
        raise botocore.exceptions.NoCredentialsError
    client = settings.client(retries=False, session=session)

    def hide_credentials(**_: object) -> None:
        # Those of a role or of a machine change while the process runs.
        if credentials is None:
            return
        try:
            frozen = credentials.get_frozen_credentials()
        except WIRE_ERRORS as error:
            unreachable = CredentialsUnreachable.of(error)
        else:
            hide(value for value in (frozen.access_key, frozen.secret_key, frozen.token) if value)
            return
        # Else it would pass for S3's own trouble.
        raise unreachable

    client.meta.events.register("before-sign.s3", hide_credentials)
    client.meta.events.register("before-call.s3", _send_at_once)
    if settings.region is not None:
        client.meta.events.register("before-call.s3", _stay_in_region)
    # Loggers that came with the client.
    watch_loggers()
    return client


def _send_at_once(params: dict[str, Any], **_: object) -> None:
    """Without asking first whether the body is welcome, which costs every commit the way to the server and back."""
    params["headers"].pop("Expect", None)


def _stay_in_region(params: dict[str, Any], **_: object) -> None:
    """A region that is given is where the bucket is: the SDK would look for another, and what else reads the table would not."""
    params["context"].setdefault("s3_redirect", {})["redirected"] = True


def _forget() -> None:
    """In a process that was forked: another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget)


def _api_name(operation: str) -> str:
    return "".join(part.capitalize() for part in operation.split("_"))
