"""How S3 is reached and as whom: one value, made from options under all their names, for boto3, for Arrow and for Hadoop.

`lakelog.storage.s3_options` says which names there are and which of them counts. Secrets are in the value and nowhere that a value
usually ends up: not in ``repr`` and ``str``, not in ``dataclasses.asdict``, not in a pickle. What comes out of a pickle has all the rest
and asks with what its own machine gives (environment variables, shared files, a role), as does one that was given no credentials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
import botocore
import botocore.config
import botocore.credentials
import botocore.exceptions
import botocore.loaders
import botocore.session

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.s3_options import translate
from lakelog.storage.s3_redaction import hide, redacted
from lakelog.storage.s3_shared_files import configured_endpoint, configured_region

__all__ = ["S3Credentials", "S3Settings"]

# An answer that does not come is an error in less than ten seconds: this many connections of this many seconds, and the waits between.
_ATTEMPTS = 3
_CONNECT_TIMEOUT_S = 2.0
_READ_TIMEOUT_S = 8.0
# Of one that gives credentials, before S3 is asked: so often, and so long.
_STS_ATTEMPTS = 2
_STS_READ_TIMEOUT_S = 3.0
_POOL = 64
_ROLE_SESSION = "lakelog"


class S3Credentials:
    """An access key, its secret and the token of a session; equal by value, shown and pickled as if they were not there.

    Args:
        access_key, secret_key, session_token: None where there is none.
    """

    __slots__ = ("access_key", "secret_key", "session_token")

    def __init__(self, access_key: str | None = None, secret_key: str | None = None, session_token: str | None = None) -> None:
        self.access_key, self.secret_key, self.session_token = access_key, secret_key, session_token
        hide(self.values())

    def values(self) -> frozenset[str]:
        """Those that there are."""
        return frozenset(value for value in (self.access_key, self.secret_key, self.session_token) if value)

    def __bool__(self) -> bool:
        return bool(self.access_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, S3Credentials) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return "S3Credentials(hidden)" if self else "S3Credentials()"

    def __reduce__(self) -> tuple[type[S3Credentials], tuple[()]]:
        return S3Credentials, ()

    def __copy__(self) -> S3Credentials:
        return self

    def __deepcopy__(self, memo: object) -> S3Credentials:
        return self

    def _all(self) -> tuple[str | None, str | None, str | None]:
        return self.access_key, self.secret_key, self.session_token


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Made by `of`.

    Attributes:
        endpoint_url: with its scheme; None for AWS itself.
        region: None where nobody says it and boto3 looks for it.
        credentials: empty where none were given.
        profile: of the shared files.
        role_arn, role_session_name, external_id, sts_endpoint_url: a role to be assumed with the credentials.
        anonymous: requests are not signed.
        addressing_style: ``auto``, ``path`` or ``virtual``. ``auto`` is path where there is an endpoint.
        verify: whether a certificate is checked, or the path of a bundle to check it with.
        use_ssl: whether AWS itself is asked over TLS; an endpoint's scheme says it of itself.
        connect_timeout_s, read_timeout_s: for one connection, and between two pieces of an answer.
        client_config: more arguments of ``botocore.config.Config``.
    """

    endpoint_url: str | None = None
    region: str | None = None
    credentials: S3Credentials = field(default_factory=S3Credentials)
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    external_id: str | None = field(default=None, repr=False)
    sts_endpoint_url: str | None = None
    anonymous: bool = False
    addressing_style: str = "auto"
    verify: bool | str = True
    use_ssl: bool = True
    connect_timeout_s: float = _CONNECT_TIMEOUT_S
    read_timeout_s: float = _READ_TIMEOUT_S
    client_config: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def of(cls, options: Mapping[str, object], *, bucket: str | None = None, environ: Mapping[str, str] = os.environ) -> S3Settings:
        """The settings that options and environment variables say.

        Args:
            options: by any of their names.
            bucket: whose own Hadoop keys count.
            environ: environment variables.

        Raises:
            StoreConfigurationError: an unknown option, a value that makes no sense, or two that disagree.
        """
        said = translate(options, bucket=bucket, environ=environ, endpoint_of=configured_endpoint)
        keys = [said.pop(part, None) for part in ("access_key", "secret_key", "session_token")]
        return cls(credentials=S3Credentials(*(str(key) if key else None for key in keys)), **said)  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[object, ...]:
        kept = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("credentials", "external_id")}
        # A proxy's URL may hold a password.
        kept["client_config"] = {name: value for name, value in self.client_config.items() if not name.startswith("prox")}
        return _remade, (kept,)

    def __copy__(self) -> S3Settings:
        return self

    def __deepcopy__(self, memo: object) -> S3Settings:
        return self

    @property
    def access_key(self) -> str | None:
        return self.credentials.access_key

    @property
    def secret_key(self) -> str | None:
        return self.credentials.secret_key

    @property
    def session_token(self) -> str | None:
        return self.credentials.session_token

    @property
    def is_aws(self) -> bool:
        """Whether it is AWS that answers, and not a server that speaks like it."""
        if self.endpoint_url is None:
            return True
        host = urlsplit(self.endpoint_url).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    def secrets(self) -> frozenset[str]:
        """What must never be printed."""
        proxies = self.client_config.get("proxies")
        urls = proxies.values() if isinstance(proxies, Mapping) else ()
        passwords = (urlsplit(url).password for url in urls if isinstance(url, str))
        return self.credentials.values() | {secret for secret in (self.external_id, *passwords) if secret}

    def session(self) -> boto3.Session:
        """A new session, with the role assumed when the first request wants it. Sessions are no thread's but the one's that made them.

        Raises:
            StoreConfigurationError: there is no such profile.
        """
        core = botocore.session.Session(profile=self.profile)
        problem = ""
        # A machine that is none of EC2's does not answer there, and waiting for it long helps nobody.
        core.set_config_variable("metadata_service_timeout", 1)
        core.set_config_variable("metadata_service_num_attempts", 1)
        if self.region is not None:
            core.set_config_variable("region", self.region)
        if self.credentials:
            core.set_credentials(self.access_key, self.secret_key, self.session_token)
        try:
            # The models of the services are large, and the same for all.
            core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
            if self.role_arn is not None:
                self._assume_role(core)
            return boto3.Session(botocore_session=core)
        except botocore.exceptions.ProfileNotFound:
            problem = (
                f"There is no AWS profile {self.profile or 'of the name in AWS_PROFILE'} in the shared files of this machine "
                "(~/.aws/config, ~/.aws/credentials). Correct its name, or give key and secret."
            )
        except botocore.exceptions.BotoCoreError as error:
            problem = f"The AWS settings of this machine cannot be used: {redacted(str(error))}"
        # Outside of the handlers: the SDK's errors hold what must not be printed, and are not to be chained.
        raise StoreConfigurationError(problem)

    def client(
        self,
        service: str = "s3",
        *,
        retries: bool = True,
        endpoint_url: str | None = None,
        region: str | None = None,
        session: boto3.Session | None = None,
    ) -> Any:
        """A new client of boto3, to be shared between threads.

        Args:
            service: ``s3``, or another, whose endpoint is then ``endpoint_url`` and never S3's.
            retries: False for a client that sends a request once, so that a repetition is the caller's to judge.
            endpoint_url: of another service.
            region: instead of the settings' own.
            session: one of `session`, which knows its credentials; by default a new one.

        Raises:
            StoreConfigurationError: there is no such profile, no region where one is needed, or no endpoint of this form.
        """
        endpoint = self.endpoint_url if service == "s3" else endpoint_url
        config = dict(self.client_config)
        config.setdefault("max_pool_connections", _POOL)
        made = botocore.config.Config(
            connect_timeout=self.connect_timeout_s,
            read_timeout=self.read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS if retries else 1},
            # Servers that only speak like S3 refuse what newer SDKs add by themselves.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **({"signature_version": botocore.UNSIGNED} if self.anonymous else {}),
            **({"s3": {"addressing_style": self.addressing_style}} if service == "s3" else {}),
            **config,
        )
        chosen = session or self.session()
        problem = ""
        try:
            return chosen.client(
                service,
                region_name=region or self.region or chosen.region_name or "us-east-1",
                endpoint_url=endpoint,
                use_ssl=self.use_ssl,
                verify=None if self.verify is True else self.verify,
                config=made,
            )
        except (ValueError, TypeError, botocore.exceptions.BotoCoreError) as error:
            problem = redacted(str(error))
        raise StoreConfigurationError(f"No client for {service} can be made at {endpoint or 'AWS'}: {problem}")

    def arrow_arguments(self) -> dict[str, object]:
        """The arguments of ``pyarrow.fs.S3FileSystem`` that say the same, without credentials.

        Raises:
            StoreConfigurationError: Arrow has no way to do as they say.
        """
        if self.verify is False and self._is_secure:
            raise StoreConfigurationError(
                "The S3 store is told verify=false, which cannot hold for data files: Arrow checks certificates always. Give the bundle of "
                "who signed the server's certificate as verify (or AWS_CA_BUNDLE)."
            )
        arguments: dict[str, object] = {
            "connect_timeout": self.connect_timeout_s,
            "request_timeout": self.read_timeout_s,
        }
        region = self.region or (None if self.anonymous else _region_of(self))
        if region or self.endpoint_url:
            arguments["region"] = region or "us-east-1"
        if self.endpoint_url is not None:
            parts = urlsplit(self.endpoint_url)
            arguments["scheme"] = parts.scheme
            arguments["endpoint_override"] = parts.netloc + parts.path
            if self.addressing_style == "virtual":
                arguments["force_virtual_addressing"] = True
        elif not self.use_ssl:
            arguments["scheme"] = "http"
        if self.anonymous:
            arguments["anonymous"] = True
        if isinstance(self.verify, str):
            arguments["tls_ca_file_path"] = self.verify
        if (proxy := self._proxy) and not urlsplit(proxy).password:
            arguments["proxy_options"] = proxy
        if self._role_by_arrow:
            arguments["role_arn"] = self.role_arn
            arguments["session_name"] = self.role_session_name or _ROLE_SESSION
        return arguments

    def arrow_secrets(self) -> dict[str, str]:
        """The credentials for ``pyarrow.fs.S3FileSystem``; empty where Arrow finds the machine's own. A proxy's URL with its password, too.

        A profile, and a role that Arrow cannot assume by itself, are resolved here, anew where their keys are about to end: they serve as
        long as a job may run, so that each job asks for them.

        Raises:
            StoreConfigurationError: there is no such profile, or it has no credentials.
        """
        proxy = {"proxy_options": self._proxy} if self._proxy and urlsplit(self._proxy).password else {}
        if self.anonymous or self._role_by_arrow:
            return proxy
        credentials = self.credentials
        if self.profile is not None or self.role_arn is not None:
            credentials = self._resolved()
        names = {"access_key": credentials.access_key, "secret_key": credentials.secret_key, "session_token": credentials.session_token}
        return {name: value for name, value in names.items() if value} | proxy

    def hadoop(self) -> dict[str, str]:
        """Hadoop's ``fs.s3a.*`` keys that say the same, credentials included."""
        keys: dict[str, str] = {
            "fs.s3a.connection.establish.timeout": f"{round(self.connect_timeout_s * 1000)}ms",
            "fs.s3a.connection.timeout": f"{round(self.read_timeout_s * 1000)}ms",
        }
        if self.endpoint_url is not None:
            keys["fs.s3a.endpoint"] = self.endpoint_url
        if self.endpoint_url is not None and (not self.is_aws or self.addressing_style == "path") and self.addressing_style != "virtual":
            keys["fs.s3a.path.style.access"] = "true"
        if self.endpoint_url is None and self.addressing_style == "path":
            keys["fs.s3a.path.style.access"] = "true"
        if self.region or self.endpoint_url:
            keys["fs.s3a.endpoint.region"] = self.region or configured_region(self.profile) or "us-east-1"
        if not self.use_ssl or (self.endpoint_url or "").startswith("http:"):
            keys["fs.s3a.connection.ssl.enabled"] = "false"
        keys.update(self._hadoop_proxy())
        keys.update(self._hadoop_identity())
        return keys

    def _hadoop_proxy(self) -> dict[str, str]:
        if self._proxy is None:
            return {}
        parts = urlsplit(self._proxy)
        said = {
            "host": parts.hostname,
            "port": str(parts.port),
            "username": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "ssl.enabled": "true" if parts.scheme == "https" else "",
        }
        return {f"fs.s3a.proxy.{name}": value for name, value in said.items() if value}

    def _hadoop_identity(self) -> dict[str, str]:
        provider = "fs.s3a.aws.credentials.provider"
        package = "org.apache.hadoop.fs.s3a."
        if self.anonymous:
            return {provider: f"{package}AnonymousAWSCredentialsProvider"}
        credentials = self._resolved() if self.profile is not None else self.credentials
        keys: dict[str, str] = {}
        if credentials:
            kind = "TemporaryAWSCredentialsProvider" if credentials.session_token else "SimpleAWSCredentialsProvider"
            keys[provider] = f"{package}{kind}"
            keys["fs.s3a.access.key"] = credentials.access_key or ""
            keys["fs.s3a.secret.key"] = credentials.secret_key or ""
            if credentials.session_token:
                keys["fs.s3a.session.token"] = credentials.session_token
        if self.role_arn is not None:
            if credentials:
                keys["fs.s3a.assumed.role.credentials.provider"] = keys[provider]
            keys[provider] = f"{package}auth.AssumedRoleCredentialProvider"
            keys["fs.s3a.assumed.role.arn"] = self.role_arn
            keys["fs.s3a.assumed.role.session.name"] = self.role_session_name or _ROLE_SESSION
            if self.external_id:
                keys["fs.s3a.assumed.role.external.id"] = self.external_id
            if sts := self._sts_endpoint:
                keys["fs.s3a.assumed.role.sts.endpoint"] = sts
                keys["fs.s3a.assumed.role.sts.endpoint.region"] = self.region or "us-east-1"
        return keys

    @property
    def _is_secure(self) -> bool:
        return self.use_ssl if self.endpoint_url is None else self.endpoint_url.startswith("https:")

    @property
    def _proxy(self) -> str | None:
        """By which S3 is asked, with its scheme and port."""
        proxies = self.client_config.get("proxies")
        found = proxies.get("https" if self._is_secure else "http") if isinstance(proxies, Mapping) else None
        return str(found) if found else None

    @property
    def _sts_endpoint(self) -> str | None:
        """Where roles are assumed: servers that speak like S3 speak like STS at the same address."""
        return self.sts_endpoint_url or (None if self.is_aws else self.endpoint_url)

    @property
    def _role_by_arrow(self) -> bool:
        """Whether Arrow can assume the role: of AWS itself, as whoever the machine is, and without a word that is to be kept."""
        plain = self._sts_endpoint is None and self.external_id is None
        return self.role_arn is not None and plain and not self.credentials and self.profile is None

    def _resolved(self) -> S3Credentials:
        """The credentials as they are now."""
        problem = "there are none"
        try:
            frozen = _credentials_of(self).get_frozen_credentials()
            if frozen.access_key:
                return S3Credentials(frozen.access_key, frozen.secret_key, frozen.token)
        except _NoCredentials:
            pass
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
            problem = redacted(str(error))
        whose = f"the role {self.role_arn}" if self.role_arn else f"the AWS profile {self.profile}"
        sts = ", sts_endpoint_url" if self.role_arn else ""
        problem = problem.rstrip(".")
        raise StoreConfigurationError(
            f"The credentials of {whose} cannot be had: {problem}. Correct its name{sts}, or give key and secret."
        )

    def _assume_role(self, core: botocore.session.Session) -> None:
        """Let the session ask as the role, as whom it asked before, with keys that are renewed before they end."""
        source = core.get_credentials()
        if source is None:
            raise StoreConfigurationError(
                f"The role {self.role_arn} is to be assumed, but there are no credentials to do it with. Give key and secret, or a profile."
            )
        arguments = {"RoleSessionName": self.role_session_name or _ROLE_SESSION}
        if self.external_id:
            arguments["ExternalId"] = self.external_id

        def create(service: str, **arguments: Any) -> Any:
            config = botocore.config.Config(
                connect_timeout=self.connect_timeout_s,
                read_timeout=min(self.read_timeout_s, _STS_READ_TIMEOUT_S),
                retries={"mode": "standard", "total_max_attempts": _STS_ATTEMPTS},
            )
            verify = None if self.verify is True else self.verify
            region = self.region or core.get_config_variable("region") or "us-east-1"
            return core.create_client(
                service, region_name=region, endpoint_url=self._sts_endpoint, config=config, verify=verify, **arguments
            )

        fetcher = botocore.credentials.AssumeRoleCredentialFetcher(create, source, self.role_arn, extra_args=arguments)
        # What it finds is then the session's own, by the only way that botocore has for credentials that are renewed.
        core._credentials = botocore.credentials.DeferredRefreshableCredentials(
            refresh_using=fetcher.fetch_credentials, method="assume-role"
        )


class _NoCredentials(Exception):
    """A session has found none; not kept, since they may come."""


@lru_cache(maxsize=64)
def _credentials_of(settings: S3Settings) -> Any:
    """Those of a session, which renews them before they end."""
    found = settings.session().get_credentials()
    if found is None:
        raise _NoCredentials
    return found


@lru_cache(maxsize=64)
def _region_of(settings: S3Settings) -> str | None:
    """What the shared files say."""
    region: str | None = settings.session().region_name
    return region


@cache
def _loader(data_path: str | None) -> botocore.loaders.Loader:
    return botocore.loaders.create_loader(data_path)


def _remade(kept: dict[str, Any]) -> S3Settings:
    return S3Settings(**kept)
