"""What the actions of the log share: a JSON object read strictly, kept whole, and written back the same.

`Record` reads known fields through a table of decoders, keeps unknown ones, and tells an absent field from an explicit
null. `load_json` reads JSON text with what JSON parsers let pass made an error: NaN, infinities, and a key twice.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias, cast

import orjson

from lakelog.core.errors import CorruptLogError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

# As Spark writes it: no spaces, letters of any script as they are.
COMPACT_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

Decoder: TypeAlias = Callable[[object, str], object]


@dataclass(frozen=True, slots=True)
class RecordField:
    """How one field of a record is read: see `required` and `optional`."""

    attribute: str
    name: str
    decode: Decoder
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What all actions share.

    Attributes:
        extra: fields that lakelog does not know, by their name in the JSON.
        null_fields: names in the JSON of known optional fields that were an explicit null.
    """

    extra: Mapping[str, JSON] = field(default_factory=dict)
    null_fields: frozenset[str] = frozenset()

    _fields: ClassVar[tuple[RecordField, ...]] = ()
    _lenient: ClassVar[bool] = False
    kind: ClassVar[str] = ""

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The action whose inner JSON object is ``value``.

        Raises:
            CorruptLogError: a required field is missing, or a field has the wrong type; the message names it.
        """
        if not isinstance(value, dict):
            raise CorruptLogError(f"{cls.kind} must be an object, found {shown(value)}")
        rest = dict(value)
        nulls = []
        # Any: the values were checked by each field's decoder, which mypy cannot follow into the constructor.
        values: dict[str, Any] = {}
        for item in cls._fields:
            if item.name not in rest:
                if item.required:
                    raise CorruptLogError(f"{cls.kind}.{item.name} is missing")
                values[item.attribute] = None
                continue
            raw = rest[item.name]
            if raw is None and not item.required:
                nulls.append(item.name)
                values[item.attribute] = None
            else:
                try:
                    values[item.attribute] = item.decode(raw, f"{cls.kind}.{item.name}")
                except CorruptLogError:
                    if not cls._lenient:
                        raise
                    values[item.attribute] = None
                    continue
            del rest[item.name]
        return cls(**values, extra=rest, null_fields=frozenset(nulls))

    def to_json(self) -> dict[str, JSON]:
        """The inner JSON object: known fields in the protocol's order, then the unknown ones; absent fields left out."""
        result: dict[str, JSON] = {}
        for item in self._fields:
            value = getattr(self, item.attribute)
            if value is not None:
                result[item.name] = _plain(value)
            elif item.name in self.null_fields:
                result[item.name] = None
        for name, value in self.extra.items():
            result.setdefault(name, value)
        return result


def required(name: str, decode: Decoder) -> RecordField:
    """A field that must be there and not be null. ``name`` as the JSON spells it; the attribute is its snake_case."""
    return RecordField(_snake(name), name, decode, True)


def optional(name: str, decode: Decoder) -> RecordField:
    """A field that may be absent or null."""
    return RecordField(_snake(name), name, decode, False)


def string(value: object, name: str) -> str:
    """Decoder of a string."""
    if not isinstance(value, str):
        raise CorruptLogError(f"{name} must be a string, found {shown(value)}")
    return value


def boolean(value: object, name: str) -> bool:
    """Decoder of true and false."""
    if not isinstance(value, bool):
        raise CorruptLogError(f"{name} must be true or false, found {shown(value)}")
    return value


def int64(value: object, name: str) -> int:
    """Decoder of Java's ``long``."""
    if not isinstance(value, int) or isinstance(value, bool) or not INT64_MIN <= value <= INT64_MAX:
        raise CorruptLogError(f"{name} must be a 64-bit integer, found {shown(value)}")
    return value


def int32(value: object, name: str) -> int:
    """Decoder of Java's ``int``."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**31) <= value < 2**31:
        raise CorruptLogError(f"{name} must be a 32-bit integer, found {shown(value)}")
    return value


def strings(value: object, name: str) -> tuple[str, ...]:
    """Decoder of a list of strings."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CorruptLogError(f"{name} must be a list of strings, found {shown(value)}")
    return tuple(value)


def nullable_string_map(value: object, name: str) -> dict[str, str | None]:
    """Decoder of an object whose values are strings or null."""
    if not isinstance(value, dict) or not all(item is None or isinstance(item, str) for item in value.values()):
        raise CorruptLogError(f"{name} must be an object of strings, found {shown(value)}")
    return value


def string_map(value: object, name: str) -> dict[str, str]:
    """Decoder of an object of strings in which null, which delta-rs once wrote, says the same as absence."""
    return {key: item for key, item in nullable_string_map(value, name).items() if item is not None}


def json_object(value: object, name: str) -> dict[str, JSON]:
    """Decoder of an object with any content."""
    if not isinstance(value, dict):
        raise CorruptLogError(f"{name} must be an object, found {shown(value)}")
    return value


def nested(kind: type[Record]) -> Decoder:
    """Decoder of a record inside another."""
    return lambda value, _: kind.from_json(value)


def shown(value: object) -> str:
    """A value in a message, cut to a readable length whatever its size and depth."""
    text = _SHOWN.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def load_json(text: bytes) -> object:
    """The value of one JSON text.

    Raises:
        CorruptLogError: it is no JSON, holds NaN or an infinity, nests too deeply, or gives one key of an object twice.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CorruptLogError(f"not valid JSON ({error})") from error
    check_json(text, value)
    return value


def check_json(text: bytes, value: object) -> None:
    """Check what the fast parser lets pass.

    Args:
        text: JSON.
        value: what ``orjson.loads`` made of it.

    Raises:
        CorruptLogError: an object in it has a key twice, or it nests so deeply that code which walks it could not.
    """
    try:
        # What most writers write comes out as it went in, and then no key was lost.
        if orjson.dumps(value) == text.strip():
            return
    except orjson.JSONEncodeError as error:
        raise CorruptLogError(f"not valid JSON ({error})") from error
    # orjson lets the last of two equal keys win; counting the keys in the text is far cheaper than a second parse.
    if _ODD_KEY.search(text) or text.count(b'":') - text.count(b'\\":') != _count_keys(value):
        try:
            json.loads(text, object_pairs_hook=_reject_duplicates)
        except (RecursionError, ValueError) as error:
            raise CorruptLogError(f"not valid JSON ({type(error).__name__})") from error


# Bounded in breadth and depth, so that a line of 100 MB costs a message no more than any other.
_SHOWN = reprlib.Repr()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother, _SHOWN.maxdict = 2, 60, 60, 4


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


_SCALARS = frozenset({str, int, bool, float})


def _plain(value: object) -> JSON:
    if type(value) in _SCALARS:
        return cast("JSON", value)
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    assert isinstance(value, bool | int | float | str | list)
    return value


# A key that ends in a backslash or has white space before its colon makes the count of keys below unreliable.
_ODD_KEY = re.compile(rb'"[ \t\r\n]+:|\\\\":')


def _count_keys(value: object) -> int:
    count = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            count += len(item)
            stack.extend(child for child in item.values() if isinstance(child, dict | list))
        elif isinstance(item, list):
            stack.extend(item)
    return count


def _reject_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise CorruptLogError(f"the key {shown(name)} occurs twice in one object")
            names.add(name)
    return result
