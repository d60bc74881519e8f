"""Options under all their names, which of them counts, what they become, and where secrets are not."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import botocore
import pyarrow.fs
import pytest
from botocore.credentials import ReadOnlyCredentials

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.s3_settings import S3Credentials, S3Settings

KEYS = {"key": "planted-key", "secret": "planted-secret"}
S3A_KEYS = {"fs.s3a.access.key": "planted-key", "fs.s3a.secret.key": "planted-secret"}
PROVIDER = "fs.s3a.aws.credentials.provider"
HADOOP = "org.apache.hadoop.fs.s3a."
SDK = "software.amazon.awssdk.auth.credentials."
ROLE = "arn:aws:iam::123456789012:role/writer"


def of(options: dict[str, object] | dict[str, str], environ: dict[str, str] | None = None, bucket: str | None = "b") -> S3Settings:
    return S3Settings.of(options, bucket=bucket, environ=environ or {})


@pytest.mark.parametrize(
    "options",
    [
        {**KEYS, "token": "planted-token"},
        {"aws_access_key_id": "planted-key", "aws_secret_access_key": "planted-secret", "aws_session_token": "planted-token"},
        {"client_kwargs": {"aws_access_key_id": "planted-key"}, "secret": "planted-secret", "session_token": "planted-token"},
        {**S3A_KEYS, "fs.s3a.session.token": "planted-token"},
        {**S3A_KEYS, "fs.s3a.session.token": "planted-token", PROVIDER: f"{HADOOP}TemporaryAWSCredentialsProvider"},
        {"fs.s3a.access.key": "other", "fs.s3a.bucket.b.access.key": "planted-key", "fs.s3a.secret.key": "planted-secret"}
        | {"fs.s3a.bucket.b.session.token": "planted-token"},
        {**KEYS, "token": "planted-token", "fs.s3a.access.key": "other", "fs.s3a.secret.key": "other", PROVIDER: "my.own.Provider"},
    ],
    ids=str,
)
def test_keys_by_their_names(options: dict[str, object]) -> None:
    assert of(options).credentials == S3Credentials("planted-key", "planted-secret", "planted-token")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endpoint_url": "http://h:9000/"}, {"endpoint_url": "http://h:9000"}),
        ({"client_kwargs": {"endpoint_url": "http://h", "region_name": "r-1"}}, {"endpoint_url": "http://h", "region": "r-1"}),
        ({"client_kwargs": '{"region_name": "r-1"}'}, {"region": "r-1"}),
        ({"fs.s3a.endpoint": "h:9000"}, {"endpoint_url": "https://h:9000"}),
        ({"fs.s3a.endpoint": "h:9000", "fs.s3a.connection.ssl.enabled": "false"}, {"endpoint_url": "http://h:9000", "use_ssl": False}),
        ({"fs.s3a.endpoint": "http://h:9000", "fs.s3a.connection.ssl.enabled": "true"}, {"endpoint_url": "http://h:9000"}),
        ({"endpoint": "h:9000", "use_ssl": "false"}, {"endpoint_url": "http://h:9000", "use_ssl": False}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        ({"fs.s3a.endpoint": "s3.eu-west-3.amazonaws.com"}, {"endpoint_url": "https://s3.eu-west-3.amazonaws.com", "region": "eu-west-3"}),
        ({"fs.s3a.endpoint.region": "eu-west-3"}, {"region": "eu-west-3"}),
        ({"fs.s3a.bucket.b.endpoint.region": "eu-west-3", "fs.s3a.endpoint.region": "us-west-1"}, {"region": "eu-west-3"}),
        ({"fs.s3a.bucket.c.endpoint.region": "eu-west-3", "fs.s3a.endpoint.region": "us-west-1"}, {"region": "us-west-1"}),
        ({"region": "eu-west-3", "fs.s3a.endpoint.region": "us-west-1"}, {"region": "eu-west-3"}),
        ({"region": "eu-west-3", "region_name": "eu-west-3"}, {"region": "eu-west-3"}),
        ({"fs.s3a.path.style.access": "true"}, {"addressing_style": "path"}),
        ({"fs.s3a.path.style.access": "false"}, {}),
        ({"config_kwargs": {"s3": {"addressing_style": "virtual"}}}, {"addressing_style": "virtual"}),
        ({"anon": True}, {"anonymous": True}),
        ({"anon": "false", **KEYS}, {"credentials": S3Credentials("planted-key", "planted-secret")}),
        ({"anon": None, "key": None, "token": ""}, {}),
        pytest.param({"config_kwargs": {"signature_version": botocore.UNSIGNED}}, {"anonymous": True}, id="unsigned"),
        ({"config_kwargs": {"signature_version": "s3v4", "max_pool_connections": 3}}, {"client_config": {"max_pool_connections": 3}}),
        ({"verify": "/ca.pem"}, {"verify": "/ca.pem"}),
        ({"verify": False}, {"verify": False}),
        ({"connect_timeout": "1.5", "config_kwargs": {"read_timeout": 7}}, {"connect_timeout_s": 1.5, "read_timeout_s": 7.0}),
        (
            {"fs.s3a.connection.establish.timeout": "500", "fs.s3a.connection.timeout": "7s"},
            {"connect_timeout_s": 0.5, "read_timeout_s": 7.0},
        ),
        ({"fs.s3a.connection.establish.timeout": "30s", "fs.s3a.connection.timeout": "200s"}, {}),
        ({"fs.s3a.threads.max": "10", "fs.s3a.fast.upload": "true"}, {}),
        ({"default_block_size": 5, "use_listings_cache": False, "allow_dynamodb_writers": "true"}, {}),
        ({"ddb.table_name": "t", "io.delta.storage.S3DynamoDBLogStore.ddb.region": "r"}, {}),
        ({PROVIDER: f"{HADOOP}AnonymousAWSCredentialsProvider", **S3A_KEYS}, {"anonymous": True}),
        ({PROVIDER: f"{SDK}AnonymousCredentialsProvider"}, {"anonymous": True}),
        ({PROVIDER: f"{SDK}EnvironmentVariableCredentialsProvider", **S3A_KEYS}, {}),
        ({PROVIDER: f"{HADOOP}auth.IAMInstanceCredentialsProvider"}, {}),
        ({PROVIDER: f"{HADOOP}auth.ProfileAWSCredentialsProvider", "fs.s3a.auth.profile.name": "p"}, {"profile": "p"}),
        ({PROVIDER: f"{SDK}ProfileCredentialsProvider"}, {"profile": "default"}),
        (
            {PROVIDER: f"{HADOOP}SimpleAWSCredentialsProvider,\n {SDK}EnvironmentVariableCredentialsProvider", **S3A_KEYS},
            {"credentials": S3Credentials("planted-key", "planted-secret")},
        ),
        ({PROVIDER: f"{HADOOP}SimpleAWSCredentialsProvider,{HADOOP}AnonymousAWSCredentialsProvider"}, {"anonymous": True}),
        (
            {PROVIDER: f"{SDK}EnvironmentVariableCredentialsProvider,{HADOOP}SimpleAWSCredentialsProvider", **S3A_KEYS},
            {"credentials": S3Credentials("planted-key", "planted-secret")},
        ),
        (
            {PROVIDER: f"{SDK}WebIdentityTokenFileCredentialsProvider,{HADOOP}SimpleAWSCredentialsProvider", **S3A_KEYS},
            {"credentials": S3Credentials("planted-key", "planted-secret")},
        ),
        ({PROVIDER: f"{HADOOP}auth.IAMInstanceCredentialsProvider,{HADOOP}SimpleAWSCredentialsProvider", **S3A_KEYS}, {}),
        ({PROVIDER: f"{HADOOP}SimpleAWSCredentialsProvider,{SDK}EnvironmentVariableCredentialsProvider"}, {}),
        (
            {PROVIDER: f"{HADOOP}auth.AssumedRoleCredentialProvider", "fs.s3a.assumed.role.arn": ROLE, **S3A_KEYS}
            | {"fs.s3a.assumed.role.session.name": "n", "fs.s3a.assumed.role.sts.endpoint": "sts.h"},
            {"role_arn": ROLE, "role_session_name": "n", "sts_endpoint_url": "https://sts.h"}
            | {"credentials": S3Credentials("planted-key", "planted-secret")},
        ),
        ({"fs.s3a.assumed.role.arn": ROLE}, {}),
        ({"role_arn": ROLE, "session_name": "n", "external_id": "x"}, {"role_arn": ROLE, "role_session_name": "n", "external_id": "x"}),
        ({"anon": True, PROVIDER: f"{HADOOP}auth.AssumedRoleCredentialProvider", "fs.s3a.assumed.role.arn": ROLE}, {"anonymous": True}),
        ({"profile": "p", **S3A_KEYS}, {"profile": "p"}),
    ],
    ids=str,
)
def test_what_options_say(options: dict[str, object], expected: dict[str, Any]) -> None:
    assert of(options) == S3Settings(**expected)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"AWS_ENDPOINT_URL": "http://e"}, {"endpoint_url": "http://e"}),
        ({"AWS_ENDPOINT_URL": "http://e", "AWS_ENDPOINT_URL_S3": "http://s"}, {"endpoint_url": "http://s"}),
        ({"AWS_ENDPOINT_URL": "http://e", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, {}),
        ({"AWS_DEFAULT_REGION": "d-1"}, {"region": "d-1"}),
        ({"AWS_DEFAULT_REGION": "d-1", "AWS_REGION": "r-1"}, {"region": "r-1"}),
        ({"AWS_CA_BUNDLE": "/ca.pem"}, {"verify": "/ca.pem"}),
        ({"AWS_CA_BUNDLE": "/ca.pem", "AWS_ENDPOINT_URL": "http://e"}, {"endpoint_url": "http://e"}),
        # The SDK finds these by itself, on whatever machine it is.
        ({"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "p"}, {}),
    ],
    ids=str,
)
def test_what_the_environment_says(environ: dict[str, str], expected: dict[str, Any]) -> None:
    assert of({}, environ) == S3Settings(**expected)
    # Hadoop's list is gone through in its order, as far as there is something.
    if "AWS_ACCESS_KEY_ID" in environ:
        listed = {PROVIDER: f"{SDK}EnvironmentVariableCredentialsProvider,{HADOOP}SimpleAWSCredentialsProvider", **S3A_KEYS}
        assert of(listed, environ) == S3Settings(**expected)
    said = of({"endpoint_url": "http://o", "fs.s3a.endpoint.region": "o-1"}, environ)
    assert (said.endpoint_url, said.region) == ("http://o", "o-1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "planted-1", "access_key": "planted-2", "secret": "s"}, "disagree on one thing: key and access_key"),
        ({"region": "a", "client_kwargs": {"region_name": "b"}}, r"disagree on one thing: region and client_kwargs\['region_name'\]"),
        ({"secrett": "planted-1"}, "no option secrett; did you mean secret"),
        ({"client_kwargs": {"regionname": "planted-1"}}, r"client_kwargs\['regionname'\]; did you mean client_kwargs\['region_name'\]"),
        ({"xyz": "planted-1"}, "no option xyz; it takes "),
        ({"client_kwargs": "planted-1"}, "dictionary"),
        ({"config_kwargs": {"retries": 1}}, "Remove config_kwargs"),
        ({"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "use_accelerate_endpoint"),
        ({"key": "planted-1"}, "without secret_key"),
        ({"secret": "planted-1"}, "without access_key"),
        ({"token": "planted-1"}, "without access_key and secret_key"),
        ({"fs.s3a.access.key": "planted-1"}, "without secret_key"),
        ({"key": "planted-1", "fs.s3a.secret.key": "planted-2"}, "without secret_key"),
        ({"anon": True, **KEYS}, "anonymously"),
        ({"profile": "p", **KEYS}, "two identities"),
        ({"anon": "planted-1"}, "anon .* true or false"),
        ({"key": 5}, "a text, not a int"),
        ({"connect_timeout": "planted-1"}, "number of seconds"),
        ({"connect_timeout": 0}, "number of seconds"),
        ({"addressing_style": "planted-1"}, "auto, path, virtual"),
        ({"endpoint_url": "ftp://planted-1"}, "is a URL such as"),
        ({"endpoint_url": "http://h:planted-1"}, "is a URL such as"),
        ({"endpoint_url": "https://planted-user:planted-1@h"}, "for h holds a user"),
        ({"endpoint_url": "https://h?X-Amz-Signature=planted-1"}, "for h holds a user, a password or a query"),
        ({"fs.s3a.connection.timeout": "planted-1"}, "fs.s3a.connection.timeout is a time"),
        ({PROVIDER: "my.own.Provider"}, "names my.own.Provider, which lakelog cannot run"),
        ({PROVIDER: f"{HADOOP}auth.AssumedRoleCredentialProvider"}, "fs.s3a.assumed.role.arn"),
        ({PROVIDER: f"{HADOOP}SimpleAWSCredentialsProvider"}, "names SimpleAWSCredentialsProvider, .* fs.s3a.access.key"),
        (
            {PROVIDER: f"{HADOOP}auth.AssumedRoleCredentialProvider", "fs.s3a.assumed.role.arn": ROLE}
            | {"fs.s3a.assumed.role.credentials.provider": f"{HADOOP}SimpleAWSCredentialsProvider"},
            "fs.s3a.access.key",
        ),
        ({"sts_endpoint_url": "https://planted-user:planted-1@h", "role_arn": ROLE}, "STS endpoint .* for h holds a user"),
        ({"sts_endpoint_url": "ftp://planted-1", "role_arn": ROLE}, "STS endpoint .* is a URL such as"),
        ({"config_kwargs": {"max_pool_connections": "planted-1"}}, r"config_kwargs\['max_pool_connections'\] .* whole number"),
        ({"config_kwargs": {"max_pool_connections": 0}}, "whole number"),
        ({"config_kwargs": {"proxies": "planted-1"}}, "dictionary"),
        ({"config_kwargs": {"proxies": {"https": 5}}}, r"config_kwargs\['proxies'\].* URL"),
        ({"config_kwargs": {"proxies": {"https": "ftp://planted-1"}}}, r"config_kwargs\['proxies'\].* URL"),
        ({"config_kwargs": {"proxies": {"ftp": "http://planted-1"}}}, r"config_kwargs\['proxies'\].* http and https"),
        ({"config_kwargs": {"proxies_config": "planted-1"}}, "dictionary"),
        ({"config_kwargs": {"tcp_keepalive": "planted-1"}}, "true or false"),
        ({"config_kwargs": {"user_agent_extra": 5}}, "a text"),
        ({"config_kwargs": {"client_cert": 5}}, "a file, or two"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_without_its_value(options: dict[str, object], message: str) -> None:
    with pytest.raises(StoreConfigurationError, match=message) as caught:
        of(options)
    assert "planted" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_secrets_are_where_they_are_asked_for_and_nowhere_else() -> None:
    options = {
        **KEYS,
        "token": "planted-token",
        "role_arn": ROLE,
        "external_id": "planted-id",
        "config_kwargs": {"proxies": {"http": "http://u:planted-p@h"}},
    }
    settings = of(options)
    assert settings.secrets() == {"planted-key", "planted-secret", "planted-token", "planted-id", "planted-p"}
    assert (settings.access_key, settings.secret_key, settings.session_token) == ("planted-key", "planted-secret", "planted-token")
    assert "planted" not in f"{settings!r} {settings} {settings.credentials!r}"
    assert b"planted" not in pickle.dumps(settings)
    assert "planted-key" not in str(dataclasses.asdict(settings))
    assert copy.deepcopy(settings) == settings == of(options)
    assert hash(settings) == hash(of(options))
    assert settings != of({**options, "secret": "another"})
    arrived = pickle.loads(pickle.dumps(of({**options, "region": "r-1"})))
    assert arrived == S3Settings(region="r-1", role_arn=ROLE)


# What they become -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "arguments", "secrets"),
    [
        (KEYS, {}, {"access_key": "planted-key", "secret_key": "planted-secret"}),
        ({**KEYS, "token": "t"}, {}, {"access_key": "planted-key", "secret_key": "planted-secret", "session_token": "t"}),
        ({"anon": True}, {"anonymous": True}, {}),
        (
            {"endpoint_url": "http://h:9000", "anon": True},
            {"endpoint_override": "h:9000", "scheme": "http", "region": "us-east-1", "anonymous": True},
            {},
        ),
        (
            {"endpoint_url": "https://h", "region": "r-1", "addressing_style": "virtual", "verify": "/ca.pem", **KEYS},
            {"endpoint_override": "h", "scheme": "https", "region": "r-1", "force_virtual_addressing": True, "tls_ca_file_path": "/ca.pem"},
            {"access_key": "planted-key", "secret_key": "planted-secret"},
        ),
        ({"role_arn": ROLE, "region": "r-1"}, {"role_arn": ROLE, "session_name": "lakelog", "region": "r-1"}, {}),
        ({"region": "r-1"}, {"region": "r-1"}, {}),
    ],
    ids=str,
)
def test_arguments_of_arrow(
    options: dict[str, object], arguments: dict[str, object], secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    settings = of(options)
    assert settings.arrow_arguments() == {"connect_timeout": 2.0, "request_timeout": 8.0, **arguments}
    assert settings.arrow_secrets() == secrets


@pytest.mark.parametrize(
    ("options", "argument", "secret", "hadoop"),
    [
        ({"https": "http://p:3128"}, "http://p:3128", None, {"host": "p", "port": "3128"}),
        ({"https": "p:3128", "http": "http://other:1"}, "http://p:3128", None, {"host": "p", "port": "3128"}),
        ({"https": "https://p"}, "https://p:443", None, {"host": "p", "port": "443", "ssl.enabled": "true"}),
        (
            {"https": "http://u:planted-p@p:3128"},
            None,
            "http://u:planted-p@p:3128",
            {"host": "p", "port": "3128", "username": "u", "password": "planted-p"},
        ),
        ({"http": "http://other:1"}, None, None, {}),
    ],
    ids=str,
)
def test_a_proxy_holds_for_data_files_too(
    options: dict[str, str], argument: str | None, secret: str | None, hadoop: dict[str, str]
) -> None:
    settings = of({**KEYS, "region": "r-1", "config_kwargs": {"proxies": options}})
    arguments, secrets = settings.arrow_arguments(), settings.arrow_secrets()
    assert (arguments.get("proxy_options"), secrets.get("proxy_options")) == (argument, secret)
    assert {name: value for name, value in settings.hadoop().items() if ".proxy." in name} == {
        f"fs.s3a.proxy.{name}": value for name, value in hadoop.items()
    }
    made: Any = {**arguments, **secrets}
    assert isinstance(pyarrow.fs.S3FileSystem(**made), pyarrow.fs.FileSystem)
    anonymous = of({"anon": True, "region": "r-1", "config_kwargs": {"proxies": options}})
    assert anonymous.arrow_secrets() == ({"proxy_options": secret} if secret else {})


def test_certificates_that_are_not_to_be_checked_are_refused_for_data_files() -> None:
    settings = of({**KEYS, "verify": False, "endpoint_url": "https://h"})
    with pytest.raises(StoreConfigurationError, match=r"verify=false.* Arrow .*the bundle"):
        settings.arrow_arguments()
    for options in ({"endpoint_url": "http://h"}, {"use_ssl": False}):
        assert "scheme" in of({**KEYS, "verify": False, "region": "r-1", **options}).arrow_arguments()


@pytest.mark.parametrize(
    "options",
    [
        {**S3A_KEYS, "fs.s3a.endpoint": "http://h:9000", "fs.s3a.endpoint.region": "r-1", "fs.s3a.path.style.access": "true"}
        | {"fs.s3a.connection.ssl.enabled": "false"},
        {**S3A_KEYS, "fs.s3a.session.token": "planted-token"},
        {PROVIDER: f"{HADOOP}AnonymousAWSCredentialsProvider", "fs.s3a.endpoint.region": "r-1"},
        {PROVIDER: f"{HADOOP}auth.AssumedRoleCredentialProvider", "fs.s3a.assumed.role.arn": ROLE, **S3A_KEYS},
        {"fs.s3a.connection.timeout": "7s"},
        {},
    ],
    ids=str,
)
def test_hadoop_is_told_what_it_would_have_said(options: dict[str, str]) -> None:
    settings = of(options)
    again = of(settings.hadoop())
    assert again.hadoop() == settings.hadoop()
    for name in ("credentials", "anonymous", "role_arn", "region", "endpoint_url", "addressing_style", "read_timeout_s", "use_ssl"):
        assert getattr(again, name) == getattr(settings, name), name


def test_an_endpoint_that_is_not_aws_is_asked_by_path_by_hadoop_too() -> None:
    keys = of({"endpoint_url": "http://h:9000", **KEYS}).hadoop()
    assert keys["fs.s3a.path.style.access"] == "true"
    assert keys["fs.s3a.endpoint.region"] == "us-east-1"
    assert "fs.s3a.path.style.access" not in of({"endpoint_url": "http://h:9000", "addressing_style": "virtual"}).hadoop()


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(
        "[mine]\naws_access_key_id = planted-key\naws_secret_access_key = planted-secret\n[empty]\n", encoding="utf-8"
    )
    (tmp_path / "config").write_text("[profile mine]\nregion = eu-west-3\n", encoding="utf-8")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("profile")
def test_a_profile_is_resolved_where_it_is() -> None:
    settings = of({"profile": "mine"})
    assert settings.arrow_secrets() == {"access_key": "planted-key", "secret_key": "planted-secret"}
    assert settings.arrow_arguments()["region"] == "eu-west-3"
    assert settings.hadoop()["fs.s3a.access.key"] == "planted-key"
    assert settings.client().meta.region_name == "eu-west-3"


@pytest.mark.usefixtures("profile")
@pytest.mark.parametrize(("name", "message"), [("other", "There is no AWS profile other"), ("empty", "profile empty cannot be had")])
def test_a_profile_that_says_nothing_is_an_error(name: str, message: str) -> None:
    with pytest.raises(StoreConfigurationError, match=message) as caught:
        of({"profile": name}).arrow_secrets()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("profile")
@pytest.mark.parametrize(
    ("text", "options", "environ", "expected"),
    [
        ("endpoint_url = http://h:9000\n", {"profile": "mine"}, {}, "http://h:9000"),
        ("services = here\n[services here]\ns3 =\n  endpoint_url = http://s:9000\n", {"profile": "mine"}, {}, "http://s:9000"),
        (
            "endpoint_url = http://h\nservices = here\n[services here]\ns3 =\n  endpoint_url = http://s\n",
            {"profile": "mine"},
            {},
            "http://s",
        ),
        ("endpoint_url = http://h\n", {}, {"AWS_PROFILE": "mine"}, "http://h"),
        ("endpoint_url = http://h\n", {**KEYS}, {"AWS_PROFILE": "mine"}, "http://h"),
        ("endpoint_url = http://h\n", {"profile": "mine", "endpoint_url": "http://o"}, {}, "http://o"),
        ("endpoint_url = http://h\n", {"profile": "mine"}, {"AWS_ENDPOINT_URL": "http://e"}, "http://e"),
        ("endpoint_url = http://h\n", {"profile": "mine"}, {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, None),
        ("endpoint_url = http://h\nignore_configured_endpoint_urls = true\n", {"profile": "mine"}, {}, None),
        ("endpoint_url = http://h\n", {}, {}, None),
    ],
    ids=str,
)
def test_an_endpoint_of_the_shared_files_holds_for_log_and_data_files(
    text: str, options: dict[str, object], environ: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "config").open("a", encoding="utf-8") as config:
        config.write(text)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    settings = S3Settings.of(options or {"anon": True}, bucket="b")
    assert settings.endpoint_url == expected
    assert settings.is_aws == (expected is None)
    assert settings.hadoop().get("fs.s3a.endpoint") == expected
    assert settings.arrow_arguments().get("endpoint_override") == (expected and expected.removeprefix("http://"))
    url = settings.client().meta.endpoint_url
    assert url == expected or (expected is None and url.endswith(".amazonaws.com"))
    if expected is not None and settings.profile:
        # The region of the file, too: what signs for another is refused.
        assert settings.hadoop()["fs.s3a.endpoint.region"] == "eu-west-3"


@pytest.mark.usefixtures("profile")
def test_an_endpoint_of_the_shared_files_with_a_password_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "config").open("a", encoding="utf-8") as config:
        config.write("endpoint_url = http://u:planted@h\n")
    with pytest.raises(StoreConfigurationError, match="for h holds a user") as caught:
        of({"profile": "mine"})
    assert "planted" not in repr(caught.value)


class _Sent(Exception):
    """A request that would have been sent."""


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({"endpoint_url": "http://h:9000"}, "http://h:9000/bucket"),
        ({"endpoint_url": "http://h:9000", "addressing_style": "virtual"}, "http://bucket.h:9000/"),
        ({"region": "eu-west-3"}, "https://bucket.s3.eu-west-3.amazonaws.com/"),
        ({"region": "eu-west-3", "addressing_style": "path"}, "https://s3.eu-west-3.amazonaws.com/bucket"),
        ({"region": "eu-west-3", "use_ssl": False}, "http://bucket.s3.eu-west-3.amazonaws.com/"),
    ],
    ids=str,
)
def test_a_client_addresses_as_asked(options: dict[str, object], url: str) -> None:
    client = of({**KEYS, **options}).client()

    def send(request: Any, **_: object) -> None:
        raise _Sent(request.url.partition("?")[0])

    client.meta.events.register("before-send.s3", send)
    with pytest.raises(_Sent) as sent:
        client.list_objects_v2(Bucket="bucket")
    assert sent.value.args == (url,)


def test_a_client_of_another_service_does_not_ask_s3() -> None:
    settings = of({**KEYS, "endpoint_url": "http://h:9000", "region": "eu-west-3"})
    assert settings.client("dynamodb").meta.endpoint_url == "https://dynamodb.eu-west-3.amazonaws.com"
    assert settings.client("dynamodb", endpoint_url="http://d:1", region="us-east-1").meta.endpoint_url == "http://d:1"


def test_what_makes_no_client_is_said() -> None:
    with pytest.raises(StoreConfigurationError, match="No client for s3"):
        of({**KEYS, "region": "no region at all"}).client()


def test_keys_that_are_renewed_are_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that assumes a role: the session behind it is kept, what it answers is not."""
    sessions = []

    class Session:
        def __init__(self) -> None:
            self.answers = 0
            sessions.append(self)

        def get_credentials(self) -> Session:
            return self

        def get_frozen_credentials(self) -> ReadOnlyCredentials:
            self.answers += 1
            return ReadOnlyCredentials(f"key-{self.answers}", "secret", "token")

    monkeypatch.setattr(S3Settings, "session", lambda self: Session())
    settings = S3Settings.of({"profile": "renewed", "region": "x"}, environ={})
    assert [settings.arrow_secrets()["access_key"] for _ in range(3)] == ["key-1", "key-2", "key-3"]
    assert len(sessions) == 1
