"""What the options of an S3 store are called, and which of several names for one thing counts.

Four levels; the first that says a thing decides it, and two names of one level that disagree are an error:

    1. fsspec's and boto3's own names      key, secret, token, endpoint_url, region, profile, anon, role_arn, client_kwargs, ...
    2. Hadoop's                            fs.s3a.*; fs.s3a.bucket.<bucket>.* stands in for the key without the bucket
    3. environment variables               AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION
    4. the shared files                    endpoint_url, of a profile or of its services

Who asks (keys, profile, anonymous) is one thing: a key of one level is never joined to the secret of another. Where nothing is said, the
AWS SDK looks by itself: environment variables, the shared files, a web identity, the container, the machine.

Unknown names are an error, except Hadoop's ``fs.s3a.*``, most of which say nothing to lakelog, and what tunes fsspec's own caches.
No message holds a value, since a secret may have been given under a wrong name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import botocore

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.s3_values import CLIENT_CONFIG, as_bool, client_config, mapping, seconds, style, text, verify, with_scheme

__all__ = ["STORE_OPTIONS", "Attribute", "as_bool", "translate", "without_secrets"]

Attribute = str
"""The name of an attribute of ``S3Settings``, or ``access_key``, ``secret_key``, ``session_token``."""

STORE_OPTIONS = frozenset({"allow_dynamodb_writers"})
"""Options of the LogStore and not of the connection; `translate` passes them over."""

_NAMES: Mapping[str, Attribute] = {
    "key": "access_key",
    "access_key": "access_key",
    "access.key": "access_key",
    "aws_access_key_id": "access_key",
    "secret": "secret_key",
    "secret_key": "secret_key",
    "secret.key": "secret_key",
    "aws_secret_access_key": "secret_key",
    "token": "session_token",
    "session_token": "session_token",
    "session.token": "session_token",
    "aws_session_token": "session_token",
    "endpoint_url": "endpoint_url",
    "endpoint": "endpoint_url",
    "region": "region",
    "region_name": "region",
    "profile": "profile",
    "profile_name": "profile",
    "anon": "anonymous",
    "anonymous": "anonymous",
    "role_arn": "role_arn",
    "role_session_name": "role_session_name",
    "session_name": "role_session_name",
    "external_id": "external_id",
    "sts_endpoint_url": "sts_endpoint_url",
    "addressing_style": "addressing_style",
    "use_ssl": "use_ssl",
    "verify": "verify",
    "connect_timeout": "connect_timeout_s",
    "read_timeout": "read_timeout_s",
}
_DICTS = ("client_kwargs", "config_kwargs")
# They tune what fsspec keeps in memory, of which nothing is used.
_FSSPEC_TUNING = frozenset(
    {
        "asynchronous",
        "batch_size",
        "cache_regions",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "fixed_upload_size",
        "listings_expiry_time",
        "loop",
        "max_concurrency",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
# The options of the DynamoDB store, which reads them itself.
_DYNAMODB = ("io.delta.storage.", "ddb.", "dynamodb.", "dynamodb_")

_S3A = "fs.s3a."
# What core-default.xml of Hadoop says where nobody has said anything.
_HADOOP_DEFAULTS: Mapping[str, frozenset[str]] = {
    "endpoint": frozenset({"", "s3.amazonaws.com"}),
    "endpoint.region": frozenset({"", "sdk"}),
    "path.style.access": frozenset({"false"}),
    "connection.ssl.enabled": frozenset({"true"}),
    "connection.timeout": frozenset({"200s", "200000", "200000ms"}),
    "connection.establish.timeout": frozenset({"30s", "30000", "30000ms", "5000"}),
}
_ANONYMOUS = frozenset({"AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"})
_SIMPLE = frozenset({"SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider", "BasicAWSCredentialsProvider"})
_PROFILE = frozenset({"ProfileAWSCredentialsProvider", "ProfileCredentialsProvider"})
_ROLE = frozenset({"AssumedRoleCredentialProvider"})
_CHAIN = frozenset(
    {
        "ContainerCredentialsProvider",
        "DefaultAWSCredentialsProviderChain",
        "DefaultCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "EnvironmentVariableCredentialsProvider",
        "IAMInstanceCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "SharedInstanceProfileCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider",
    }
)
# Who looks at variables alone.
_VARIABLES_OF: Mapping[str, tuple[str, ...]] = {
    "EnvironmentVariableCredentialsProvider": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "WebIdentityTokenCredentialsProvider": ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
    "WebIdentityTokenFileCredentialsProvider": ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
}
_AWS_REGION = re.compile(r"(?:^|\.)s3(?:express-[a-z0-9-]+)?(?:[.-](?:fips|dualstack))*[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.")
_PARTED = re.compile(r"[,\s]+")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_HADOOP_PLAIN = frozenset(
    {"endpoint", "endpoint.region", "path.style.access", "connection.ssl.enabled", "connection.timeout", "connection.establish.timeout"}
    | {"aws.credentials.provider", "auth.profile.name", "assumed.role.arn", "assumed.role.session.name", "assumed.role.sts.endpoint"}
    | {"assumed.role.credentials.provider"}
)
_SECRET = frozenset({"access_key", "secret_key", "session_token", "external_id"})
_IDENTITY = ("access_key", "secret_key", "session_token", "profile", "anonymous")
_ROLE_PARTS = ("role_arn", "role_session_name", "external_id", "sts_endpoint_url")


def translate(
    options: Mapping[str, object],
    *,
    bucket: str | None,
    environ: Mapping[str, str],
    endpoint_of: Callable[[str | None], str | None] = lambda _: None,
) -> dict[Attribute, object]:
    """The attributes that the options and the environment say, each of its type; of what nobody says, nothing.

    Args:
        options: by name, see the module.
        bucket: whose ``fs.s3a.bucket.<bucket>.*`` keys count.
        environ: environment variables.
        endpoint_of: what the shared files say of a profile, or of the usual one.

    Raises:
        StoreConfigurationError: an unknown name, a value that makes no sense, or two names that disagree.
    """
    own, passed_on = _own_names(options)
    levels = [own, _hadoop_names(options, bucket, environ, needs_identity=not _says(own, _IDENTITY)), _environment_names(environ)]
    chosen: dict[Attribute, object] = {}
    identity = next((level for level in levels if _says(level, _IDENTITY)), _Level())
    chosen.update({part: identity[part] for part in _IDENTITY if part in identity})
    role = next((level for level in levels if "role_arn" in level), _Level())
    if not (identity.get("anonymous") and role is not identity):
        chosen.update({part: role[part] for part in _ROLE_PARTS if part in role})
    for level in reversed(levels):
        chosen.update({name: value for name, value in level.items() if name not in _IDENTITY and name not in _ROLE_PARTS})
    _check_identity(chosen)
    if not chosen.get("endpoint_url") and not _ignores_configured(environ):
        profile = chosen.get("profile")
        if found := endpoint_of(profile if isinstance(profile, str) else None):
            chosen["endpoint_url"] = found
    if isinstance(endpoint := chosen.get("endpoint_url"), str):
        endpoint = chosen["endpoint_url"] = with_scheme(endpoint, secure=chosen.get("use_ssl") is not False)
        if "region" not in chosen and (match := _AWS_REGION.search(urlsplit(endpoint).netloc)):
            chosen["region"] = match[1]
        if endpoint.startswith("http:"):
            # There is nothing to be checked, and a bundle named by a variable of this machine may be missing on another.
            chosen.pop("verify", None)
    if isinstance(sts := chosen.get("sts_endpoint_url"), str):
        chosen["sts_endpoint_url"] = with_scheme(sts, secure=True, what="The STS endpoint of the S3 store")
    if passed_on:
        chosen["client_config"] = passed_on
    return chosen


def without_secrets(options: Mapping[str, object]) -> dict[str, object]:
    """The options that may leave the process: of Hadoop's those that lakelog reads, of none what is secret or may hold a password."""
    kept: dict[str, object] = {}
    for name, value in options.items():
        if name.startswith(_S3A):
            key = _hadoop_key(name)
            if key.endswith("credentials.provider") and any(simple in str(value) for simple in _SIMPLE):
                # Its keys stay behind; who is named beside it may still ask.
                value = ",".join(part for part in _PARTED.split(str(value)) if part and _simple_name(part) not in _SIMPLE)
            if key in _HADOOP_PLAIN and value != "":
                kept[name] = value
        elif name in _DICTS:
            kept[name] = without_secrets({key: part for key, part in mapping(name, value).items() if not key.startswith("prox")})
        elif _NAMES.get(name) not in _SECRET and _NAMES.get(name.removeprefix("ddb.")) not in _SECRET:
            kept[name] = value
    return kept


class _Level(dict[Attribute, object]):
    """What one level says, and under which name."""

    def __init__(self) -> None:
        super().__init__()
        self._said_by: dict[Attribute, str] = {}

    def say(self, attribute: Attribute, name: str, value: object) -> None:
        if attribute in self and self[attribute] != value:
            raise StoreConfigurationError(
                f"Two options of the S3 store disagree on one thing: {self._said_by[attribute]} and {name}. Remove one."
            )
        self[attribute] = value
        self._said_by.setdefault(attribute, name)


def _says(level: Mapping[Attribute, object], parts: tuple[Attribute, ...]) -> bool:
    # ``anon=False`` is what fsspec's users write for "the usual way".
    return any(level.get(part) for part in parts)


# fsspec's and boto3's names ----------------------------------------------------------------------------------------------


def _own_names(options: Mapping[str, object]) -> tuple[_Level, dict[str, object]]:
    level, passed_on = _Level(), dict[str, object]()
    for name, value in options.items():
        if name in STORE_OPTIONS or name in _FSSPEC_TUNING or name.startswith((_S3A, *_DYNAMODB)):
            continue
        if name in _DICTS:
            _nested(level, passed_on, name, mapping(name, value))
        elif name in _NAMES:
            _say(level, _NAMES[name], name, value)
        else:
            raise _unknown(name, [*_NAMES, *_DICTS, *STORE_OPTIONS])
    return level, passed_on


def _nested(level: _Level, passed_on: dict[str, object], where: str, entries: Mapping[str, object]) -> None:
    for key, value in entries.items():
        name = f"{where}[{key!r}]"
        if key == "s3" and where == "config_kwargs":
            parts = mapping(name, value)
            if others := sorted(parts.keys() - {"addressing_style"}):
                raise _unknown(f"{name}[{others[0]!r}]", [f"{name}['addressing_style']"])
            _say(level, "addressing_style", name, parts.get("addressing_style"))
        elif key == "signature_version" and where == "config_kwargs":
            # Of the ways to sign there is one that servers still take.
            if value is botocore.UNSIGNED:
                level.say("anonymous", name, True)
        elif key in CLIENT_CONFIG and where == "config_kwargs":
            if value is None:
                continue
            passed_on[key] = client_config(key, name, value)
        elif key == "retries":
            raise StoreConfigurationError(
                f"Remove {name}: how often a request is repeated is part of what makes a commit safe, and not to be set."
            )
        elif key in _NAMES:
            _say(level, _NAMES[key], name, value)
        else:
            raise _unknown(name, [f"{where}[{known!r}]" for known in (*_NAMES, *CLIENT_CONFIG)])


def _say(level: _Level, attribute: Attribute, name: str, value: object) -> None:
    # An option that is None or empty is one that was not given: that is how fsspec's callers pass them on.
    if value is None or (value == "" and attribute != "verify"):
        return
    level.say(attribute, name, _PARSERS.get(attribute, text)(name, value))


_PARSERS: Mapping[Attribute, Callable[[str, object], object]] = {
    "anonymous": as_bool,
    "use_ssl": as_bool,
    "verify": verify,
    "connect_timeout_s": seconds,
    "read_timeout_s": seconds,
    "addressing_style": style,
}


def _unknown(name: str, known: list[str]) -> StoreConfigurationError:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known))}, and Hadoop's fs.s3a.* keys."
    return StoreConfigurationError(f"The S3 store has no option {name}; {meant}")


# Hadoop's names ------------------------------------------------------------------------------------------------------------


def _hadoop_names(options: Mapping[str, object], bucket: str | None, environ: Mapping[str, str], *, needs_identity: bool) -> _Level:
    keys = dict(_hadoop_keys(options, bucket))
    level = _Level()
    if endpoint := keys.get("endpoint"):
        level.say("endpoint_url", f"{_S3A}endpoint", endpoint)
    if region := keys.get("endpoint.region"):
        level.say("region", f"{_S3A}endpoint.region", region)
    if "path.style.access" in keys and as_bool(f"{_S3A}path.style.access", keys["path.style.access"]):
        level.say("addressing_style", f"{_S3A}path.style.access", "path")
    if "connection.ssl.enabled" in keys:
        level.say("use_ssl", f"{_S3A}connection.ssl.enabled", as_bool(f"{_S3A}connection.ssl.enabled", keys["connection.ssl.enabled"]))
    for key, attribute in (("connection.establish.timeout", "connect_timeout_s"), ("connection.timeout", "read_timeout_s")):
        if key in keys:
            level.say(attribute, f"{_S3A}{key}", _duration(f"{_S3A}{key}", keys[key]))
    if needs_identity:
        # Without a bucket nothing is asked, and each may have keys of its own.
        elsewhere = bucket is None and any(name.startswith(f"{_S3A}bucket.") and name.endswith(".access.key") for name in options)
        _hadoop_identity(level, keys, environ, may_be_elsewhere=elsewhere)
    return level


def _hadoop_keys(options: Mapping[str, object], bucket: str | None) -> Iterator[tuple[str, str]]:
    """The keys without ``fs.s3a.``, those of the bucket last, so that they stand in for the others."""
    prefixes = [_S3A] if bucket is None else [_S3A, f"{_S3A}bucket.{bucket}."]
    for prefix in prefixes:
        for name, value in options.items():
            if not name.startswith(prefix) or value is None:
                continue
            key, text = name.removeprefix(prefix), str(value).strip()
            if text not in _HADOOP_DEFAULTS.get(key, frozenset({""})) or prefix != _S3A:
                yield key, text


def _hadoop_key(name: str) -> str:
    """Without ``fs.s3a.`` and without ``bucket.<bucket>.``, of which a bucket's own dots leave the end in doubt."""
    key = name.removeprefix(_S3A)
    if not key.startswith("bucket."):
        return key
    return next((plain for plain in sorted(_HADOOP_PLAIN, key=len, reverse=True) if key.endswith(f".{plain}")), key)


def _hadoop_identity(level: _Level, keys: Mapping[str, str], environ: Mapping[str, str], *, may_be_elsewhere: bool) -> None:
    """The first of Hadoop's list that has something; where that is the machine itself, or may be, nothing is said."""
    listed = [name for name in _PARTED.split(keys.get("aws.credentials.provider", "")) if name]
    simple = [_simple_name(name) for name in listed]
    if any(name in _ROLE for name in simple):
        for key, part in (("arn", "role_arn"), ("session.name", "role_session_name"), ("external.id", "external_id")):
            if value := keys.get(f"assumed.role.{key}"):
                level.say(part, f"{_S3A}assumed.role.{key}", value)
        if "role_arn" not in level:
            raise StoreConfigurationError(
                f"{_S3A}aws.credentials.provider names AssumedRoleCredentialProvider, which wants the role in {_S3A}assumed.role.arn."
            )
        if sts := keys.get("assumed.role.sts.endpoint"):
            level.say("sts_endpoint_url", f"{_S3A}assumed.role.sts.endpoint", sts)
        nested = keys.get("assumed.role.credentials.provider", "")
        within = {**keys, "aws.credentials.provider": nested} if "AssumedRole" not in nested else {}
        _hadoop_identity(level, within, environ, may_be_elsewhere=may_be_elsewhere)
        return
    # Hadoop's own list where none is given.
    for name, whole in zip(simple, listed, strict=True) if simple else (("SimpleAWSCredentialsProvider", ""),):
        if name in _ANONYMOUS:
            level.say("anonymous", f"{_S3A}aws.credentials.provider", True)
            return
        if name in _PROFILE:
            level.say("profile", f"{_S3A}aws.credentials.provider", keys.get("auth.profile.name") or "default")
            return
        if name in _CHAIN:
            if _may_have(name, environ):
                return
            continue
        if name not in _SIMPLE:
            raise StoreConfigurationError(
                f"{_S3A}aws.credentials.provider names {whole}, which lakelog cannot run, since it is Java. Give lakelog credentials under "
                "its own names (spark.lakelog.s3a.key and secret, profile, role_arn or anon), or name one of Hadoop's usual classes: "
                f"{', '.join(sorted(_SIMPLE | _ROLE | _ANONYMOUS | _PROFILE))}."
            )
        if keys.get("access.key") or keys.get("secret.key"):
            for key, part in (("access.key", "access_key"), ("secret.key", "secret_key"), ("session.token", "session_token")):
                if value := keys.get(key):
                    level.say(part, f"{_S3A}{key}", value)
            return
    if simple and _SIMPLE.issuperset(simple) and not may_be_elsewhere:
        # The machine's own identity, which would be asked otherwise, is none that was named.
        raise StoreConfigurationError(
            f"{_S3A}aws.credentials.provider names {' and '.join(simple)}, and there is no {_S3A}access.key with its {_S3A}secret.key. "
            "Give them, or name who else asks."
        )


def _may_have(provider: str, environ: Mapping[str, str]) -> bool:
    """Whether one of the SDK's own providers may find something; of those that ask a service only the service knows."""
    needed = _VARIABLES_OF.get(provider)
    return needed is None or all(environ.get(name) for name in needed)


def _simple_name(of_class: str) -> str:
    return of_class.rpartition(".")[2].rpartition("$")[2]


def _duration(name: str, text: str) -> float:
    match = _DURATION.fullmatch(text.lower())
    if match is None or float(match[1]) <= 0:
        raise StoreConfigurationError(f"{name} is a time above 0 such as 5s or 5000 (milliseconds).")
    return float(match[1]) * _SECONDS[match[2] or "ms"]


# Environment variables -----------------------------------------------------------------------------------------------------


def _ignores_configured(environ: Mapping[str, str]) -> bool:
    return environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").strip().lower() == "true"


def _environment_names(environ: Mapping[str, str]) -> _Level:
    level = _Level()
    ignored = _ignores_configured(environ)
    # The names of one thing differ by design here: the more special first.
    for attribute, names in (
        ("endpoint_url", () if ignored else ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")),
        ("region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
        ("verify", ("AWS_CA_BUNDLE",)),
    ):
        if name := next((name for name in names if environ.get(name)), None):
            level.say(attribute, name, environ[name].strip())
    return level


# What must fit together -----------------------------------------------------------------------------------------------------


def _check_identity(chosen: Mapping[Attribute, object]) -> None:
    given = [part for part in ("access_key", "secret_key") if chosen.get(part)]
    if chosen.get("anonymous"):
        if given or chosen.get("profile") or chosen.get("role_arn"):
            raise StoreConfigurationError("The S3 store is told to ask anonymously (anon) and as somebody (key, profile, role). Drop one.")
        return
    if len(given) == 1 or (not given and chosen.get("session_token")):
        missing = sorted({"access_key", "secret_key"} - set(given))
        raise StoreConfigurationError(
            f"The S3 store was given a part of its credentials, without {' and '.join(missing)}. An access key and its secret key go "
            "together, from one place: key and secret, or fs.s3a.access.key and fs.s3a.secret.key."
        )
    if given and chosen.get("profile"):
        raise StoreConfigurationError("The S3 store was given keys and a profile, which are two identities. Remove one.")
