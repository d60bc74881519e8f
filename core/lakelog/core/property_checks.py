"""What users may set: the keys and values of table properties, and the directives among them that ask something of the protocol."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from lakelog.core.errors import InvalidTablePropertyError, UnsupportedFeatureError
from lakelog.core.records import shown
from lakelog.core.table_properties import (
    CONSTRAINT_PREFIX,
    DELETED_FILE_RETENTION,
    DESCRIPTORS,
    INTERNAL_KEYS,
    ISOLATION_LEVEL,
    LOG_RETENTION,
    SYMLINK_MANIFEST,
    WHOLE_NUMBER,
)

_LATER = "comes with a later release of lakelog"
_MIN_READER_VERSION = "delta.minReaderVersion"
_MIN_WRITER_VERSION = "delta.minWriterVersion"
_IGNORE_PROTOCOL_DEFAULTS = "delta.ignoreProtocolDefaults"
_FEATURE_PREFIX = "delta.feature."
_DIRECTIVE_KEYS = (_MIN_READER_VERSION, _MIN_WRITER_VERSION, _IGNORE_PROTOCOL_DEFAULTS)
_HIGHEST_READER_VERSION, _HIGHEST_WRITER_VERSION = 3, 7

# Keys by prefix that belong to a feature which lakelog does not write yet.
_LATER_PREFIXES: Mapping[str, str] = {
    "delta.coordinatedCommits.": "coordinatedCommits-preview",
    "delta.redirectReaderWriter-preview": "redirectReaderWriter-preview",
    "delta.redirectWriterOnly-preview": "redirectWriterOnly-preview",
    "delta.universalFormat.": "universalFormat",
}
_BY_KEY = {descriptor.key: descriptor for descriptor in DESCRIPTORS}
_KNOWN_KEYS = frozenset(_BY_KEY)
_SPELLINGS: Mapping[str, str] = {key.lower(): key for key in (*_KNOWN_KEYS, *INTERNAL_KEYS, *_DIRECTIVE_KEYS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What is asked of the protocol by way of properties, which are not stored.

    Attributes:
        features: names as given, of ``delta.feature.<name> = supported``.
        reader_version: ``delta.minReaderVersion``, 1 to 3; None when not given.
        writer_version: ``delta.minWriterVersion``, 1 to 7.
        ignore_defaults: ``delta.ignoreProtocolDefaults``: a new table starts from (1, 1), not from (1, 2).
    """

    features: tuple[str, ...] = ()
    reader_version: int | None = None
    writer_version: int | None = None
    ignore_defaults: bool = False


def canonical_key(key: str) -> str:
    """A key as it is stored: those of Delta are known in any letter case; the user's own stay as they are."""
    lower = key.lower()
    for prefix in (_FEATURE_PREFIX, CONSTRAINT_PREFIX):
        if lower.startswith(prefix):
            return prefix + key[len(prefix) :]
    return _SPELLINGS.get(lower, key)


def canonical(configuration: Mapping[str, str], table: str) -> dict[str, str]:
    """The configuration with its keys as they are stored.

    Raises:
        InvalidTablePropertyError: a key is given twice, in different letter case and with different values.
    """
    spelt: dict[str, str] = {}
    for key, value in configuration.items():
        name = canonical_key(key)
        if spelt.setdefault(name, value) != value:
            raise InvalidTablePropertyError(
                f"Delta table {table}: the table property {name} is given twice, as {shown(spelt[name])} and as {shown(value)}. "
                "Leave one out."
            )
    return spelt


def split_directives(configuration: Mapping[str, str], table: str) -> tuple[dict[str, str], Directives]:
    """What is to be stored, and what is asked of the protocol.

    Args:
        configuration: keys from `canonical`.
        table: the table's root, for messages.

    Raises:
        InvalidTablePropertyError: a feature with another value than ``supported``, a version that is none.
    """
    stored = {key: value for key, value in configuration.items() if not _is_directive(key)}
    if len(stored) == len(configuration):
        return stored, Directives()
    features = []
    for key, value in configuration.items():
        if key.startswith(_FEATURE_PREFIX):
            # delta-spark took "enabled" for it once.
            if value.lower() not in ("supported", "enabled"):
                raise InvalidTablePropertyError(
                    f"Delta table {table}: the table property {key} is {shown(value)}, but must be 'supported'. A feature is taken away by "
                    "dropFeatureSupport."
                )
            features.append(key[len(_FEATURE_PREFIX) :])
    ignores = configuration.get(_IGNORE_PROTOCOL_DEFAULTS, "false")
    if ignores.lower() not in ("true", "false"):
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table property {_IGNORE_PROTOCOL_DEFAULTS} is {shown(ignores)}, but must be true or false."
        )
    return stored, Directives(
        features=tuple(features),
        reader_version=_version(configuration, _MIN_READER_VERSION, _HIGHEST_READER_VERSION, table),
        writer_version=_version(configuration, _MIN_WRITER_VERSION, _HIGHEST_WRITER_VERSION, table),
        ignore_defaults=ignores.lower() == "true",
    )


def check_properties(configuration: Mapping[str, str], table: str, *, beside: Mapping[str, str] | None = None) -> None:
    """Check properties that a table is to be given. Keys that do not begin with ``delta.`` are the user's own and pass.

    Properties of features that are not there yet are checked by `lakelog.core.table_change`.

    Args:
        configuration: as it would be stored, directives included.
        table: the table's root, for messages.
        beside: the table's other properties, against which those given are held, but which are not checked themselves.

    Raises:
        InvalidTablePropertyError: an unknown ``delta.`` key (names the nearest known one), one that users may not set, a value that
            cannot be parsed, or a log kept for less time than the deleted files it names.
        UnsupportedFeatureError: keys of features that come later.
    """
    for key in configuration:
        _check_key(key, table)
    split_directives(configuration, table)
    try:
        for descriptor in DESCRIPTORS:
            descriptor.of(configuration)
    except InvalidTablePropertyError as error:
        raise InvalidTablePropertyError(f"Delta table {table}: {error}") from None
    if ISOLATION_LEVEL.of(configuration) == "SnapshotIsolation":
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table property {ISOLATION_LEVEL.key} must not be SnapshotIsolation, which checks no append. "
            "Use Serializable."
        )
    if SYMLINK_MANIFEST.of(configuration):
        raise UnsupportedFeatureError(
            f"Delta table {table}: {SYMLINK_MANIFEST.key} = true, a manifest with every commit, {_LATER}. Leave the property out.",
            features=(SYMLINK_MANIFEST.key,),
        )
    if LOG_RETENTION.key in configuration or DELETED_FILE_RETENTION.key in configuration:
        together = {**(beside or {}), **configuration}
        if LOG_RETENTION.of(together) < DELETED_FILE_RETENTION.of(together):
            raise InvalidTablePropertyError(
                f"Delta table {table}: {LOG_RETENTION.key} is shorter than {DELETED_FILE_RETENTION.key}, but the log must be kept at least "
                "as long as the files it names. Lengthen the one or shorten the other."
            )


def check_settable(keys: Iterable[str], table: str) -> None:
    """Refuse keys that no statement may set or unset by itself, in any letter case.

    Raises:
        InvalidTablePropertyError: a CHECK constraint, or a property that lakelog keeps by itself.
    """
    for key in map(canonical_key, keys):
        if key.startswith(CONSTRAINT_PREFIX):
            raise InvalidTablePropertyError(
                f"Delta table {table}: {key} is a CHECK constraint, which is no property to set or unset. "
                "Use ALTER TABLE ... ADD CONSTRAINT, or DROP CONSTRAINT."
            )
        if key in INTERNAL_KEYS:
            raise InvalidTablePropertyError(
                f"Delta table {table}: {key} is not set by users; lakelog keeps it by itself. Leave the property out."
            )


def check_stored(configuration: Mapping[str, str], table: str, *, changes: Collection[str] = ()) -> None:
    """That every property of a table which lakelog knows can be parsed, as whoever changes the table must have it.

    Args:
        configuration: the table's.
        table: its root, for messages.
        changes: the keys that are set or unset now. Where one of those is at fault, others may wait for a statement of their own.

    Raises:
        InvalidTablePropertyError: one cannot be parsed; names table, key, value, form and the statement that mends it.
    """
    if (faulty := unparsable(configuration)) and not faulty & frozenset(changes):
        for descriptor in DESCRIPTORS:
            descriptor.of(configuration, table)


def unparsable(configuration: Mapping[str, str]) -> frozenset[str]:
    """The keys of the properties that lakelog knows and cannot parse."""
    return _unparsable(frozenset(configuration.items())) if configuration else frozenset()


# Asked at every commit, mostly of what it was asked before.
@lru_cache(maxsize=256)
def _unparsable(items: frozenset[tuple[str, str]]) -> frozenset[str]:
    return frozenset(key for key, value in items if key in _KNOWN_KEYS and not _parses(key, value))


def _parses(key: str, value: str) -> bool:
    try:
        _BY_KEY[key].of({key: value})
    except InvalidTablePropertyError:
        return False
    return True


def _is_directive(key: str) -> bool:
    return key in _DIRECTIVE_KEYS or key.startswith(_FEATURE_PREFIX)


def _version(configuration: Mapping[str, str], key: str, highest: int, table: str) -> int | None:
    text = configuration.get(key)
    if text is None:
        return None
    if WHOLE_NUMBER.fullmatch(text) is None or not 1 <= int(text) <= highest:
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table property {key} is {shown(text)}, but must be a whole number from 1 to {highest}."
        )
    return int(text)


def _check_key(key: str, table: str) -> None:
    lower = key.lower()
    if not lower.startswith("delta.") or key in _KNOWN_KEYS or _is_directive(key):
        return
    check_settable((key,), table)
    feature = next((name for prefix, name in _LATER_PREFIXES.items() if lower.startswith(prefix.lower())), None)
    if feature is not None:
        raise UnsupportedFeatureError(
            f"Delta table {table}: the table property {key} asks for {feature}, which {_LATER}. Leave the property out.",
            features=(feature,),
        )
    # Without the beginning, which all have alike.
    names = {known.removeprefix("delta."): spelling for known, spelling in _SPELLINGS.items()}
    nearest = difflib.get_close_matches(lower.removeprefix("delta."), sorted(names), n=1)
    hint = f"The nearest is {names[nearest[0]]}; a" if nearest else "A"
    raise InvalidTablePropertyError(
        f"Delta table {table}: there is no table property {key}. {hint} property of your own must not begin with 'delta.'."
    )
