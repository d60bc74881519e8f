"""Which LogStore serves a path: an explicit setting for its scheme, else the scheme's own store, else an error.

Settings name a store by a short name of ``SHORT_NAMES`` or by the dotted path of a class (or any callable) that takes one mapping of
options and gives a ``LogStore``. They come from three places:

    configure({"s3": {"logstore.class": "s3", ...}})          Python; the other entries of the mapping are the store's options
    spark.lakelog.<scheme>.logstore.class                     Spark's conf; other spark.lakelog.<scheme>.* keys are options
    [spark.]delta.logStore.<scheme>.impl                      delta-spark's own key, for its classes that have a twin here

Two that name different stores, or give one option two values, are an error, and nothing falls back to a weaker store. A path without
a scheme is of scheme ``file``. ``s3``, ``s3a`` and ``s3n`` are spellings of one filesystem, so what is set for one holds for all.
Modules are imported when a path first asks for them, so nobody needs what another store needs.

The stores of S3 are also given, under their own names, Hadoop's keys (``fs.s3a.*``, in Spark's conf ``spark.hadoop.fs.s3a.*``) and
those of delta-spark's DynamoDB store (``[spark.]io.delta.storage.S3DynamoDBLogStore.*``).
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lakelog.core.errors import LakelogError, StoreConfigurationError, UnknownSchemeError
from lakelog.storage.log_store import LogStore
from lakelog.storage.s3_redaction import redacted

__all__ = [
    "SCHEMES",
    "SHORT_NAMES",
    "BuiltInStore",
    "configure",
    "family_of",
    "hadoop_options",
    "log_store_for",
    "options_for",
    "scheme_of",
    "store_name_for",
]

_LOGGER = logging.getLogger(__name__)
_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInStore:
    """One store that comes with lakelog.

    Args:
        location: dotted path of its class; None while it is not part of this release.
        schemes: the path schemes that it serves, the plain path's being ``file``.
        extra: the extra of lakelog's distribution that installs what it imports, if it needs one.
    """

    location: str | None
    schemes: frozenset[str]
    extra: str | None = None


SHORT_NAMES: Mapping[str, BuiltInStore] = MappingProxyType(
    {
        "local": BuiltInStore(location="lakelog.storage.local.LocalLogStore", schemes=frozenset({"file"})),
        "hdfs": BuiltInStore(location=None, schemes=frozenset({"hdfs", "viewfs", "webhdfs"})),
        "s3": BuiltInStore(location="lakelog.storage.s3.S3LogStore", schemes=_S3_SCHEMES, extra="s3"),
        "dynamodb": BuiltInStore(location="lakelog.storage.dynamodb.DynamoDBLogStore", schemes=_S3_SCHEMES, extra="s3"),
        "azure": BuiltInStore(location=None, schemes=frozenset({"abfs", "abfss", "az", "wasb", "wasbs"}), extra="azure"),
    }
)
"""The stores that a setting may call by one word."""

SCHEMES: Mapping[str, str] = MappingProxyType(
    {scheme: name for name, store in SHORT_NAMES.items() if name != "dynamodb" for scheme in sorted(store.schemes)}
)
"""The short name of the store that serves a scheme for which nothing is set."""


def configure(settings: Mapping[str, Mapping[str, object]]) -> None:
    """Set, for this Python process, which store serves a scheme and with which options.

    What was configured before for the same schemes is replaced; an empty mapping takes a scheme's settings back.

    Args:
        settings: by scheme (``s3a``, ``file``, ...), ``logstore.class`` and the store's options.

    Raises:
        StoreConfigurationError: ``logstore.class`` is not a string, or the scheme is not the name of one.
    """
    for scheme, entries in settings.items():
        if not _SCHEME.fullmatch(scheme):
            raise StoreConfigurationError(f"{scheme!r} is not a scheme; configure takes names such as 's3a' or 'file', without '://'.")
        if not isinstance(entries.get(_CLASS, ""), str):
            raise StoreConfigurationError(f"{_CLASS} of {scheme!r} must be a string: a short name or the dotted path of a class.")
    with _configured_lock:
        for scheme, entries in settings.items():
            _configured[scheme.lower()] = dict(entries)


def log_store_for(path: str, settings: Mapping[str, str] = MappingProxyType({})) -> LogStore:
    """A new store for the path.

    Args:
        path: any path of the table, with or without a scheme; only its scheme counts.
        settings: the conf of a Spark session, or the part of it that starts with ``spark.lakelog.`` or holds ``delta.logStore.``.

    Raises:
        UnknownSchemeError: nothing serves the scheme, or its store is not part of this release.
        StoreConfigurationError: settings disagree, or name what cannot be imported or is no store.
    """
    request = _requested(path, settings)
    return _make(request, path)


def options_for(path: str, settings: Mapping[str, str] = MappingProxyType({})) -> Mapping[str, object]:
    """The options that the path's store is made with. Arguments and errors are those of `log_store_for`."""
    return dict(_requested(path, settings).options)


def hadoop_options(settings: Mapping[str, str]) -> Mapping[str, object]:
    """What settings say under Hadoop's names and under those of delta-spark's DynamoDB store, whichever store serves.

    Raises:
        StoreConfigurationError: one of them is said twice.
    """
    return _foreign_options(settings)


def store_name_for(path: str, settings: Mapping[str, str] = MappingProxyType({})) -> str:
    """The short name or the class of the path's store. Arguments and errors are those of `log_store_for`."""
    return str(_requested(path, settings).location)


def family_of(scheme: str) -> str:
    """What spellings of one filesystem's scheme have in common: ``s3`` for ``s3a``."""
    return "s3" if scheme.lower() in _S3_SCHEMES else scheme.lower()


def _requested(path: str, settings: Mapping[str, str]) -> _Request:
    scheme = scheme_of(path)
    request = _Request(scheme)
    with _configured_lock:
        configured = {name: entries for name, entries in _configured.items() if family_of(name) == family_of(scheme)}
    for name, entries in configured.items():
        for key, value in entries.items():
            request.add(f"lakelog.storage.configure({{{name!r}: {{{key!r}: ...}}}})", key, value)
    for key, value in settings.items():
        _add_conf(request, key, value)
    if request.location is None:
        short = SCHEMES.get(scheme)
        if short is None:
            raise UnknownSchemeError(
                f"No LogStore serves the scheme {scheme!r} of {redacted(path)!r}; lakelog has one for {', '.join(sorted(SCHEMES))}. "
                f"Name a class of your own in spark.lakelog.{scheme}.logstore.class, "
                f"or by lakelog.storage.configure({{{scheme!r}: {{'{_CLASS}': ...}}}})."
            )
        request.add(f"the scheme {scheme!r}", _CLASS, short)
    if request.location == "s3" and any(_DYNAMODB_KEY.fullmatch(key) for key in settings) and "dynamodb" not in _warned:
        _warned.add("dynamodb")
        _LOGGER.warning(
            "There are settings of delta-spark's DynamoDB store, but the store of %s is s3. Set spark.lakelog.s3a.%s=dynamodb where other "
            "writers of its tables go through DynamoDB.",
            redacted(path),
            _CLASS,
        )
    if request.location in ("s3", "dynamodb"):
        for key, value in _foreign_options(settings).items():
            request.options.setdefault(key, value)
    return request


def scheme_of(path: str) -> str:
    """The path's scheme in lower case; ``file`` for a plain path."""
    match = _PATH_SCHEME.match(path)
    return match[1].lower() if match else "file"


_CLASS = "logstore.class"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PATH_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LAKELOG_KEY = re.compile(r"spark\.lakelog\.([^.]+)\.(.+)")
_HADOOP_KEY = re.compile(r"(spark\.hadoop\.)?(fs\.s3[an]?\..+)")
_DYNAMODB_KEY = re.compile(r"(?:spark\.)?(io\.delta\.storage\.S3DynamoDBLogStore\..+)")
_SHOWN = frozenset({_CLASS, "region", "region_name", "addressing_style", "ddb.region", "ddb.scheme", "ddb.table_name"})
_DELTA_KEY = re.compile(r"(?:spark\.)?delta\.logStore\.([^.]+)\.impl")
_DELTA_CLASS_KEY = re.compile(r"(?:spark\.)?delta\.logStore\.class")
_DELTA_PACKAGES = ("io.delta.storage.", "org.apache.spark.sql.delta.storage.")
_DELTA_TWINS: Mapping[str, str] = MappingProxyType(
    {
        "LocalLogStore": "local",
        "HDFSLogStore": "hdfs",
        "S3SingleDriverLogStore": "s3",
        "S3DynamoDBLogStore": "dynamodb",
        "AzureLogStore": "azure",
    }
)

_SINGLE_DRIVER = "S3SingleDriverLogStore"

_warned: set[str] = set()
_configured: dict[str, dict[str, object]] = {}
_configured_lock = threading.Lock()


@dataclass(slots=True)
class _Request:
    """What the settings ask for one scheme, and where each part was said."""

    scheme: str
    location: str | None = None
    options: dict[str, object] = field(default_factory=dict)
    said_by: dict[str, str] = field(default_factory=dict)

    def add(self, where: str, key: str, value: object) -> None:
        """Take one setting; one that repeats what is known is fine.

        Raises:
            StoreConfigurationError: another place said otherwise.
        """
        known = self.location if key == _CLASS else self.options.get(key)
        if key in self.said_by and known != value:
            # Of other options nobody knows what they hold: URLs and texts of JSON may have secrets in them.
            shown = key in _SHOWN
            first, second = (f" says {known!r}", f" says {value!r}") if shown else (" says one thing", " another")
            raise StoreConfigurationError(
                f"Two settings for paths of scheme {self.scheme!r} disagree on {key}: {self.said_by[key]}{first}, "
                f"{where}{second}. Remove one."
            )
        self.said_by.setdefault(key, where)
        if key == _CLASS:
            self.location = str(value)
        else:
            self.options[key] = value


def _add_conf(request: _Request, key: str, value: str) -> None:
    family = family_of(request.scheme)
    if (ours := _LAKELOG_KEY.fullmatch(key)) and family_of(ours[1]) == family:
        request.add(key, ours[2], value)
    elif (theirs := _DELTA_KEY.fullmatch(key)) and family_of(theirs[1]) == family:
        request.add(key, _CLASS, _twin(key, value, request.scheme))
    elif _DELTA_CLASS_KEY.fullmatch(key):
        raise StoreConfigurationError(
            f"{key} sets one LogStore for every filesystem, which lakelog does not do. "
            f"Set spark.lakelog.{request.scheme}.{_CLASS} for the scheme you need, and remove {key}."
        )


def _foreign_options(settings: Mapping[str, str]) -> dict[str, object]:
    """What Hadoop and delta-spark's DynamoDB store are told, under their own names."""
    found: dict[str, object] = {}
    for key, value in settings.items():
        if hadoop := _HADOOP_KEY.fullmatch(key):
            # Spark copies its conf into Hadoop's when it starts; what Hadoop's says now counts.
            if hadoop[1] is None:
                found[hadoop[2]] = value
            else:
                found.setdefault(hadoop[2], value)
        elif (theirs := _DYNAMODB_KEY.fullmatch(key)) and found.setdefault(theirs[1], value) != value:
            raise StoreConfigurationError(f"{theirs[1]} and spark.{theirs[1]} say two things. Remove one.")
    return found


def _twin(key: str, jvm_class: str, scheme: str) -> str:
    """The short name of the store that writes as delta-spark's class does."""
    for package in _DELTA_PACKAGES:
        name = _DELTA_TWINS.get(jvm_class.removeprefix(package)) if jvm_class.startswith(package) else None
        if name == "hdfs" and scheme == "file":
            # delta-spark's own choice for local tables, and no other class of its excludes more there.
            return "local"
        if jvm_class.removeprefix(package) == _SINGLE_DRIVER and jvm_class not in _warned:
            _warned.add(jvm_class)
            _LOGGER.warning(
                "%s names %s, whose writers overwrite each other's commits. lakelog's store for S3 excludes other writers by "
                "conditional puts, which that class does not make: as long as another program writes the table by it, commits are lost. "
                "Let every writer use conditional puts.",
                key,
                jvm_class,
            )
        if name is not None:
            return name
    raise StoreConfigurationError(
        f"{key} names {jvm_class}, which has no twin in lakelog; of {_DELTA_PACKAGES[0]}* it understands {', '.join(_DELTA_TWINS)}. "
        f"For a LogStore of your own set spark.lakelog.{scheme}.{_CLASS} to its Python class, and remove {key}."
    )


def _make(request: _Request, path: str) -> LogStore:
    asked = request.location
    assert asked is not None, "the caller settles the location first"
    where = request.said_by[_CLASS]
    extra = None
    location: str | None = asked
    if "." not in asked:
        built_in = SHORT_NAMES.get(asked)
        if built_in is None:
            raise StoreConfigurationError(
                f"{where} names {asked!r}, which is neither a short name ({', '.join(SHORT_NAMES)}) nor the dotted path of a class."
            )
        if request.scheme not in built_in.schemes:
            raise StoreConfigurationError(
                f"{where} names the store {asked!r} for paths of scheme {request.scheme!r}; "
                f"it serves {', '.join(sorted(built_in.schemes))}."
            )
        location, extra = built_in.location, built_in.extra
    if location is None:
        raise UnknownSchemeError(
            f"Cannot open {redacted(path)!r}: the LogStore {asked!r} for {request.scheme!r} comes with a later release of lakelog. "
            f"Until then name a class of your own in spark.lakelog.{request.scheme}.{_CLASS}."
        )
    factory = _load(location, where, extra)
    try:
        store = factory(dict(request.options))
    except (LakelogError, OSError):
        raise
    except Exception as error:
        raise StoreConfigurationError(f"{where} names {location}, which cannot be made with the options given: {error}.") from error
    if not isinstance(store, LogStore):
        raise StoreConfigurationError(f"{where} names {location}, which gives a {type(store).__name__} and no lakelog LogStore.")
    return store


def _load(location: str, where: str, extra: str | None) -> Callable[[Mapping[str, object]], object]:
    module_name, _, attribute = location.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        remedy = f'Run: pip install "lakelog[{extra}]"' if extra else "Install it where the Spark driver runs, or correct the name."
        raise StoreConfigurationError(f"{where} names {location}, which cannot be imported: {error}. {remedy}") from error
    factory: object = getattr(module, attribute, None)
    if not callable(factory):
        raise StoreConfigurationError(f"{where} names {location}, but the module {module_name} has no class {attribute!r}.")
    return factory
