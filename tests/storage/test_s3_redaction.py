"""Planted secrets in what botocore logs at DEBUG, in messages and in tracebacks."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from lakelog.core.errors import StorageError
from lakelog.storage.log_store import Created
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.s3_redaction import hide, redacted
from tests.storage.fake_s3 import Fault, Waits, fake_s3

PLANTED = {"key": "PLANTEDKEY", "secret": "planted/secret+key==", "token": "planted//token=="}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a handler writes that hears everything."""
    text, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(text)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)


def test_nothing_secret_is_logged_nor_in_an_error(log: io.StringIO) -> None:
    with fake_s3() as server:
        store = S3LogStore({**PLANTED, "endpoint_url": server.url}, environment=Waits().environment())
        assert store.put_if_absent("s3a://b/t/_delta_log/0", b"data") == Created()
        store.read("s3a://b/t/_delta_log/0")
        echo = f"<Error><Code>Odd</Code><Message>{PLANTED['token']} X-Amz-Signature=0123abcd</Message></Error>".encode()
        server.befalls = lambda _: Fault(status=400, body=echo)
        with pytest.raises(StorageError, match=r"Odd, \*\*\* X-Amz-Signature=\*\*\*") as caught:
            store.read("s3a://b/t/_delta_log/0")
    text = log.getvalue()
    assert "CanonicalRequest" in text
    assert "x-amz-security-token:***" in text
    assert not [secret for secret in PLANTED.values() if secret in text + repr(caught.value)]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            "https://h/b/k?X-Amz-Credential=AKIA%2F2026&X-Amz-Signature=0a1b&x=1",
            "https://h/b/k?X-Amz-Credential=***&X-Amz-Signature=***&x=1",
        ),
        ("{'X-Amz-Security-Token': b'abc//d=='}", "{'X-Amz-Security-Token': b'***'}"),
        ("AWS4-HMAC-SHA256 Credential=AKIA/2026, Signature=0a1b", "AWS4-HMAC-SHA256 Credential=***, Signature=***"),
        ("Signature:\n0a1b2c", "Signature:\n***"),
        ("<SecretAccessKey>a+b</SecretAccessKey>", "<SecretAccessKey>***</SecretAccessKey>"),
        ('{"SecretAccessKey" : "a+b", "Token" : "c"}', '{"SecretAccessKey" : "***", "Token" : "***"}'),
        (
            "{'Action': 'AssumeRoleWithWebIdentity', 'WebIdentityToken': 'eyJ.a.b'}",
            "{'Action': 'AssumeRoleWithWebIdentity', 'WebIdentityToken': '***'}",
        ),
        (
            "Action=AssumeRoleWithWebIdentity&WebIdentityToken=eyJ.a-b_c&Version=1",
            "Action=AssumeRoleWithWebIdentity&WebIdentityToken=***&Version=1",
        ),
        ("<WebIdentityToken>eyJ.a</WebIdentityToken>", "<WebIdentityToken>***</WebIdentityToken>"),
        ("{'x-amz-sso_bearer_token': 'abc'}", "{'x-amz-sso_bearer_token': '***'}"),
        (
            '{"accessToken": "a", "refreshToken": "b", "clientSecret": "c"}',
            '{"accessToken": "***", "refreshToken": "***", "clientSecret": "***"}',
        ),
        ("the version 5 of a table", "the version 5 of a table"),
        ("known as hidden/word here", "known as *** here"),
    ],
)
def test_what_is_as_good_as_a_secret_is_hidden(text: str, clean: str) -> None:
    hide(["hidden/word"])
    assert redacted(text) == clean


def test_tracebacks_and_bad_records_are_clean_too(log: io.StringIO) -> None:
    hide(["hidden/word"])
    logger = logging.getLogger("botocore.endpoint")
    try:
        raise ValueError("hidden/word")
    except ValueError:
        logger.exception("failed with %s", "hidden/word", stack_info=True)
    logger.debug("%s only", ("hidden/word",))
    assert "ValueError: ***" in log.getvalue()
    assert "hidden/word" not in log.getvalue().replace('"hidden/word"', "")


def test_other_loggers_are_left_alone(log: io.StringIO) -> None:
    hide(["hidden/word"])
    logging.getLogger("somebody.else").info("hidden/word")
    assert "hidden/word" in log.getvalue()
