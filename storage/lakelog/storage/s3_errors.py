"""What went wrong with a request to S3, as a value without secrets, and the error that says which setting to mend.

The SDK's own errors go no further than here: they hold signed requests, tokens and what a server echoes of them, in attributes that a
chained cause would carry along. A `Failure` has what the store decides by and what a message needs.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import botocore.exceptions
import botocore.parsers

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.s3_redaction import redacted
from lakelog.storage.s3_settings import S3Settings

__all__ = ["SDK_ERRORS", "WIRE_ERRORS", "CredentialsUnreachable", "Failure", "Kind", "is_folderless"]

SDK_ERRORS = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, botocore.parsers.ResponseParserError)
"""What a call of the SDK raises, besides errors of its caller."""

WIRE_ERRORS = (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError, botocore.parsers.ResponseParserError)
"""Those of a request to whom nobody answered, or not to the point."""


class CredentialsUnreachable(botocore.exceptions.BotoCoreError):  # type: ignore[misc]
    """Who gives the credentials did not answer; S3 was asked nothing."""

    fmt = "{server} did not answer ({error})"

    @classmethod
    def of(cls, error: Exception) -> CredentialsUnreachable:
        """Made of one of `WIRE_ERRORS`."""
        said = getattr(error, "kwargs", {}).get("endpoint_url")
        server = str(said).partition("?")[0].rstrip("/") if said else "the server that gives them"
        return cls(server=server, error=type(error).__name__)


_LONGEST_MESSAGE = 300
_QUERY = re.compile(r"(?<=[^\s\"'])\?[^\s\"'?]*=[^\s\"']*")


class Kind(Enum):
    """What a failure means for whoever asked."""

    ABSENT = auto()
    """There is no such object."""
    EXISTS = auto()
    """The condition of the request does not hold; nothing was written."""
    BUSY = auto()
    """Another conditional request is under way; nothing was written."""
    UNSUPPORTED = auto()
    """The server does not know what was asked; nothing was written."""
    UNREACHABLE = auto()
    """No connection was made, so nothing was sent."""
    TIMEOUT = auto()
    """No answer came in time; what was asked may be done."""
    TRANSIENT = auto()
    """The connection broke, or the server failed or is busy; what was asked may be done."""
    DENIED = auto()
    """Whoever asks must not; nothing was done."""
    REFUSED = auto()
    """Anything else that is wrong with the request; nothing was done."""


# Codes of S3 that say more than the status does, or come with one that says something else.
_KINDS = {
    "NoSuchKey": Kind.ABSENT,
    "PreconditionFailed": Kind.EXISTS,
    "ConditionalRequestConflict": Kind.BUSY,
    "OperationAborted": Kind.BUSY,
    "NotImplemented": Kind.UNSUPPORTED,
    "RequestTimeout": Kind.TRANSIENT,
    "RequestTimeoutException": Kind.TRANSIENT,
    "SlowDown": Kind.TRANSIENT,
    "SlowDownRead": Kind.TRANSIENT,
    "SlowDownWrite": Kind.TRANSIENT,
    "InternalError": Kind.TRANSIENT,
    "ServiceUnavailable": Kind.TRANSIENT,
    "Throttling": Kind.TRANSIENT,
    "ThrottlingException": Kind.TRANSIENT,
    "RequestLimitExceeded": Kind.TRANSIENT,
    "BandwidthLimitExceeded": Kind.TRANSIENT,
    "AccessDenied": Kind.DENIED,
    "AllAccessDisabled": Kind.DENIED,
    "Forbidden": Kind.DENIED,
    "403": Kind.DENIED,
    "404": Kind.ABSENT,
}
_STATUSES = {408: Kind.TRANSIENT, 409: Kind.BUSY, 412: Kind.EXISTS, 429: Kind.TRANSIENT, 501: Kind.UNSUPPORTED}
_WRONG_KEY = frozenset({"InvalidAccessKeyId", "NotSignedUp", "InvalidClientTokenId"})
_WRONG_SECRET = frozenset({"SignatureDoesNotMatch"})
_WRONG_TOKEN = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "InvalidTokenId"})
_WRONG_REGION = frozenset(
    {"AuthorizationHeaderMalformed", "AuthorizationQueryParametersError", "PermanentRedirect", "Redirect", "TemporaryRedirect"}
    | {"IllegalLocationConstraintException", "InvalidRegion", "301", "307"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One request that failed.

    Attributes:
        kind: what it means.
        operation: as the API calls it, ``PutObject``.
        code: the server's, or the name of the SDK's error.
        status: of HTTP, None where no answer came.
        message: the server's or the SDK's, without secrets.
        region: the one that the server wants.
        retry_after_s: how long the server wants to be left alone.
        silent: nobody ever answered at this endpoint.
        unknown_server: nobody has answered there as S3 does, so far.
    """

    kind: Kind
    operation: str
    code: str
    status: int | None = None
    message: str = ""
    region: str | None = None
    retry_after_s: float | None = None
    silent: bool = False
    unknown_server: bool = False

    @classmethod
    def of(cls, error: Exception, operation: str) -> Failure:
        """What an error of `SDK_ERRORS` says."""
        if isinstance(error, botocore.exceptions.ClientError):
            return _of_answer(error.response, error.operation_name or operation)
        message = _clean(str(error))
        return cls(kind=_kind_of(error), operation=operation, code=type(error).__name__, message=message)

    def error(self, path: str, settings: S3Settings) -> Exception:
        """The error that says what to do about it.

        Args:
            path: of the log store, for the message.
            settings: with which it was asked.
        """
        # A page that is not there says no more than its status; nor does what S3 answers to HeadObject.
        if self.code == "NoSuchKey" or (self.kind is Kind.ABSENT and self.operation == "HeadObject"):
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self.kind is Kind.TIMEOUT and not self.silent:
            return TimeoutError(f"{path}: {_server(settings)} did not answer {self.operation} in {settings.read_timeout_s:g} s.")
        bucket = path.partition("://")[2].partition("/")[0]
        if (text := self._wrong_setting(bucket, settings)) is not None:
            return StoreConfigurationError(f"{path}: {text}")
        if self.kind is Kind.UNREACHABLE or self.silent:
            how = f"{_server(settings)} takes connections and answers nothing" if self.silent else f"no connection to {_server(settings)}"
            return StorageError(
                f"{path}: the endpoint cannot be reached: {how} ({self.code}). "
                "Correct the endpoint (endpoint_url, fs.s3a.endpoint, AWS_ENDPOINT_URL), or see to the network and the server."
            )
        if self.kind is Kind.DENIED:
            return PermissionError(
                f"{path}: {self.operation} is denied to {_who(settings)} by {_server(settings)} ({self.code}). Allow it on the bucket "
                f"{bucket} (s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket), or give other credentials."
            )
        if self.kind is Kind.TRANSIENT:
            other = ". If no S3 is there, correct the endpoint (endpoint_url, fs.s3a.endpoint, AWS_ENDPOINT_URL)"
            what = f"{self._said.rstrip('.')}{other if self.unknown_server or self.code == str(self.status) else ''}"
            return ConnectionError(f"{path}: {self.operation} got no answer to go by from {_server(settings)}: {what}")
        return StorageError(f"{path}: {self.operation} was refused by {_server(settings)}: {self._said}")

    @property
    def _said(self) -> str:
        return f"{f'HTTP {self.status} ' if self.status else ''}{self.code}{f', {self.message}' if self.message else ''}"

    def _wrong_setting(self, bucket: str, settings: S3Settings) -> str | None:
        server, who = _server(settings), _who(settings)
        if self.operation == "AssumeRole" or "RoleArn" in self.message:
            return f"the role {settings.role_arn} cannot be assumed: {self._said}. Correct role_arn, or who may assume it."
        if self.code == "CredentialsUnreachable" and settings.role_arn:
            return (
                f"the role {settings.role_arn} cannot be assumed: {self.message}. Correct sts_endpoint_url "
                "(fs.s3a.assumed.role.sts.endpoint), or see to the network."
            )
        if self.code == "CredentialsUnreachable":
            return f"the credentials of {who} cannot be had: {self.message}. See to the network of this machine, or give key and secret."
        if self.code in _WRONG_KEY:
            return f"the access key is wrong: {server} does not know {who}. Correct key (fs.s3a.access.key, AWS_ACCESS_KEY_ID)."
        if self.code in _WRONG_SECRET:
            return (
                f"the secret key is wrong: it does not fit the access key of {who}, says {server}. "
                "Correct secret (fs.s3a.secret.key, AWS_SECRET_ACCESS_KEY)."
            )
        if self.code in _WRONG_TOKEN:
            return f"the session token of {who} has expired or is wrong, says {server}. Give a new key, secret and token."
        if self.code in _WRONG_REGION or (self.region and self.status in (301, 307, 400)):
            wanted = f"; it is {self.region}" if self.region else ""
            return (
                f"the region is wrong: {server} was asked in {settings.region or 'the default region us-east-1'} for the bucket "
                f"{bucket}{wanted}. Correct region (fs.s3a.endpoint.region, AWS_REGION)."
            )
        if self.code in ("NoSuchBucket", "InvalidBucketName"):
            return f"the bucket is wrong: there is no bucket {bucket} at {server}. Correct the path, or the endpoint."
        if self.code in ("RequestTimeTooSkewed", "RequestExpired"):
            return f"the clock of this machine is wrong: {server} refuses its signatures. Set the time."
        if self.code in ("NoCredentialsError", "PartialCredentialsError"):
            return (
                f"there are no credentials for {server}. Give key and secret (fs.s3a.access.key and fs.s3a.secret.key, AWS_ACCESS_KEY_ID "
                "and AWS_SECRET_ACCESS_KEY), a profile or a role; or anon=true for a bucket that anybody may use."
            )
        if self.code in _CREDENTIALS:
            return f"the credentials of {who} cannot be had: {self.message} Renew them, or give key and secret."
        if self.code == "ParamValidationError":
            return f"the bucket {bucket} or the key is none that S3 takes: {self.message}"
        if self.code == "SSLError" and "CERTIFICATE" in self.message:
            return (
                f"the certificate of {server} is not trusted ({self.message}). Give the bundle of who signed it as verify "
                "(or AWS_CA_BUNDLE), or correct the endpoint."
            )
        if self.code in ("ResponseParserError", "SSLError") or (
            self.code == str(self.status) and (self.kind is not Kind.TRANSIENT or (self.unknown_server and self.status == 404))
        ):
            return (
                f"the endpoint is wrong: {server} answers, but not as S3 does ({self._said}). Correct the endpoint's scheme, host and port "
                "(endpoint_url, fs.s3a.endpoint, AWS_ENDPOINT_URL)."
            )
        return None


_CREDENTIALS = frozenset(
    {"CredentialRetrievalError", "TokenRetrievalError", "UnauthorizedSSOTokenError", "SSOTokenLoadError", "SSOError", "NoAuthTokenError"}
    | {
        "MetadataRetrievalError",
        "LoginRefreshRequired",
        "LoginTokenLoadError",
        "LoginInsufficientPermissions",
        "RefreshWithMFAUnsupportedError",
    }
)


def is_folderless(failure: Failure) -> bool:
    """Whether what was refused is a key that cannot be, because a part of it is an object: there is nothing at such a key."""
    return failure.code in ("XMinioParentIsObject", "XMinioObjectExistsAsDirectory")


def _of_answer(response: dict[str, Any], operation: str) -> Failure:
    error, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    code, status = str(error.get("Code", "")), metadata.get("HTTPStatusCode")
    headers = metadata.get("HTTPHeaders", {})
    kind = _KINDS.get(code)
    if kind is None:
        kind = _STATUSES.get(status, Kind.TRANSIENT if isinstance(status, int) and status >= 500 else Kind.REFUSED)
    return Failure(
        kind=kind,
        operation=operation,
        code=code or str(status),
        status=status,
        message=_clean(str(error.get("Message") or "")),
        region=error.get("Region") or headers.get("x-amz-bucket-region"),
        retry_after_s=_seconds(headers.get("retry-after")),
    )


def _clean(message: str) -> str:
    # What a query says is not for a message, and may be a signature.
    return redacted(_QUERY.sub("", " ".join(message.split())))[:_LONGEST_MESSAGE]


def _kind_of(error: Exception) -> Kind:
    match error:
        case botocore.exceptions.SSLError():
            # A handshake as a rule, but a connection may break in this way after the request, too.
            return Kind.TRANSIENT
        case (
            botocore.exceptions.EndpointConnectionError()
            | botocore.exceptions.ConnectTimeoutError()
            | botocore.exceptions.ProxyConnectionError()
        ):
            return Kind.UNREACHABLE
        case botocore.exceptions.ReadTimeoutError():
            return Kind.TIMEOUT
        case (
            botocore.exceptions.HTTPClientError()
            | botocore.exceptions.IncompleteReadError()
            | botocore.exceptions.ConnectionError()
            | botocore.parsers.ResponseParserError()
        ):
            return Kind.TRANSIENT
    return Kind.REFUSED


def _seconds(text: str | None) -> float | None:
    # A date is allowed, too; what servers send that are busy is a number.
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def _server(settings: S3Settings) -> str:
    return settings.endpoint_url or f"AWS{f' in {settings.region}' if settings.region else ''}"


def _who(settings: S3Settings) -> str:
    if settings.anonymous:
        return "an anonymous request"
    if settings.role_arn:
        return f"the role {settings.role_arn}"
    if settings.profile:
        return f"the profile {settings.profile}"
    return "the credentials given" if settings.credentials else "the credentials of this machine's environment"
