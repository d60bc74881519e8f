"""What an error of DynamoDB means: whether the request may have had its effect, and what the caller is told."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import botocore.exceptions as boto

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.s3_redaction import redacted

__all__ = ["CONDITION_FAILED", "TABLE_ABSENT", "TABLE_IN_USE", "Failure", "failure"]

CONDITION_FAILED = "ConditionalCheckFailedException"
TABLE_ABSENT = "ResourceNotFoundException"
TABLE_IN_USE = "ResourceInUseException"

_LONGEST_MESSAGE = 300
_MANY = 5
_NO_DYNAMODB = "If no DynamoDB is there, correct ddb.endpoint_url and ddb.region"
_BUSY = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TransactionConflictException",
        TABLE_IN_USE,
    }
)
_IDENTITY = frozenset(
    {
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "RequestTimeTooSkewed"})
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "NotAuthorizedException"})
_NOT_SENT = (
    boto.ConnectTimeoutError,
    boto.EndpointConnectionError,
    boto.ProxyConnectionError,
    boto.SSLError,
)
_NO_CREDENTIALS = (
    boto.CredentialRetrievalError,
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.TokenRetrievalError,
    boto.SSOTokenLoadError,
    boto.UnauthorizedSSOTokenError,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, translated.

    Args:
        error: what to raise. It holds no secret, and no error that may hold one.
        unsure: the request may have had its effect, or may still have it.
        passing: the same request may succeed a moment later.
        attempts: how often a request that may be repeated is sent that ends like this: what waits for an answer that does not come is
            given up within ten seconds.
        code: of the answer; empty where there was none.
        item: the one that was there where the condition failed, if the answer shows it.
    """

    error: Exception
    unsure: bool = False
    passing: bool = False
    attempts: int = 1
    code: str = ""
    item: Mapping[str, Any] | None = None


def failure(error: Exception, place: str) -> Failure:
    """What an error of botocore means.

    Args:
        error: of any call.
        place: the table, as a message calls it.

    Raises:
        Exception: ``error`` itself, where it is none of botocore's.
    """
    said = " ".join(redacted(str(error)).split())[:_LONGEST_MESSAGE].rstrip(".:")
    if isinstance(error, boto.ClientError):
        return _answered(error, said, place)
    if isinstance(error, _NO_CREDENTIALS):
        return Failure(
            StoreConfigurationError(f"There are no AWS credentials for {place}: {said}. Give ddb.key and ddb.secret, or ddb.profile.")
        )
    if isinstance(error, _NOT_SENT):
        return Failure(
            StorageError(f"{place} cannot be reached: {said}. Check ddb.region, ddb.endpoint_url, the network and the server."),
            passing=True,
            attempts=3,
        )
    if isinstance(error, boto.ReadTimeoutError):
        return Failure(TimeoutError(f"{place} did not answer in time: {said}. {_NO_DYNAMODB}"), unsure=True, passing=True, attempts=2)
    if isinstance(error, (boto.HTTPClientError, boto.IncompleteReadError, boto.ConnectionError)):
        return Failure(
            ConnectionError(f"The connection to {place} broke: {said}. {_NO_DYNAMODB}"), unsure=True, passing=True, attempts=_MANY
        )
    if type(error).__name__ == "ResponseParserError":
        return Failure(
            ConnectionError(f"What answers for {place} does not speak as DynamoDB does: {said}. Check ddb.endpoint_url."), unsure=True
        )
    if isinstance(error, boto.BotoCoreError):
        return Failure(StoreConfigurationError(f"{place} cannot be asked: {said}. Check ddb.region and ddb.endpoint_url."))
    raise error


def _answered(error: boto.ClientError, said: str, place: str) -> Failure:
    code = str(error.response.get("Error", {}).get("Code", ""))
    found = _of_code(code, int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)), said, place)
    return replace(found, code=code, item=error.response.get("Item"))


def _of_code(code: str, status: int, said: str, place: str) -> Failure:
    if code in _BUSY:
        return Failure(OSError(errno.EAGAIN, f"{place} is busy: {said}"), passing=True, attempts=_MANY)
    if status >= 500:
        return Failure(OSError(errno.EIO, f"{place} failed: {said}. {_NO_DYNAMODB}"), unsure=True, passing=True, attempts=_MANY)
    if code in _IDENTITY:
        return Failure(
            StoreConfigurationError(
                f"{place} refused the credentials: {said}. Check the access key and its secret (ddb.key and ddb.secret, or those of S3), "
                "and ddb.region."
            )
        )
    if code in _EXPIRED:
        return Failure(StoreConfigurationError(f"{place} refused the credentials as expired: {said}. Renew them, and check the clock."))
    if code in _DENIED:
        return Failure(
            PermissionError(
                errno.EACCES,
                f"{os.strerror(errno.EACCES)}: {place}: {said}. Writers need dynamodb:GetItem, Query, PutItem and DeleteItem of it, and "
                "readers too, since they complete the commits of writers that died; to make the table CreateTable, DescribeTable "
                "and UpdateTimeToLive",
            )
        )
    if code == "ValidationException":
        return Failure(
            StoreConfigurationError(
                f"{place} cannot hold Delta's commits: {said}. It wants the keys tablePath (HASH, S) and fileName (RANGE, S). "
                "Name another one by ddb.table_name."
            )
        )
    return Failure(
        StoreConfigurationError(f"What answers for {place} is no DynamoDB, or refuses: {said}. Check ddb.endpoint_url and ddb.region.")
    )
