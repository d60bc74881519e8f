"""Which DynamoDB table excludes the writers, and how it is reached: lakelog's names and delta-spark's for the same.

| lakelog                          | delta-spark, after ``io.delta.storage.S3DynamoDBLogStore.`` | default     |
|----------------------------------|--------------------------------------------------------------|-------------|
| ``ddb.table_name``               | ``ddb.tableName``                                            | delta_log   |
| ``ddb.region``                   | ``ddb.region``                                               | us-east-1   |
| ``ddb.ttl``                      | ``ddb.ttl``                                                  | 86400 s     |
| ``ddb.rcu``, ``ddb.wcu``         | ``provisionedThroughput.rcu``, ``.wcu``                      | on demand   |
| ``ddb.endpoint_url``             |                                                              | AWS' own    |
| ``ddb.scheme``                   |                                                              | s3a         |
| ``ddb.create_table``             |                                                              | true        |
| ``ddb.key``, ``.secret``, ``.token``, ``.profile`` | ``credentials.provider``                   | as for S3   |
|                                  | ``read.retries``                                             |             |

Writers exclude each other when all of them name one table of one region: hence delta-spark's defaults, the region's too, whatever
region S3 is asked in. ``ddb.scheme`` is the scheme by which the other writers call the tables; it is a part of the key.
``credentials.provider`` may name the SDK's own classes, and then the machine's credentials serve for DynamoDB whatever S3 is given.
``read.retries`` has nothing to do here: a commit is read by one request, which sees one object or another, never a part of both. Reads are
consistent always. An endpoint may also be said by ``AWS_ENDPOINT_URL_DYNAMODB``. ``AWS_ENDPOINT_URL``, and the endpoints of the shared
files, do not count: they are as a rule those of a server that speaks like S3 and of nothing else.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.dynamodb_items import SCHEMES
from lakelog.storage.s3_options import as_bool
from lakelog.storage.s3_settings import S3Credentials, S3Settings

__all__ = ["DynamoDBSettings"]

_DELTA = "io.delta.storage.S3DynamoDBLogStore."
_OWN = "ddb."
_NAMES: Mapping[str, str] = {
    "ddb.table_name": "table_name",
    "ddb.region": "region",
    "ddb.ttl": "ttl_s",
    "ddb.rcu": "read_capacity",
    "ddb.wcu": "write_capacity",
    "ddb.endpoint_url": "endpoint_url",
    "ddb.scheme": "scheme",
    "ddb.create_table": "create_table",
    "ddb.key": "key",
    "ddb.access.key": "key",
    "ddb.secret": "secret",
    "ddb.token": "token",
    "ddb.profile": "profile",
    f"{_DELTA}ddb.tableName": "table_name",
    f"{_DELTA}ddb.region": "region",
    f"{_DELTA}ddb.ttl": "ttl_s",
    f"{_DELTA}provisionedThroughput.rcu": "read_capacity",
    f"{_DELTA}provisionedThroughput.wcu": "write_capacity",
    f"{_DELTA}credentials.provider": "provider",
    f"{_DELTA}read.retries": "read_retries",
}
_NUMBERS = frozenset({"ttl_s", "read_capacity", "write_capacity", "read_retries"})
_SECRET = frozenset({"key", "secret", "token", "endpoint_url"})
_ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL_DYNAMODB"
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
# An answer is a few hundred bytes; one that takes longer is not coming.
_LONGEST_READ_S = 4.0
# The SDK's own, of both its generations: botocore looks in the same places.
_CHAIN = re.compile(
    r"(?:com\.amazonaws\.auth|software\.amazon\.awssdk\.auth\.credentials)\.(?:profile\.)?"
    r"(?:Default|EnvironmentVariable|Profile|InstanceProfile|Container|ContainerCredentials|EC2Container|WebIdentityToken)"
    r"\w*Provider(?:Chain|Wrapper)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoDBSettings:
    """Made by `of`. Prints and pickles without secrets, as `S3Settings` does.

    Attributes:
        table_name: of the DynamoDB table.
        region: where it is.
        ttl_s: seconds that a complete entry stays at least.
        scheme: the scheme in the hash key.
        create_table: make the table when it is not there.
        endpoint_url: of DynamoDB Local, or of a server that speaks like it; None for AWS.
        capacity: units of reading and of writing for a table that is made; None for on-demand billing.
        connection: who asks, and how long an answer may take.
    """

    table_name: str = "delta_log"
    region: str = "us-east-1"
    ttl_s: int = 86_400
    scheme: str = "s3a"
    create_table: bool = True
    endpoint_url: str | None = None
    capacity: tuple[int, int] | None = None
    connection: S3Settings = field(default_factory=S3Settings)

    @classmethod
    def of(cls, options: Mapping[str, object], s3: S3Settings, *, environ: Mapping[str, str] = os.environ) -> DynamoDBSettings:
        """What the options, and one environment variable, say of DynamoDB; options of S3 are passed over.

        Args:
            options: of the store, by the names of the module's table.
            s3: of the same options; who asks S3 asks DynamoDB, unless the options say otherwise.
            environ: environment variables.

        Raises:
            StoreConfigurationError: an unknown name, a value that makes no sense, or two names that disagree.
        """
        said = _said(options)
        ignored = environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").strip().lower() == "true"
        if "endpoint_url" not in said and not ignored and (endpoint := environ.get(_ENDPOINT_VARIABLE)):
            said["endpoint_url"] = _parsed(_ENDPOINT_VARIABLE, "endpoint_url", endpoint)
        ttl_s = said.pop("ttl_s", 86_400)
        provider, read_capacity, write_capacity = (said.pop(name, None) for name in ("provider", "read_capacity", "write_capacity"))
        said.pop("read_retries", None)
        if provider is not None and not _CHAIN.fullmatch(str(provider)):
            raise StoreConfigurationError(
                f"{_DELTA}credentials.provider names {provider}, which lakelog cannot run, since it is Java. Name one of the AWS SDK's "
                "own (DefaultCredentialsProvider, ProfileCredentialsProvider, ...), or remove it and give ddb.key and ddb.secret, or "
                "ddb.profile."
            )
        capacity = None
        if read_capacity is not None or write_capacity is not None:
            # delta-spark's own figure for the one that is not given.
            capacity = (int(str(read_capacity or 5)), int(str(write_capacity or 5)))
        region = str(said.pop("region", "us-east-1"))
        return cls(
            region=region,
            ttl_s=int(str(ttl_s)),
            capacity=capacity,
            connection=_connection(s3, said, region=region, by_chain=provider is not None),
            **{name: value for name, value in said.items() if name not in ("key", "secret", "token", "profile")},  # type: ignore[arg-type]
        )

    @property
    def place(self) -> str:
        """The table as a message calls it."""
        return f"the DynamoDB table {self.table_name} ({self.endpoint_url or f'region {self.region}'})"


def _said(options: Mapping[str, object]) -> dict[str, object]:
    said: dict[str, object] = {}
    said_by: dict[str, str] = {}
    for name, value in options.items():
        if not name.startswith((_OWN, _DELTA)):
            if name.startswith(("dynamodb.", "dynamodb_", "io.delta.storage.")):
                raise _unknown(name)
            continue
        attribute = _NAMES.get(name)
        if attribute is None:
            raise _unknown(name)
        if value is None or value == "":
            continue
        parsed = _parsed(name, attribute, value)
        if attribute in said and said[attribute] != parsed:
            raise StoreConfigurationError(
                f"Two options of the DynamoDB store disagree on one thing: {said_by[attribute]} and {name}. Remove one."
            )
        said[attribute] = parsed
        said_by.setdefault(attribute, name)
    return said


def _parsed(name: str, attribute: str, value: object) -> object:
    if attribute == "create_table":
        return as_bool(name, value)
    text = str(value).strip()
    problem = None
    if attribute in _NUMBERS:
        least = 1 if attribute.endswith("capacity") else 0
        if text.isdecimal() and int(text) >= least:
            return int(text)
        problem = f"a whole number from {least} on"
    elif attribute == "scheme":
        text = text.removesuffix("://").lower()
        if text not in SCHEMES:
            problem = f"one of {', '.join(SCHEMES)}"
    elif attribute == "table_name" and not _TABLE_NAME.fullmatch(text):
        problem = "3 to 255 letters, digits, '_', '-' and '.'"
    elif attribute == "endpoint_url" and not _is_endpoint(text):
        problem = "a URL of a scheme, a host and a port, such as http://127.0.0.1:8000, without user, password and query"
    if problem is not None:
        what = name if name == _ENDPOINT_VARIABLE else f"The option {name} of the DynamoDB store"
        shown = "" if attribute in _SECRET else f", not {text!r}"
        raise StoreConfigurationError(f"{what} is {problem}{shown}.")
    return text


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return whole and not (parts.username or parts.password or parts.query or parts.fragment)


def _connection(s3: S3Settings, said: Mapping[str, object], *, region: str, by_chain: bool) -> S3Settings:
    key, secret, token, profile = (said.get(name) for name in ("key", "secret", "token", "profile"))
    # What S3's own server wants of TLS is nothing to AWS.
    verify = s3.verify if said.get("endpoint_url") or s3.endpoint_url is None else True
    known = replace(
        s3,
        region=region,
        use_ssl=True,
        verify=verify,
        read_timeout_s=min(s3.read_timeout_s, _LONGEST_READ_S),
        client_config={**s3.client_config, "ignore_configured_endpoint_urls": True},
    )
    if not (key or secret or token or profile):
        if by_chain:
            return replace(known, credentials=S3Credentials(), profile=None, role_arn=None, anonymous=False)
        if s3.anonymous:
            raise StoreConfigurationError(
                "The DynamoDB store is told to ask S3 anonymously (anon), which DynamoDB does not allow. "
                "Give ddb.key and ddb.secret, or ddb.profile."
            )
        return known
    if profile and (key or secret or token):
        raise StoreConfigurationError("The DynamoDB store was given ddb.profile and keys, which are two identities. Remove one.")
    if not profile and not (key and secret):
        raise StoreConfigurationError("The DynamoDB store was given a part of its credentials; ddb.key and ddb.secret go together.")
    credentials = S3Credentials(*(str(value) if value else None for value in (key, secret, token)))
    return replace(known, credentials=credentials, profile=str(profile) if profile else None, role_arn=None, anonymous=False)


def _unknown(name: str) -> StoreConfigurationError:
    known = [*_NAMES]
    near = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known))}."
    return StoreConfigurationError(f"The DynamoDB store has no option {name}; {meant}")
