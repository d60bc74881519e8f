"""Secrets stay out of log lines and messages: botocore and urllib3 print signed requests, tokens and answers where DEBUG is on.

`hide` says what a secret is, as soon as one is known, and has the libraries' loggers watched from then on. In whatever record they make,
in messages, arguments and tracebacks alike, the secrets that are known give way to ``***``, and so do the parts of a request that are as good
as one: signatures, tokens and credentials in headers and in presigned queries, whoever made them.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable

__all__ = ["hide", "redacted"]

HIDDEN = "***"

_LOGGERS = ("botocore", "boto3", "urllib3", "s3transfer", "aiobotocore", "s3fs")
_SHORTEST = 4
_PARTS = re.compile(
    r"""(?ix)
    (
        X-Amz-(?:Signature|Security-Token|Credential) ["']? \s* (?:=|:|%3D) \s* b?["']?
      | x-amz-security-token ["']? \s* [:,=] \s* b?["']?
      | \b Signature=
      | \b Credential=
      | <(?:SecretAccessKey|SessionToken|AccessKeyId)>
      | ["'](?:SecretAccessKey|SessionToken|secret_key|aws_secret_access_key|aws_session_token)["'] \s* : \s* b?["']
    )
    [^\s"'&,<>\\)]+
    """
)

_lock = threading.Lock()
_secrets: frozenset[str] = frozenset()
_known: re.Pattern[str] | None = None


def hide(secrets: Iterable[str]) -> None:
    """From now on none of these texts is in a record of the libraries that talk to S3, nor in what `redacted` gives."""
    global _secrets, _known
    new = {secret for secret in secrets if len(secret) >= _SHORTEST}
    if new <= _secrets:
        return
    with _lock:
        _secrets = _secrets | new
        # The longest first: a secret may be the beginning of another.
        _known = re.compile("|".join(re.escape(secret) for secret in sorted(_secrets, key=len, reverse=True)))
        _watch()


def redacted(text: str) -> str:
    """The text without what must not be printed."""
    if _known is not None:
        text = _known.sub(HIDDEN, text)
    return _PARTS.sub(rf"\1{HIDDEN}", text)


def _watch() -> None:
    pass
