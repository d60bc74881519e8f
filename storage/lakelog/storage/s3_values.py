"""The values of the S3 store's options: how each is read from Python, Spark's conf or JSON. No message holds one: it may be a secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, urlsplit

from lakelog.core.errors import StoreConfigurationError

__all__ = ["CLIENT_CONFIG", "as_bool", "client_config", "mapping", "seconds", "style", "text", "verify", "with_scheme"]


def as_bool(name: str, value: object) -> bool:
    """A truth value as Python, Spark's conf and Hadoop write it.

    Raises:
        StoreConfigurationError: it is none.
    """
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off", ""):
        return False
    raise StoreConfigurationError(f"The option {name} of the S3 store is true or false, and was given neither.")


def text(name: str, value: object) -> str:
    """A text, without what surrounds it.

    Raises:
        StoreConfigurationError: it is none.
    """
    if not isinstance(value, str):
        raise StoreConfigurationError(f"The option {name} of the S3 store is a text, not a {type(value).__name__}.")
    return value.strip()


def seconds(name: str, value: object) -> float:
    """A time of less than a day.

    Raises:
        StoreConfigurationError: it is none.
    """
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
    except ValueError:
        number = 0.0
    if not 0 < number < 86_400:
        raise StoreConfigurationError(f"The option {name} of the S3 store is a number of seconds above 0.")
    return number


def verify(name: str, value: object) -> object:
    """Whether to check certificates, or a file of those that are trusted.

    Raises:
        StoreConfigurationError: it is none.
    """
    if isinstance(value, str) and value.strip().lower() not in ("true", "false", "1", "0", "yes", "no", "on", "off", ""):
        return value
    return as_bool(name, value)


def style(name: str, value: object) -> str:
    """How a bucket is addressed.

    Raises:
        StoreConfigurationError: it is none.
    """
    if value not in ("auto", "path", "virtual"):
        raise StoreConfigurationError(f"The option {name} of the S3 store is one of auto, path, virtual.")
    return str(value)


def mapping(name: str, value: object) -> Mapping[str, object]:
    """A dictionary.

    Raises:
        StoreConfigurationError: it is none.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        raise StoreConfigurationError(f"The option {name} of the S3 store is a dictionary, or the JSON text of one.")
    return value


def with_scheme(endpoint: str, *, secure: bool, what: str = "The endpoint of the S3 store") -> str:
    """``host:port`` as a URL.

    Args:
        endpoint: a URL, or one without its scheme.
        secure: which scheme is missing then.
        what: this is, for the message.

    Raises:
        StoreConfigurationError: it is none, or holds more than a host, a port and a path.
    """
    url = endpoint if "://" in endpoint else f"{'https' if secure else 'http'}://{endpoint}"
    parts = _parts(url)
    if parts is None:
        raise StoreConfigurationError(f"{what} is a URL such as https://minio.example:9000; what was given is none.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise StoreConfigurationError(
            f"{what} is https://host:port alone; the one given for {parts.hostname} holds a user, a password or a query. Give credentials "
            "as key and secret."
        )
    return url.rstrip("/")


def client_config(key: str, name: str, value: object) -> object:
    """An argument of ``botocore.config.Config`` that is passed on.

    Args:
        key: one of `CLIENT_CONFIG`.
        name: of the option, for the message.
        value: as it was given.

    Raises:
        StoreConfigurationError: the SDK would stumble over it.
    """
    return CLIENT_CONFIG[key](name, value)


def _whole(name: str, value: object) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else 0
    except ValueError:
        number = 0
    if number < 1:
        raise StoreConfigurationError(f"The option {name} of the S3 store is a whole number above 0.")
    return number


def _proxies(name: str, value: object) -> dict[str, str]:
    """By scheme of what is asked, each with its own scheme and port."""
    found: dict[str, str] = {}
    for scheme, url in mapping(name, value).items():
        if url is None:
            continue
        if scheme not in ("http", "https"):
            raise StoreConfigurationError(f"The option {name} of the S3 store is a dictionary with proxies for http and https alone.")
        whole = (url if "://" in url else f"http://{url}").rstrip("/") if isinstance(url, str) else ""
        parts = _parts(whole)
        if parts is None or parts.path or parts.query or parts.fragment:
            raise StoreConfigurationError(
                f"The option {name} of the S3 store gives for {scheme} a URL such as http://proxy.example:3128; what was given is none."
            )
        found[scheme] = whole if parts.port else f"{whole}:{443 if parts.scheme == 'https' else 80}"
    return found


def _client_cert(name: str, value: object) -> object:
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(part, str) for part in value)):
        return value if isinstance(value, str) else tuple(value)
    raise StoreConfigurationError(f"The option {name} of the S3 store is a file, or two: of the certificate and of its key.")


CLIENT_CONFIG: Mapping[str, Callable[[str, object], object]] = {
    "max_pool_connections": _whole,
    "proxies": _proxies,
    "proxies_config": lambda name, value: dict(mapping(name, value)),
    "tcp_keepalive": as_bool,
    "user_agent_extra": text,
    "client_cert": _client_cert,
}
"""What is passed on to ``botocore.config.Config``, and how it is read."""


def _parts(url: str) -> SplitResult | None:
    """None where it is no URL of a web server."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0 else None
    except ValueError:
        return None
