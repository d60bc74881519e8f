from __future__ import annotations

import pyarrow as pa
import pytest

from lakelog.core.errors import CorruptLogError, PathEscapesTableError
from lakelog.core.file_columns import DELETION_VECTOR, FILES_SCHEMA, STRING_MAP, conform, structs_to_files

ROWS = [[("a", "1"), ("b", None)], None, [], [("c", "3")], [("d", "4"), ("e", "5")]]


@pytest.mark.parametrize("bounds", [(0, 5), (1, 4), (3, 2), (2, 0)])
def test_maps_of_other_writers_keep_their_rows_also_when_sliced(bounds: tuple[int, int]) -> None:
    other = pa.map_(pa.field("k", pa.large_string(), nullable=False), pa.field("v", pa.large_string()))
    start, length = bounds
    array = pa.array(ROWS, other).slice(start, length)
    conformed = conform(array, STRING_MAP)
    conformed.validate(full=True)
    assert conformed.type.equals(STRING_MAP)
    assert conformed.to_pylist() == ROWS[start : start + length]


def test_structs_are_rebuilt_by_name() -> None:
    other = pa.struct(
        [("cardinality", pa.int32()), ("maxRowIndex", pa.int64()), ("storageType", pa.string()), ("pathOrInlineDv", pa.string())]
    )
    array = pa.array([{"cardinality": 3, "maxRowIndex": 9, "storageType": "u", "pathOrInlineDv": "x"}, None], other)
    assert conform(array, DELETION_VECTOR).to_pylist() == [
        {"storageType": "u", "pathOrInlineDv": "x", "offset": None, "sizeInBytes": None, "cardinality": 3},
        None,
    ]


def test_dictionaries_and_narrow_numbers_are_taken_for_what_they_hold() -> None:
    assert conform(pa.array(["a", None, "a"]).dictionary_encode(), pa.string()).to_pylist() == ["a", None, "a"]
    assert conform(pa.array([1, None], pa.int32()), pa.int64()).to_pylist() == [1, None]
    with pytest.raises(pa.ArrowInvalid):
        conform(pa.array([1.5]), pa.int64())


def adds(*paths: str) -> pa.StructArray:
    rows = [{"path": path, "partitionValues": [], "size": 1, "modificationTime": 2} for path in paths]
    return pa.array(
        [None, *rows], pa.struct([FILES_SCHEMA.field(name) for name in ("path", "partitionValues", "size", "modificationTime")])
    )


def test_two_spellings_of_one_path_have_one_key() -> None:
    batch = structs_to_files(adds("p=1/a%20b", "/tables/t/p=1/a b", "file:/tables/t/p=1/a%20b"), "/tables/t")
    assert set(batch["key"].to_pylist()) == {"p=1/a b|"}


def test_a_path_out_of_the_table_is_refused() -> None:
    with pytest.raises(PathEscapesTableError):
        structs_to_files(adds("ok", "../other"), "/tables/t")


def test_a_column_that_does_not_fit_is_named() -> None:
    rows = pa.array([{"path": "a", "size": [1]}])
    with pytest.raises(CorruptLogError, match=r"add\.size has type list"):
        structs_to_files(rows, "/tables/t")
