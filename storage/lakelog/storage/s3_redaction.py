"""Secrets stay out of log lines and messages: botocore and urllib3 print signed requests, tokens and answers where DEBUG is on.

`hide` says what a secret is, as soon as one is known, and has the libraries' loggers watched from then on. In whatever record they make,
message, arguments and traceback alike, the secrets that are known give way to ``***``, and so do the parts of a request or an answer that
are as good as one: signatures, tokens and credentials in headers, bodies and presigned queries, whoever made them.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import traceback
from collections.abc import Iterable

__all__ = ["HIDDEN", "hide", "hide_environment", "redacted", "watch_loggers"]

HIDDEN = "***"
"""What stands where a secret was."""

# py4j prints what Spark's JVM is told, Hadoop's keys among it.
_LOGGERS = ("aiobotocore", "boto3", "botocore", "py4j", "s3fs", "s3transfer", "urllib3")
_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN")
# Shorter ones are words that a log is full of.
_SHORTEST = 4
_PARTS = re.compile(
    r"""
    (
        x-amz-(?:signature|security-token|credential|s3session-token|sso_bearer_token) ["']? \s* (?:=|:|,|%3d) \s* b?["']?
      | x-aws-ec2-metadata-token ["']? \s* : \s* b?["']?
      | \b (?:signature|credential|webidentitytoken) =
      | \b signature:\s+
      | < (?:secretaccesskey|sessiontoken|accesskeyid|awsaccesskeyid|signatureprovided|webidentitytoken) >
      | ["'] (?:secretaccesskey|sessiontoken|accesskeyid|token|secret_key|access_key|aws_access_key_id|aws_secret_access_key
                |aws_session_token|webidentitytoken|accesstoken|refreshtoken|idtoken|clientsecret) ["'] \s* : \s* b?["']
    )
    [^\s"'&,<>\\)]+
    """,
    re.IGNORECASE | re.VERBOSE,
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
    watch_loggers()


def hide_environment() -> None:
    """The same for what the environment variables of this process hold."""
    hide(value for name in _VARIABLES if (value := os.environ.get(name)))


def redacted(text: str) -> str:
    """The text without what must not be printed."""
    if _known is not None:
        text = _known.sub(HIDDEN, text)
    return _PARTS.sub(rf"\1{HIDDEN}", text)


def watch_loggers() -> None:
    """Watch the libraries' loggers that there are by now. A filter of a logger does not see what the loggers below it make."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _LOGGERS:
            # One that is there already is not added again.
            logging.getLogger(name).addFilter(_redact)


def _forget_lock() -> None:
    """In a process that was forked: another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def _redact(record: logging.LogRecord) -> bool:
    try:
        message = record.getMessage()
    except Exception:
        # A record that cannot be formatted prints its arguments, too.
        message = f"{record.msg} {record.args}"
    clean = redacted(message)
    if clean != message:
        record.msg, record.args = clean, ()
    if record.exc_info and record.exc_info[0] is not None:
        text = "".join(traceback.format_exception(*record.exc_info))
        clean = redacted(text)
        if clean != text:
            # Handlers may print the exception by themselves.
            record.exc_info, record.exc_text = None, clean.rstrip("\n")
    if record.stack_info:
        record.stack_info = redacted(record.stack_info)
    return True
