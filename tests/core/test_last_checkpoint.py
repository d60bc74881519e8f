from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import CorruptLogError
from lakelog.core.last_checkpoint import LastCheckpoint, json_checksum

SAMPLE = (
    """{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", """
    """"k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"""
)


def test_the_checksum_of_the_protocols_sample() -> None:
    assert json_checksum(SAMPLE) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_numbers_count_as_they_are_spelled_and_keys_sort_by_bytes() -> None:
    assert json_checksum('{"a":1.0,"b":true,"c":null}') == json_checksum('{"c":null,"b":true,"a":1.0}')
    assert json_checksum('{"a":1.0}') != json_checksum('{"a":1}')


counts = st.one_of(st.none(), st.integers(0, 2**63 - 1))


@given(
    st.builds(
        LastCheckpoint,
        version=st.integers(0, 2**63 - 1),
        size=st.integers(0, 2**63 - 1),
        parts=counts,
        size_in_bytes=counts,
        num_of_add_files=counts,
        tags=st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")), max_size=3),
    )
)
def test_what_is_written_is_read_back(hint: LastCheckpoint) -> None:
    assert LastCheckpoint.from_bytes(hint.to_bytes()) == hint


def test_fields_of_other_writers_are_part_of_the_checksum() -> None:
    fields = {"version": 3, "size": 4, "checkpointSchema": {"type": "struct", "fields": [{"name": "é / x"}]}}
    fields["checksum"] = json_checksum(json.dumps(fields))
    assert LastCheckpoint.from_bytes(json.dumps(fields).encode()).version == 3
    fields["checkpointSchema"] = {"type": "struct", "fields": []}
    with pytest.raises(CorruptLogError, match="checksum"):
        LastCheckpoint.from_bytes(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe{}",
        b'{"size":3}',
        b'{"version":"3","size":3}',
        b'{"version":-1,"size":3}',
        b'{"version":3.0,"size":3}',
        b'{"version":99999999999999999999,"size":3}',
        b'{"version":3,"version":4,"size":3}',
        b'{"version":3,"size":3,"checksum":"00000000000000000000000000000000"}',
        b'{"version":3,"size":3,"x":NaN}',
        b'{"version":3,"size":3,"x":"\\ud800","checksum":"0"}',
        b'{"version":' + b"9" * 5000 + b',"size":3}',
        b'{"version":3,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_damaged_hint_is_an_error_of_its_own(data: bytes) -> None:
    with pytest.raises(CorruptLogError):
        LastCheckpoint.from_bytes(data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(CorruptLogError):
        LastCheckpoint.from_bytes(data)
