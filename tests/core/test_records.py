"""JSON read more strictly than parsers do, and records that lose nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import CorruptLogError
from lakelog.core.records import Record, RecordField, int64, load_json, nested, optional, required, shown, string, strings

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | st.sampled_from(['":', '\\":', '"a":1', "\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(["\\", '"', ":", '":']), inner, max_size=3),
    max_leaves=10,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner(Record):
    the_name: str

    kind: ClassVar[str] = "inner"
    _fields: ClassVar[tuple[RecordField, ...]] = (required("theName", string),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Record):
    inner: Inner | None = None
    row_count: int | None = 5
    names: tuple[str, ...] | None = None

    kind: ClassVar[str] = "outer"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        optional("inner", nested(Inner)),
        optional("rowCount", int64),
        optional("names", strings),
    )


@given(VALUES, st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :"), (",\t", "\r:")]), st.booleans())
def test_json_without_equal_keys_reads_as_ever(value: object, separators: tuple[str, str], ascii_only: bool) -> None:
    assert load_json(json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()) == value


@given(
    st.dictionaries(TEXT, st.integers(0, 9), max_size=3),
    TEXT,
    st.sampled_from(['{"o":%s}', "[0,%s]", '{"s":"\\\\\\":","o":[%s]}']),
    st.sampled_from([":", " :", "\t:"]),
)
def test_a_key_given_twice_is_found_wherever_it_stands(others: dict[str, int], key: str, around: str, colon: str) -> None:
    pairs = [*others.items(), (key, 1), (key, 2)]
    inner = "{" + ",".join(f"{json.dumps(name)}{colon}{value}" for name, value in pairs) + "}"
    with pytest.raises(CorruptLogError, match="occurs twice"):
        load_json((around % inner).encode())


def test_a_record_tells_absent_from_null_and_from_its_default() -> None:
    absent, null = Outer.from_json({}), Outer.from_json({"rowCount": None, "inner": None})
    assert (absent.row_count, absent.to_json()) == (None, {})
    assert (null.row_count, null.to_json()) == (None, {"inner": None, "rowCount": None})
    assert Outer().to_json() == {"rowCount": 5}


def test_a_record_keeps_unknown_fields_at_every_level() -> None:
    value = {"inner": {"theName": "a", "new": [1]}, "names": ["x"], "newer": {"deep": None}}
    record = Outer.from_json(value)
    assert record.inner == Inner(the_name="a", extra={"new": [1]})
    assert record.to_json() == value


def test_a_known_field_outranks_an_extra_of_its_name() -> None:
    assert Outer(row_count=1, extra={"rowCount": 2, "other": 3}).to_json() == {"rowCount": 1, "other": 3}


def test_an_error_in_a_nested_record_names_it() -> None:
    with pytest.raises(CorruptLogError, match=r"inner\.theName is missing"):
        Outer.from_json({"inner": {}})


def test_values_in_messages_stay_short() -> None:
    nest: list[object] = []
    for _ in range(100_000):
        nest = [nest]
    assert shown(nest) == "[[[...]]]"
    assert len(shown([["x" * 1000] * 1000] * 1000)) == 60
    assert len(shown("x" * 1000)) == 60
